"""Finds the bench of a folder, and the form of a Verilog bench's verdict."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from posixpath import basename
from typing import NamedTuple

from rtl_grader.hdl.text import code_of, modules
from rtl_grader.hdl.tree import SourceTree, name_of, walk
from rtl_grader.problems.folder.description import NO_ERROR, BenchKeys, Description, FolderError
from rtl_grader.problems.folder.files import SOURCES, Folder, make_variables
from rtl_grader.problems.testbench import OwnVerdict, bench_modules
from rtl_grader.problems.testbench.rewrite import has_faults, printed
from rtl_grader.types.problem import Interface

_TESTS = re.compile(r"^\s*(?:export\s+)?(?:COCOTB_TEST_MODULES|MODULE)\b", re.M)
_PASSES = re.compile(r"\b(?:pass(?:ed|es)?|success(?:ful(?:ly)?)?|(?:no|0) errors?)\b", re.I)
_FAILS = re.compile(r"\b(?:not|un\w+|fail\w*|did ?n.t)\b", re.I)
_WHOLE = re.compile(r"\b(?:all|tests|testbench|simulation|bench)\b", re.I)
_FORMAT = re.compile(r"%-?[\d.]*[a-zA-Z]|\\.|\s+")


class BenchFiles(NamedTuple):
    """A bench."""

    form: str
    """`makefile`, `cocotb`, `verilog` or `equivalence`."""
    paths: tuple[str, ...] = ()
    """The Makefile, the Python file, or Verilog files."""
    duts: tuple[str, ...] = ()
    """Modules that it may be about."""


def find_bench(folder: Folder, stated: Description) -> BenchFiles:
    """The bench that is stated, else the only one that can be found. Raises FolderError for several."""
    keys = stated.bench
    if keys.makefile:
        path = keys.makefile
        is_folder = (folder.root / path).is_dir()
        return _makefile(folder, os.path.join(path, "Makefile") if is_folder else path)
    if keys.cocotb:
        return _python(os.path.normpath(keys.cocotb))
    if keys.verilog:
        return _verilog(folder, folder.glob(keys.verilog, "bench.verilog"))
    if keys.equivalence:
        return BenchFiles("equivalence")
    every = list(_benches(folder))
    if not every:
        return BenchFiles("equivalence")
    benches = [bench for bench in every if not stated.top or stated.top in bench.duts]
    if not benches:
        reason = f"none is about {stated.top}: name one, or say equivalence = true"
        raise FolderError("bench", reason)
    same = [bench for bench in benches if bench.form == benches[0].form]
    if len(same) > 1:
        choice = "; ".join(", ".join(bench.paths) for bench in same[:9])
        raise FolderError(f"bench.{same[0].form}", f"there are several, name one ({choice})")
    return same[0]


def _benches(folder: Folder) -> Iterator[BenchFiles]:
    for path in folder.paths:
        if basename(path) == "Makefile" and _TESTS.search(folder.text(path)):
            yield _makefile(folder, path)
    for path in folder.paths:
        if re.fullmatch(r"test_\w+\.py", basename(path)) and "cocotb" in folder.text(path):
            yield _python(path)
    for path, text in folder.hdl.items():
        if path.endswith(SOURCES) and any(unit.is_bench for unit in modules(code_of(text))):
            yield _verilog(folder, [path])


def _makefile(folder: Folder, path: str) -> BenchFiles:
    values = make_variables(folder.text(path))
    if values.get("TOPLEVEL_LANG") == "vhdl":
        raise FolderError(path, "its top level is VHDL, which cannot be graded: give Verilog")
    top = values.get("COCOTB_TOPLEVEL") or values.get("TOPLEVEL", "")
    return BenchFiles("makefile", (path,), (top,))


def _python(path: str) -> BenchFiles:
    name = basename(path).removesuffix(".py").removeprefix("test_")
    return BenchFiles("cocotb", (path,), (name,))


def _verilog(folder: Folder, paths: Collection[str]) -> BenchFiles:
    uses = [bench_modules(folder.text(path)) for path in paths]
    return BenchFiles("verilog", tuple(paths), tuple(name for _, used in uses for name in used))


def read_inside(text: str, interface: Interface) -> list[str]:
    """Names inside a design that a Verilog bench uses, without those of its ports."""
    tree = SourceTree(text)
    top = interface.module
    instances = [node for node in tree.of("HierarchyInstantiation") if node.type.rawText == top]
    nodes = (node for instance in instances for node in walk(instance))
    names = [re.escape(node.name.rawText) for node in nodes if name_of(node) == "InstanceName"]
    uses = re.findall(rf"\b(?:{'|'.join(names)})\s*\.\s*(\w+)", code_of(text)) if names else []
    return sorted(set(uses).difference(port.name for port in interface.ports))


def verdict_of(text: str, keys: BenchKeys) -> OwnVerdict:
    """The form of a bench's verdict: what is stated, the only line that says that all passed, or no error."""
    failed = keys.failed.pattern if keys.failed else ""
    if keys.passed:
        passed = keys.passed.pattern
        return OwnVerdict("" if passed == NO_ERROR else passed, failed)
    lines = [line for line in dict.fromkeys(printed(text)) if _PASSES.search(line)]
    lines = [line for line in lines if not _FAILS.search(line)]
    whole = [line for line in lines if _WHOLE.search(line)] or lines
    if len(whole) == 1:
        return OwnVerdict(
            ".*".join(map(re.escape, filter(None, _FORMAT.split(whole[0])))), failed
        )
    if not has_faults(text):
        choice = "; ".join(whole[:5]) or "none was found"
        raise FolderError(
            "bench.pass", f"say which printed line means that a design passed ({choice})"
        )
    return OwnVerdict("", failed)
