"""Kill graders and restart the Docker engine while answers are graded: does every answer get the right
verdict in the end?

    python -m benchmarks.chaos [--executor docker] [--grades 500] [--kill-every 60] [--restarts 4] [--seed 5]

`rtl-distill grade answers` grades numbered answers, of which two in three are right. It is killed with SIGKILL
after a random number of verdicts and started again, as a user would do. With Docker a separate engine is
started (this needs root, and the image in the machine's engine) and restarted by SIGTERM or SIGKILL. In the
end every answer must have its right verdict, and no container, process or workspace may be left; otherwise
the exit code is 1.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import command, marked, options, write_jsonl
from benchmarks.engine import Engine
from rtl_core.starter import starter_problems
from rtl_core.synthesis.variants import record_of
from rtl_grader.grading.executors.docker import is_gone

MARK = "RTL_CHAOS"
"""Environment variable that every process of a grader has."""
FRUITLESS = 10
"""Give up after this many graders in a row that leave no new verdict: there is no engine, or a fault."""


@dataclass
class Outcome:
    """Result of a run of chaos."""

    graded: int = 0
    wrong: dict[int, str] = field(default_factory=dict)
    """Number of an answer -> its wrong verdict."""
    kills: int = 0
    restarts: int = 0
    left: list[str] = field(default_factory=list)
    """Processes, containers and workspaces that were left behind."""


def write_answers(folder: Path, count: int) -> tuple[Path, Path]:
    """Write files of problems and of numbered answers to them. Every third answer is wrong."""
    problems = starter_problems("train", 18, 7)
    answers = []
    for number in range(count):
        problem = problems[number % len(problems)]
        golden = problem.golden or {}
        files = golden if number % 3 else dict.fromkeys(golden, "module wrong; endmodule\n")
        answers.append({"id": problem.id, "sample": number, "files": files})
    paths = folder / "problems.jsonl", folder / "answers.jsonl"
    write_jsonl(paths[0], map(record_of, problems))
    write_jsonl(paths[1], answers)
    return paths


def verdicts_in(path: Path) -> dict[int, str]:
    """Number -> outcome. Truncated lines and failed gradings, which are repeated, are left out."""
    found = {}
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_text().splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if record["outcome"] != "infrastructure_error":
                    found[record["sample"]] = record["outcome"]
    return found


def chaos(
    grades: int,
    folder: Path,
    *,
    kill_every: int,
    seed: int,
    engine: Engine | None = None,
    restarts: int = 0,
) -> Outcome:
    """Run graders until everything is graded, in the `engine`'s Docker if there is one, else in bubblewrap.

    A grader is killed after 0.5 to 1.5 times `kill_every` answers, so that fast and slow machines see as
    many kills. The engine is restarted `restarts` times at random.
    """
    chance, outcome, path = random.Random(seed), Outcome(), folder / "verdicts.jsonl"
    mark = f"{folder.name}-{os.getpid()}"
    environment = {**os.environ, MARK: mark, **({"DOCKER_HOST": engine.host} if engine else {})}
    problems, answers = write_answers(folder, grades)
    executor = "docker" if engine else "bubblewrap"
    words = command(
        "grade",
        "answers",
        problems,
        "--answers",
        answers,
        "--output",
        path,
        "--executor",
        executor,
        "--jobs",
        2,
    )
    others = set(workspaces())  # left by earlier graders that were killed
    restart_at = sorted(grades * chance.uniform(0.1, 0.8) for _ in range(restarts))
    fruitless = 0
    while (before := len(verdicts_in(path))) < grades:
        kill_at = before + max(1, round(chance.uniform(0.5, 1.5) * kill_every))
        grader = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
        try:
            while grader.poll() is None:
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
            grader.kill()
            grader.wait()
        fruitless = fruitless + 1 if len(verdicts_in(path)) == before else 0
        if fruitless == FRUITLESS:
            raise SystemExit(f"the grader exits with {grader.returncode} and grades nothing")
    found = verdicts_in(path)
    outcome.graded = len(found)
    deserved = {number: "passed" if number % 3 else "interface_mismatch" for number in found}
    outcome.wrong = {
        number: verdict for number, verdict in found.items() if verdict != deserved[number]
    }
    outcome.left = left_behind(mark, engine, others)
    return outcome


def left_behind(mark: str, engine: Engine | None, others: set[Path]) -> list[str]:
    """What outlives the graders after a grace period and, for Docker, the sweep of the next start.
    Workspaces among `others` do not count."""
    if engine:
        sweep = "from rtl_grader.grading.executors import make_executor; make_executor('docker').close()"
        subprocess.run(
            [sys.executable, "-c", sweep],
            env={**os.environ, "DOCKER_HOST": engine.host},
            check=True,
        )
    deadline = time.monotonic() + 30
    while True:
        found = [f"process {pid}" for pid in marked(f"{MARK}={mark}")]
        found += [
            f"workspace {path}"
            for path in workspaces()
            if path not in others and not is_owned(path)
        ]
        found += [
            f"container {identity}" for identity in (engine.containers() if engine else ())
        ]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def workspaces() -> list[Path]:
    return list(Path("/dev/shm").glob("rtl-distill-docker-*"))


def is_owned(folder: Path) -> bool:
    """Whether a workspace belongs to a living grader, which is another program's."""
    with contextlib.suppress(OSError, ValueError):
        return not is_gone((folder / "owner").read_text())
    return False


def main() -> int:
    kill_every = (60, "answers graded between kills, on average")
    restarts = (4, "restarts of the engine")
    parser = options(__doc__, grades=500, kill_every=kill_every, restarts=restarts, seed=5)
    parser.add_argument("--executor", choices=("bubblewrap", "docker"), default="docker")
    given = vars(parser.parse_args())
    executor = given.pop("executor")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rtl-chaos-") as name:
        folder = Path(name)
        with (
            Engine(folder / "engine")
            if executor == "docker"
            else contextlib.nullcontext() as engine
        ):
            outcome = chaos(folder=folder, engine=engine, **given)
    print(
        f"{executor}: {outcome.graded} answers graded in {time.monotonic() - began:.0f} s, "
        f"{outcome.kills} graders killed, "
        f"{outcome.restarts} engine restarts: {len(outcome.wrong)} wrong verdicts, "
        f"{len(outcome.left)} things left behind"
    )
    for line in (
        *(f"wrong: {number} {verdict}" for number, verdict in outcome.wrong.items()),
        *outcome.left,
    ):
        print(line)
    return bool(outcome.wrong or outcome.left)


if __name__ == "__main__":
    sys.exit(main())
