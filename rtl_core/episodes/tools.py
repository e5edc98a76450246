"""The tools of an episode: what a model can call, and the results that it reads.

A tool is a class: its docstring and fields describe it to the model, its method `run` does the work. An
executor runs programs on a copy of the workspace, never together with the harness. Use another executor
than the grader's, so that no sandbox in which a model's program ran ever judges an answer.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from rtl_core.config.episode import Bounds
from rtl_core.episodes.workspace import CallError, Workspace, shortened
from rtl_core.prompting.calls import Call
from rtl_grader.grading.executors.base import Executor, Job, Step, StepResult
from rtl_grader.grading.jobs import SOURCE_SUFFIXES
from rtl_grader.grading.limits import Limits
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem

INSIDE = Path(__file__).parent / "inside"
_OVERRUNS = {
    "wall": "it took longer than {:g} s",
    "cpu": "it used more than {:g} s of CPU time",
    "asleep": "it slept for {:g} s",
    "memory": "it used too much memory",
    "processes": "it started too many processes",
    "output": "it wrote too much output",
}
# What programs print about the machine and the time that they took: noise to a model, and another text each time.
_VARIES = re.compile(
    r"^- (?:V e r i l a t i o n|Verilator:) .*\n?"
    r"|^.* INFO +gpi +.*\n"
    r"|^.* INFO +cocotb +Initialized cocotb .*\n"
    r"|(?<=\S)(?: +[\d.einfa-]+ +[\d.einfa-]+|  REAL TIME \(s\)  RATIO \(ns/s\))(?= +\*\*$)",
    re.MULTILINE,
)
_LINT = ("verilator", "--lint-only", "-Wall", "-Wno-fatal", "--timing", "-Irtl")
# Without the gate that guards graded simulations: here a test bench may call any system task.
_PAST_THE_GATE = 'PATH="${PATH#*:}" exec vvp -n /tmp/simulation'


@dataclass(frozen=True)
class Result:
    """The result of a call, as the model reads it."""

    text: str
    ok: bool
    """False if the call could not be carried out, or a program failed."""
    seconds: float = 0.0
    """Wall time of the call."""
    used_s: float = 0.0
    """CPU time and sleep of its programs."""


Judge = Callable[[Answer], str | None]
"""Returns the grader's feedback on an answer that failed, or None if it passed."""
_ERROR = "error: "


def _as_list(value: Any) -> Any:
    """Accept a list of paths also as text, in JSON or separated by spaces, because some call formats
    support only text."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return json.loads(value)
    return value.replace(",", " ").split()


Files = Annotated[list[str], BeforeValidator(_as_list)]
Top = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_$]*$")]


class Tool(BaseModel):
    """Base of all tools; the fields are the arguments."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)
    needs: ClassVar[str | None] = None
    """A module that the sandbox's Python must have."""

    def run(self, bench: Toolbox) -> str:
        raise NotImplementedError


class List(Tool):
    """List the files of the workspace with their sizes, and say which are asked for."""

    under: str = ""
    """A directory; all files where it is left out."""

    def run(self, bench: Toolbox) -> str:
        return bench.workspace.listing(self.under)


class Read(Tool):
    """Read a text file, whole or some of its lines."""

    path: str
    first: int = 1
    """The first line, from 1."""
    last: int | None = None
    """The last line; the file's last where it is left out."""

    def run(self, bench: Toolbox) -> str:
        return bench.workspace.read(self.path, self.first, self.last)


class Write(Tool):
    """Create a file, or replace it whole."""

    path: str
    content: str

    def run(self, bench: Toolbox) -> str:
        return bench.workspace.write(self.path, self.content)


class Replace(Tool):
    """Replace text in a file. `old` must stand in it exactly once, as written, spaces included."""

    path: str
    old: str
    new: str

    def run(self, bench: Toolbox) -> str:
        return bench.workspace.replace(self.path, self.old, self.new)


class Compile(Tool):
    """Compile the design with Icarus Verilog and, where it is installed, let Verilator check its style."""

    top: Top | None = None
    """The top module; found by the compiler where it is left out."""
    files: Files | None = None
    """Sources; all .v and .sv in rtl/ where they are left out."""

    def run(self, bench: Toolbox) -> str:
        sources = bench.sources(self.files or None)
        build = ("iverilog", *_icarus(self.top), "-Wall", "-t", "null", *sources)
        steps = [Step("iverilog", build, cwd="/code")]
        if "verilator" in bench.tools:
            top = ("--top-module", self.top) if self.top else ()
            steps.append(Step("verilator", (*_LINT, *top, *sources), cwd="/code"))
        return bench.programs(steps, stop_at_failure=True)


class Simulate(Tool):
    """Simulate with a test bench of yours: a Verilog file, or a Python file with cocotb tests.

    It runs in rundir/ with Icarus Verilog. Files that it writes are gone afterwards, so let it print what
    you want to know.
    """

    bench: str
    """The test bench: a .v, .sv or .py file that you wrote, such as verif/tb.sv."""
    top: Top | None = Field(
        default=None,
        description=(
            "The top module: of a Verilog bench the bench's own (found by the compiler "
            "where left out), for cocotb the design's (needed)."
        ),
    )
    files: Files | None = None
    """Sources beside the bench; all .v and .sv in rtl/ where they are left out."""

    def run(self, bench: Toolbox) -> str:
        path = bench.workspace.existing(self.bench)
        sources = bench.sources(self.files)
        if path.endswith(".py"):
            if self.top is None:
                raise CallError("a cocotb bench needs `top`, the design's top module")
            argv = ("python3", "/code/src/simulate.py", self.top, path, *sources)
            return bench.programs([Step("cocotb", argv, cwd="/code")], script="simulate.py")
        files = dict.fromkeys([*sources, path])
        build = ("iverilog", *_icarus(self.top), "-o", "/tmp/simulation", *files)
        steps = [
            Step("iverilog", build, cwd="/code"),
            Step("vvp", ("sh", "-c", _PAST_THE_GATE)),
        ]
        return bench.programs(steps, stop_at_failure=True)


class Synthesize(Tool):
    """Synthesize the design with Yosys: errors, warnings, and how many cells there are of each kind
    ($_DLATCH_... are latches)."""

    needs = "pyosys"
    top: Top
    """The top module."""
    files: Files | None = None
    """Sources; all .v and .sv in rtl/ where they are left out."""

    def run(self, bench: Toolbox) -> str:
        argv = (
            "python3",
            "/code/src/synthesize.py",
            self.top,
            *bench.sources(self.files or None),
        )
        return bench.programs([Step("yosys", argv, cwd="/code")], script="synthesize.py")


class Submit(Tool):
    """Hand in the files that are asked for, as they are now, and end."""

    def run(self, bench: Toolbox) -> str:
        answer = bench.workspace.answer()
        if not answer.files:
            targets = ", ".join(bench.workspace.targets)
            raise CallError(f"none of the files that are asked for was written: {targets}")
        words = bench.submit(answer)
        return "submitted" if words is None else f"{words}\nCorrect it, and submit again."


TOOLS: dict[str, type[Tool]] = {
    kind.__name__.lower(): kind
    for kind in (List, Read, Write, Replace, Compile, Simulate, Synthesize, Submit)
}


class Toolbox:
    """The tools over one workspace."""

    def __init__(
        self, problem: Problem, executor: Executor, bounds: Bounds, judge: Judge | None = None
    ) -> None:
        """`executor`: not the grader's. `judge` grades attempts other than the last one; None: there is one attempt."""
        self.workspace = Workspace.of(problem, bounds)
        self.bounds = bounds
        self.tools = executor.tools()
        self.offered = {
            name: kind
            for name, kind in TOOLS.items()
            if (bounds.tools is None or name in bounds.tools)
            and (kind.needs is None or executor.has_module(kind.needs))
        }
        self.submitted = False
        """Whether the last allowed answer was submitted, or one that passed."""
        self.attempts = 0
        self.used_s = 0.0
        """CPU time and sleep of the programs of all calls."""
        self._executor, self._judge = executor, judge

    def call(self, call: Call) -> Result:
        """Carry out a call with any content. Raises InfrastructureError if the sandbox fails."""
        started, used_s, self._failed = time.monotonic(), self.used_s, False
        try:
            text, ok = self._tool(call).run(self), not self._failed
        except CallError as error:
            text, ok = f"{_ERROR}{error}", False
        text = shortened(text, self.bounds.result_bytes)
        return Result(text, ok, time.monotonic() - started, self.used_s - used_s)

    def again(self, call: Call | None, result: Result) -> None:
        """Restore the effect of a recorded call (None: a turn without tools). Programs change no files, so
        they are not run again; answers are not graded again."""
        self.used_s += result.used_s
        if call is not None and call.name != "submit":
            if result.ok and call.name in ("write", "replace"):
                self.call(call)
        elif result.ok or not result.text.startswith(_ERROR):  # it was carried out
            self.attempts += 1
            self.submitted = result.ok

    def submit(self, answer: Answer) -> str | None:
        """Submit an answer; return the grader's feedback if it fails and another attempt is allowed. Raises
        what the judge raises."""
        self.attempts += 1
        words = None
        if self._judge is not None and self.attempts < self.bounds.attempts:
            words = self._judge(answer)
        self.submitted, self._failed = words is None, words is not None
        return words

    def _tool(self, call: Call) -> Tool:
        if call.name not in self.offered:
            names = ", ".join(self.offered)
            raise CallError(f"there is no tool {call.name[:60]!a}; the tools are {names}")
        size = len(call.arguments.encode("utf-8", "replace"))
        if size > self.bounds.argument_bytes:
            raise CallError(
                f"the arguments have {size:,} bytes, more than {self.bounds.argument_bytes:,}"
            )
        try:
            # Models write line breaks in strings of code.
            arguments = json.loads(call.arguments or "{}", strict=False)
        except (ValueError, RecursionError) as error:
            raise CallError(f"the arguments are no JSON: {error}") from error
        kind = self.offered[call.name]
        try:
            return kind.model_validate(arguments)
        except (ValueError, RecursionError) as error:
            reasons = str(error)
            if isinstance(error, ValidationError):
                reasons = "; ".join(map(_reason, error.errors()[:5]))
            takes = ", ".join(kind.model_fields) or "no argument"
            raise CallError(f"{call.name} takes {takes}; {reasons}") from error

    def sources(self, files: Sequence[str] | None) -> list[str]:
        """The paths of the sources to compile."""
        if files is not None:
            return [self.workspace.existing(path) for path in files]
        sources = [path for path in self.workspace.files if path.startswith("rtl/")]
        sources = sorted(path for path in sources if path.endswith(SOURCE_SUFFIXES))
        if not sources:
            raise CallError("there is no source: rtl/ holds no .v or .sv file")
        return sources

    def programs(
        self, steps: Sequence[Step], *, stop_at_failure: bool = False, script: str | None = None
    ) -> str:
        """Run programs one after the other on the workspace and return their output. `script`: a file of
        `inside` to put in src/."""
        bounds = self.bounds
        left_s = bounds.seconds - self.used_s
        if left_s <= 0:
            raise CallError(f"the {bounds.seconds:g} s of programs are used up")
        most_s = min(bounds.call_seconds, left_s)
        output_kb = max(4, 2 * bounds.result_bytes >> 10)
        limits = Limits(
            wall_s=most_s, cpu_s=most_s, memory_mb=2048, output_kb=output_kb, output_mb=16
        )
        job = Job(
            files=self.workspace.files,
            harness={f"src/{script}": (INSIDE / script).read_text()} if script else {},
            steps=tuple(steps),
            limits=limits,
            budget_s=most_s,
            stop_at_failure=stop_at_failure,
            trusted=False,
        )
        results = self._executor.run(job).steps
        self.used_s += sum(result.cpu_s + result.asleep_s for result in results)
        self._failed = any(result.exit_code != 0 for result in results)
        each = max(bounds.result_bytes // len(results) - 100, 200)
        return "\n".join(shortened(_describe(result, most_s), each) for result in results)


def _describe(result: StepResult, most_s: float) -> str:
    """Name, status and output of a program."""
    if result.overrun:
        end = f"stopped, {_OVERRUNS[result.overrun].format(most_s)}"
    else:
        end = "done" if result.exit_code == 0 else f"failed with exit code {result.exit_code}"
    output = _VARIES.sub("", result.output).rstrip()
    return f"{result.name}: {end}\n{output or '(no output)'}"


def _reason(error: Mapping[str, Any]) -> str:
    """An argument and why it is refused, as pydantic says it."""
    place = ".".join(map(str, error["loc"]))
    return f"{place}: {error['msg']}" if place else error["msg"]


def _icarus(top: str | None) -> tuple[str, ...]:
    return ("-g2012", "-I", "rtl", *(("-s", top) if top else ()))


def definitions(tools: Mapping[str, type[Tool]] = TOOLS) -> list[dict[str, Any]]:
    """Tools in the format of chat templates and endpoints: name, description, JSON schema of the arguments."""
    return [
        {"type": "function", "function": _definition(name, kind)}
        for name, kind in tools.items()
    ]


def _definition(name: str, kind: type[Tool]) -> dict[str, Any]:
    properties = {}
    for key, schema in kind.model_json_schema().get("properties", {}).items():
        options = [option for option in schema.pop("anyOf", ()) if option.get("type") != "null"]
        schema = {**options[0], **schema} if options else schema
        properties[key] = {k: v for k, v in schema.items() if k not in ("title", "default")}
    required = [key for key, field in kind.model_fields.items() if field.is_required()]
    parameters = {"type": "object", "properties": properties, "required": required}
    return {
        "name": name,
        "description": " ".join((kind.__doc__ or "").split()),
        "parameters": parameters,
    }
