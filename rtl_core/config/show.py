"""A configuration as TOML text with every field's meaning as a comment; what it prints can be loaded again."""

from __future__ import annotations

import textwrap
from inspect import getdoc
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rtl_core.config.grading import RewardSection
from rtl_core.config.models import RunConfig
from rtl_core.learning.reward import TERMS


def to_toml(config: RunConfig) -> str:
    """The whole effective configuration, commented, one table a section."""
    lines: list[str] = []
    for name in type(config).model_fields:
        section = getattr(config, name)
        lines += ["", f"[{name}]"]
        nested: list[tuple[str, BaseModel]] = []
        for key, field in type(section).model_fields.items():
            value = getattr(section, key)
            if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
                lines += _comment(field)
                nested += [(f"{name}.{key}", entry) for entry in value]
            else:
                lines += _entry(key, value, field)
                if isinstance(section, RewardSection) and key == "weights":
                    lines += [f"#   {term.name}: {term.about}" for term in TERMS.values()]
        for path, entry in nested:
            lines += ["", *_wrapped(getdoc(type(entry)) or ""), f"[[{path}]]"]
            for key, field in type(entry).model_fields.items():
                lines += _entry(key, getattr(entry, key), field)
    return "\n".join(lines).lstrip() + "\n"


def _comment(field: FieldInfo) -> list[str]:
    return _wrapped(field.description or "")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 110, initial_indent="# ", subsequent_indent="# ")


def _entry(key: str, value: Any, field: FieldInfo) -> list[str]:
    if value is None:
        return [*_comment(field), f"# {key} ="]
    return [*_comment(field), f"{key} = {_value(value)}"]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, Path)):
        escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_value(str(k))} = {_value(v)}" for k, v in value.items()) + "}"
    return repr(value)
