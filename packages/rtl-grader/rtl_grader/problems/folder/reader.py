"""Makes the problem of a folder, of what is stated and what is guessed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rtl_grader.problems.design import difficulty_of
from rtl_grader.problems.faults import FieldError
from rtl_grader.problems.folder.bench import find_bench, read_inside
from rtl_grader.problems.folder.description import (
    Description,
    described,
    read_description,
)
from rtl_grader.problems.folder.design import find_design, only_top, specification
from rtl_grader.problems.folder.files import SOURCES, Folder
from rtl_grader.problems.folder.harnesses import cocotb_harness, verilog_harness
from rtl_grader.problems.folder.make import MakeKeys, make_keys
from rtl_grader.problems.judged import Compilation, judged_problem
from rtl_grader.problems.rtl.filelist import Listing, listing_of
from rtl_grader.problems.testbench import harness_problem
from rtl_grader.types.problem import Problem

SOURCE = "folder"
Place = tuple[str, Path, Path | None]
"""Name of a problem, its folder, and its `problem.toml` if it has one."""
_INSIDE = "\nThe test bench also reads these names inside the module: {}.\n"


@dataclass
class Understanding:
    """How a folder was understood: its problem, or what is wrong."""

    name: str
    place: str
    """The folder, or its `problem.toml`."""
    problem: Problem | None = None
    error: FieldError | None = None
    notes: dict[str, str] = field(default_factory=dict)
    """What was found: a noun -> words."""


def understand(name: str, folder: Path, description: Path | None) -> Understanding:
    """Read one folder. Whatever is wrong with its contents is in the result."""
    result = Understanding(name, str(description or folder))
    try:
        stated = read_description(description) if description else Description()
        result.problem = _problem(name, Folder(folder), stated, result.notes)
    except FieldError as error:
        result.error = error
    except ValueError as error:
        result.error = FieldError("bench", str(error))
    return result


def problem_places(path: Path) -> list[Place]:
    """The problems at `path`: one folder, or a folder of them."""
    children = sorted(path.iterdir())
    has_sources = any(child.suffix in SOURCES for child in children)
    places = _stated(path, has_sources)
    for child in () if places else children:
        if child.is_dir() and not child.name.startswith("."):
            places += _stated(child, True)
    return places


def _stated(path: Path, is_problem: bool) -> list[Place]:
    """The problems of `problem.toml`, or of several `NAME.problem.toml`, in a folder, or the folder itself."""
    name = path.resolve().name
    files = sorted(path.glob("*problem.toml"))
    if is_problem and not files:
        return [(name, path, None)]
    return [(f"{name}.{file.stem}".removesuffix(".problem"), path, file) for file in files]


def _problem(name: str, folder: Folder, stated: Description, notes: dict[str, str]) -> Problem:
    if stated.top:
        only_top(stated.top, (), folder.hdl)  # a wrong name is said first
    bench = find_bench(folder, stated)
    notes["bench"] = " ".join([bench.form, *bench.paths])
    make = make_keys(folder, bench.paths[0]) if bench.form == "makefile" else MakeKeys()
    keys = _completed(folder, stated, make)
    design = find_design(folder, keys, bench)
    notes["top"] = design.top
    golden, context = design.moved(design.answer), design.context
    notes.update(answer=" ".join(design.answer), given=" ".join(context))
    home = folder.text(design.answer[0])
    notes["spec"], specified = specification(folder, keys.spec, home, design.top)
    prompt = specified.strip() + "\n"
    name = re.sub(r"[^A-Za-z0-9]", "_", name)
    about: dict[str, Any] = {
        "id": f"{SOURCE}_{name}",
        "source": SOURCE,
        "category": "cid003",
        "difficulty": difficulty_of("\n".join(golden.values())),
        "prompt": prompt,
        "header": "missing",
        "origin": folder.root.name,
        "context": context,
        "golden": golden,
    }
    if bench.form == "equivalence":
        notes["verdict"] = "as the golden answer"
        macros = {name: str(value) for name, value in keys.define.items()}
        compilation = Compilation([*design.build.given], define=macros)
        problem = judged_problem(**about, top=design.top, compilation=compilation)
    else:
        if bench.form == "verilog":
            harness = verilog_harness(design, bench, notes)
        else:
            harness = cocotb_harness(design, make.test or bench.paths[0], notes)
        problem = harness_problem(**about, targets=tuple(golden), harness=harness)
    is_same = problem.prompt == prompt
    notes["ports"] = "named" if is_same else "the header is appended"
    names = read_inside(problem)
    if not names:
        return problem
    notes["inside"] = " ".join(names)
    prompt = problem.prompt + _INSIDE.format(notes["inside"])
    return problem.model_copy(update={"prompt": prompt})


def _completed(folder: Folder, stated: Description, make: MakeKeys) -> Description:
    """A description with what its file list and its Makefile say."""
    listing = Listing()
    if stated.filelist:
        listing = listing_of(folder.root / stated.filelist)
    for place, reason in listing.left_out:
        raise FieldError("filelist", f"{place}: {reason}")
    given = folder.glob(stated.given, "given") + folder.relative(listing.files)
    values = stated.model_dump(by_alias=True)
    values["given"] = given or make.given
    values["include"] += tuple(folder.relative(listing.include))
    values["define"] = {**make.define, **listing.define, **stated.define}
    keys = values["bench"]
    keys["plusargs"] += make.plusargs
    keys["parameters"] = keys["parameters"] or [make.parameters]
    return described(values)
