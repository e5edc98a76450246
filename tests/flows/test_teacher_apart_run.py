"""A run whose teacher is on another service goes on when that service dies and is restarted."""

import asyncio
import json
import os
import signal
import threading

import pytest

from localtinker.process import KeptTinker
from rtl_core.history.store import History
from rtl_core.tinymodels import model_path
from tests.waiting import wait_for

SCORED = "SELECT step, teacher, count(*) AS n FROM teacher_scores WHERE run = 'apart' GROUP BY ALL ORDER BY step"


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
def test_every_step_is_scored_although_the_teachers_service_dies_once(
    small_run, tmp_path, monkeypatch
):
    from rtl_distill.flows.evaluate import evaluate
    from rtl_distill.flows.train import train

    history = History(tmp_path / "history.duckdb")
    told: list[str] = []
    with KeptTinker(
        {"teacher": model_path("teacher")}, tmp_path / "teacher", on_restart=told.append
    ) as service:
        monkeypatch.setenv("TINKER_TEACHER_API_KEY", service.api_key)

        def kill_after_the_first_step():
            wait_for(
                lambda: history.path.exists() and history.trained_steps("apart"),
                "a trained step",
            )
            os.kill(service.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_after_the_first_step)
        killer.start()
        folder = json.dumps(str(model_path("teacher")))
        places = (
            f"tinker.teacher_base_url={service.base_url}",
            f"tinker.local_models={{teacher = {folder}}}",
        )
        asyncio.run(train("demo", small_run("apart", *places)))
        killer.join()
    assert told == ["the embedded Tinker service had ended and was restarted"]
    steps = history.trained_steps("apart")
    assert len(steps) == 4
    scored = history.query(SCORED).to_pylist()
    assert [row["step"] for row in scored] == [0, 1, 2, 3]
    assert {row["teacher"] for row in scored} == {"teacher"}
    policies = {evaluation.policy for evaluation in history.evaluations("apart")}
    assert policies == {"student", "teacher"}

    # Without the teacher's service, the student can still be evaluated.
    key = asyncio.run(evaluate("apart", str(history.path), samples=1))
    found = history.evaluation(key)
    assert found is not None
    assert (found.policy, found.step, found.status) == ("student", 4, "done")
