"""Graders and sandboxes are killed at random: every answer still ends with the right verdict, and nothing is left."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rtl_core.grading.executors import make_executor
from rtl_core.grading.grader import Grader
from rtl_core.grading.verdict import Outcome
from rtl_core.problems.starter import starter_problems
from rtl_core.prompting.answer import Answer

WORKER = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from rtl_core.grading import Grader, make_executor
from rtl_core.problems.starter import starter_problems
from rtl_core.prompting.answer import Answer

name, path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
problems = starter_problems("train", 18, 7)
try:
    done = {json.loads(line)["number"] for line in open(path) if line.endswith("\\n")}
except OSError:
    done = set()
grader = Grader(make_executor(name))

def grade(number):
    problem = problems[number % len(problems)]
    files = problem.golden if number % 3 else {p: "module wrong; endmodule\\n" for p in problem.golden}
    for _ in range(20):
        verdict = grader.grade(problem, Answer(files=files))
        if verdict.outcome != "infrastructure_error":
            break
    return json.dumps({"number": number, "outcome": verdict.outcome}) + "\\n"

with ThreadPoolExecutor(2) as pool, open(path, "a") as file:
    for line in pool.map(grade, [n for n in range(count) if n not in done]):
        file.write(line)
        file.flush()
"""


def descendants(marker: str) -> list[int]:
    """Processes of this machine with `marker` in their environment: whatever a worker started, however deep."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if marker.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def engine_containers() -> int:
    import docker

    api = docker.APIClient(version="auto")
    return len(api.containers(all=True, filters={"label": "rtl-distill.owner"}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count"), [("bubblewrap", 360), pytest.param("docker", 140, marks=pytest.mark.docker)]
)
def test_killed_graders_are_started_again_and_leave_nothing(tmp_path, name, count):
    chance = random.Random(5)
    path = tmp_path / "verdicts.jsonl"
    marker = f"RTL_TEST_MARKER={tmp_path.name}-{os.getpid()}"
    environment = {**os.environ, **dict([marker.split("=")])}
    kills = 0
    for _ in range(40):
        worker = subprocess.Popen([sys.executable, "-c", WORKER, name, str(path), str(count)], env=environment)
        try:
            worker.wait(chance.uniform(8, 25) if kills < 12 else 900)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
            kills += 1
            continue
        assert worker.returncode == 0
        break
    verdicts = {}
    for line in path.read_text().splitlines():
        with contextlib.suppress(ValueError):  # the line that a kill cut short is graded again
            record = json.loads(line)
            verdicts[record["number"]] = record["outcome"]
    assert {
        number: outcome
        for number, outcome in verdicts.items()
        if outcome != ("passed" if number % 3 else "interface_mismatch")
    } == {}
    assert len(verdicts) == count
    assert kills > 0
    deadline = time.monotonic() + 30
    while descendants(marker) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert descendants(marker) == []
    if name == "docker":
        with make_executor("docker"):
            pass  # its start sweeps what the killed ones left
        assert engine_containers() == 0
        assert not list(Path("/dev/shm").glob("rtl-distill-docker-*"))


@pytest.mark.parametrize("name", ["bubblewrap", pytest.param("docker", marks=pytest.mark.docker)])
def test_sandboxes_that_die_at_random_change_no_verdict(name):
    chance = random.Random(11)
    problems = starter_problems("train", 6, 2)
    stop = threading.Event()
    with make_executor(name) as executor:

        def kill_now_and_then():
            while not stop.wait(chance.uniform(0.3, 1.0)):
                if name == "docker":
                    for entry in executor._api.containers(filters={"label": f"rtl-distill.owner={executor._owner}"}):
                        if chance.random() < 0.3:
                            with contextlib.suppress(Exception):
                                executor._api.kill(entry["Id"])
                else:
                    for cell in list(executor._busy):
                        if chance.random() < 0.5:
                            cell.kill()

        killer = threading.Thread(target=kill_now_and_then)
        killer.start()
        grader = Grader(executor)
        try:
            for number in range(24):
                problem = problems[number % len(problems)]
                for _ in range(20):
                    verdict = grader.grade(problem, Answer(files=problem.golden))
                    if verdict.outcome is not Outcome.INFRASTRUCTURE_ERROR:
                        break
                assert verdict.outcome is Outcome.PASSED, verdict.reasons
        finally:
            stop.set()
            killer.join()
            grader.close()


@pytest.mark.docker
def test_an_engine_that_is_restarted_costs_no_verdict():
    """Needs root and the engine's pid file: the engine of CI, which this test ends and starts again."""
    pid_file = Path("/var/run/docker.pid")
    problem = starter_problems("train", 1, 2)[0]
    with make_executor("docker") as executor:
        grader = Grader(executor)
        assert grader.grade(problem, Answer(files=problem.golden)).passed
        command = Path(f"/proc/{pid_file.read_text().strip()}/cmdline").read_bytes().decode().strip("\0").split("\0")
        os.kill(int(pid_file.read_text()), signal.SIGTERM)
        deadline = time.monotonic() + 60
        while pid_file.exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        down = grader.grade(problem, Answer(files=problem.golden))
        assert down.outcome is Outcome.INFRASTRUCTURE_ERROR
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        for _ in range(120):
            verdict = grader.grade(problem, Answer(files=problem.golden))
            if verdict.outcome is not Outcome.INFRASTRUCTURE_ERROR:
                break
            time.sleep(1)
        assert verdict.passed
        grader.close()
