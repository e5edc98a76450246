"""Do the executors agree? Right and wrong answers, graded by both, and every difference with its cause.

    python benchmarks/agreement.py [--data ../shared/data] [--starter 54] [--agentic 0]

Per starter problem: the golden answer, a mutant of it, one with a wrong port, one that does not compile, and a constant.
Per published example: the golden answer and its mutants. With --agentic N also a stand-in for the first N agentic
problems (see benchmarks/harnesses.py). Two verdicts agree when outcome and tests passed of total are the same.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.grading import examples
from benchmarks.harnesses import stand_in
from rtl_core.grading import Grader, Limits, Verdict, make_executor
from rtl_core.problems.cvdp import read_cvdp
from rtl_core.problems.problem import Problem
from rtl_core.problems.starter import starter_problems
from rtl_core.prompting.answer import Answer

_OPERATORS = {"+": "-", "-": "+", "&": "|", "|": "&", "==": "!=", "<": ">", "1'b1": "1'b0", "~": ""}


def answers(problem: Problem) -> Iterator[tuple[str, dict[str, str]]]:
    """(kind, files): right and wrong answers to a problem with a golden one."""
    golden = problem.golden or {}
    yield "golden", golden
    mutant = {path: _mutated(text) for path, text in golden.items()}
    if mutant != golden:
        yield "mutant", mutant
    yield (
        "wrong port",
        {p: re.sub(r"\binput\b(\s*\w*)", r"input wrong_port, input\1", t, count=1) for p, t in golden.items()},
    )
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
    words = " ".join((*one.reasons, *other.reasons)).lower()
    if "infrastructure_error" in (one.outcome, other.outcome):
        return "one executor lacks something: " + next(iter((*one.reasons, *other.reasons)), "")[:80]
    if "longer than" in words:
        return "time: one ran into its limit"
    if "compile_failed" in (one.outcome, other.outcome):
        return f"compiler versions ({', '.join(sorted(tools)) or 'the same'})"
    return f"simulator or library versions ({', '.join(sorted(tools)) or 'the same'})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = Path(__file__).resolve().parent.parent
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("RTL_DISTILL_DATA", here.parent / "shared/data"))
    )
    parser.add_argument("--starter", type=int, default=60)
    parser.add_argument("--agentic", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=60.0)
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
    limits = Limits(wall_s=arguments.timeout, cpu_s=arguments.timeout)
    verdicts: dict[str, list[Verdict]] = {}
    for name in ("bubblewrap", "docker"):
        executor = make_executor(name)
        grader = Grader(executor, limits=limits)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [pool.submit(grader.grade, p, Answer(files=files)) for p, _, files in pairs]
            verdicts[name] = [job.result() for job in track(jobs, name, console=console)]
        grader.close()
        executor.close()
        console.print(f"{name}: {verdicts[name][0].tools}")
    table = Table("problem", "answer", "bubblewrap", "docker", "cause", title="differences")
    counts: Counter[str] = Counter()
    for (problem, kind, _), one, other in zip(pairs, *verdicts.values(), strict=True):
        counts[f"{kind}: {one.outcome.value}"] += 1
        if (one.outcome, one.tests_passed, one.tests_total) != (other.outcome, other.tests_passed, other.tests_total):
            counts["differences"] += 1
            cells = [f"{v.outcome.value} {v.tests_passed}/{v.tests_total}" for v in (one, other)]
            table.add_row(problem.id, kind, *cells, cause(one, other))
    console.print(table)
    console.print(f"{len(pairs)} pairs, {counts.pop('differences', 0)} differences; {dict(counts)}")


if __name__ == "__main__":
    main()
