"""Grades go on while graders are killed and the Docker engine is restarted: does every answer end with the right verdict?

    python -m benchmarks.chaos [--executor docker] [--grades 500] [--kill-every 60] [--restarts 4] [--seed 5]

A worker process grades numbered answers, two of three right ones, and appends each verdict to a file. It is killed with
SIGKILL after a random number of grades and started again, going on after what the file holds, as a run goes on from its history. With
Docker an engine of its own is started (needs root, and the image in the machine's engine), and ended too, now by SIGTERM,
now by SIGKILL, and started again. At the end every answer has the verdict it deserves, and no container, process or
workspace is left. Exit code 1 otherwise.
"""

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
from typing import TypeVar

from benchmarks.common import marked, options
from benchmarks.soak.engine import Engine
from rtl_core.errors import InfrastructureError
from rtl_core.grading.executors import make_executor
from rtl_core.grading.grader import Grader
from rtl_core.problems.starter import starter_problems
from rtl_core.types.answer import Answer

PATIENCE_S = 180.0
MARK = "RTL_CHAOS"
"""Variable in the environment of everything that a worker starts."""
Made = TypeVar("Made")


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


def work(executor_name: str, path: Path, count: int) -> None:
    """The worker: grades what the file does not hold yet. It waits for an engine that is down, as a run would."""
    problems = starter_problems("train", 18, 7)
    done = verdicts_in(path)
    executor = patiently(lambda: make_executor(executor_name))

    def grade(number: int) -> str:
        problem = problems[number % len(problems)]
        golden = problem.golden or {}
        files = golden if number % 3 else dict.fromkeys(golden, "module wrong; endmodule\n")

        def verdict() -> str:
            found = grader.grade(problem, Answer(files=files))
            if found.outcome == "infrastructure_error":
                raise InfrastructureError(str(found.reasons))
            return found.outcome

        return json.dumps({"number": number, "outcome": patiently(verdict)}) + "\n"

    with (
        contextlib.closing(executor),
        contextlib.closing(Grader(executor)) as grader,
        ThreadPoolExecutor(2) as pool,
        path.open("a") as file,
    ):
        for line in pool.map(grade, [n for n in range(count) if n not in done]):
            file.write(line)
            file.flush()


def patiently(make: Callable[[], Made]) -> Made:
    """What `make` makes, as soon as the engine lets it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return make()
        except InfrastructureError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def verdicts_in(path: Path) -> dict[int, str]:
    """Number -> outcome. A line that a kill cut short is none: it is graded again."""
    found = {}
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_text().splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                found[record["number"]] = record["outcome"]
    return found


def chaos(
    grades: int, folder: Path, *, kill_every: int, seed: int, engine: Engine | None = None, restarts: int = 0
) -> Outcome:
    """Runs workers until all is graded: in Docker with an `engine`, else in bubblewrap.

    A worker is killed when it has graded 0.5 to 1.5 times `kill_every` answers, so a fast machine sees as many kills as a
    slow one; the engine is restarted at `restarts` random shares of the way.
    """
    chance, outcome, path = random.Random(seed), Outcome(), folder / "verdicts.jsonl"
    mark = f"{folder.name}-{os.getpid()}"
    environment = {**os.environ, MARK: mark, **({"DOCKER_HOST": engine.host} if engine else {})}
    options = {"--worker": path, "--executor": "docker" if engine else "bubblewrap", "--grades": grades}
    command = [sys.executable, "-m", "benchmarks.chaos", *(str(word) for pair in options.items() for word in pair)]
    others = set(workspaces())  # of graders that were killed before this began
    restart_at = sorted(grades * chance.uniform(0.1, 0.8) for _ in range(restarts))
    while (before := len(verdicts_in(path))) < grades:
        kill_at = before + max(1, round(chance.uniform(0.5, 1.5) * kill_every))
        worker = subprocess.Popen(command, env=environment)
        try:
            while worker.poll() is None:
                time.sleep(0.02)
                graded = len(verdicts_in(path))
                if engine and restart_at and graded > restart_at[0]:
                    restart_at.pop(0)
                    with engine.down(chance.choice([signal.SIGTERM, signal.SIGKILL])):
                        time.sleep(chance.uniform(0, 3))
                    outcome.restarts += 1
                if kill_at <= graded < grades:
                    outcome.kills += 1
                    break
        finally:
            worker.kill()
        if worker.wait() not in (0, -signal.SIGKILL):
            raise SystemExit(f"the worker ended with {worker.returncode}")
    found = verdicts_in(path)
    outcome.graded = len(found)
    deserved = {number: "passed" if number % 3 else "interface_mismatch" for number in found}
    outcome.wrong = {number: verdict for number, verdict in found.items() if verdict != deserved[number]}
    outcome.left = left_behind(mark, engine, others)
    return outcome


def left_behind(mark: str, engine: Engine | None, others: set[Path]) -> list[str]:
    """What outlives the workers after a moment's grace and, for Docker, the sweep that the next start makes.

    Workspaces among `others` are none of theirs.
    """
    if engine:
        sweep = "from rtl_core.grading.executors import make_executor; make_executor('docker').close()"
        subprocess.run([sys.executable, "-c", sweep], env={**os.environ, "DOCKER_HOST": engine.host}, check=True)
    deadline = time.monotonic() + 30
    while True:
        found = [f"process {pid}" for pid in marked(f"{MARK}={mark}")]
        found += [f"workspace {path}" for path in workspaces() if path not in others and not is_owned(path)]
        found += [f"container {identity}" for identity in (engine.containers() if engine else ())]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def workspaces() -> list[Path]:
    return list(Path("/dev/shm").glob("rtl-distill-docker-*"))


def is_owned(folder: Path) -> bool:
    """Whether a workspace is that of a grader that lives, which is then none of ours."""
    with contextlib.suppress(OSError, ValueError):
        return Path(f"/proc/{int((folder / 'owner').read_text().split(':')[0])}").exists()
    return False


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--executor", choices=("bubblewrap", "docker"), default="docker")
    parser.add_argument("--grades", type=int, default=500)
    parser.add_argument("--kill-every", type=int, default=60, help="answers graded between kills, on average")
    parser.add_argument("--restarts", type=int, default=4, help="restarts of the engine")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--worker", type=Path, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        work(given.executor, given.worker, given.grades)
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rtl-chaos-") as name, contextlib.ExitStack() as stack:
        folder, engine, restarts = Path(name), None, 0
        if given.executor == "docker":
            engine, restarts = stack.enter_context(Engine(folder / "engine")), given.restarts
        outcome = chaos(
            given.grades, folder, kill_every=given.kill_every, seed=given.seed, engine=engine, restarts=restarts
        )
    print(
        f"{given.executor}: {outcome.graded} answers graded in {time.monotonic() - began:.0f} s, {outcome.kills} graders killed, "
        f"{outcome.restarts} engine restarts: {len(outcome.wrong)} wrong verdicts, {len(outcome.left)} things left behind"
    )
    for line in (*(f"wrong: {number} {verdict}" for number, verdict in outcome.wrong.items()), *outcome.left):
        print(line)
    return bool(outcome.wrong or outcome.left)


if __name__ == "__main__":
    sys.exit(main())
