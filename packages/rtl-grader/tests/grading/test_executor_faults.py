"""Killed and stalled graders, sandboxes and engines: verdicts stay right and nothing is left behind."""

import os
import random
import shutil
import signal
import socket
import struct
import threading
from contextlib import closing
from dataclasses import replace

import pytest

from benchmarks.chaos import chaos
from benchmarks.engine import Engine
from rtl_core.errors import InfrastructureError
from rtl_core.starter import starter_problems
from rtl_grader.grading.executors import make_executor, wire
from rtl_grader.grading.executors.base import ExecutorDiedError, Job, Step
from rtl_grader.grading.executors.bubblewrap import BubblewrapExecutor
from rtl_grader.grading.executors.toolchain import Toolchain
from rtl_grader.grading.grader import Grader
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome
from tests.grading.conftest import below, kill_sandboxes


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """An engine that tests may stop."""
    folder = tmp_path_factory.mktemp("engine")
    with Engine(folder / "docker") as started:
        yield started
    shutil.rmtree(folder)  # contains a copy of the image


@pytest.mark.slow
def test_killed_graders_leave_nothing_behind(tmp_path):
    """A small run of `python -m benchmarks.chaos --executor bubblewrap`."""
    outcome = chaos(100, tmp_path, kill_every=25, seed=5)
    assert (outcome.graded, outcome.wrong, outcome.left) == (100, {}, [])
    assert outcome.kills > 0


@pytest.mark.docker
def test_killed_graders_and_engines_leave_nothing_behind(tmp_path, engine):
    """A small run of `python -m benchmarks.chaos`."""
    outcome = chaos(200, tmp_path, kill_every=50, seed=5, engine=engine, restarts=2)
    assert (outcome.graded, outcome.wrong, outcome.left) == (200, {}, [])
    assert outcome.kills > 0
    assert (
        outcome.restarts > 0
    )  # gradings continue while the engine is down, and may all be done by then


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["bubblewrap", pytest.param("docker", marks=pytest.mark.docker)]
)
def test_randomly_killed_sandboxes_change_no_verdict(name):
    chance = random.Random(11)
    problems = starter_problems("train", 6, 2)
    stop = threading.Event()
    kills = threading.Semaphore(0)  # a few for each grading, however long it takes
    with make_executor(name) as executor, closing(Grader(executor)) as grader:

        def kill_sometimes():
            while not stop.wait(chance.uniform(0.3, 1.0)):
                kill_sandboxes(
                    executor, lambda: chance.random() < 0.4 and kills.acquire(blocking=False)
                )

        killer = threading.Thread(target=kill_sometimes)
        killer.start()
        try:
            for number in range(24):
                problem = problems[number % len(problems)]
                kills.release(4)
                for _ in range(20):
                    verdict = grader.grade(problem, Answer(files=problem.golden))
                    if verdict.outcome is not Outcome.INFRASTRUCTURE_ERROR:
                        break
                assert verdict.outcome is Outcome.PASSED, verdict.reasons
        finally:
            stop.set()
            killer.join()


def test_an_agent_that_stalls_within_its_answer_counts_as_dead(monkeypatch):
    monkeypatch.setattr(wire, "GRACE_S", 0.2)
    ours, theirs = socket.socketpair()
    with theirs, wire.agent_at(ours) as agent:
        theirs.sendall(
            struct.pack("!i", 100) + b'{"steps"'
        )  # the start of a message of 100 bytes
        with pytest.raises(ExecutorDiedError):
            wire.receive(agent, 5)


@pytest.mark.slow
def test_a_sandbox_that_stalls_before_it_receives_the_job_is_replaced(monkeypatch):
    monkeypatch.setattr(wire, "GRACE_S", 3.0)
    with make_executor("bubblewrap") as executor:
        for pid in below(executor._free[0]._process.pid):
            os.kill(pid, signal.SIGSTOP)
        job = Job({"docs/large.md": "x" * 4_000_000}, {}, (Step("direct", ("echo", "well")),))
        assert executor.run(job).steps[0].output == "well\n"


def test_the_error_of_a_simulator_that_cannot_load_cocotb_names_make_setup():
    """As with cocotb 2.1 under Icarus 11; the simulator then treats our arguments as files."""
    tools = replace(Toolchain.of_this_machine(), libraries="/nowhere")
    with pytest.raises(
        InfrastructureError, match="not start: libcocotbvpi_icarus: Unable to find"
    ) as told:
        BubblewrapExecutor(tools)
    assert "make setup" in told.value.hint


@pytest.mark.docker
def test_a_grader_works_again_after_its_engine_was_down(engine, monkeypatch):
    """Without an engine the outcome is infrastructure_error."""
    problem = starter_problems("train", 1, 2)[0]
    monkeypatch.setenv("DOCKER_HOST", engine.host)
    with make_executor("docker") as executor, closing(Grader(executor)) as grader:
        assert grader.grade(problem, Answer(files=problem.golden)).passed
        with engine.down(signal.SIGTERM):
            assert (
                grader.grade(problem, Answer(files=problem.golden)).outcome
                is Outcome.INFRASTRUCTURE_ERROR
            )
        assert grader.grade(problem, Answer(files=problem.golden)).passed
