"""Which harnesses of a CVDP file run here, and for each other one why not.

    python -m benchmarks.harnesses PROBLEMS.jsonl ... [--executors bubblewrap,docker] [--all] [--markdown TABLE.md]

A golden answer is taken where there is one. Public sets hold few, so every other harness is given something that compiles
if it can: the context's own version of the targets where there is one, else a stub with the ports that the problem demands
and no behaviour. Such an answer should fail; what is asked here is whether the harness gets as far as judging it.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rtl_core.grading import Grader, Limits, Outcome, Verdict, make_executor
from rtl_core.problems.cvdp import read_cvdp
from rtl_core.problems.interface import module_names
from rtl_core.problems.problem import Interface, Problem
from rtl_core.prompting.answer import Answer


def stand_in(problem: Problem) -> dict[str, str]:
    """The context's version of the targets, with a stub of the demanded module where the context has none."""
    files = {path: problem.context.get(path, "") for path in problem.targets}
    interface = problem.interface
    hdl = [text for path, text in problem.context.items() if path.startswith("rtl/")]
    given = {name for text in (*files.values(), *hdl) for name in module_names(text)}
    if interface is not None and interface.module not in given:
        home = next((path for path in files if interface.module in path), problem.targets[0])
        files[home] += stub(interface)
    for path in files:
        if not files[path].strip():
            files[path] = f"module stub_{path.rsplit('/', 1)[-1].split('.')[0]}; endmodule\n"
    return files


def stub(interface: Interface) -> str:
    """A module with the demanded ports, 32 bits wide where the width is not known, that does nothing."""
    ports = []
    for port in interface.ports:
        width = 32 if port.width is None and port.name not in ("clk", "clock", "rst", "reset") else port.width or 1
        ports.append(f"{port.direction or 'output'} [{width - 1}:0] {port.name}")
    parameters = ", ".join(
        f"parameter {p.name} = {8 if p.default is None else p.default}" for p in interface.parameters
    )
    head = f" #({parameters})" if parameters else ""
    return f"module {interface.module}{head}({', '.join(ports)});\nendmodule\n"


def kind(verdict: Verdict) -> str:
    """How far the harness got."""
    if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
        return "does not run"
    if verdict.outcome in (Outcome.PASSED, Outcome.TESTS_FAILED, Outcome.TIMEOUT) or verdict.tests_total:
        return "runs"
    simulated = verdict.stages[2].status == "passed" and verdict.stages[3].reasons
    return "runs" if simulated else "runs up to the compiler"


@dataclass(frozen=True)
class Row:
    """One problem: what became of it with each executor."""

    problem: str
    category: str
    found: dict[str, str]
    """Executor -> how far the harness got, and the outcome."""
    why: str = ""
    """The first reason where it did not run, or why the problem is left out."""

    @property
    def runs(self) -> bool:
        return bool(self.found) and all(text.startswith("runs:") for text in self.found.values())


def look(path: Path, name: str, timeout_s: float) -> dict[str, tuple[Problem, Verdict]]:
    """Problem id -> verdict of one executor on the golden answer, or on the stand-in where there is none."""
    problems = read_cvdp(path).problems
    executor = make_executor(name)
    grader = Grader(executor, limits=Limits(wall_s=timeout_s, cpu_s=timeout_s))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(grader.grade, p, Answer(files=p.golden or stand_in(p))) for p in problems]
        done = {p.id: (p, job.result()) for p, job in zip(problems, jobs, strict=True)}
    grader.close()
    executor.close()
    return done


def rows_of(path: Path, names: list[str], timeout_s: float) -> list[Row]:
    """Every line of a file, in order of kind: graded, left out, broken."""
    found = read_cvdp(path)
    seen = {name: look(path, name, timeout_s) for name in names}
    rows = []
    for problem in found.problems:
        verdicts = {name: done[problem.id][1] for name, done in seen.items()}
        texts = {n: f"{kind(v)}: {v.outcome.value}, {v.tests_passed} of {v.tests_total}" for n, v in verdicts.items()}
        stopped = [v for v in verdicts.values() if kind(v) != "runs"]
        rows.append(Row(problem.id, problem.category, texts, _word(stopped[0]) if stopped else ""))
    rows += [Row(left.id, "", {}, f"left out: {left.reason}") for left in found.left_out]
    return rows + [
        Row(broken.id or f"line {broken.line}", "", {}, f"broken: {broken.reason}") for broken in found.broken
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", type=Path, nargs="+")
    parser.add_argument("--executors", default="bubblewrap", help="comma-separated")
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--markdown", type=Path, default=None, help="also write there what is shown")
    parser.add_argument("--all", action="store_true", help="show the harnesses that run everywhere, too")
    arguments = parser.parse_args()
    names = arguments.executors.split(",")
    rows = [row for path in arguments.problems for row in rows_of(path, names, arguments.timeout)]
    shown = [row for row in rows if arguments.all or not row.runs]
    heads = ("problem", "category", *names, "why")
    cells = [(r.problem.removeprefix("cvdp_"), r.category, *(r.found.get(n, "") for n in names), r.why) for r in shown]
    table = Table(*heads, title=", ".join(path.name for path in arguments.problems))
    for row in cells:
        table.add_row(*row)
    console = Console(width=160)
    console.print(table)
    for name in names:
        counts = Counter(row.found[name].split(":")[0] for row in rows if name in row.found)
        outcomes = Counter(row.found[name].split(": ")[1].split(",")[0] for row in rows if name in row.found)
        console.print(name, dict(counts), dict(outcomes))
    if arguments.markdown:
        lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
        arguments.markdown.write_text("\n".join(lines) + "\n")


def _word(verdict: Verdict) -> str:
    reasons = verdict.reasons or verdict.stages[3].reasons
    return reasons[0][:150] if reasons else ""


if __name__ == "__main__":
    main()
