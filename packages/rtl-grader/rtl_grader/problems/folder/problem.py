"""Puts a folder's problem together: what is stated and what is guessed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from posixpath import basename

from rtl_grader.hdl.expansion import expanded
from rtl_grader.hdl.interface import parse_interface
from rtl_grader.hdl.text import code_of, modules
from rtl_grader.problems.folder.cocotb_harness import cocotb_harness, python_files
from rtl_grader.problems.folder.description import (
    Description,
    FolderError,
    number_of,
    read_description,
)
from rtl_grader.problems.folder.files import SOURCES, FileList, Folder, read_filelist
from rtl_grader.problems.folder.guesses import (
    BenchFiles,
    chosen_top,
    definitions,
    find_bench,
    included,
    needed,
    places_of,
    read_inside,
    specification,
    verdict_of,
)
from rtl_grader.problems.folder.makefile import UNKNOWN, Makefile
from rtl_grader.problems.interface import derive_interface
from rtl_grader.problems.judged import judged_problem
from rtl_grader.problems.testbench import (
    Bench,
    Build,
    bench_harness,
    bench_modules,
    difficulty_of,
)
from rtl_grader.types.problem import Interface, InterfaceSource, Problem

SOURCE = "folder"
CATEGORY = "cid003"
DEFAULT_TIMESCALE = ("1ns", "1ps")
_INSIDE = "\nThe test bench also reads these names inside the module: {}.\n"
_NUMBER = re.compile(r"-?\d+")


@dataclass
class Understanding:
    """How a folder was understood: a problem, or what is wrong with it."""

    name: str
    place: str
    """The folder, or its `problem.toml`."""
    problem: Problem | None = None
    error: FolderError | None = None
    notes: dict[str, str] = field(default_factory=dict)
    """What was found, by the column of a table: `spec`, `top`, `answer`, `given`, `bench`, `verdict`, `ports`,
    `inside`."""


def understand(name: str, folder: Path, description: Path | None) -> Understanding:
    """Read one folder. Never raises for its contents: the result has the error."""
    result = Understanding(name, str(description or folder))
    try:
        stated = read_description(description) if description else Description()
        result.problem = _Reader(Folder(folder), stated, result.notes).problem(name)
    except FolderError as error:
        result.error = error
    except ValueError as error:
        result.error = FolderError("bench", str(error))
    return result


@dataclass
class _Reader:
    """Reads one folder."""

    folder: Folder
    stated: Description
    notes: dict[str, str]

    def problem(self, name: str) -> Problem:
        self.notes["bench"] = str(self.bench)
        self.notes["top"] = self.top
        place, prompt = specification(self.folder, self.stated, self.top, self.texts[self.home])
        macros = {"macros.sv": "\n".join(self.build.macros)}
        sources = {**macros, **self.context, **self.golden}
        interface = parse_interface(sources, self.top, InterfaceSource.GOLDEN)
        header = missing_header(prompt, self.texts[self.home], interface)
        ports = [port.name for port in interface.ports] if interface else []
        is_verilog = self.bench.form == "verilog"
        inside = read_inside(self.bench_text, self.top, ports) if is_verilog else []
        self.notes |= {
            "spec": place,
            "answer": ", ".join(self.answer),
            "given": ", ".join([*self.given, *self.headers]),
            "ports": "header appended" if header else "named",
            "inside": ", ".join(inside),
        }
        about = {
            "id": f"{SOURCE}_{re.sub(r'[^A-Za-z0-9]', '_', name)}",
            "source": SOURCE,
            "category": CATEGORY,
            "difficulty": difficulty_of("\n".join(self.golden.values())),
            "prompt": prompt.strip()
            + "\n"
            + header
            + (_INSIDE.format(", ".join(inside)) if inside else ""),
            "golden": self.golden,
            "origin": self.folder.root.name,
        }
        if self.bench.form == "equivalence":
            self.notes["verdict"] = "as the golden answer"
            problem = judged_problem(
                **about,
                top=self.top,
                context=self.context,
                compiled=[*self.build.given],
                include=self.build.include,
                define={key: str(value) for key, value in self.build.define.items()},
            )
        else:
            harness = self._verilog_harness() if is_verilog else self._cocotb_harness()
            asked = {"context": self.context, "targets": tuple(self.golden), "harness": harness}
            interface = derive_interface(prompt=about["prompt"], golden=self.golden, **asked)
            problem = Problem(**about, **asked, interface=interface)
        return problem

    # The design

    @cached_property
    def texts(self) -> dict[str, str]:
        """The Verilog files: path -> text."""
        if not self.folder.hdl and any(
            path.endswith((".vhd", ".vhdl")) for path in self.folder.paths
        ):
            raise FolderError("folder", "holds VHDL only, which cannot be graded: give Verilog")
        return self.folder.hdl

    @cached_property
    def bench(self) -> BenchFiles:
        return find_bench(self.folder, self.stated)

    @cached_property
    def filelist(self) -> FileList:
        if self.stated.filelist is None:
            return FileList()
        return read_filelist(self.folder, self.stated.filelist)

    @cached_property
    def top(self) -> str:
        answer = self._sources(self.stated.answer, "answer")
        candidates = {
            path: self.texts[path] for path in answer or self.texts if path.endswith(SOURCES)
        }
        candidates = {
            path: candidates[path] for path in candidates if path not in self.bench.paths
        }
        return chosen_top(self.bench.duts, candidates, self.stated.top)

    @cached_property
    def home(self) -> str:
        """The file that defines the top module."""
        return definitions({path: self.texts[path] for path in self.answer or self.texts})[
            self.top
        ]

    @cached_property
    def answer(self) -> list[str]:
        """The answer's files; the first one defines the top module."""
        stated = self._sources(self.stated.answer, "answer")
        files = stated or [definitions(self.texts)[self.top]]
        return sorted(
            files, key=lambda path: self.top not in definitions({path: self.texts[path]})
        )

    @cached_property
    def given(self) -> list[str]:
        """Files that are compiled before the answer, in order."""
        stated = self._sources(self.stated.given, "given") or self.filelist.sources
        if not stated and self.make:
            stated = [self._beside_make(path) for path in self.make.sources]
        if not stated:
            return needed(self.texts, self.answer, [*self.answer, *self.bench.paths])
        for path in stated:
            self.folder.text(path, "given")
        without = {*self.answer, *self.bench.paths}
        return [path for path in stated if path not in without and path.endswith(SOURCES)]

    @cached_property
    def headers(self) -> list[str]:
        return included(self.texts, [*self.answer, *self.given])

    @cached_property
    def root(self) -> str:
        """The folder that becomes the workspace's `rtl`."""
        files = [*self.answer, *self.given, *self.headers, *self.shown_data]
        return os.path.commonpath([os.path.dirname(path) for path in files])

    def _inside(self, path: str) -> str:
        """A path of the folder in the workspace."""
        return os.path.join("rtl", os.path.relpath(path, self.root or "."))

    def _moved(self, paths: Iterable[str]) -> dict[str, str]:
        return {self._inside(path): self.folder.text(path) for path in paths}

    @cached_property
    def golden(self) -> dict[str, str]:
        return self._moved(self.answer)

    @cached_property
    def data(self) -> dict[str, list[str]]:
        """Data file -> its places in the working folder."""
        texts = list(self.texts.values())
        stated = self.folder.glob(self.stated.data, "data")
        if not stated:
            strings = {
                basename(text) for whole in texts for text in re.findall(r'"([^"\n]+)"', whole)
            }
            others = [path for path in self.folder.paths if path not in self.texts]
            stated = [path for path in others if basename(path) in strings]
        return {path: places_of(path, texts) for path in stated}

    @cached_property
    def shown_data(self) -> dict[str, list[str]]:
        """Those that the answer or a given file names."""
        texts = [self.texts[path] for path in (*self.answer, *self.given, *self.headers)]
        return {
            path: places
            for path, places in self.data.items()
            if any(f'{basename(path)}"' in text for text in texts)
        }

    @cached_property
    def hidden_data(self) -> dict[str, str]:
        """Place -> text of the data that only the bench reads."""
        hidden = {path: self.data[path] for path in self.data if path not in self.shown_data}
        return {
            place: self.folder.text(path) for path, places in hidden.items() for place in places
        }

    @cached_property
    def context(self) -> dict[str, str]:
        """What the model sees: path -> text."""
        return self._moved([*self.headers, *self.given, *self.shown_data])

    @cached_property
    def build(self) -> Build:
        include = [*self.stated.include, *self.filelist.include]
        define = {**self.filelist.define, **self.stated.define}
        plusargs = [*self.stated.bench.plusargs]
        if self.make:
            include += map(self._beside_make, self.make.include)
            define = {**self.make.define, **define}
            plusargs += self.make.plusargs
        sources = [*self.answer, *self.given, *self.headers]
        folders = [*include, *map(os.path.dirname, sources)]
        moved = [os.path.normpath(self._inside(path)) for path in folders]
        places = {place: path for path, places in self.shown_data.items() for place in places}
        return Build(
            further=dict([*self.golden.items()][1:]),
            given=self._moved(self.given),
            headers=self._moved(self.headers),
            include=tuple(dict.fromkeys(path for path in moved if path.startswith("rtl"))),
            define={name: 1 if value == "" else value for name, value in define.items()},
            plusargs=tuple(plusargs),
            places={place: self._inside(path) for place, path in places.items()},
        )

    def _sources(self, patterns: Sequence[str], key: str) -> list[str]:
        paths = self.folder.glob(patterns, key)
        for path in paths:
            if path not in self.texts:
                self.folder.text(path, key)
                raise FolderError(key, f"{path} is no Verilog file")
        return paths

    # The bench

    @property
    def make(self) -> Makefile | None:
        return self.bench.make

    def _beside_make(self, path: str) -> str:
        """A path of the Makefile, relative to the folder."""
        if UNKNOWN in path:
            key = self.bench.paths[0]
            raise FolderError(
                key, "a path cannot be read without running it: use given and include"
            )
        return os.path.normpath(os.path.join(os.path.dirname(self.bench.paths[0]), path))

    @cached_property
    def bench_text(self) -> str:
        """A Verilog bench and its own copy of the given files, without macros and includes."""
        own = self.bench.paths
        beside = needed(self.texts, own, [*self.answer, *self.given])
        sources = {path: self.texts[path] for path in (*self.given, *beside, *own)}
        return expanded(sources, self.texts, self.build.define)

    def _verilog_harness(self) -> dict[str, str]:
        own, text = self.bench.paths, self.bench_text
        keys = self.stated.bench
        verdict = verdict_of(text, keys)
        self.notes["verdict"] = f"line {verdict.passed!r}" if verdict.passed else "no error"
        tops, used = bench_modules(text)
        if self.top not in used:
            raise FolderError(
                "bench",
                f"it instantiates no module {self.top}, but {', '.join(used) or 'none'}",
            )
        own_tops = [
            top for top in tops if top in definitions({path: self.texts[path] for path in own})
        ]
        top = keys.top or next(iter(own_tops), "")
        if not top or (len(own_tops) > 1 and not keys.top):
            raise FolderError(
                "bench.top", f"name its top module ({', '.join(tops) or 'it has none'})"
            )
        return bench_harness(
            Bench(
                sources={"bench.sv": text},
                design=next(iter(self.golden)),
                dut=self.top,
                top=top,
                marker="",
                golden=next(iter(self.golden.values())),
                data=self.hidden_data,
                build=self.build,
                own=verdict,
            )
        )

    def _cocotb_harness(self) -> dict[str, str]:
        path = self.bench.paths[0]
        module = basename(path).removesuffix(".py")
        timescale = DEFAULT_TIMESCALE
        if self.make:
            module, timescale = self.make.module, self.make.timescale
            path = self._beside_make(f"{module.replace('.', '/')}.py")
        runs = [
            {name: number_of(value) for name, value in parameters.items()}
            for parameters in self.stated.bench.parameters
        ]
        self.notes["verdict"] = f"cocotb, {max(1, len(runs))} runs"
        return cocotb_harness(
            self.build,
            simulator=self.stated.simulator,
            top=self.top,
            designs=[*self.golden],
            module=module,
            python=python_files(self.folder, path),
            data=self.hidden_data,
            settings={"runs": runs or [self._make_parameters()], "timescale": timescale},
        )

    def _make_parameters(self) -> dict[str, int | str]:
        values: Mapping[str, str] = self.make.parameters if self.make else {}
        unknown = [name for name, value in values.items() if UNKNOWN in value]
        if unknown:
            names = ", ".join(unknown)
            raise FolderError("bench.parameters", f"{names} need a shell: state all parameters")
        return {name: int(v) if _NUMBER.fullmatch(v) else v for name, v in values.items()}


def missing_header(prompt: str, text: str, interface: Interface | None) -> str:
    """The header of the module, in the file `text`, as a paragraph if the prompt does not name all its
    ports; else empty."""
    words = set(re.findall(r"\w+", prompt))
    if interface is None or {port.name for port in interface.ports} <= words:
        return ""
    code = code_of(text)
    unit = next(unit for unit in modules(code) if unit.name == interface.module)
    header = text[unit.start : code.find(";", unit.start) + 1]
    return f"\nThe header of the module:\n\n```verilog\n{header}\n```\n"


def problem_places(path: Path) -> list[tuple[str, Path, Path | None]]:
    """(name, folder, its `problem.toml` or None) of each problem at `path`: one folder, or a folder of them."""
    return _here(path) or [
        entry
        for child in _children(path)
        for entry in _here(child) or [(child.name, child, None)]
    ]


def _children(path: Path) -> list[Path]:
    return sorted(
        child for child in path.iterdir() if child.is_dir() and not child.name.startswith(".")
    )


def _here(path: Path) -> list[tuple[str, Path, Path | None]]:
    """The problems of a folder itself: `problem.toml`, several `NAME.problem.toml`, or sources beside a bench."""
    stated = sorted(path.glob("*problem.toml"))
    if stated:
        names = [file.name.removesuffix("problem.toml").rstrip(".") for file in stated]
        name = path.resolve().name
        return [
            ("_".join(filter(None, (name, own))), path, file)
            for own, file in zip(names, stated, strict=True)
        ]
    has_sources = any(child.suffix in SOURCES for child in path.iterdir())
    usual = any(child.name in ("rtl", "src", "hdl", "tb") for child in _children(path))
    return [(path.resolve().name, path, None)] if has_sources or usual else []
