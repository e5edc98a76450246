"""Training on SkyRL 0.4.0, with JAX on the CPU, by the same commands as on any service. It needs `make test-engines`."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.skyrl import SkyRL
from rtl_core.history.store import History
from rtl_core.tinymodels import model_path
from tests.command import command
from tests.waiting import wait_for

pytestmark = pytest.mark.engines
STEPS = 3
NAMED = {
    "sampling": "POST /api/v1/asample",
    "a train step": "POST /api/v1/forward_backward",
    "a save": "POST /api/v1/save_weights",
}
"""When the server is killed -> what its log says then."""
TWICE = (
    "SELECT count(*) AS n FROM (SELECT step, problem_id, sample FROM rollouts WHERE run = $run AND purpose = 'train'"
    " GROUP BY ALL HAVING count(*) > 1)"
)
ANSWERS = "SELECT count(*) AS n FROM rollouts WHERE run = $run AND purpose = 'train'"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with SkyRL("student", tmp_path_factory.mktemp("skyrl")) as server:
        yield server


@pytest.fixture
def settings(tmp_path: Path, server: SkyRL) -> Callable[..., list[str]]:
    """Overrides of the demo for three steps of two problems with four answers each, on the server."""

    def overrides(name: str, *more: str) -> list[str]:
        return [
            f"run.name={name}",
            f"run.directory={tmp_path}",
            f"run.history={tmp_path / 'history.duckdb'}",
            "run.epochs=1",
            f"problems.sources.0.train={2 * STEPS}",
            "problems.sources.0.heldout=2",
            "curriculum.problems_per_step=2",
            "sampling.group_size=4",
            "evaluation.samples=2",
            "evaluation.k=[1]",
            "evaluation.every=0",
            f"tinker.base_url={server.url}",
            f"tinker.local_models.student={model_path('student')}",
            "tinker.teacher_base_url=local",
            "learning.grad_clip_norm=0",
            *more,
        ]

    return overrides


def is_whole(history: Path, name: str) -> None:
    """Every step was trained once, on answers that are there once."""
    opened = History(history, read_only=True)
    assert [step.status for step in opened.steps(name)] == ["trained"] * STEPS
    (twice,) = opened.query(TWICE, {"run": name}).to_pylist()
    assert twice["n"] == 0
    (answers,) = opened.query(ANSWERS, {"run": name}).to_pylist()
    assert answers["n"] == 8 * STEPS
    done = [(e.policy, e.step) for e in opened.evaluations(name) if e.status == "done"]
    assert sorted(done) == [("student", 0), ("student", STEPS), ("teacher", 0)]


@pytest.mark.parametrize("moment", NAMED)
def test_a_killed_server_costs_nothing_that_was_stored(server, settings, tmp_path, moment):
    words = command("train", "demo", sets=settings("killed"))
    log = server.state / "server.log"
    with (tmp_path / "log").open("ab") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True)
        begun = log.read_text(errors="replace").count(NAMED[moment])
        wait_for(
            lambda: log.read_text(errors="replace").count(NAMED[moment]) > begun + 1,
            moment,
            while_runs=process,
        )
        server.kill()
        server.start()
        process.wait(900)
        if process.returncode:
            subprocess.run(words, stdout=out, stderr=out, check=True, timeout=900)
    is_whole(tmp_path / "history.duckdb", "killed")


def test_a_killed_run_goes_on_by_the_same_command(server, settings, tmp_path):
    words = command("train", "demo", sets=settings("killed"))
    with (tmp_path / "log").open("ab") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True)
        reader = History(tmp_path / "history.duckdb", read_only=True)
        wait_for(
            lambda: any(step.status == "trained" for step in reader.steps("killed")),
            "a trained step",
            while_runs=process,
        )
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        subprocess.run(words, stdout=out, stderr=out, check=True, timeout=900)
    is_whole(tmp_path / "history.duckdb", "killed")
