"""The noun *problem*: its prompt, the files that answer it, and its harness."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, Field

from rtl_grader.digest import sha256_of

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
"""CVDP categories that can be graded by simulation."""
MASKED = "[MASKED]"
"""What stands in a `Problem.frame` in the place of the part to write."""


class InterfaceSource(StrEnum):
    """Source of a required interface, from most to least trusted."""

    GOLDEN = "golden"
    CONTEXT = "context"
    SPECIFICATION = "specification"
    HARNESS = "harness"


class Port(BaseModel, frozen=True):
    """One port of a module. `direction`, `width` (bits) and `form` are None if the source does not specify them."""

    name: str
    direction: Direction | None = None
    width: int | None = Field(default=None, ge=1)
    form: str | None = None
    """Type beside the width: `vector`, `signed vector` (outputs), `array [0:1]`, an interface with its
    modport, or another type such as `real`."""

    @property
    def packed(self) -> str:
        """Range for a declaration with a trailing space, `[7:0] `. Empty for one bit and for an unknown width."""
        return f"[{self.width - 1}:0] " if self.width and self.width > 1 else ""


class Parameter(BaseModel, frozen=True):
    """One overridable parameter of a module. `default` is None if it is unknown or not an integer."""

    name: str
    default: int | None = None
    is_type: bool = False
    """Whether its value is a data type."""


class Interface(BaseModel, frozen=True):
    """Required interface of a problem's top module."""

    module: str
    ports: tuple[Port, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    source: InterfaceSource
    exact: bool = True
    """Whether additional ports are an error. False if the source, such as a harness, names only some ports."""

    @property
    def inputs(self) -> list[Port]:
        return [port for port in self.ports if port.direction == "input"]

    @property
    def outputs(self) -> list[Port]:
        return [port for port in self.ports if port.direction == "output"]


class Problem(BaseModel, frozen=True):
    """One problem of any set. All paths are relative to the CVDP workspace (`rtl/x.sv`, ...)."""

    id: str
    source: str
    """Name of the problem set: `starter`, `cvdp`, `cvdp-agentic`, `verilog-eval`, `rtllm`, `synthetic`."""
    category: str
    """CVDP category, for example `cid003`."""
    difficulty: Difficulty
    family: str | None = None
    """Family within the set, such as `adder` or `fifo`."""
    system: str | None = None
    """System message of the problem."""
    prompt: str
    request: str = ""
    """The user message that its set publishes, if `prompt` with the context is another; for `published` prompts."""
    edition: str = ""
    """SHA-256 (hex) of the published texts, if the harness was made of them; see problems/errata.py."""
    context: dict[str, str] = {}
    """Mapping of path to text of the files shown to the model. They are in the workspace before the answer."""
    targets: tuple[str, ...]
    """Paths of the files that an answer may write."""
    harness: dict[str, str]
    """Mapping of path to text of the harness files. They are written last and overwrite others."""
    golden: dict[str, str] | None = None
    """Mapping of path to complete text of a known-good answer."""
    frame: dict[str, str] = {}
    """Path of a target -> its text with `MASKED` once. An answer writes what stands there, or the whole file."""
    interface: Interface | None = None
    origin: str = ""
    """What the problem was made of: a project, a file or a row."""
    licence: str = ""
    """Licence of what it was made of, as its source states it."""
    generated: bool = False
    """Whether the source generated the problem with its harness. The splits of such a source share no
    specification, even if texts are similar, and its harness must detect nearly all wrong designs."""

    @property
    def has_whole_golden(self) -> bool:
        """Whether the known-good answer contains every target."""
        golden = self.golden or {}
        return bool(golden) and golden.keys() >= set(self.targets)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of everything shown to the model and of the harness. The id is not included."""
        parts = {
            "system": self.system,
            "prompt": self.prompt,
            "context": self.context,
            "targets": self.targets,
            "harness": self.harness,
        }
        if self.frame:
            parts["frame"] = self.frame
        if self.request:
            parts["request"] = self.request
        return sha256_of(parts)
