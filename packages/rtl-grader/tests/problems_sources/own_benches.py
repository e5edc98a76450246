"""A complete problem source of a user's own: designs with test benches, three files each.

`NAME.md` asks for a module `NAME`, `NAME.sv` is a correct answer, `NAME_tb.sv` has a module `tb` that prints `RESULT: ok` for it.
"""

from functools import partial
from pathlib import Path

from rtl_grader.problems.problem_set import ProblemSet
from rtl_grader.problems.sources import FileSource
from rtl_grader.problems.testbench import Bench, bench_problem, read_benches
from rtl_grader.types.problem import Problem


class Benches(FileSource):
    """Designs with their test benches, three files each."""

    path: Path
    """Folder of the files."""

    def read(self) -> ProblemSet:
        texts = sorted(self.path.glob("*.md"))
        return read_benches(
            ((t.name, t.stem, f"{t.stem}_tb.sv", partial(problem, t)) for t in texts),
            "own-benches",
        )


def problem(text: Path) -> Problem:
    """Return the problem of a `NAME.md`. Raises OSError for a missing file, ValueError for a bench without a verdict."""
    bench = Bench(
        sources={"tb.sv": text.with_name(f"{text.stem}_tb.sv").read_text()},
        design=f"rtl/{text.stem}.sv",
        dut=text.stem,
        top="tb",
        marker="RESULT:",
        passed=" ok$",
        golden=text.with_suffix(".sv").read_text(),
    )
    return bench_problem(bench, "own-benches", text.stem, text.read_text())
