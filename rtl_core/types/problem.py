"""The noun *problem*: what is asked, what may be answered, how the answer is judged."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Direction = Literal["input", "output", "inout"]
Difficulty = Literal["easy", "medium", "hard"]
CATEGORIES = {
    "cid002": "completion",
    "cid003": "specification to RTL",
    "cid004": "modification",
    "cid005": "module reuse",
    "cid007": "lint and quality of results",
    "cid016": "debugging",
}
"""CVDP's categories that a simulator can judge."""


class InterfaceSource(StrEnum):
    """Where a demanded interface was read, from most to least trusted."""

    GOLDEN = "golden"
    CONTEXT = "context"
    SPECIFICATION = "specification"
    HARNESS = "harness"


class Port(BaseModel):
    """One port of a module. `direction` or `width` (bits) is None where the source does not tell."""

    model_config = ConfigDict(frozen=True)
    name: str
    direction: Direction | None = None
    width: int | None = Field(default=None, ge=1)

    @property
    def packed(self) -> str:
        """The range of a declaration with a space behind it, `[7:0] `; empty for one bit and where the width is not known."""
        return f"[{self.width - 1}:0] " if self.width is not None and self.width > 1 else ""


class Parameter(BaseModel):
    """One overridable parameter of a module; `default` is None where the source does not tell or it is no integer."""

    model_config = ConfigDict(frozen=True)
    name: str
    default: int | None = None


class Interface(BaseModel):
    """The interface that a problem demands of its top module."""

    model_config = ConfigDict(frozen=True)
    module: str
    ports: tuple[Port, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    source: InterfaceSource
    exact: bool = True
    """Whether ports beyond those listed are an error (False when the source names only some, as a harness does)."""


class Problem(BaseModel):
    """One problem, whatever set it came from. All paths are relative to the CVDP workspace (`rtl/x.sv`, ...)."""

    model_config = ConfigDict(frozen=True)
    id: str
    source: str
    """Short name of the set: `starter`, `cvdp`, `cvdp-agentic`, `verilog-eval`, `rtllm`, `synthetic`."""
    category: str
    """CVDP's category, for example `cid003`."""
    difficulty: Difficulty
    family: str | None = None
    """Family within its set (`adder`, `fifo`, ...), or None."""
    system: str | None = None
    """System message that came with the problem, or None."""
    prompt: str
    context: dict[str, str] = Field(default_factory=dict)
    """Files that the model is shown and that stand in the workspace before the answer: path -> text."""
    targets: tuple[str, ...]
    """The only files that an answer may write."""
    harness: dict[str, str]
    """Files of the harness, written last, so that they win: path -> text."""
    golden: dict[str, str] | None = None
    """A known-good answer, whole files: path -> text."""
    interface: Interface | None = None
    generated: bool = False
    """Whether its source made the problem together with its harness. Splits of such a source share no specification, however alike
    they sound, and its harness must find nearly all wrong designs."""

    @property
    def has_whole_golden(self) -> bool:
        """Whether there is a known-good answer with every file that is asked for."""
        return bool(self.golden) and set(self.targets) <= set(self.golden or ())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over all that the model sees and all that judges it; the id is not part of it."""
        parts = {
            "system": self.system,
            "prompt": self.prompt,
            "context": self.context,
            "targets": self.targets,
            "harness": self.harness,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
