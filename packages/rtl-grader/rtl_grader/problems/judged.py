"""Problems whose golden answer is the judge: an answer passes if it behaves like the golden one.

Such a problem's harness holds one service and `JUDGE_FILE`: what to judge, and how. The grader adds the rest
(rtl_grader.traces): the test bench that drives both designs apart from each other, and the comparison of
what they give.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from rtl_grader.digest import sha256_of
from rtl_grader.hdl.interface import parse_interface
from rtl_grader.hdl.text import WORD, code_of, modules
from rtl_grader.problems.interface import documents
from rtl_grader.problems.module_header import HeaderRule, with_header
from rtl_grader.problems.service import compose_file
from rtl_grader.types.files import Files
from rtl_grader.types.problem import InterfaceSource, Problem
from rtl_grader.types.section import Section

JUDGE_FILE = "src/judge.json"
_TYPE = re.compile(r"\b([A-Za-z_]\w*)\s*(?:#\s*\(|\s[A-Za-z_\\])")
"""A word before a parameter list or a name: the module of an instance, a type or a keyword."""


class Judging(Section):
    """How the golden answer judges others, beside the simulation under fixed seeds."""

    proof: Literal["never", "undecided", "passes"] = "never"
    """When equality is proved by model checking. `undecided`: where the simulation gives no result, so that
    only a proof passes an answer. `passes`: also for answers that the simulation passes."""
    proof_share: float = Field(default=1.0, gt=0, le=1)
    """Share of the answers to prove, chosen by the hash of their text."""
    proof_cpu_s: float = Field(default=10.0, gt=0)
    """CPU seconds for each proof."""
    valid: str | None = None
    """Latency tolerance: name of the one-bit output that marks values. The values of the other outputs while it
    is 1 are compared in order, whenever they come. By default outputs are compared at every time."""


@dataclass(frozen=True)
class Compilation:
    """What the golden answer and every other one are compiled with."""

    files: Sequence[str] = ()
    """Files of the context that are compiled, in this order, before the answer."""
    include: Sequence[str] = ()
    """Further folders of the workspace that are searched for included files, beside `rtl`."""
    define: Mapping[str, str] = field(default_factory=dict)
    """Macro -> its text."""


PLAIN = Compilation()


def judged_problem(
    *,
    prompt: str,
    golden: Files,
    top: str,
    context: Files | None = None,
    compilation: Compilation = PLAIN,
    judging: Judging | None = None,
    header: HeaderRule = "never",
    **fields: Any,
) -> Problem:
    """A problem that its golden answer judges.

    Args:
        golden: path in the workspace (`rtl/x.sv`) -> text; its paths are the targets.
        context: files that the model sees and that are in the workspace, such as packages and headers.
        header: whether the golden module's header is appended to the prompt.
        fields: the other fields of `Problem`: `id`, `source`, `category`, `difficulty`, perhaps `origin`, ...

    The interface demands the parameters of the module's header that the prompt or a document names.
    Raises ValueError when the golden answer's interface cannot be read.
    """
    context = dict(context or {})
    settings = {
        "top": top,
        "design": list(golden),
        "compiled": list(compilation.files),
        "include": list(compilation.include),
        "define": dict(compilation.define),
        "judging": (judging or Judging()).model_dump(),
        "golden": sha256_of(sorted(golden.items())),
    }
    files = " ".join(f"/code/{path}" for path in [*compilation.files, *golden])
    harness = {
        "docker-compose.yml": compose_file("judge", "python3 /src/judge.py"),
        "src/.env": f"SIM = icarus\nTOPLEVEL_LANG = verilog\nVERILOG_SOURCES = {files}\nTOPLEVEL = {top}\n",
        JUDGE_FILE: json.dumps(settings) + "\n",
    }
    macros = "".join(f"`define {name} {value}\n" for name, value in compilation.define.items())
    sources = {**({"macros.v": macros} if macros else {}), **context, **golden}
    interface = parse_interface(
        sources, top, InterfaceSource.GOLDEN, keep=lambda name, in_header: in_header
    )
    if interface is None:
        raise ValueError(
            "the ports of the golden answer's module cannot be read: does each parameter have a default?"
        )
    prompt = with_header(prompt, "\n".join(golden.values()), interface, header)
    if interface.parameters:
        named = {word for text in documents(prompt, context) for word in WORD.findall(text)}
        parameters = tuple(one for one in interface.parameters if one.name in named)
        interface = interface.model_copy(update={"parameters": parameters})
    return Problem(
        prompt=prompt,
        context=context,
        targets=tuple(golden),
        harness=harness,
        golden=dict(golden),
        interface=interface,
        **fields,
    )


def is_judged(harness: Files) -> bool:
    """Whether the golden answer is the judge of a problem with this harness."""
    return JUDGE_FILE in harness


def surroundings(problem: Problem) -> dict[str, Any]:
    """What a row for the source `pairs` says of the files and settings beside the golden answer.

    Returns: `context`, which begins with the files to compile, in their order; and `include` and `define` if the
    golden answer is compiled with them.
    """
    context = {
        path: text for path, text in problem.context.items() if path not in problem.targets
    }
    if not is_judged(problem.harness):
        return {"context": context}
    settings = json.loads(problem.harness[JUDGE_FILE])
    compiled = {path: context[path] for path in settings["compiled"]}
    row: dict[str, Any] = {"context": {**compiled, **context}}
    for key in ("include", "define"):
        if settings[key]:
            row[key] = settings[key]
    return row


def tops_of(text: str) -> list[str]:
    """The modules of a text that no other one of it instantiates; all of them if each is instantiated."""
    units = [unit for unit in modules(code_of(text)) if unit.name]
    names = [unit.name for unit in units]
    if len(units) == 1:
        return names
    used = {word for unit in units for word in _TYPE.findall(unit.body)}
    return [name for name in names if name not in used] or names
