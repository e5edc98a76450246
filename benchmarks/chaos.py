"""Grades go on while graders are killed and the Docker engine is restarted: does every answer end with the right verdict?

    python -m benchmarks.chaos [--executor docker] [--grades 500] [--kill-every 60] [--restarts 4] [--seed 5]

A worker process grades numbered answers, two of three right ones, and appends each verdict to a file. It is killed with
SIGKILL after a random number of grades and started again, going on after what the file holds, as a run goes on from its history. With
Docker an engine of its own is started (needs root, and the image in the machine's engine), and ended too, now by SIGTERM,
now by SIGKILL, and started again. At the end every answer has the verdict it deserves, and no container, process or
workspace is left. Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.soak.engine import Engine
from rtl_core.errors import InfrastructureError
from rtl_core.grading.executors import Executor, make_executor
from rtl_core.grading.grader import Grader
from rtl_core.problems.starter import starter_problems
from rtl_core.types.answer import Answer

_PATIENCE_S = 180.0


@dataclass
class Outcome:
    """What a run of chaos came to."""

    graded: int = 0
    wrong: dict[int, str] = field(default_factory=dict)
    """Number of an answer -> the verdict that it should not have got."""
    kills: int = 0
    restarts: int = 0
    left: list[str] = field(default_factory=list)
    """Processes, containers and workspaces that are still there."""
    seconds: float = 0.0


def expected(number: int) -> str:
    """Answer `number` is golden, but every third has a module of another name."""
    return "passed" if number % 3 else "interface_mismatch"


def work(name: str, path: Path, count: int) -> None:
    """The worker: grades what the file does not hold yet. It waits for an engine that is down, as a run would."""
    problems = starter_problems("train", 18, 7)
    done = set(_verdicts(path))
    executor = _patiently(lambda: make_executor(name))
    grader = Grader(executor)

    def grade(number: int) -> str:
        problem = problems[number % len(problems)]
        golden = problem.golden or {}
        files = golden if number % 3 else dict.fromkeys(golden, "module wrong; endmodule\n")
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            verdict = grader.grade(problem, Answer(files=files))
            if verdict.outcome != "infrastructure_error" or time.monotonic() > deadline:
                return json.dumps({"number": number, "outcome": verdict.outcome, "why": verdict.reasons[:1]}) + "\n"
            time.sleep(0.5)

    with ThreadPoolExecutor(2) as pool, path.open("a") as file:
        for line in pool.map(grade, [n for n in range(count) if n not in done]):
            file.write(line)
            file.flush()
    grader.close()
    executor.close()


def chaos(
    grades: int, folder: Path, *, kill_every: int, seed: int, engine: Engine | None = None, restarts: int = 0
) -> Outcome:
    """Runs workers until all is graded: in Docker with an `engine`, else in bubblewrap.

    A worker is killed when it has graded 0.5 to 1.5 times `kill_every` answers, so a fast machine sees as many kills as a
    slow one; the engine is restarted at `restarts` random shares of the way.
    """
    name = "docker" if engine else "bubblewrap"
    environment = {**os.environ, **({"DOCKER_HOST": engine.host} if engine else {})}
    chance = random.Random(seed)
    path = folder / "verdicts.jsonl"
    marker = f"{folder.name}-{os.getpid()}"
    command = [
        sys.executable,
        "-m",
        "benchmarks.chaos",
        "--worker",
        str(path),
        "--executor",
        name,
        "--grades",
        str(grades),
    ]
    outcome = Outcome()
    started = time.monotonic()
    others = set(_workspaces())  # of graders that were killed before this began
    restart_at = sorted(chance.uniform(0.1, 0.8) for _ in range(restarts))
    while len(_verdicts(path)) < grades:
        before = len(_verdicts(path))
        worker = subprocess.Popen(command, env={**environment, "RTL_CHAOS": marker})
        kill_at = before + max(1, round(chance.uniform(0.5, 1.5) * kill_every))
        try:
            while worker.poll() is None:
                time.sleep(0.02)
                graded = len(_verdicts(path))
                share = graded / grades
                if engine and restart_at and share > restart_at[0]:
                    restart_at.pop(0)
                    with engine.down(chance.choice([signal.SIGTERM, signal.SIGKILL])):
                        time.sleep(chance.uniform(0, 3))
                    outcome.restarts += 1
                if graded >= kill_at and graded < grades:
                    worker.kill()
                    outcome.kills += 1
                    break
        finally:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
        if worker.returncode not in (0, -signal.SIGKILL):
            raise SystemExit(f"the worker ended with {worker.returncode}")
    verdicts = _verdicts(path)
    outcome.graded = len(verdicts)
    outcome.wrong = {number: found for number, found in verdicts.items() if found != expected(number)}
    outcome.seconds = time.monotonic() - started
    outcome.left = left_behind(marker, engine, others)
    return outcome


def left_behind(marker: str, engine: Engine | None, others: set[Path]) -> list[str]:
    """What outlives the workers after a moment's grace and, for Docker, the sweep that the next start makes.

    Workspaces among `others` are none of theirs.
    """
    if engine:
        command = [
            sys.executable,
            "-c",
            "from rtl_core.grading.executors import make_executor; make_executor('docker').close()",
        ]
        subprocess.run(command, env={**os.environ, "DOCKER_HOST": engine.host}, check=True)
    deadline = time.monotonic() + 30
    while True:
        found = [f"process {pid}" for pid in _descendants(marker)]
        found += [f"workspace {path}" for path in _workspaces() if path not in others and not _owned(path)]
        found += [f"container {identity}" for identity in (engine.containers() if engine else ())]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def _workspaces() -> list[Path]:
    return list(Path("/dev/shm").glob("rtl-distill-docker-*"))


def _owned(folder: Path) -> bool:
    """Whether a workspace is that of a grader that lives, which is then none of ours."""
    with contextlib.suppress(OSError, ValueError):
        return Path(f"/proc/{int((folder / 'owner').read_text().split(':')[0])}").exists()
    return False


def _verdicts(path: Path) -> dict[int, str]:
    """Number -> outcome. A line that a kill cut short is none: it is graded again."""
    found = {}
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_text().splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                found[record["number"]] = record["outcome"]
    return found


def _descendants(marker: str) -> list[int]:
    """Processes of this machine with `marker` in their environment: whatever a worker started, however deep."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if f"RTL_CHAOS={marker}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def _patiently(start: Callable[[], Executor]) -> Executor:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return start()
        except InfrastructureError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--executor", choices=("bubblewrap", "docker"), default="docker")
    parser.add_argument("--grades", type=int, default=500)
    parser.add_argument("--kill-every", type=int, default=60, help="answers graded between kills, on average")
    parser.add_argument("--restarts", type=int, default=4, help="restarts of the engine")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--worker", type=Path, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        work(arguments.executor, arguments.worker, arguments.grades)
        return
    with tempfile.TemporaryDirectory(prefix="rtl-chaos-") as folder, contextlib.ExitStack() as stack:
        docker = arguments.executor == "docker"
        engine = stack.enter_context(Engine(Path(folder) / "engine")) if docker else None
        outcome = chaos(
            arguments.grades,
            Path(folder),
            kill_every=arguments.kill_every,
            seed=arguments.seed,
            engine=engine,
            restarts=arguments.restarts if docker else 0,
        )
    print(
        f"{arguments.executor}: {outcome.graded} answers graded in {outcome.seconds:.0f} s, {outcome.kills} graders killed, "
        f"{outcome.restarts} engine restarts: {len(outcome.wrong)} wrong verdicts, {len(outcome.left)} things left behind"
    )
    for line in (*(f"wrong: {n} {v}" for n, v in outcome.wrong.items()), *outcome.left):
        print(line)
    raise SystemExit(1 if outcome.wrong or outcome.left else 0)


if __name__ == "__main__":
    main()
