"""Print a configuration as TOML with the meaning of every field as a comment. The output can be loaded again."""

from __future__ import annotations

import json
import textwrap
from inspect import getdoc
from typing import Any

from pydantic import BaseModel

from rtl_core.config.models import RunConfig
from rtl_core.config.reward import RewardSection
from rtl_core.learning.reward import TERMS


def to_toml(config: RunConfig) -> str:
    """Return the complete effective configuration with comments, one table per section."""
    lines: list[str] = []
    for name in type(config).model_fields:
        lines += _table(f"[{name}]", getattr(config, name), "")
    return "\n".join(lines).lstrip() + "\n"


def _table(header: str, section: BaseModel, about: str | None) -> list[str]:
    """Lines of a table with its values, then of the tables that are in it."""
    lines, tables = ["", *_comment(about), header], list[str]()
    for key, field in type(section).model_fields.items():
        lines += _comment(field.description)
        value = getattr(section, key)
        if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for entry in value:
                tables += _table(f"[{header[:-1]}.{key}]]", entry, getdoc(type(entry)))
            continue
        lines.append(_line(key, value))
        if isinstance(section, RewardSection) and key == "weights":
            lines += [f"#   {term.name}: {term.about}" for term in TERMS.values()]
    return lines + tables


def _comment(text: str | None) -> list[str]:
    return textwrap.wrap(text or "", 110, initial_indent="# ", subsequent_indent="# ")


def _line(key: str, value: Any) -> str:
    return f"# {key} =" if value is None else f"{key} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, dict):
        entries = [f"{_value(str(name))} = {_value(entry)}" for name, entry in value.items()]
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(_value, value)) + "]"
    # A scalar of TOML is written as in JSON, except that TOML also forbids the control character DEL.
    return json.dumps(value, default=str, ensure_ascii=False).replace("\x7f", "\\u007f")
