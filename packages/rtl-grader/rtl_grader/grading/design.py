"""Prepares an answer's files for the tools: removes test benches and text by which tools could see different designs.

A test bench in the same file as the design is removed (hdl/benches.py), unless the problem asks for it or another file
names it. A harness that names its top level would not elaborate it. All other text and the line numbers stay.

Text of honest designs that tools read differently is made the same for all of them, not rejected (hdl/directives.py).
If a harness uses several tools, conditions on macros that only a tool may define are decided as in Icarus; if it
uses only Icarus, they stay. translate_off comments are disabled, and all lines end in one way. Assertion
control tasks, which Icarus lacks, are removed.
"""

from __future__ import annotations

import re
from posixpath import basename

from rtl_grader.extraction.answer_to import demanded_modules
from rtl_grader.grading.requirements import uses_several_tools
from rtl_grader.grading.screen import MAX_FILE_CHARS
from rtl_grader.hdl.benches import removable_benches
from rtl_grader.hdl.directives import macros_in_use, neutralise
from rtl_grader.hdl.text import emptied, words_of
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Problem

PASSES = 3
"""Passes over a file. A helper of a bench can be removed only in a pass after the bench."""

_HDL = (".v", ".sv")
_QUOTED = re.compile(r"[\"']([A-Za-z_]\w*)[\"']")


def as_graded(problem: Problem, files: Files) -> tuple[Files, list[str]]:
    """Return the files prepared for the tools (see the module), and a sentence for each test bench that was removed."""
    design, notes = without_test_benches(problem, files)
    several = uses_several_tools(problem.harness)
    macros: frozenset[str] = frozenset()
    if several:
        context, harness = problem.context.values(), problem.harness.values()
        macros = macros_in_use(design.values(), context, harness)
    for path, text in design.items():
        design[path] = neutralise(text, macros, several_tools=several)
    return design, notes


def without_test_benches(problem: Problem, files: Files) -> tuple[dict[str, str], list[str]]:
    """Return the answer's files without test benches, and a sentence for each bench that was removed."""
    result = dict(files)
    notes: list[str] = []
    names: set[str] | None = None
    for path, text in files.items():
        is_design = path.endswith(_HDL) and not path.startswith("verif/")
        if not is_design or len(text) > MAX_FILE_CHARS:
            continue
        for _ in range(PASSES):
            benches = removable_benches(result[path])
            if not benches:
                break
            if names is None:
                names = _names_in(problem)
            others = (words_of(text) for other, text in result.items() if other != path)
            required = names.union(*others)
            benches = [bench for bench in benches if bench.name not in required]
            if not benches:
                break
            spans = ((bench.start, bench.end) for bench in benches)
            result[path] = emptied(result[path], spans)
            for bench in benches:
                notes.append(f"{path}: the test bench {bench.name[:60]} was left out")
    return result, notes


def _names_in(problem: Problem) -> set[str]:
    """Names of modules that the problem asks for, and all words in the HDL beside the answer and in the harness."""
    names = set(demanded_modules(problem))
    names |= {basename(path).rsplit(".", 1)[0] for path in problem.targets}
    for path, text in problem.context.items():
        if path.endswith(_HDL) and path not in problem.targets:
            names |= words_of(text)
    for path, text in problem.harness.items():
        # Python code names a module in quotes; other words, as in `tb = TB(dut)`, are its own.
        is_python = path.endswith(".py")
        names |= set(_QUOTED.findall(text)) if is_python else words_of(text)
    return names
