"""Problem sources as they are written on a command line: `starter`, `cvdp=PATH`, `verilog-eval=PATH`, `rtllm=PATH`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from rtl_core.config.models import ProblemsSection, Source
from rtl_core.errors import ConfigError

KINDS = ("starter", "cvdp", "verilog-eval", "rtllm")


def source_of(text: str) -> Source:
    """`kind=path` (or `starter`) as a configuration's source, nothing held out but of the starter set.

    Raises ConfigError when the kind is unknown, or when there is nothing at the path.
    """
    kind, _, path = text.partition("=")
    if kind not in KINDS:
        raise ConfigError(f"--source {text}: there is no source {kind!r}", f"choose one of {', '.join(KINDS)}")
    if kind == "starter":
        return TypeAdapter(Source).validate_python({"kind": kind, **({"tier": path} if path else {})})
    if not path:
        raise ConfigError(f"--source {text}: where is it?", f"write {kind}=PATH")
    if not Path(path).exists():
        raise ConfigError(f"--source {text}: there is no {path}", "check the path")
    return TypeAdapter(Source).validate_python({"kind": kind, "path": path, "heldout_fraction": 0.0})


def section_of(texts: Sequence[str]) -> ProblemsSection:
    """The sources of a command line as a configuration's section."""
    return ProblemsSection(sources=tuple(source_of(text) for text in texts))


def override_of(texts: Sequence[str]) -> str:
    """The same as a `--set` text, for a flow that takes a configuration and overrides."""
    entries = [source_of(text).model_dump(mode="json") for text in texts]
    tables = (
        "{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in entry.items()) + "}" for entry in entries
    )
    return f"problems.sources=[{', '.join(tables)}]"
