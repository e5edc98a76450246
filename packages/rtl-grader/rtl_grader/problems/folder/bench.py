"""Finds the bench of a folder, and the form of a Verilog bench's verdict."""

from __future__ import annotations

import re
from collections.abc import Sequence
from posixpath import basename
from typing import Any, NamedTuple

from rtl_grader.hdl.text import code_of, modules
from rtl_grader.hdl.tree import SourceTree, name_of, walk
from rtl_grader.problems.faults import FieldError
from rtl_grader.problems.folder.description import (
    FORMS,
    NO_ERROR,
    BenchKeys,
    Description,
)
from rtl_grader.problems.folder.files import Folder
from rtl_grader.problems.folder.make import make_variables
from rtl_grader.problems.testbench import BENCH_FILE, OwnVerdict, bench_modules
from rtl_grader.problems.testbench.rewrite import has_faults, printed
from rtl_grader.types.problem import Problem

_PASSES = re.compile(
    r"(?i)(?!.*\b(?:not|un\w+|fail\w*|did ?n.t)\b)"
    r".*\b(?:pass(?:ed|es)?|success(?:ful(?:ly)?)?|(?:no|0) errors?)\b"
)
_WHOLE = re.compile(r"\b(?:all|tests|testbench|simulation|bench)\b", re.I)
_FORMAT = re.compile(r"%-?[\d.]*[a-zA-Z]|\\.|\s+")
_MEANINGLESS = {
    "verilog": ["parameters"],
    "cocotb": ["top", "passed", "failed"],
    "makefile": ["top", "passed", "failed"],
    "equivalence": ["top", "passed", "failed", "parameters", "plusargs"],
}
"""Form of bench -> keys that it does not use."""


class BenchFiles(NamedTuple):
    """A bench."""

    form: str
    """`makefile`, `cocotb`, `verilog` or `equivalence`."""
    paths: Sequence[str] = ()
    """The Makefile, the Python file, or Verilog files."""
    duts: Sequence[str] = ()
    """Modules that it may be about."""


def find_bench(folder: Folder, stated: Description) -> BenchFiles:
    """The bench that is stated, else the only one that can be found. Raises FieldError for several, and for a
    key that it does not use."""
    keys = stated.bench
    forms = [form for form in FORMS if getattr(keys, form)]
    bench = _stated(folder, keys, forms[0]) if forms else _guess(folder, stated.top)
    for key in keys.model_fields_set.intersection(_MEANINGLESS[bench.form]):
        name = key.replace("passed", "pass").replace("failed", "fail")
        reason = f"has no meaning for a bench by {bench.form}: remove it"
        raise FieldError(f"bench.{name}", reason)
    return bench


def _stated(folder: Folder, keys: BenchKeys, form: str) -> BenchFiles:
    value = getattr(keys, form)
    if value is True:
        return BenchFiles(form)
    patterns = [value] if isinstance(value, str) else value
    if form == "makefile" and (folder.root / value).is_dir():
        patterns = [f"{value}/Makefile"]
    return _bench(folder, form, folder.glob(patterns, f"bench.{form}"))


def _guess(folder: Folder, top: str) -> BenchFiles:
    every = []
    for form, (path_pattern, is_bench, _) in _FORMS.items():
        paths = (path for path in folder.paths if re.fullmatch(path_pattern, path))
        found = (path for path in paths if is_bench(folder.text(path)))
        every += [_bench(folder, form, [path]) for path in found]
    if not every:
        return BenchFiles("equivalence")
    benches = [bench for bench in every if not top or top in bench.duts]
    if not benches:
        reason = f"none is about {top}: name one, or say equivalence = true"
        raise FieldError("bench", reason)
    form = benches[0].form
    same = [bench for bench in benches if bench.form == form]
    if len(same) > 1:
        choices = [bench.paths[0] for bench in same[:9]]
        choice = "; ".join(choices)
        raise FieldError(f"bench.{form}", f"there are several, name one ({choice})")
    return same[0]


def _bench(folder: Folder, form: str, paths: Sequence[str]) -> BenchFiles:
    text = "\n".join(map(folder.text, paths))
    *_, duts_of = _FORMS[form]
    return BenchFiles(form, paths, duts_of(paths[0], text))


def _tops(path: str, text: str) -> Sequence[str]:
    values = make_variables(text)
    if values.get("TOPLEVEL_LANG") == "vhdl":
        raise FieldError(path, "its top level is VHDL, which cannot be graded: give Verilog")
    return [values.get("COCOTB_TOPLEVEL") or values.get("TOPLEVEL", "")]


def _named(path: str, _: str) -> Sequence[str]:
    return [basename(path).removesuffix(".py").removeprefix("test_")]


def _instantiated(_: str, text: str) -> Sequence[str]:
    return bench_modules(text)[1]


def _has_bench(text: str) -> bool:
    return any(unit.is_bench for unit in modules(code_of(text)))


_TESTS = re.compile(r"^\s*(?:export\s+)?(?:COCOTB_TEST_MODULES|MODULE)\b", re.M)
_COCOTB = re.compile("cocotb")
_FORMS: dict[str, tuple[Any, ...]] = {
    "makefile": (r"(.*/)?Makefile", _TESTS.search, _tops),
    "cocotb": (r"(.*/)?test_\w+\.py", _COCOTB.search, _named),
    "verilog": (r".*\.s?v", _has_bench, _instantiated),
}
"""Form of bench -> (pattern of its path, whether a text is one, what it may be about by path and text). The first
form of which the folder has a bench is taken."""


def read_inside(problem: Problem) -> list[str]:
    """Names inside a design that its Verilog bench uses, without those of its ports."""
    text, interface = problem.harness.get(BENCH_FILE), problem.interface
    if not text or not interface:
        return []
    tree = SourceTree(text)
    names = []
    for instance in tree.of("HierarchyInstantiation"):
        if instance.type.rawText == interface.module:
            nodes = walk(instance)
            names += [node.name.rawText for node in nodes if name_of(node) == "InstanceName"]
    either = "|".join(names)
    uses = re.findall(rf"\b(?:{either})\s*\.\s*(\w+)", code_of(text))
    ports = {port.name for port in interface.ports}
    return sorted(set(uses) - ports)


def verdict_of(text: str, keys: BenchKeys) -> OwnVerdict:
    """The form of a bench's verdict: what is stated, the only line that says that all passed, or no error."""
    passed, failed = keys.passed.pattern, keys.failed.pattern
    if passed:
        return OwnVerdict("" if passed == NO_ERROR else passed, failed)
    lines = list(filter(_PASSES.match, dict.fromkeys(printed(text))))
    whole = list(filter(_WHOLE.search, lines)) or lines
    if len(whole) == 1:
        words = filter(None, _FORMAT.split(whole[0]))
        return OwnVerdict(".*".join(map(re.escape, words)), failed)
    if not has_faults(text):
        choice = "; ".join(whole[:5]) or "none was found"
        reason = f"say which printed line means that a design passed ({choice})"
        raise FieldError("bench.pass", reason)
    return OwnVerdict("", failed)
