"""Values of parameters that a harness reads from the design and does not set: the design may not choose them freely.

A test bench that asks `dut.WIDTH` how wide the design is believes the answer: a design of one bit would pass most of them. So
such a parameter keeps the default of the golden answer, the specification, or the file that is to be changed, unless the
prompt names another number for it. Where the default is computed from parameters that the harness does set, it follows them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rtl_core.problems.harness_use import harness_use
from rtl_core.problems.interface import HDL_SUFFIXES, derive_interface, parse_interface
from rtl_core.types.problem import Interface, InterfaceSource, Problem

_NUMBER = re.compile(r"(?<![\w'+*/-])(?<![+*/-]\s)\d+(?![\w'])")


def demanded_values(problem: Problem, settings: Mapping[str, int] | None = None) -> dict[str, list[int]]:
    """Name -> values that are right once the harness has set `settings`, the default first; empty where nothing is known.
    Parses the problem's own files.
    """
    if problem.interface is None:
        return {}
    # A harness may call the design otherwise than `dut`, and guard what it reads.
    python = "\n".join(text for path, text in problem.harness.items() if path.endswith(".py"))
    read = harness_use(problem.harness).parameters & set(re.findall(r"\.(\w+)", python))
    if not read:
        return {}
    given = {path: text for path, text in problem.context.items() if path.endswith(HDL_SUFFIXES)}
    module, demand = problem.interface.module, problem.interface
    before = parse_interface(given, module, InterfaceSource.CONTEXT, settings) if given else None
    if settings:
        demand = _with(problem, settings) or demand
    known = (*(before.parameters if before else ()), *demand.parameters)
    defaults = {p.name: p.default for p in known if p.default is not None}
    lines = problem.prompt.splitlines()
    return {
        name: [default, *(int(n) for line in lines if re.search(rf"\b{name}\b", line) for n in _NUMBER.findall(line))]
        for name, default in defaults.items()
        if name in read
    }


def _with(problem: Problem, settings: Mapping[str, int]) -> Interface | None:
    return derive_interface(
        prompt=problem.prompt,
        context=problem.context,
        targets=problem.targets,
        harness=problem.harness,
        golden=problem.golden,
        parameters=settings,
    )
