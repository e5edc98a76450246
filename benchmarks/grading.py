"""Measure how fast answers are graded, compared with the bare tools on the same cores in the same run.

    python -m benchmarks.grading [--data ../shared/data] [--count 36] [--rounds 3] [--executors bubblewrap,docker]
                                 [--against CHECKOUT | --public CHECKOUT]

The bare tools are the harness' own command, run on the host without a sandbox, by as many threads. All take turns, so that other load on the
machine affects them alike; a first round is not counted. Each answer is a golden answer of the starter set or of the published CVDP
examples. Prints wall time, the CPU time of the tools alone, the phases of one answer's wall time, and the speed of the cache.

After `rtl-distill toolchain install` the executors run the simulation image's tools, and the bare tools are this machine's;
point RTL_DISTILL_TOOLS at an empty directory to compare bubblewrap with the same tools.

--against runs the same loop in turns with another checkout's (after `make setup` there), each over its own problems, and prints the ratio of
their medians; bare tools are not measured then.

--public compares the executors in turns with the public CVDP runner on CVDP answers, with its own command, the same image and as many threads.
CHECKOUT is of the runner's repository, with its requirements installed in CHECKOUT/.venv. It needs a Docker engine with the simulation image,
and the client's plugin `docker compose`.

Not covered: wrong answers (they cost less), Verilator harnesses (compilation there is minutes of g++).
"""

import argparse
import json
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

from benchmarks.answers import golden, grade_all, grader_on
from benchmarks.common import ROOT, in_turns, options, show, write_jsonl
from rtl_core.errors import InfrastructureError
from rtl_core.grading.cache import MemoryCache
from rtl_core.grading.compose import read_services
from rtl_core.grading.executors.docker import IMAGE
from rtl_core.grading.grader import Grader
from rtl_core.problems.cvdp import read_cvdp
from rtl_core.problems.starter import starter_problems
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Stage, Verdict

LONG = ("cvdp_copilot_digital_dice_roller_0001", "cvdp_copilot_vga_controller_0001")
"""Left out: they simulate for half a minute or more on any grader, which would dominate the measurement."""
GOLDENS = ROOT / "tests/fidelity/goldens"
SETTLE_S = 2.0
PHASES = ("screen and interface", "harness", "sandbox and rest", "whole")


def bare(problem: Problem) -> None:
    """Run every service of the harness on the host, as its author would by hand."""
    top = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        for directory in ("rtl", "verif", "docs", "src", "rundir"):
            (top / directory).mkdir()
        for path, text in {**problem.context, **(problem.golden or {}), **problem.harness}.items():
            full = top / path
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_text(_here(text, top))
        for step in read_services(problem.harness)[0]:
            environment = {**os.environ, **{name: _here(value, top) for name, value in step.env.items()}}
            environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            environment["HOME"] = str(top / "rundir")
            # Plugins of this environment cost the bare tools up to half their time; CVDP's image has none.
            environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
            command = [_here(word, top) for word in step.argv]
            done = subprocess.run(
                command, cwd=top / "rundir", env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise SystemExit(f"{problem.id}: {shlex.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    finally:
        shutil.rmtree(top)


def _here(text: str, top: Path) -> str:
    """A text of the harness with the sandbox's paths moved below `top`."""
    text = text.replace("/code/", f"{top}/").replace("/rundir/", f"{top}/rundir/").replace("/src/", f"{top}/src/")
    text = text.replace(f"{top}{top}", str(top))
    return f"{text.removesuffix('/src')}{top}/src" if text.endswith("/src") else text


def measure(work: Callable[[Problem], object], problems: list[Problem], threads: int) -> tuple[float, float]:
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
        __doc__, data=True, count=(36, "starter problems; with --public, answers"), rounds=3, threads=os.cpu_count() or 1,
        executors=["bubblewrap"], against=(Path, "another checkout of this project, to compare with"),
        public=(Path, "a checkout of the public CVDP runner, to compare with"),
    )  # fmt: skip
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    rounds, threads = arguments.rounds, arguments.threads
    if arguments.public:
        compare_public(arguments.public, arguments.data, arguments.executors, arguments.count, rounds, threads)
        return
    sets = {"starter set": starter_problems("train", arguments.count, 0), "CVDP goldens": examples(arguments.data) * 6}
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
    _cache(sets["starter set"])


def _compare(title: str, problems: list[Problem], executors: list[str], rounds: int, threads: int) -> None:
    """Alternate bare tools and executors over the same problems, and print the tables."""
    said: dict[str, list[Verdict]] = {name: [] for name in executors}

    def by(name: str, grader: Grader) -> tuple[float, float]:
        before = grader.executor.cpu_s
        wall, _ = measure(lambda problem: said[name].append(_graded(grader, problem)), problems, threads)
        return wall, grader.executor.cpu_s - before

    with ExitStack() as stack:
        ways = {"bare tools": partial(measure, bare, problems, threads)}
        for name in executors:
            ways[name] = partial(by, name, stack.enter_context(grader_on(name)))
        found = in_turns(ways, rounds, SETTLE_S)
    medians = {name: np.median(figures, axis=0) for name, figures in found.items()}
    rows = []
    for name, (wall, cpu) in medians.items():
        each = (f"{wall / len(problems):.3f}", f"{cpu / len(problems):.3f}", f"{wall / medians['bare tools'][0]:.2f}")
        rows.append((name, f"{60 * len(problems) / wall:.0f}", *each))
    columns = ("", "answers/min", "wall s each", "CPU s each", "wall, bare = 1")
    show(f"{title}: {len(problems)} golden answers, {threads} threads, median of {rounds} rounds", columns, rows)
    parts = [(name, *map("{:.3f}".format, split(verdicts[len(problems) :]))) for name, verdicts in said.items()]
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
    serve = ["-m", "benchmarks.grading", "--serve", "--executors", name, "--data", str(arguments.data.resolve())]
    serve += ["--count", str(arguments.count), "--threads", str(arguments.threads)]
    if missing := [folder for folder in folders.values() if not (folder / ".venv/bin/python").exists()]:
        raise SystemExit(f"no .venv in {missing[0]}: run `make setup` there")

    def seconds(folder: Path, title: str) -> float:
        """Seconds per answer of a second pass; the first one starts the sandboxes."""
        command = [".venv/bin/python", *serve]
        done = subprocess.run(
            command, cwd=folder, input=f"{title}\n" * 2, stdout=subprocess.PIPE, text=True, check=True
        )
        return float(done.stdout.splitlines()[-1])

    rows = []
    for title in titles:
        ways = {label: partial(seconds, folder, title) for label, folder in folders.items()}
        ours, other = map(statistics.median, in_turns(ways, arguments.rounds).values())
        rows.append((title, f"{ours:.3f}", f"{other:.3f}", f"{ours / other:.2f}"))
    show(f"{name}: median s each of {arguments.rounds} rounds, in turns", ("", *folders, "ratio"), rows)


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


def _cache(problems: list[Problem]) -> None:
    """Print how fast a second pass over graded answers is, which the cache answers."""
    with grader_on("bubblewrap", cache=MemoryCache()) as grader:
        grade_all(grader, [(problem, golden(problem)) for problem in problems])
        many = problems * 30
        started = time.perf_counter()
        for problem in many:
            _graded(grader, problem)
        rate = len(many) / (time.perf_counter() - started)
    print(f"from the cache, one thread: {rate:,.0f} verdicts/s")


def compare_public(checkout: Path, data: Path, names: list[str], count: int, rounds: int, threads: int) -> None:
    """Alternate the runner and our executors over `count` answers and print one table. The first round is not counted."""
    with tempfile.TemporaryDirectory(prefix="public-runner-") as folder:
        file = Path(folder) / "answers.jsonl"
        write_jsonl(file, public_records(data, count))
        jobs = [(problem, golden(problem)) for problem in read_cvdp(file).problems]

        def ours(grader: Grader) -> tuple[float, int]:
            started = time.perf_counter()
            passed = sum(verdict.passed for verdict in grade_all(grader, jobs, threads))
            return time.perf_counter() - started, passed

        with ExitStack() as stack:
            ways = {"public runner": partial(run_public, checkout.resolve(), file, threads)}
            ways |= {name: partial(ours, stack.enter_context(grader_on(name))) for name in names}
            found = in_turns(ways, rounds, SETTLE_S)
    lines = []
    for name, figures in found.items():
        walls, passed = zip(*figures, strict=True)
        ratio = statistics.median(w / base for w, (base, _) in zip(walls, found["public runner"], strict=True))
        seconds = (statistics.median(walls), min(walls), max(walls))
        right = f"{min(passed)} to {max(passed)}"
        lines.append((name, *(f"{figure:.1f}" for figure in seconds), f"{ratio:.2f}", right))
    columns = ("", "wall s", "least", "most", "runner = 1", "passed")
    show(f"{count} CVDP answers, {threads} threads, {rounds} rounds in turns", columns, lines)


def public_records(data: Path, count: int) -> list[dict[str, object]]:
    """`count` records of the open single-turn set with known-good answers, repeated under new ids."""
    known: list[dict] = []
    for line in (data / "cvdp-single" / "problems.jsonl").read_text().splitlines():
        record = json.loads(line)
        answer = GOLDENS / f"{record['id']}.sv"
        if answer.is_file() and record["id"] not in LONG:
            (path,) = record["output"]["context"]
            known.append({**record, "output": {"response": "", "context": {path: answer.read_text()}}})
    found = []
    for number in range(count):
        record = known[number % len(known)]
        name, _, last = record["id"].rpartition("_")
        found.append({**record, "id": f"{name}_{number // len(known)}_{last}"})
    return found


def run_public(checkout: Path, file: Path, threads: int) -> tuple[float, int]:
    """(wall seconds, answers that passed) of one pass of the public runner. Raises InfrastructureError if it reports nothing."""
    work = Path(tempfile.mkdtemp(prefix="public-runner-work-"))
    command = [checkout / ".venv/bin/python", "run_benchmark.py", "-f", file, "-t", str(threads), "-p", work / "run"]
    environment = {**os.environ, "OSS_SIM_IMAGE": IMAGE}
    try:
        started = time.perf_counter()
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        wall = time.perf_counter() - started
        report = work / "run" / "raw_result.json"
        if done.returncode or not report.is_file():
            raise InfrastructureError(f"the public runner failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        results = json.loads(report.read_text())
        return wall, sum(entry.get("errors", 1) == 0 for entry in results.values())
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
