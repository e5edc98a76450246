"""VerilogEval v2, specification to RTL, read from a clone of its repository.

Each problem is three files: `ProbNNN_name_prompt.txt`, `..._ref.sv` (module RefModule) and `..._test.sv`, a bench that
compares TopModule with RefModule and prints `Mismatches: 0 in N samples`. The golden answer is the reference, renamed.

The same line decides for a bench that stops itself after 100,000 cycles and prints `TIMEOUT`. The clone's
code-completion set is not read: it has the same problems in other words.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rtl_grader.errors import ProblemError
from rtl_grader.problems.problem_set import ProblemSet
from rtl_grader.problems.sources import SOURCES, FileSource
from rtl_grader.problems.testbench import Bench, bench_problem, read_benches, renamed
from rtl_grader.types.problem import Problem

SOURCE = "verilog-eval"
FOLDER = "dataset_spec-to-rtl"
TARGET = "rtl/TopModule.sv"
_SUFFIX = "_prompt.txt"


@SOURCES.register(SOURCE)
class VerilogEvalSource(FileSource):
    """VerilogEval v2, specification to RTL, judged by its own test benches."""

    path: Path
    """Folder of a clone of verilog-eval."""
    published = (156, 350.0)

    @classmethod
    def how_to_get(cls, path: Path) -> str:
        return f"get it with `git clone https://github.com/NVlabs/verilog-eval {path}`, or change the path"

    def read(self) -> ProblemSet:
        return read_verilog_eval(self.path)


def read_verilog_eval(root: Path) -> ProblemSet:
    """Read the clone's folder, or its `dataset_spec-to-rtl`, in the order of the names. Raises ProblemError
    when there is none."""
    folder = root / FOLDER if (root / FOLDER).is_dir() else root
    prompts = sorted(folder.glob(f"*{_SUFFIX}"))
    if not prompts:
        raise ProblemError(
            f"no VerilogEval problem under {root}",
            f"give a clone of verilog-eval; it should hold {FOLDER}/*{_SUFFIX}",
        )
    entries = []
    for prompt in prompts:
        name = prompt.name.removesuffix(_SUFFIX)
        entries.append((prompt.name, name, f"{name}_test.sv", partial(_problem, folder, name)))
    return read_benches(entries, SOURCE)


def _problem(folder: Path, name: str) -> Problem:
    text = {}
    for part in ("prompt.txt", "ref.sv", "test.sv"):
        path = folder / f"{name}_{part}"
        text[part] = path.read_text(encoding="utf-8", errors="replace")
    if "module RefModule" not in text["ref.sv"]:
        raise ValueError(f"{name}_ref.sv has no module RefModule")
    bench = Bench(
        sources={"test.sv": text["test.sv"], "ref.sv": text["ref.sv"]},
        design=TARGET,
        dut="TopModule",
        top="tb",
        marker="Mismatches:",
        passed=r" +0 in +[1-9][0-9]* samples *$",
        golden=renamed(text["ref.sv"], {"RefModule": "TopModule"}),
    )
    return bench_problem(bench, SOURCE, name, text["prompt.txt"])
