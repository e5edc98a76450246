"""Guesses what `problem.toml` does not state: specification, bench, what a file uses, the form of a verdict."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from posixpath import basename

from rtl_grader.hdl.text import code_of, module_names, modules, words_of
from rtl_grader.hdl.tree import SourceTree, name_of, walk
from rtl_grader.problems.folder.description import NO_ERROR, BenchKeys, Description, FolderError
from rtl_grader.problems.folder.files import SOURCES, Folder
from rtl_grader.problems.folder.makefile import Makefile, read_makefile
from rtl_grader.problems.testbench import OwnVerdict, bench_modules
from rtl_grader.problems.testbench.rewrite import has_faults, printed, prints

_SPECS = ("spec.md", "readme.md")
_NO_SPEC = re.compile(r"(?:requirements.*|cmakelists|license|copying|authors)\.txt", re.I)
_COMMENT = re.compile(r"(?:\s*(?://[^\n]*|/\*.*?\*/))+", re.S)
_UNIT = re.compile(
    r"\b(?:macromodule|module|interface|package|program)\s+(?:automatic\s+)?(\w+)"
)
_INCLUDE = re.compile(r'`include\s*"([^"\n]*)"')
_STRING = re.compile(r'"([^"\\\n]+)"')
_PASSES = re.compile(r"\b(?:pass(?:ed|es)?|success(?:ful(?:ly)?)?|(?:no|0) errors?)\b", re.I)
_FAILS = re.compile(r"\b(?:not|un\w+|fail\w*|did ?n.t)\b", re.I)
_WHOLE = re.compile(r"\b(?:all|tests|testbench|simulation|bench)\b", re.I)
_FORMAT = re.compile(r"%-?[\d.]*[a-zA-Z]|\\.|\s+")


def specification(
    folder: Folder, description: Description, top: str, text: str
) -> tuple[str, str]:
    """(place, text) of the specification; `text` is that of the file with the module `top`."""
    stated = description.spec
    if stated and ("\n" in stated or " " in stated.strip()):
        return "problem.toml", stated
    if stated:
        return stated, folder.text(stated, "spec")
    names = [path for path in folder.paths if path.lower() in _SPECS]
    texts = [
        p for p in folder.paths if p.endswith(".txt") and "/" not in p and not _NO_SPEC.match(p)
    ]
    for path in [*sorted(names, key=lambda path: _SPECS.index(path.lower())), *texts]:
        if path in names or len(texts) == 1:
            return path, folder.text(path)
    unit = next(unit for unit in modules(code_of(text)) if unit.name == top)
    comments = [
        match for match in _COMMENT.finditer(text) if not text[match.end() : unit.start].strip()
    ]
    if comments and len(comment := comments[0][0].strip()) > 40:
        return "the comment above the module", comment
    raise FolderError(
        "spec", "there is no specification: write what the design does in spec.md"
    )


@dataclass
class BenchFiles:
    """A bench: one of the four forms."""

    form: str
    """`makefile`, `cocotb`, `verilog` or `equivalence`."""
    paths: list[str] = field(default_factory=list)
    """The Makefile, the Python file, or Verilog files."""
    duts: list[str] = field(default_factory=list)
    """Modules that it may be about."""
    make: Makefile | None = None

    def __str__(self) -> str:
        return f"{self.form} {', '.join(self.paths)}".strip()


def find_bench(folder: Folder, description: Description) -> BenchFiles:
    """The bench that is stated, else the only one that can be found. Raises FolderError for several."""
    keys = description.bench
    names = ("cocotb", "verilog", "makefile", "equivalence")
    stated = [form for form in names if getattr(keys, form)]
    if len(stated) > 1:
        raise FolderError("bench", f"has {' and '.join(stated)}: name one of them")
    if stated:
        return _stated(folder, keys, stated[0], description)
    benches = [*_makefiles(folder, description), *_python_tests(folder), *_verilog(folder)]
    if top := description.top:
        benches = [bench for bench in benches if top in bench.duts]
    if not benches:
        return BenchFiles("equivalence")
    form = benches[0].form
    first, *others = [bench for bench in benches if bench.form == form]
    if others:
        paths = [", ".join(bench.paths) for bench in (first, *others[:9])]
        raise FolderError(
            "bench", f"there are several: name one in [bench] {form} ({'; '.join(paths)})"
        )
    return first


def _stated(folder: Folder, keys: BenchKeys, form: str, description: Description) -> BenchFiles:
    key = f"bench.{form}"
    if keys.cocotb:
        return _python_test(*folder.glob([keys.cocotb], key))
    if keys.makefile:
        is_folder = (folder.root / keys.makefile).is_dir()
        path = os.path.join(keys.makefile, "Makefile") if is_folder else keys.makefile
        return _makefile(folder, path, description)
    paths = folder.glob(keys.verilog, key)
    texts = [folder.text(path, key) for path in paths]
    return BenchFiles(form, paths, _instantiated(texts))


def _makefile(folder: Folder, path: str, description: Description) -> BenchFiles:
    make = read_makefile(folder.text(path, "bench.makefile"), description.simulator)
    if make.language.lower() == "vhdl":
        raise FolderError(path, "its top level is VHDL, which cannot be graded: give Verilog")
    for name, value in (("COCOTB_TEST_MODULES", make.module), ("TOPLEVEL", make.top)):
        if not value.replace(".", "_").isidentifier():
            raise FolderError(
                path, f"{name} cannot be read without running it: use [bench] cocotb"
            )
    return BenchFiles("makefile", [path], [make.top], make)


def _makefiles(folder: Folder, description: Description) -> Iterable[BenchFiles]:
    for path in folder.paths:
        if basename(path).lower() == "makefile" and re.search(
            r"^\s*(?:export\s+)?(?:COCOTB_TEST_MODULES|MODULE)\b", folder.text(path), re.M
        ):
            yield _makefile(folder, path, description)


def _python_test(path: str) -> BenchFiles:
    name = basename(path).removesuffix(".py")
    return BenchFiles("cocotb", [path], [name.removeprefix("test_").removesuffix("_test")])


def _python_tests(folder: Folder) -> Iterable[BenchFiles]:
    for path in folder.paths:
        name = basename(path)
        if name.endswith(".py") and name.startswith("test_") and "cocotb" in folder.text(path):
            yield _python_test(path)


def _verilog(folder: Folder) -> Iterable[BenchFiles]:
    for path, text in folder.hdl.items():
        if any(unit.is_bench for unit in modules(code_of(text))) and path.endswith(SOURCES):
            yield BenchFiles("verilog", [path], _instantiated([text]))


def _instantiated(texts: Iterable[str]) -> list[str]:
    """Modules that texts instantiate and do not define."""
    uses = [bench_modules(text) for text in texts]
    defined = {name for tops, _ in uses for name in tops}
    return list(dict.fromkeys(name for _, used in uses for name in used if name not in defined))


def definitions(texts: Mapping[str, str]) -> dict[str, str]:
    """Name of each module, package and interface -> the path of its file, the first if there are several."""
    names: dict[str, str] = {}
    for path, text in texts.items():
        for name in _UNIT.findall(code_of(text)):
            names.setdefault(name, path)
    return names


def needed(
    texts: Mapping[str, str], roots: Iterable[str], without: Collection[str]
) -> list[str]:
    """Files that define what `roots` use, each after what it uses itself; not the roots nor `without`."""
    names = definitions({path: texts[path] for path in texts if path.endswith(SOURCES)})
    order: dict[str, None] = {}
    on_the_way = set(roots) | set(without)

    def visit(path: str) -> None:
        for name in sorted(words_of(texts[path]) & names.keys()):
            if names[name] not in on_the_way:
                on_the_way.add(names[name])
                visit(names[name])
                order[names[name]] = None

    for root in roots:
        visit(root)
    return list(order)


def included(texts: Mapping[str, str], roots: Iterable[str]) -> list[str]:
    """Files that `roots` include, directly or not, found by the end of their path."""
    files: dict[str, None] = {}
    waiting = list(roots)
    while waiting:
        for name in _INCLUDE.findall(texts[waiting.pop()]):
            end = "/" + name.replace("../", "").removeprefix("./")
            for path in texts:
                if f"/{path}".endswith(end) and path not in files:
                    files[path] = None
                    waiting.append(path)
    return list(files)


def places_of(path: str, texts: Iterable[str]) -> list[str]:
    """Where the working folder must hold a data file: its name, and the paths by which texts name it."""
    name = basename(path)
    strings = (string for text in texts for string in _STRING.findall(text))
    named = [os.path.normpath(text) for text in strings if basename(text) == name]
    for place in named:
        if place.startswith(("/", "../..")):
            raise FolderError("data", f"a text opens {place}: write {name}")
    return list(dict.fromkeys([name, *named]))


def read_inside(text: str, top: str, ports: Collection[str]) -> list[str]:
    """Names inside the module `top` that a Verilog bench uses, without those of its ports."""
    tree = SourceTree(text)
    instances = [node for node in tree.of("HierarchyInstantiation") if node.type.rawText == top]
    nodes = (node for instance in instances for node in walk(instance))
    names = {node.name.rawText for node in nodes if name_of(node) == "InstanceName"}
    uses = re.findall(rf"\b(?:{'|'.join(names)})\s*\.\s*(\w+)", code_of(text)) if names else []
    return sorted(set(uses) - set(ports))


def verdict_of(text: str, keys: BenchKeys) -> OwnVerdict:
    """The form of a bench's verdict: what is stated, the only line that says that all passed, or no error."""
    failed = keys.failed or ""
    if keys.passed == NO_ERROR:
        return OwnVerdict("", failed)
    passed = keys.passed
    if passed is None:
        lines = [line for line in dict.fromkeys(printed(text)) if _PASSES.search(line)]
        lines = [line for line in lines if not _FAILS.search(line)]
        whole = [line for line in lines if _WHOLE.search(line)] or lines
        if len(whole) != 1 and has_faults(text):
            return OwnVerdict("", failed)
        if len(whole) != 1:
            lines = "; ".join(whole[:5]) or "none was found"
            raise FolderError(
                "bench.pass", f"say which printed line means that a design passed ({lines})"
            )
        passed = ".*".join(map(re.escape, filter(None, _FORMAT.split(whole[0]))))
    verdict = OwnVerdict(passed, failed)
    for key, pattern in (("bench.pass", passed), ("bench.fail", failed)):
        if pattern and not prints(text, OwnVerdict(pattern).words):
            raise FolderError(key, f"no printing call of the bench has a word of {pattern!r}")
    return verdict


def chosen_top(names: Iterable[str], texts: Mapping[str, str], stated: str | None) -> str:
    """The module that an answer defines. Raises FolderError for none, and for several candidates."""
    own = {name for text in texts.values() for name in module_names(text)}
    if stated:
        if stated not in own:
            raise FolderError("top", f"no file defines the module {stated}")
        return stated
    fitting = [name for name in dict.fromkeys(names) if name in own]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        units = [unit for text in texts.values() for unit in modules(code_of(text))]
        used = {word for unit in units for word in words_of(unit.body)}
        fitting = [unit.name for unit in units if unit.name not in used and not unit.is_bench]
    if len(fitting) == 1:
        return fitting[0]
    choice = ", ".join(sorted(fitting or own)[:10]) or "no file defines a module"
    raise FolderError("top", f"name the module that an answer defines ({choice})")
