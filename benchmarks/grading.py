"""Measure how fast answers are graded, compared with the bare tools on the same cores in the same run.

    python -m benchmarks.grading [--data ../shared/data] [--count 36] [--rounds 3] [--executors bubblewrap,docker]
                                 [--against CHECKOUT]

The bare tools are the harness' own command, run on the host without a sandbox, by as many threads. All take
turns, so that other load on the machine affects them alike; a first round is not counted. Each answer is a
golden answer of the starter set or of the published CVDP examples. Prints wall time, the CPU time of the
tools alone, and the phases of one answer's wall time.

After `rtl-distill admin toolchain install` the executors run the simulation image's tools, and the bare tools are
this machine's; point RTL_DISTILL_TOOLS at an empty directory to compare bubblewrap with the same tools.

--against runs the same loop in turns with another checkout's (after `make setup` there), each over its own
problems, and prints the ratio of their medians; bare tools are not measured then.

Not covered: wrong answers (they cost less), Verilator harnesses (compilation there is minutes of g++).
"""

import argparse
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.answers import golden, grader_on
from benchmarks.common import ROOT, in_turns, options, show
from rtl_core.starter import starter_problems
from rtl_grader.grading.compose import read_services
from rtl_grader.grading.grader import Grader
from rtl_grader.problems.cvdp import read_cvdp
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Stage, Verdict

PHASES = ("screen and interface", "harness", "sandbox and rest", "whole")


def bare(problem: Problem) -> None:
    """Run every service of the harness on the host, as its author would by hand."""
    top = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        for directory in ("rtl", "verif", "docs", "src", "rundir"):
            (top / directory).mkdir()
        for path, text in {
            **problem.context,
            **(problem.golden or {}),
            **problem.harness,
        }.items():
            full = top / path
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_text(_here(text, top))
        for step in read_services(problem.harness)[0]:
            environment = {
                **os.environ,
                **{name: _here(value, top) for name, value in step.env.items()},
            }
            environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            environment["HOME"] = str(top / "rundir")
            # Plugins of this environment cost the bare tools up to half their time; CVDP's image has none.
            environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
            command = [_here(word, top) for word in step.argv]
            done = subprocess.run(
                command,
                cwd=top / "rundir",
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise SystemExit(
                    f"{problem.id}: {shlex.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
                )
    finally:
        shutil.rmtree(top)


def _here(text: str, top: Path) -> str:
    """A text of the harness with the sandbox's paths moved below `top`."""
    text = (
        text.replace("/code/", f"{top}/")
        .replace("/rundir/", f"{top}/rundir/")
        .replace("/src/", f"{top}/src/")
    )
    text = text.replace(f"{top}{top}", str(top))
    return f"{text.removesuffix('/src')}{top}/src" if text.endswith("/src") else text


def measure(
    work: Callable[[Problem], object], problems: list[Problem], threads: int
) -> tuple[float, float]:
    """(wall seconds, CPU seconds of ended child processes) for one pass over the problems."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, problems))
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def examples(data: Path) -> list[Problem]:
    """The published examples with golden answers that open tools can grade."""
    files = sorted((data / "cvdp").glob("*v1.1.0_example*no_commercial*.jsonl"))
    return [problem for path in files for problem in read_cvdp(path).problems]


def main() -> None:
    parser = options(
        __doc__,
        data=True,
        count=(36, "starter problems"),
        rounds=3,
        threads=os.cpu_count() or 1,
        executors=["bubblewrap"],
        against=(Path, "another checkout of this project, to compare with"),
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    rounds, threads = arguments.rounds, arguments.threads
    sets = {
        "starter set": starter_problems("train", arguments.count, 0),
        "CVDP goldens": examples(arguments.data) * 6,
    }
    if arguments.serve:
        _serve(sets, arguments.executors[0], threads)
        return
    if not sets["CVDP goldens"]:
        print(f"CVDP goldens: none found under {arguments.data}")
        del sets["CVDP goldens"]
    if arguments.against:
        for name in arguments.executors:
            _against([*sets], name, arguments)
        return
    for title, problems in sets.items():
        _compare(title, problems, arguments.executors, rounds, threads)


def _compare(
    title: str, problems: list[Problem], executors: list[str], rounds: int, threads: int
) -> None:
    """Alternate bare tools and executors over the same problems, and print the tables."""
    said: dict[str, list[Verdict]] = {name: [] for name in executors}

    def by(name: str, grader: Grader) -> tuple[float, float]:
        before = grader.executor.cpu_s
        wall, _ = measure(
            lambda problem: said[name].append(_graded(grader, problem)), problems, threads
        )
        return wall, grader.executor.cpu_s - before

    with ExitStack() as stack:
        ways = {"bare tools": partial(measure, bare, problems, threads)}
        for name in executors:
            ways[name] = partial(by, name, stack.enter_context(grader_on(name)))
        found = in_turns(ways, rounds)
    medians = {name: np.median(figures, axis=0) for name, figures in found.items()}
    rows = []
    for name, (wall, cpu) in medians.items():
        each = (
            f"{wall / len(problems):.3f}",
            f"{cpu / len(problems):.3f}",
            f"{wall / medians['bare tools'][0]:.2f}",
        )
        rows.append((name, f"{60 * len(problems) / wall:.0f}", *each))
    columns = ("", "answers/min", "wall s each", "CPU s each", "wall, bare = 1")
    show(
        f"{title}: {len(problems)} golden answers, {threads} threads, median of {rounds} rounds",
        columns,
        rows,
    )
    parts = [
        (name, *map("{:.3f}".format, split(verdicts[len(problems) :])))
        for name, verdicts in said.items()
    ]
    show(f"{title}: where its time goes", ("median s of one answer", *PHASES), parts)


def _serve(sets: dict[str, list[Problem]], name: str, threads: int) -> None:
    """Grade a set for each line of standard input, which is its title, and print the seconds per answer."""
    with grader_on(name) as grader:
        for line in sys.stdin:
            problems = sets[line.strip()]
            wall, _ = measure(lambda p: _graded(grader, p), problems, threads)
            print(wall / len(problems), flush=True)


def _against(titles: list[str], name: str, arguments: argparse.Namespace) -> None:
    """Alternate this version and another checkout's, and print the ratio of their times."""
    folders = {"this version": ROOT, "the other": arguments.against.resolve()}
    serve = [
        "-m",
        "benchmarks.grading",
        "--serve",
        "--executors",
        name,
        "--data",
        str(arguments.data.resolve()),
    ]
    serve += ["--count", str(arguments.count), "--threads", str(arguments.threads)]
    if missing := [
        folder for folder in folders.values() if not (folder / ".venv/bin/python").exists()
    ]:
        raise SystemExit(f"no .venv in {missing[0]}: run `make setup` there")

    def seconds(folder: Path, title: str) -> float:
        """Seconds per answer of a second pass; the first one starts the sandboxes."""
        command = [".venv/bin/python", *serve]
        done = subprocess.run(
            command,
            cwd=folder,
            input=f"{title}\n" * 2,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return float(done.stdout.splitlines()[-1])

    rows = []
    for title in titles:
        ways = {label: partial(seconds, folder, title) for label, folder in folders.items()}
        ours, other = map(statistics.median, in_turns(ways, arguments.rounds).values())
        rows.append((title, f"{ours:.3f}", f"{other:.3f}", f"{ours / other:.2f}"))
    show(
        f"{name}: median s each of {arguments.rounds} rounds, in turns",
        ("", *folders, "ratio"),
        rows,
    )


def split(verdicts: list[Verdict]) -> list[float]:
    """Median seconds of `PHASES`, for answers that were graded to the end."""
    rows = []
    for v in verdicts:
        screen, tests = v.stage(Stage.INTERFACE).wall_s, v.stage(Stage.TESTS).wall_s
        rows.append((screen, tests, v.wall_s - screen - tests, v.wall_s))
    return np.median(rows, axis=0).tolist()


def _graded(grader: Grader, problem: Problem) -> Verdict:
    verdict = grader.grade(problem, golden(problem))
    if not verdict.passed:
        raise SystemExit(f"{problem.id}: {verdict.outcome}: {verdict.reasons}")
    return verdict


if __name__ == "__main__":
    main()
