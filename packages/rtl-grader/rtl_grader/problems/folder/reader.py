"""Makes the problem of a folder, of what is stated and what is guessed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from posixpath import basename
from typing import Any

from rtl_grader.hdl.expansion import expanded
from rtl_grader.problems.folder.bench import BenchFiles, find_bench, read_inside, verdict_of
from rtl_grader.problems.folder.cocotb_tests import cocotb_harness, make_parameters
from rtl_grader.problems.folder.description import (
    BenchKeys,
    Description,
    FolderError,
    read_description,
)
from rtl_grader.problems.folder.design import (
    STRING,
    definitions,
    included,
    needed,
    only_top,
    places_of,
    specification,
)
from rtl_grader.problems.folder.files import SOURCES, UNKNOWN, VHDL, Folder, make_variables
from rtl_grader.problems.interface import derive_interface
from rtl_grader.problems.judged import Compilation, judged_problem
from rtl_grader.problems.module_header import with_header
from rtl_grader.problems.rtl.filelist import Listing, listing_of
from rtl_grader.problems.testbench import (
    Bench,
    Build,
    bench_harness,
    bench_modules,
    difficulty_of,
)
from rtl_grader.types.problem import Problem

SOURCE = "folder"
_INSIDE = "\nThe test bench also reads these names inside the module: {}.\n"
_FLAG = re.compile(r"(?<!\S)(-D|\+)(\w+)=?(\S*)")
_MEANINGLESS = {
    "verilog": ("parameters",),
    "cocotb": ("top", "passed", "failed"),
    "makefile": ("top", "passed", "failed"),
    "equivalence": ("top", "passed", "failed", "parameters", "plusargs"),
}
"""Form of bench -> keys that it does not use."""
_ARGUMENTS = ("COMPILE_ARGS", "EXTRA_ARGS", "SIM_ARGS", "PLUSARGS", "COCOTB_PLUSARGS")


@dataclass
class Understanding:
    """How a folder was understood: its problem, or what is wrong."""

    name: str
    place: str
    """The folder, or its `problem.toml`."""
    problem: Problem | None = None
    error: FolderError | None = None
    notes: dict[str, str] = field(default_factory=dict)
    """What was found: a noun -> words."""


def understand(name: str, folder: Path, description: Path | None) -> Understanding:
    """Read one folder. Whatever is wrong with its contents is in the result."""
    result = Understanding(name, str(description or folder))
    try:
        stated = read_description(description) if description else Description()
        result.problem = _Reader(Folder(folder), stated, result.notes).problem(name)
    except FolderError as error:
        result.error = error
    except ValueError as error:
        result.error = FolderError("bench", str(error))
    return result


def problem_places(path: Path) -> list[tuple[str, Path, Path | None]]:
    """(name, folder, its `problem.toml` or None) of each problem at `path`: one folder, or a folder of them."""
    own = _stated(path)
    if not own and any(child.suffix in SOURCES for child in path.iterdir()):
        own = [(path.resolve().name, path, None)]
    if own:
        return own
    places: list[tuple[str, Path, Path | None]] = []
    for child in sorted(path.iterdir()):
        if child.is_dir() and not child.name.startswith("."):
            places += _stated(child) or [(child.name, child, None)]
    return places


def _stated(path: Path) -> list[tuple[str, Path, Path | None]]:
    """The problems of `problem.toml`, or of several `NAME.problem.toml`, in a folder."""
    name = path.resolve().name
    files = sorted(path.glob("*problem.toml"))
    return [(f"{name}.{file.stem}".removesuffix(".problem"), path, file) for file in files]


@dataclass
class _Reader:
    """Reads one folder. Paths are the folder's, except where `inside` has made them the workspace's."""

    folder: Folder
    stated: Description
    notes: dict[str, str]

    def problem(self, name: str) -> Problem:
        home = self.texts[self.answer[0]]
        place, prompt = specification(self.folder, self.stated.spec, home, self.top)
        self.notes.update(
            spec=place, answer=" ".join(self.answer), given=" ".join(self.context)
        )
        harness = self._harness()
        interface = derive_interface(
            prompt=prompt,
            context=self.context,
            targets=self.golden,
            harness=harness,
            golden=self.golden,
        )
        if interface:
            stated = prompt
            prompt = with_header(prompt, home, interface, "missing")
            self.notes["ports"] = "named" if prompt == stated else "the header is appended"
            if self.bench.form == "verilog":
                names = " ".join(read_inside(self.bench_text, interface))
                self.notes["inside"] = names
                prompt += _INSIDE.format(names) if names else ""
        about: dict[str, Any] = {
            "id": f"{SOURCE}_{re.sub(r'[^A-Za-z0-9]', '_', name)}",
            "source": SOURCE,
            "category": "cid003",
            "difficulty": difficulty_of("\n".join(self.golden.values())),
            "prompt": prompt.strip() + "\n",
            "origin": self.folder.root.name,
            "context": self.context,
            "golden": self.golden,
        }
        if harness:
            targets = tuple(self.golden)
            return Problem(**about, targets=targets, harness=harness, interface=interface)
        define = {macro: str(value) for macro, value in self.build.define.items()}
        compilation = Compilation([*self.build.given], define=define)
        return judged_problem(**about, top=self.top, compilation=compilation)

    # The design

    @cached_property
    def texts(self) -> dict[str, str]:
        """The Verilog files: path -> text."""
        if not self.folder.hdl:
            for path in self.folder.paths:
                if path.endswith(VHDL):
                    self.folder.text(path)  # says that it cannot be graded
        return self.folder.hdl

    @cached_property
    def bench(self) -> BenchFiles:
        if self.stated.top:
            only_top(self.stated.top, (), self.texts)  # a wrong name is said first
        bench = find_bench(self.folder, self.stated)
        self.notes["bench"] = " ".join([bench.form, *bench.paths])
        return bench

    @cached_property
    def make(self) -> dict[str, str]:
        """Variables of the bench's Makefile."""
        if self.bench.form != "makefile":
            return {}
        return make_variables(self.folder.text(self.bench.paths[0]))

    @cached_property
    def listing(self) -> Listing:
        """The file list."""
        if not self.stated.filelist:
            return Listing()
        listing = listing_of(self.folder.root / self.stated.filelist)
        for place, reason in listing.left_out:
            raise FolderError("filelist", f"{place}: {reason}")
        return listing

    def _paths(self, listed: Iterable[Path]) -> list[str]:
        return [os.path.relpath(path, self.folder.root) for path in listed]

    def _made_paths(self, names: Iterable[str]) -> list[str]:
        """Paths that the Makefile names, as far as the folder has them."""
        here = os.path.dirname(self.bench.paths[0]) if self.make else ""
        paths = [os.path.normpath(os.path.join(here, name)) for name in names]
        return [
            path for path in paths if UNKNOWN not in path and (self.folder.root / path).exists()
        ]

    @cached_property
    def stated_answer(self) -> list[str]:
        return self._sources(self.folder.glob(self.stated.answer, "answer"))

    @cached_property
    def top(self) -> str:
        paths = self.stated_answer or self.texts
        texts = {path: self.texts[path] for path in paths if path not in self.bench.paths}
        self.notes["top"] = only_top(self.stated.top, self.bench.duts, texts)
        return self.notes["top"]

    @cached_property
    def answer(self) -> list[str]:
        """The answer's files; the first one defines the top module."""
        own = self.stated_answer or self.texts
        home = definitions({path: self.texts[path] for path in own})[self.top]
        return list(dict.fromkeys([home, *self.stated_answer]))

    @cached_property
    def given(self) -> list[str]:
        """Files that are compiled before the answer, in order."""
        stated = self.folder.glob(self.stated.given, "given") + self._paths(self.listing.files)
        stated = stated or self._made_paths(self.make.get("VERILOG_SOURCES", "").split())
        apart = {*self.answer, *self.bench.paths}
        if not stated:
            return needed(self.texts, self.answer, apart)
        given = [path for path in self._sources(stated) if path not in apart]
        return [path for path in given if path.endswith(SOURCES)]

    def _sources(self, paths: list[str]) -> list[str]:
        """The paths. Raises FolderError for a file that is no Verilog."""
        for path in paths:
            if path not in self.texts:
                self.folder.text(path)  # says what is wrong with it
                raise FolderError(path, "is no Verilog file of this folder")
        return paths

    @cached_property
    def headers(self) -> dict[str, str]:
        """Name by which a file is included -> its path."""
        return self._included([*self.answer, *self.given])

    def _included(self, roots: Iterable[str]) -> dict[str, str]:
        folders = [*self.stated.include, *self._paths(self.listing.include)]
        return included(self.texts, roots, folders)

    @cached_property
    def flags(self) -> list[tuple[str, str, str]]:
        """(`-D` or `+`, name, value) of the Makefile's arguments."""
        return _FLAG.findall(" ".join(self.make.get(name, "") for name in _ARGUMENTS))

    @cached_property
    def data(self) -> dict[str, list[str]]:
        """Data file -> its places in the working folder."""
        texts = list(self.texts.values())
        paths = self.folder.glob(self.stated.data, "data")
        if not paths:
            strings = {basename(string) for text in texts for string in STRING.findall(text)}
            others = (path for path in self.folder.paths if path not in self.texts)
            paths = [path for path in others if basename(path) in strings]
        if len(set(map(basename, paths))) < len(paths):
            raise FolderError("data", f"two files have one name: {' '.join(paths)}")
        return {path: places_of(path, texts) for path in paths}

    @cached_property
    def shown(self) -> list[str]:
        """Data that the answer or a given file names; the rest is the bench's own."""
        paths = [*self.answer, *self.given, *self.headers.values()]
        text = "\n".join(self.texts[path] for path in paths)
        return [path for path in self.data if f'{basename(path)}"' in text]

    @cached_property
    def hidden(self) -> dict[str, str]:
        """Place in the working folder -> text of the bench's own data."""
        own = [path for path in self.data if path not in self.shown]
        return {place: self.folder.text(path) for path in own for place in self.data[path]}

    def inside(self, paths: Iterable[str]) -> list[str]:
        """Paths of the folder in the workspace."""
        files = [*self.answer, *self.given, *self.shown]
        root = os.path.commonpath([os.path.dirname(path) for path in files]) or "."
        return [f"rtl/{os.path.relpath(path, root)}" for path in paths]

    def moved(self, paths: list[str]) -> dict[str, str]:
        """Path in the workspace -> text."""
        return dict(zip(self.inside(paths), map(self.folder.text, paths), strict=True))

    @cached_property
    def golden(self) -> dict[str, str]:
        return self.moved(self.answer)

    @cached_property
    def context(self) -> dict[str, str]:
        return {**self.build.headers, **self.moved([*self.given, *self.shown])}

    @cached_property
    def build(self) -> Build:
        macros: dict[str, int | str] = {}
        plusargs = [*self.stated.bench.plusargs]
        for kind, name, value in self.flags:
            if kind == "-D":
                macros[name] = value or 1
            else:
                plusargs.append(f"+{name}={value}".rstrip("="))
        define = {**macros, **self.listing.define, **self.stated.define}
        for name, text in define.items():
            if not re.fullmatch(r"\w+", str(text)):
                raise FolderError(
                    "define", f"{name} is {text}: only a number or a word can be given"
                )
        places = {place: path for path in self.shown for place in self.data[path]}
        return Build(
            further=dict([*self.golden.items()][1:]),
            given=self.moved(self.given),
            headers={f"rtl/{name}": self.texts[path] for name, path in self.headers.items()},
            define=define,
            plusargs=tuple(plusargs),
            places=dict(zip(places, self.inside(places.values()), strict=True)),
        )

    # The bench

    def _harness(self) -> dict[str, str]:
        """The harness; empty if the golden answer judges."""
        keys = self.stated.bench
        for key in _MEANINGLESS[self.bench.form]:
            if getattr(keys, key):
                name = BenchKeys.model_fields[key].alias or key
                reason = f"has no meaning for a bench by {self.bench.form}: remove it"
                raise FolderError(f"bench.{name}", reason)
        if self.bench.form == "equivalence":
            self.notes["verdict"] = "as the golden answer"
            return {}
        if self.bench.form == "verilog":
            return self._verilog_harness()
        path = self.bench.paths[0]
        if self.make:
            modules = self.make.get("COCOTB_TEST_MODULES") or self.make.get("MODULE", "")
            path = " ".join(self._made_paths([modules.partition(",")[0].strip() + ".py"]))
        runs = [*keys.parameters] or [make_parameters(self.make)]
        self.notes["verdict"] = f"cocotb tests, with {len(runs)} sets of parameters"
        settings = {
            "simulator": self.stated.simulator,
            "top": self.top,
            "designs": self.golden,
            "runs": runs,
            "unit": self.make.get("COCOTB_HDL_TIMEUNIT", "1ns"),
            "precision": self.make.get("COCOTB_HDL_TIMEPRECISION", "1ps"),
        }
        return cocotb_harness(self.folder, path, self.build, self.hidden, settings)

    @cached_property
    def bench_text(self) -> str:
        """A Verilog bench and its own copy of the given files, without macros and includes."""
        own = self.bench.paths
        beside = needed(self.texts, own, {*own, *self.answer, *self.given})
        sources = {path: self.texts[path] for path in (*self.given, *beside, *own)}
        headers = {name: self.texts[path] for name, path in self._included(sources).items()}
        return expanded(sources, headers, self.build.define)

    def _verilog_harness(self) -> dict[str, str]:
        verdict = verdict_of(self.bench_text, self.stated.bench)
        self.notes["verdict"] = "no error"
        if verdict.passed:
            self.notes["verdict"] = f"a line with {verdict.passed}"
        tops, used = bench_modules(self.bench_text)
        own = definitions({path: self.texts[path] for path in self.bench.paths})
        tops = [top for top in tops if top in own and self.stated.bench.top in ("", top)]
        if self.top not in used or len(tops) != 1:
            uses = " ".join(self.bench.duts)
            reason = f"one top module must hold {self.top}; there are {tops}, which hold {uses}"
            raise FolderError("bench.top", reason)
        design, golden = next(iter(self.golden.items()))
        bench = Bench(
            sources={"bench.sv": self.bench_text},
            design=design,
            dut=self.top,
            top=tops[0],
            marker="",
            golden=golden,
            data=self.hidden,
            build=self.build,
            own=verdict,
        )
        return bench_harness(bench)
