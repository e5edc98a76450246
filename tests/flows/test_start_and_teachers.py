"""A run that starts from another run's weights, with two teachers, each for the problems of its source; one is saved weights."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rtl_core.backend.tinker import base_model_of
from rtl_core.config import load_config
from rtl_core.config.protocol import evaluation_overrides, protocol_file
from rtl_core.errors import ConfigError, PolicyError
from rtl_core.history.store import History
from rtl_core.observe.usage import spent
from rtl_core.rollouts.training import take_start
from rtl_core.run.opening import open_session
from rtl_core.starter import BY_NAME, starter_specs
from rtl_core.starter.record import record_of
from tests.nouns import demo

SCORES = """SELECT r.step, p.source, t.teacher, avg(t.k3_mean) AS kl FROM teacher_scores t JOIN rollouts r USING (rollout)
JOIN run_problems p ON p.run = r.run AND p.problem_id = r.problem_id WHERE r.run = 'second' GROUP BY ALL ORDER BY ALL"""
TEXTS = """SELECT r.problem_id, r.sample, r.text FROM rollouts r JOIN evaluations e USING (evaluation)
WHERE e.run = ? AND e.policy = 'student' AND e.step = ? AND r.problem_id NOT LIKE 'other%' ORDER BY ALL"""
SAME = ("tinker.local_deterministic=true", "learning.kl_weight=0.1", "tinker.lora_rank=8")


def two_sources(folder: Path) -> list[dict[str, Any]]:
    """The starter set, and four problems of the same kind in a CVDP file."""
    file = folder / "cvdp.jsonl"
    records = (
        record_of(BY_NAME[spec.family], spec) for spec in starter_specs("test", 4, seed=7)
    )
    file.write_text(
        "".join(
            json.dumps({**record, "id": f"other_{n}"}) + "\n"
            for n, record in enumerate(records)
        )
    )
    return [
        {"kind": "starter", "train": 3, "heldout": 2},
        {"kind": "cvdp", "path": str(file), "heldout_fraction": 0.0},
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
def test_it_starts_from_those_weights_and_each_teacher_scores_its_own_problems(
    small_run, tmp_path
):
    from rtl_distill.flows.evaluate import evaluate, evaluate_model
    from rtl_distill.flows.train import train

    one = ("run.epochs=1", "problems.sources.0.heldout=2", *SAME)
    asyncio.run(train("demo", small_run("first", *one, "evaluation.teacher=false")))
    history = History(tmp_path / "history.duckdb")
    last = history.trained_steps("first")[-1]

    file = tmp_path / "second.toml"
    sources = "".join(
        "[[problems.sources]]\n"
        + "".join(f"{k} = {json.dumps(v)}\n" for k, v in source.items())
        for source in two_sources(tmp_path)
    )
    file.write_text(
        f"""[run]\nname = "second"\n[tinker]\nbase_url = "local"\nstudent = "student"\nteacher = "{last.sampler_path}"
start_from = "{last.state_path}"\n[tinker.teachers]\ncvdp = "teacher"\n[prompting]\ntemplate = "bare"\nmax_prompt_tokens = 256
[sampling]\nmax_tokens = 200\nseeded = true\n[learning]\nlearning_rate = 2e-3\n{sources}"""
    )
    keys = [key for key in small_run("second", *one) if not key.startswith("problems.sources")]
    settings = [*keys, "run.epochs=1", "curriculum.problems_per_step=7"]
    asyncio.run(train(str(file), settings))

    # Step 0 is the end of the other run: the same problems and seeds give the same answers.
    started, ended = (
        history.query(TEXTS, place).to_pylist()
        for place in (["second", 0], ["first", last.step + 1])
    )
    assert started == ended
    assert history.query(TEXTS, ["first", 0]).to_pylist() != ended
    # Before the first step the student equals the teacher that is these weights, and differs from the other one.
    own, other = (
        next(row for row in history.query(SCORES).to_pylist() if row["source"] == s)
        for s in ("starter", "cvdp")
    )
    assert (own["teacher"], other["teacher"]) == (last.sampler_path, "teacher")
    assert own["kl"] < 1e-4 < 1e-2 < other["kl"]
    used = spent(history, "second", load_config(file, settings, environment={}))
    assert set(used) == {"student", "teacher", last.sampler_path}
    names = {
        row["name"]
        for row in history.query(
            "SELECT name FROM step_metrics WHERE run = 'second'"
        ).to_pylist()
    }
    assert {"tokens/teacher/prefill", "tokens/teacher-cvdp/prefill"} <= names

    # The other run's weights can be evaluated on a file of problems, as that run's student.
    assert (
        asyncio.run(base_model_of(load_config("demo", keys, environment={}), last.sampler_path))
        == "student"
    )
    alone = [
        f"problems.sources=[{{kind = 'cvdp', path = '{tmp_path / 'cvdp.jsonl'}'}}]",
        f"evaluation.weights={last.sampler_path}",
    ]
    alone += [
        "tinker.base_url=local",
        "tinker.student=student",
        "prompting.template=bare",
        f"run.directory={tmp_path}",
    ]
    alone += [
        f"run.history={tmp_path / 'history.duckdb'}",
        "evaluation.max_tokens=200",
        "run.name=alone",
    ]
    asyncio.run(
        evaluate_model(
            protocol_file("cvdp"),
            evaluation_overrides(protocol_file("cvdp"), alone, 1, "alone"),
        )
    )
    (found,) = history.evaluations("alone")
    assert (found.status, found.n_problems) == ("done", 4)

    # The original weights may be deleted: the run has its own copy, also for a later evaluation at step 0.
    shutil.rmtree(tmp_path / "first")
    asyncio.run(train(str(file), [*settings, "run.epochs=2"]))
    assert len(history.trained_steps("second")) == 2
    asyncio.run(evaluate("second", step=0, samples=1, history=str(tmp_path / "history.duckdb")))
    ((text,),) = [row.values() for row in history.query(
        "SELECT text FROM rollouts WHERE evaluation = 'second/student/00000/heldoutx1' ORDER BY problem_id LIMIT 1"
    ).to_pylist()]  # fmt: skip
    assert text == ended[0]["text"]


def refusal(tmp_path: Path, *overrides: str) -> str:
    """The error of opening a run and taking its starting weights."""

    async def run() -> None:
        async with open_session(demo(tmp_path, *SAME, *overrides)) as session:
            await take_start(session)

    with pytest.raises((PolicyError, ConfigError)) as refused:
        asyncio.run(run())
    return f"{refused.value.message}; {refused.value.hint}"


@pytest.mark.slow
def test_weights_that_do_not_fit_or_are_missing_are_refused_with_one_sentence(tmp_path):
    async def save():
        async with open_session(demo(tmp_path, *SAME, "run.name=saved")) as session:
            found = await (await session.policy.backend.open_trainer(None)).save("some", None)
            return found.state_path, found.sampler_path

    state, sampler = asyncio.run(save())
    start = f"tinker.start_from={state}"
    for overrides, words in (
        (
            (start, "tinker.lora_rank=16"),
            "has rank 8, and tinker.lora_rank is 16; set tinker.lora_rank = 8",
        ),
        (
            (start, "tinker.student=teacher"),
            f"{state} was trained on 'student', and the student is 'teacher'",
        ),
        ((f"{start}-none",), f"tinker.start_from: no run in {tmp_path} has {state}-none"),
        (
            (f"tinker.teacher={sampler}-none",),
            f"tinker.teacher: no run in {tmp_path} has {sampler}-none",
        ),
    ):
        assert words in refusal(tmp_path, *overrides)
    found = refusal(tmp_path, 'tinker.teachers={cvpd = "teacher"}')
    assert (
        found
        == "tinker.teachers: no problem of this run is from cvpd; its problems are from starter"
    )
    found = refusal(tmp_path, 'learning.by_source={cvpd = "gdpo"}')
    assert found.startswith("learning.by_source: no problem of this run is from cvpd")
