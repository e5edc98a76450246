"""Grades go on while graders are killed and the Docker engine is restarted: does every answer end with the right verdict?

    python -m benchmarks.chaos [--executor docker] [--grades 500] [--kill-every 15] [--restarts 4] [--seed 5]

A worker process grades numbered answers, two of three right ones, and appends each verdict to a file. It is killed with
SIGKILL at random moments and started again, going on after what the file holds, as a run goes on from its history. With
Docker the engine too is ended, now by SIGTERM, now by SIGKILL, and started again with its own command line (needs root
and an engine of this machine). At the end every answer has the verdict it deserves, and no container, process or
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rtl_core.errors import InfrastructureError
from rtl_core.grading import Grader, make_executor
from rtl_core.grading.executors import Executor
from rtl_core.grading.executors.docker import LABEL
from rtl_core.problems.starter import starter_problems
from rtl_core.prompting.answer import Answer

ENGINE_PID = Path("/var/run/docker.pid")
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


def chaos(name: str, grades: int, folder: Path, *, kill_every_s: float, restarts: int, seed: int) -> Outcome:
    """Runs workers until all is graded, killing and restarting at random moments."""
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
    restart_at = sorted(chance.uniform(0.1, 0.8) for _ in range(restarts if name == "docker" else 0))
    while len(_verdicts(path)) < grades:
        worker = subprocess.Popen(command, env={**os.environ, "RTL_CHAOS": marker})
        kill_at = time.monotonic() + chance.uniform(0.5, 1.5) * kill_every_s
        try:
            while worker.poll() is None:
                time.sleep(0.1)
                share = len(_verdicts(path)) / grades
                if restart_at and share > restart_at[0]:
                    restart_at.pop(0)
                    with engine_down(chance.choice([signal.SIGTERM, signal.SIGKILL])):
                        time.sleep(chance.uniform(0, 3))
                    outcome.restarts += 1
                # The last fifth is left in peace, so that it ends.
                if time.monotonic() > kill_at and share < 0.8:
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
    outcome.left = left_behind(name, marker)
    return outcome


@contextlib.contextmanager
def engine_down(how: signal.Signals = signal.SIGTERM) -> Iterator[None]:
    """Ends the engine of this machine; at the end it is started again with the command line that it had."""
    pid = int(ENGINE_PID.read_text())
    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().strip("\0").split("\0")
    os.kill(pid, how)
    _until(lambda: _is_dead(pid), f"the engine {pid} to end")
    try:
        yield
    finally:
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        _until(_engine_answers, "the engine to answer again")


def left_behind(name: str, marker: str) -> list[str]:
    """What outlives the workers after a moment's grace and, for Docker, the sweep that the next start makes."""
    found: list[str] = []
    if name == "docker":
        make_executor("docker").close()

    def look() -> bool:
        found[:] = [f"process {pid}" for pid in _descendants(marker)]
        if name == "docker":
            import docker

            with contextlib.closing(docker.APIClient(version="auto")) as api:
                found.extend(f"container {c['Names']}" for c in api.containers(all=True, filters={"label": LABEL}))
        found.extend(f"workspace {path}" for path in Path("/dev/shm").glob("rtl-distill-docker-*"))
        return not found

    with contextlib.suppress(TimeoutError):
        _until(look, "everything to end", 30)
    return found


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


def _is_dead(pid: int) -> bool:
    """Whether a process has ended and only waits for its parent, which may be nobody we know."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _engine_answers() -> bool:
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def _until(true: Callable[[], bool], what: str, patience_s: float = 120.0) -> None:
    deadline = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {patience_s:g} s for {what}")
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--executor", choices=("bubblewrap", "docker"), default="docker")
    parser.add_argument("--grades", type=int, default=500)
    parser.add_argument("--kill-every", type=float, default=15.0, help="seconds between kills, on average")
    parser.add_argument("--restarts", type=int, default=4, help="restarts of the engine")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--worker", type=Path, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        work(arguments.executor, arguments.worker, arguments.grades)
        return
    with tempfile.TemporaryDirectory(prefix="rtl-chaos-") as folder:
        outcome = chaos(
            arguments.executor,
            arguments.grades,
            Path(folder),
            kill_every_s=arguments.kill_every,
            restarts=arguments.restarts,
            seed=arguments.seed,
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
