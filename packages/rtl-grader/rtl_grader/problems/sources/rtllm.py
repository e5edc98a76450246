"""RTLLM v2, read from a clone of its repository.

Each design is a folder with `design_description.txt`, `testbench.v`, `verified_*.v` and files that the
bench reads. A design passes when the bench prints `Your Design Passed`, as in RTLLM's own script. The
golden answer is the verified design with its top module renamed to the one that the bench instantiates.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rtl_grader.errors import ProblemError
from rtl_grader.problems.problem_set import ProblemSet
from rtl_grader.problems.sources import SOURCES, FileSource
from rtl_grader.problems.testbench import (
    Bench,
    bench_modules,
    bench_problem,
    read_benches,
    renamed,
)
from rtl_grader.problems.testbench.rewrite import prints
from rtl_grader.types.problem import Problem

SOURCE = "rtllm"
DESCRIPTION = "design_description.txt"
MARKERS = ("Your Design Passed", "Your design passed", "Passed", "passed")
_NOT_DATA = {DESCRIPTION, "makefile", "Makefile"}
MAX_DATA_BYTES = 1 << 20


@SOURCES.register(SOURCE)
class RtllmSource(FileSource):
    """RTLLM v2, judged by its own test benches."""

    path: Path
    """Folder of a clone of RTLLM."""
    published = (50, 700.0)

    @classmethod
    def how_to_get(cls, path: Path) -> str:
        return f"get it with `git clone https://github.com/hkust-zhiyao/RTLLM {path}`, or change the path"

    def read(self) -> ProblemSet:
        return read_rtllm(self.path)


def read_rtllm(root: Path) -> ProblemSet:
    """Read every design below the clone's folder, in the order of their paths. Raises ProblemError when
    there is none."""
    folders = sorted(entry.parent for entry in root.rglob(DESCRIPTION))
    if not folders:
        raise ProblemError(
            f"no RTLLM design under {root}",
            f"give a clone of RTLLM; it should hold .../{DESCRIPTION}",
        )
    entries = []
    for folder in folders:
        place = str((folder / DESCRIPTION).relative_to(root))
        entries.append((place, folder.name, "testbench.v", partial(_problem, folder)))
    return read_benches(entries, SOURCE)


def _problem(folder: Path) -> Problem:
    prompt = _read(folder / DESCRIPTION)
    bench_text = _read(folder / "testbench.v")
    verified = sorted(folder.glob("verified_*.v"))
    others = sorted(file.name for file in folder.glob("*.*v") if file.name != "testbench.v")
    if others and not verified:
        names = ", ".join(others)
        raise ValueError(
            f"no file is called verified_*.v, which would be the golden answer, but {names}"
        )
    tops, used = bench_modules(bench_text)
    if len(tops) != 1 or not used:
        names = ", ".join(used) or "nothing"
        raise ValueError(f"the test bench has {len(tops)} top modules and instantiates {names}")
    dut = folder.name if folder.name in used else used[0]
    marker = next((m for m in MARKERS if prints(bench_text, m)), None)
    if marker is None:
        raise ValueError("the test bench never says that the design passed")
    golden = None
    if verified:
        golden = _read(verified[0])
        own, _ = bench_modules(golden)
        if not own:
            raise ValueError(f"{verified[0].name} has no top module")
        if dut not in own:
            top = next((name for name in own if name.startswith("verified_")), own[-1])
            golden = renamed(golden, {top: dut})
    bench = Bench(
        sources={"testbench.v": bench_text},
        design=f"rtl/{dut}.v",
        dut=dut,
        top=tops[0],
        marker=marker,
        data={
            file.name: _read_data(file) for file in filter(_is_data, sorted(folder.iterdir()))
        },
        golden=golden,
    )
    return bench_problem(bench, SOURCE, folder.name, prompt)


def _is_data(entry: Path) -> bool:
    is_source = entry.name.endswith((".v", ".sv"))
    return entry.is_file() and not is_source and entry.name not in _NOT_DATA


def _read_data(entry: Path) -> str:
    if entry.stat().st_size > MAX_DATA_BYTES:
        raise ValueError(f"{entry.name} is larger than {MAX_DATA_BYTES >> 20} MiB")
    return _read(entry)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
