"""A problem source of a user's own, whole: designs with their test benches, three files each.

`NAME.md` asks for a module `NAME`, `NAME.sv` is a right answer, `NAME_tb.sv` has a module `tb` that prints `RESULT: ok` for one.
"""

from __future__ import annotations

from pathlib import Path

from rtl_core.problems.interface import derive_interface
from rtl_core.problems.problem_set import BrokenLine, ProblemSet
from rtl_core.problems.sources import FileSource
from rtl_core.problems.testbench import Bench, bench_harness, difficulty_of
from rtl_core.types.problem import Problem


class Benches(FileSource):
    """Designs with their test benches, three files each."""

    path: Path
    """Folder of the files."""

    def read(self) -> ProblemSet:
        found = ProblemSet()
        for text in sorted(self.path.glob("*.md")):
            try:
                found.problems.append(problem(text))
            except (OSError, ValueError) as error:
                found.broken.append(BrokenLine(text.name, 1, text.stem, "files", str(error), "own-benches"))
        return found


def problem(text: Path) -> Problem:
    """The problem of one `NAME.md`. Raises OSError where a file is missing, ValueError for a bench without a verdict."""
    name, target = text.stem, f"rtl/{text.stem}.sv"
    golden = {target: text.with_suffix(".sv").read_text()}
    bench = Bench(
        sources={"tb.sv": text.with_name(f"{name}_tb.sv").read_text()},
        design=target,
        dut=name,
        top="tb",
        marker="RESULT:",
        passed=" ok$",
        golden=golden[target],
    )
    prompt, harness = text.read_text(), bench_harness(bench)
    return Problem(
        id=f"own_{name}",
        source="own-benches",
        category="cid003",
        difficulty=difficulty_of(golden[target]),
        prompt=prompt,
        targets=(target,),
        harness=harness,
        golden=golden,
        interface=derive_interface(prompt=prompt, context={}, targets=(target,), harness=harness, golden=golden),
    )
