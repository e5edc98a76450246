"""Which harnesses of a CVDP file run here, and for each other one why not.

    python -m benchmarks.harnesses PROBLEMS.jsonl [--executor bubblewrap] [--markdown TABLE.md]

Public sets hold no golden answers, so each harness is given something that compiles if it can: the context's own
version of the targets where there is one, else a stub with the ports that the problem demands and no behaviour. Such
an answer should fail; what is asked here is whether the harness gets as far as judging it, test by test.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import track
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", type=Path)
    parser.add_argument("--executor", default="bubblewrap")
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--markdown", type=Path, default=None, help="also write the table there")
    arguments = parser.parse_args()
    console = Console(width=160)
    found = read_cvdp(arguments.problems)
    executor = make_executor(arguments.executor)
    grader = Grader(executor, limits=Limits(wall_s=arguments.timeout, cpu_s=arguments.timeout))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(grader.grade, p, Answer(files=stand_in(p))) for p in found.problems]
        verdicts = [job.result() for job in track(jobs, "harnesses", console=console)]
    grader.close()
    executor.close()
    rows = [
        (
            p.id.removeprefix("cvdp_"),
            p.category,
            kind(v),
            v.outcome.value,
            f"{v.tests_passed}/{v.tests_total}",
            _word(v),
        )
        for p, v in zip(found.problems, verdicts, strict=True)
    ]
    rows += [(left.id, "", "left out", "", "", left.reason) for left in found.left_out]
    rows += [(broken.id or f"line {broken.line}", "", "broken", "", "", broken.reason) for broken in found.broken]
    names = ("problem", "category", "harness", "outcome", "tests", "first reason")
    table = Table(*names, title=str(arguments.problems.name))
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(dict(Counter(row[2] for row in rows)))
    if arguments.markdown:
        lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        arguments.markdown.write_text("\n".join(lines) + "\n")


def _word(verdict: Verdict) -> str:
    reasons = verdict.reasons or verdict.stages[3].reasons
    return reasons[0][:150] if reasons else ""


if __name__ == "__main__":
    main()
