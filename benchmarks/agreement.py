"""Do the executors agree? Right and wrong answers, graded by both, and every difference with its cause.

    python -m benchmarks.agreement [--data ../shared/data] [--starter 54] [--agentic 0]

Per starter problem and published example: the golden answer, a mutant of it, one with a port more, one with a port
renamed, one that does not compile, and a constant. With --agentic N also a stand-in for the first N agentic problems
(see benchmarks/harnesses.py). Two verdicts agree when outcome and tests passed of total are the same. With the toolchain
installed (`rtl-distill toolchain install`) both run the same tools, and no difference is expected; the exit code is 1 if
there is one.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.grading import examples
from rtl_core.grading.executors import Executor, make_executor
from rtl_core.grading.grader import Grader
from rtl_core.grading.limits import Limits
from rtl_core.grading.stand_in import stand_in
from rtl_core.problems.cvdp import read_cvdp
from rtl_core.problems.starter import starter_problems
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Outcome, Verdict

_OPERATORS = {"+": "-", "-": "+", "&": "|", "|": "&", "==": "!=", "<": ">", "1'b1": "1'b0", "~": ""}


def answers(problem: Problem) -> Iterator[tuple[str, dict[str, str]]]:
    """(kind, files): right and wrong answers to a problem with a golden one."""
    golden = problem.golden or {}
    yield "golden", golden
    mutant = {path: _mutated(text) for path, text in golden.items()}
    if mutant != golden:
        yield "mutant", mutant
    yield "port more", {p: re.sub(r"\binput\b", "input one_more, input", text, count=1) for p, text in golden.items()}
    if problem.interface:
        port = problem.interface.ports[0].name
        yield "port renamed", {p: re.sub(rf"\b{re.escape(port)}\b", f"{port}_x", text) for p, text in golden.items()}
    yield "broken", {path: text.replace(";", "", 1) for path, text in golden.items()}
    if problem.interface:
        ports = ", ".join(f"{p.direction} [{(p.width or 1) - 1}:0] {p.name}" for p in problem.interface.ports)
        zeros = "".join(f"assign {p.name} = 0;\n" for p in problem.interface.ports if p.direction == "output")
        yield "constant", {problem.targets[0]: f"module {problem.interface.module}({ports});\n{zeros}endmodule\n"}


def _mutated(text: str) -> str:
    head, _, body = text.partition(";")
    for old, new in _OPERATORS.items():
        if old in body:
            return f"{head};{body.replace(old, new, 1)}"
    return text


def cause(one: Verdict, other: Verdict) -> str:
    """Why two verdicts may differ, as far as they tell."""
    tools = {t for t in set(one.tools) & set(other.tools) if one.tools[t] != other.tools[t]}
    if "infrastructure_error" in (one.outcome, other.outcome):
        broken = one if one.outcome is Outcome.INFRASTRUCTURE_ERROR else other
        return f"{broken.executor} could not: " + next(iter(broken.reasons), "")[:80]
    if Outcome.TIMEOUT in (one.outcome, other.outcome):
        return "time: one ran into its limit"
    if "compile_failed" in (one.outcome, other.outcome):
        return f"compiler versions ({', '.join(sorted(tools)) or 'the same'})"
    return f"simulator or library versions ({', '.join(sorted(tools)) or 'the same'})"


@dataclass(frozen=True)
class Pair:
    """A problem and an answer of a kind, with the verdict of each executor by name."""

    problem: Problem
    kind: str
    verdicts: dict[str, Verdict]

    @property
    def agreed(self) -> bool:
        said = {(v.outcome, v.tests_passed, v.tests_total) for v in self.verdicts.values()}
        return len(said) == 1 and Outcome.INFRASTRUCTURE_ERROR not in {v.outcome for v in self.verdicts.values()}


def agreement(
    pairs: Sequence[tuple[Problem, str, Mapping[str, str]]], executors: Mapping[str, Executor], limits: Limits
) -> list[Pair]:
    """Grades (problem, kind, files) by every executor, on all cores."""
    verdicts: dict[str, list[Verdict]] = {}
    for name, executor in executors.items():
        grader = Grader(executor, limits=limits)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [pool.submit(grader.grade, p, Answer(files=dict(files))) for p, _, files in pairs]
            verdicts[name] = [job.result() for job in track(jobs, name, console=Console(stderr=True))]
        grader.close()
    return [
        Pair(problem, kind, dict(zip(verdicts, said, strict=True)))
        for (problem, kind, _), *said in zip(pairs, *verdicts.values(), strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = Path(__file__).resolve().parent.parent
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("RTL_DISTILL_DATA", here.parent / "shared/data"))
    )
    parser.add_argument("--starter", type=int, default=54)
    parser.add_argument("--agentic", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=30.0)
    arguments = parser.parse_args()
    console = Console(width=150)
    pairs = [
        (p, kind, files)
        for p in (*starter_problems("heldout", arguments.starter, 1), *examples(arguments.data))
        for kind, files in answers(p)
    ]
    if arguments.agentic:
        path = next((arguments.data / "cvdp").glob("*v1.0*agentic*no_commercial.jsonl"))
        pairs += [(p, "stand-in", stand_in(p)) for p in read_cvdp(path).problems[: arguments.agentic]]
    executors = {name: make_executor(name) for name in ("bubblewrap", "docker")}
    for name, executor in executors.items():
        console.print(f"{name}: {executor.tools()}")
    found = agreement(pairs, executors, Limits(wall_s=arguments.timeout, cpu_s=arguments.timeout))
    for executor in executors.values():
        executor.close()
    counts = Counter(f"{pair.kind}: {pair.verdicts['docker'].outcome.value}" for pair in found)
    summary = Table("answer: verdict of docker", "pairs", title=f"{len(found)} pairs")
    for label, count in sorted(counts.items()):
        summary.add_row(label, str(count))
    console.print(summary)
    different = [pair for pair in found if not pair.agreed]
    if different:
        table = Table("problem", "answer", "bubblewrap", "docker", "cause", title="differences")
        for pair in different:
            one, other = pair.verdicts.values()
            cells = [f"{v.outcome.value} {v.tests_passed}/{v.tests_total}" for v in (one, other)]
            table.add_row(pair.problem.id, pair.kind, *cells, cause(one, other))
        console.print(table)
    console.print(f"{len(found)} pairs, {len(different)} differences")
    raise SystemExit(1 if different else 0)


if __name__ == "__main__":
    main()
