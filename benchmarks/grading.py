"""How fast answers are graded, against the bare tools on the same cores in the same run.

    python -m benchmarks.grading [--data ../shared/data] [--count 36] [--rounds 3] [--executors bubblewrap,docker]
                                 [--against CHECKOUT | --public CHECKOUT]

The bare tools are the harness' own command, run on the host in a directory of its own without any sandbox, by as many
threads. Blocks of both alternate, so that what else the machine does falls on both, and each executor is compared with
the blocks beside its own; a pause between them keeps what an executor clears up out of the other's time. Each answer is
a golden answer of the starter set or of the published CVDP examples. Wall time is what counts; the CPU time of the tools
alone is given beside it, and where the wall time of one answer goes. The cache is measured on its own.

With `rtl-distill toolchain install` the executors run the simulation image's tools and the bare tools are this machine's;
point RTL_DISTILL_TOOLS at an empty directory to compare bubblewrap with the same tools.

With --against the same loop runs in turns with this version and with another checkout's (after `make setup` in it), each over its own
problems and in a process of its own, and the ratio of their medians is printed; bare tools are not measured then.

With --public the executors run in turns with the public CVDP runner, see benchmarks/public_runner.py.

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
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from benchmarks import public_runner
from benchmarks.common import ROOT, names, options, show
from rtl_core.grading.cache import MemoryCache
from rtl_core.grading.compose import read_services
from rtl_core.grading.executors import make_executor
from rtl_core.grading.grader import Grader
from rtl_core.problems.cvdp import read_cvdp
from rtl_core.problems.starter import starter_problems
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Stage, Verdict

SETTLE_S = 1.5


def bare(problem: Problem) -> None:
    """Runs every service of the harness on the host, as its author would by hand."""
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
    for name in ("/code/", "/rundir/"):
        text = text.replace(name, f"{top}{'/' if name == '/code/' else name}")
    words = text.replace("/src/", f"{top}/src/").replace(f"{top}{top}", str(top))
    return words if not words.endswith("/src") else words.removesuffix("/src") + f"{top}/src"


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
    """The published examples with goldens that open tools can grade."""
    files = sorted((data / "cvdp").glob("*v1.1.0_example*no_commercial*.jsonl"))
    return [problem for path in files for problem in read_cvdp(path).problems]


def main() -> None:
    parser = options(__doc__, data=True)
    parser.add_argument("--count", type=int, default=36, help="starter problems; with --public, answers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--executors", type=names, default=["bubblewrap"], help="comma-separated")
    parser.add_argument("--against", type=Path, help="another checkout of this project, to compare with")
    parser.add_argument("--public", type=Path, help="a checkout of the public CVDP runner, to compare with")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.public:
        public_runner.compare(
            arguments.public, arguments.data, arguments.executors, arguments.count, arguments.rounds, arguments.threads
        )
        return
    sets = {"starter set": starter_problems("train", arguments.count, 0), "CVDP goldens": examples(arguments.data) * 6}
    if arguments.serve:
        _serve(sets, arguments.executors[0], arguments.threads)
        return
    for title, problems in sets.items():
        if not problems:
            print(f"{title}: none found under {arguments.data}")
        elif not arguments.against:
            _compare(title, problems, arguments.executors, arguments.rounds, arguments.threads)
    if not arguments.against:
        _cache(sets["starter set"], arguments.threads)
        return
    for name in arguments.executors:
        _against([title for title, problems in sets.items() if problems], name, arguments)


def _compare(title: str, problems: list[Problem], executors: list[str], rounds: int, threads: int) -> None:
    """Alternates bare tools and executors over the same problems and prints its tables."""
    walls, beside, cpus = (defaultdict[str, list[float]](list) for _ in range(3))
    phases: dict[str, dict[str, float]] = {}
    for name in executors:
        executor = make_executor(name)
        grader = Grader(executor)
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda p, g=grader: _graded(g, p), problems[:threads]))  # cells and caches are started
        said: list[Verdict] = []
        for _ in range(rounds):
            time.sleep(SETTLE_S)
            wall, cpu = measure(bare, problems, threads)
            walls["bare tools"].append(wall)
            beside[name].append(wall)
            cpus["bare tools"].append(cpu)
            before = executor.cpu_s
            wall, _ = measure(lambda p, g=grader, s=said: s.append(_graded(g, p)), problems, threads)
            walls[name].append(wall)
            cpus[name].append(executor.cpu_s - before)
        phases[name] = split(said)
        grader.close()
        executor.close()
    rows = []
    for name, values in walls.items():
        wall = statistics.median(values)
        cpu = statistics.median(cpus[name]) / len(problems)
        base = statistics.median(beside.get(name, values))
        each = (f"{60 * len(problems) / wall:.0f}", f"{wall / len(problems):.3f}", f"{cpu:.3f}", f"{wall / base:.2f}")
        rows.append((name, *each))
    columns = ("", "answers/min", "wall s each", "CPU s each", "wall, bare = 1")
    show(f"{title}: {len(problems)} golden answers, {threads} threads, median of {rounds} rounds", columns, rows)
    parts = [(name, *(f"{value:.3f}" for value in seconds.values())) for name, seconds in phases.items()]
    show(f"{title}: where its time goes", ("median s of one answer", *phases[executors[0]]), parts)


def _serve(sets: dict[str, list[Problem]], name: str, threads: int) -> None:
    """Grades a set once for each line of standard input, which is its title, and prints the seconds that an answer took."""
    with make_executor(name) as executor:
        grader = Grader(executor)
        for line in sys.stdin:
            problems = sets[line.strip()]
            wall, _ = measure(lambda p: _graded(grader, p), problems, threads)
            print(wall / len(problems), flush=True)
        grader.close()


def _against(titles: list[str], name: str, arguments: argparse.Namespace) -> None:
    """Alternates this version and another checkout's and prints the ratio of their times."""
    folders = {"this version": ROOT, "the other": arguments.against.resolve()}
    serve = ["-m", "benchmarks.grading", "--serve", "--executors", name, "--data", str(arguments.data.resolve())]
    serve += ["--count", str(arguments.count), "--threads", str(arguments.threads)]
    pipe = subprocess.PIPE
    if missing := [folder for folder in folders.values() if not (folder / ".venv/bin/python").exists()]:
        raise SystemExit(f"no .venv in {missing[0]}: run `make setup` there")
    rows = []
    with ExitStack() as stack:
        workers = {
            label: stack.enter_context(
                subprocess.Popen([".venv/bin/python", *serve], cwd=folder, text=True, stdin=pipe, stdout=pipe)
            )
            for label, folder in folders.items()
        }
        for title in titles:
            # The first round starts what starts once, and does not count.
            times = [[_asked(worker, title) for worker in workers.values()] for _ in range(arguments.rounds + 1)]
            ours, other = (statistics.median(seconds) for seconds in zip(*times[1:], strict=True))
            rows.append((title, f"{ours:.3f}", f"{other:.3f}", f"{ours / other:.2f}"))
    show(f"{name}: median s each of {arguments.rounds} rounds, in turns", ("", *folders, "ratio"), rows)


def _asked(worker: subprocess.Popen[str], title: str) -> float:
    """The seconds that a worker takes for an answer of a set."""
    assert worker.stdin is not None and worker.stdout is not None  # noqa: PT018
    worker.stdin.write(f"{title}\n")
    worker.stdin.flush()
    line = worker.stdout.readline()
    if not line:
        raise SystemExit(f"a worker ended with {worker.wait()}: {' '.join(map(str, worker.args))}")  # type: ignore[arg-type]
    return float(line)


def split(verdicts: list[Verdict]) -> dict[str, float]:
    """Median seconds by phase, of answers that were all graded to the end."""
    rows = [(v.stage(Stage.INTERFACE).wall_s, v.stage(Stage.TESTS).wall_s, v.wall_s) for v in verdicts]
    return {
        "screen and interface": statistics.median(screen for screen, _, _ in rows),
        "harness": statistics.median(tests for _, tests, _ in rows),
        "sandbox and rest": statistics.median(whole - screen - tests for screen, tests, whole in rows),
        "whole": statistics.median(whole for _, _, whole in rows),
    }


def _graded(grader: Grader, problem: Problem) -> Verdict:
    verdict = grader.grade(problem, Answer(files=problem.golden or {}))
    if not verdict.passed:
        raise SystemExit(f"{problem.id}: {verdict.outcome}: {verdict.reasons}")
    return verdict


def _cache(problems: list[Problem], threads: int) -> None:
    """A second pass over graded answers comes from the cache."""
    executor = make_executor("bubblewrap")
    grader = Grader(executor, cache=MemoryCache())
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda p: _graded(grader, p), problems))
    many = problems * 30
    started = time.perf_counter()
    for problem in many:
        _graded(grader, problem)
    rate = len(many) / (time.perf_counter() - started)
    grader.close()
    executor.close()
    print(f"from the cache, one thread: {rate:,.0f} verdicts/s")


if __name__ == "__main__":
    main()
