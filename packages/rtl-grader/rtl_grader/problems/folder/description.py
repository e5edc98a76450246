"""`problem.toml`: what cannot be guessed about a folder with a design and its bench."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from rtl_grader.problems.faults import FieldError, fault_of
from rtl_grader.types.section import Section
from rtl_grader.words import did_you_mean

NO_ERROR = "no error"
"""The value of `pass` for a bench that passes a design by ending without an error."""
_NONE = re.compile("")
FORMS = ("cocotb", "verilog", "makefile", "equivalence")
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]
Plusarg = Annotated[str, StringConstraints(pattern=r"^\+\S+$")]


def _is_word(value: int | str) -> int | str:
    if re.fullmatch(r"-?\w+", str(value)):
        return value
    raise ValueError(f"{value} is neither a number nor a word: state one")


Value = Annotated[int | str, AfterValidator(_is_word)]
"""A number (true is 1) or a word."""


def _in_a_list(value: object) -> object:
    """A text as a list of one."""
    return [value] if isinstance(value, str) else value


Paths = Annotated[tuple[str, ...], BeforeValidator(_in_a_list)]
"""Paths or globs; one may stand without a list."""


class BenchKeys(Section):
    """The bench: one of `cocotb`, `verilog`, `makefile` and `equivalence`."""

    cocotb: str = ""
    """A Python file with cocotb tests."""
    verilog: Paths = ()
    """Files of a Verilog or SystemVerilog bench, or globs of them, in the order of compilation."""
    makefile: str = ""
    """A cocotb Makefile, or its folder. Its variables are read; it is not run."""
    equivalence: bool = False
    """There is no bench: the golden answer judges."""
    top: str = ""
    """The top module of a Verilog bench."""
    parameters: tuple[dict[Name, Value], ...] = ()
    """Sets of parameters; the cocotb tests are run with each."""
    plusargs: tuple[Plusarg, ...] = ()
    """Arguments of the simulation, such as `+SEED=1`."""
    passed: re.Pattern[str] = Field(default=_NONE, alias="pass")
    """Regular expression that must match a line which the Verilog bench prints, or `no error`: the bench
    ends by `$finish` without `$error`, `$fatal`, a failing assertion or an exit code."""
    failed: re.Pattern[str] = Field(default=_NONE, alias="fail")
    """Regular expression that must match no line which the Verilog bench prints."""

    @model_validator(mode="after")
    def _has_one_form(self) -> BenchKeys:
        stated = [form for form in FORMS if getattr(self, form)]
        if len(stated) > 1:
            raise ValueError(f"name one of {', '.join(stated)}")
        return self


class Description(Section):
    """The keys of `problem.toml`. Paths are relative to its folder; all keys are optional."""

    spec: str = ""
    """The specification: a file, or the text itself; by default spec.md, README.md, the only *.txt, or the comment
    above the module."""
    top: str = ""
    """The module that an answer defines; by default the one that the bench instantiates."""
    answer: Paths = ()
    """Files that an answer writes, which hold the golden answer; by default the one that defines `top`."""
    given: Paths = ()
    """Files that are shown and compiled before the answer, in this order; by default those that it uses."""
    filelist: str = ""
    """A file with the names of all sources, `+incdir+` and `+define+`, in place of `given`."""
    include: Paths = ()
    """Folders that are searched for included files."""
    define: dict[Name, Value] = Field(default={})
    """Macros for design, bench, audit and mutants: name -> number or word."""
    data: Paths = ()
    """Files for the bench's working folder; by default those that a text names."""
    simulator: Literal["icarus", "verilator"] = "icarus"
    """The simulator of cocotb tests."""
    bench: BenchKeys = BenchKeys()
    """How an answer is judged."""


def read_description(path: Path) -> Description:
    """Read a `problem.toml`. Raises FieldError with the key that is wrong."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FieldError("file", f"is not TOML: {error}") from None
    except OSError as error:
        raise FieldError("file", f"cannot be read: {error.strerror}") from None
    return described(values)


def described(values: dict[str, Any]) -> Description:
    """A description by its keys. Raises FieldError with the key that is wrong."""
    try:
        return Description.model_validate(values)
    except ValidationError as error:
        fault = fault_of(error)
        first, *_ = error.errors()
    reason = fault.reason.replace("valid tuple", "list")
    if first["type"] == "extra_forbidden":
        name = fault.field.rpartition(".")[2]
        hint = did_you_mean(name, Description.model_fields, "docs/problems.md lists them")
        reason = f"there is no such key; {hint}"
    raise FieldError(fault.field, reason)
