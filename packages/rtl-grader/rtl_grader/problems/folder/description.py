"""`problem.toml`: what cannot be guessed about a folder with a design and its bench."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator

from rtl_grader.types.section import Section

FILE = "problem.toml"
NO_ERROR = "no error"
"""The value of `pass` for a bench that passes a design by ending without an error."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_VALUE = re.compile(r"\w*")
Value = bool | int | str


class FolderError(ValueError):
    """Something about a folder that a user must mend: the key of `problem.toml`, or a file, and what to do."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place, self.reason = place, reason


class BenchKeys(Section):
    """The bench: one of `cocotb`, `verilog`, `makefile` and `equivalence`."""

    cocotb: str | None = None
    """A Python file with cocotb tests."""
    verilog: tuple[str, ...] = ()
    """Files of a Verilog or SystemVerilog bench, or globs of them, in the order of compilation."""
    makefile: str | None = None
    """A cocotb Makefile, or its folder. Its variables are read; it is not run."""
    equivalence: bool = False
    """There is no bench: the golden answer judges."""
    top: str | None = None
    """The top module of a Verilog bench."""
    parameters: tuple[dict[str, Value], ...] = ()
    """Sets of parameters; the cocotb tests are run with each."""
    plusargs: tuple[str, ...] = ()
    """Arguments of the simulation, such as `+SEED=1`."""
    passed: str | None = Field(default=None, alias="pass")
    """Regular expression that must match a line which the Verilog bench prints, or `no error`: the bench
    ends by `$finish` without `$error`, `$fatal`, a failing assertion or an exit code."""
    failed: str | None = Field(default=None, alias="fail")
    """Regular expression that must match no line which the Verilog bench prints."""

    @field_validator("passed", "failed")
    @classmethod
    def _is_pattern(cls, text: str | None) -> str | None:
        try:
            re.compile(text or "")
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}") from None
        return text

    @field_validator("plusargs")
    @classmethod
    def _have_plus(cls, arguments: tuple[str, ...]) -> tuple[str, ...]:
        if all(argument.startswith("+") for argument in arguments):
            return arguments
        raise ValueError("each begins with a plus, such as +SEED=1")


class Description(Section):
    """The keys of `problem.toml`. Paths are relative to its folder; all keys are optional."""

    spec: str | None = None
    """The specification: a file, or the text itself; by default spec.md, README.md, the only *.txt, or the comment
    above the module."""
    top: str | None = None
    """The module that an answer defines; by default the one that the bench instantiates."""
    answer: tuple[str, ...] = ()
    """Files that an answer writes, which hold the golden answer; by default the one that defines `top`."""
    given: tuple[str, ...] = ()
    """Files that are shown and compiled before the answer, in this order; by default those that it uses."""
    filelist: str | None = None
    """A file with the names of all sources, `+incdir+` and `+define+`, in place of `given`."""
    include: tuple[str, ...] = ()
    """Folders that are searched for included files."""
    define: dict[str, Value] = Field(default={})
    """Macros for design, bench, audit and mutants: name -> number or word."""
    data: tuple[str, ...] = ()
    """Files for the bench's working folder; by default those that a text names."""
    simulator: Literal["icarus", "verilator"] = "icarus"
    """The simulator of cocotb tests."""
    bench: BenchKeys = BenchKeys()
    """How an answer is judged."""

    @field_validator("define")
    @classmethod
    def _are_words(cls, define: dict[str, Value]) -> dict[str, Value]:
        for name, value in define.items():
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(str(value)):
                raise ValueError(f"{name} = {value!r} is not a name with a number or a word")
        return {name: number_of(value) for name, value in define.items()}


def number_of(value: Value) -> int | str:
    """A value as Verilog takes it: true is 1."""
    return int(value) if isinstance(value, bool) else value


def read_description(path: Path) -> Description:
    """Read a `problem.toml`. Raises FolderError with the key that is wrong."""
    try:
        return Description.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first, *_ = error.errors()
        key = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            model = BenchKeys if key.startswith("bench.") else Description
            fields = model.model_fields.items()
            names = ", ".join(field.alias or name for name, field in fields)
            reason = f"there is no such key; there are {names}"
        raise FolderError(key, reason) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FolderError("file", f"is not TOML: {error}") from None
