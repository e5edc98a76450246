"""Runs taught by a model with another tokenizer and chat template, on the embedded service."""

import asyncio
import json
import os
import signal
import subprocess

import numpy as np
import pytest
from fastapi.testclient import TestClient
from transformers import AutoTokenizer

from rtl_core.config import load_config
from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.learning.spans import token_scores
from rtl_core.observe.usage import spent
from rtl_core.prompting.chat import decoded
from rtl_core.tinymodels import make
from rtl_core.view import pages
from rtl_core.view.links import rollout_link
from rtl_core.view.server import create_app
from tests.command import command, invoke
from tests.flows.conftest import QUICK
from tests.prompting.other_tokenizers import byte_level
from tests.waiting import wait_for

SMALL = make.Recipe(make.Shape(32, 1, 1, 64, layers=1), (), steps=0)
READINGS = """
SELECT r.rollout, r.problem_id, r.text, r.stop_reason, s.tokens_T, s.logprobs_T, q.logprobs_T AS scores_T, u.tokens_U, u.logprobs_U,
       u.spans, t.n_prompt, t.n_tokens, t.k1_mean FROM rollouts r JOIN tokens s USING (rollout) JOIN teacher_tokens q USING (rollout)
JOIN teacher_readings u USING (rollout) JOIN teacher_scores t USING (rollout) WHERE r.run = ? ORDER BY ALL
"""


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Folder of an untrained model with another tokenizer."""
    folder, tokenizer = tmp_path_factory.mktemp("models") / "foreign", byte_level()
    make.new_model(SMALL, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def taught(foreign, small_run):
    """Overrides of a run that this model teaches."""
    here = (
        "tinker.teacher=foreign",
        f'tinker.local_models={{foreign = "{foreign}"}}',
        "learning.kl_weight=0.5",
        "learning.kl_on=all",
        *QUICK,
    )
    return lambda name, *more: small_run(name, *here, *more)


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
def test_it_trains_on_spans_and_stores_how_the_teacher_read_each_answer(
    taught, foreign, tmp_path
):
    from rtl_distill.flows.train import train

    settings = taught(
        "spans",
        "evaluation.teacher=true",
        "learning.warm_start_steps=1",
        "learning.warm_start_source=teacher",
        "learning.warm_start_passing_only=false",
    )
    asyncio.run(train("demo", settings))
    history = History(tmp_path / "history.duckdb")
    teacher = AutoTokenizer.from_pretrained(foreign)
    rows = history.query(READINGS, ["spans"]).to_pylist()
    assert rows
    for row in rows:
        ended = row["stop_reason"] == "stop"
        assert (row["tokens_U"][-1] == teacher.eos_token_id) == ended
        assert decoded(teacher, row["tokens_U"][: len(row["tokens_U"]) - ended]) == row["text"]
        spans = np.reshape(row["spans"], (-1, 4))
        assert (spans[0, 0], spans[-1, 1]) == (0, len(row["tokens_T"]))
        own, scores = np.float32(row["logprobs_T"]), np.float32(row["scores_T"])
        assert scores == pytest.approx(token_scores(own, row["logprobs_U"], spans), abs=1e-4)
        assert own.sum() - scores.sum() == pytest.approx(
            own.sum() - np.sum(row["logprobs_U"]), abs=1e-2
        )
        assert row["n_tokens"] == len(own)

    # The teacher read the messages in its own format, and what it read is what it costs.
    problems = {r["problem_id"] for r in rows}
    assert len({(r["problem_id"], r["n_prompt"]) for r in rows}) == len(problems)
    config = load_config("demo", settings, environment={})
    prefill = spent(history, "spans", config)["foreign"].prefill
    once = {(r["problem_id"], r["text"], len(r["tokens_U"])) for r in rows}
    assert prefill > sum(tokens for _, _, tokens in once)
    metrics = history.step_metrics("spans")[1]
    assert metrics["spans/unheard"] == metrics["spans/unread"] == 0
    assert 0 < metrics["spans/one_to_one"] < 1
    assert metrics["teacher_kl/span"] > metrics["teacher_kl"] > 0

    # Its own answers are in its own tokens; the student imitates them in the student's.
    own = history.query(
        "SELECT r.text, t.tokens_T, p.tokens_P FROM rollouts r JOIN tokens t USING (rollout)"
        " JOIN prompts p USING (prompt) WHERE r.run = 'spans' AND r.policy = 'teacher'"
    ).to_pylist()
    assert own
    for row in own:
        assert decoded(teacher, row["tokens_P"]).endswith("<|assistant|>")
        tokens_T = [t for t in row["tokens_T"] if t != teacher.eos_token_id]
        assert decoded(teacher, tokens_T) == row["text"]
    assert history.step_metrics("spans")[0]["warm_start/examples"] >= 0
    client = TestClient(create_app(history), base_url="http://127.0.0.1")
    shown = client.get(rollout_link(rows[0]["rollout"])).text
    assert "The teacher reads it as" in shown
    assert f"{len(rows[0]['tokens_U'])} tokens of its own" in shown
    page = pages.rollout(history, rows[0]["rollout"], "", "kl", 0)
    assert "".join(t.text for t in page["read"][:-1]) == rows[0]["text"]
    (written, *_) = history.column("SELECT rollout FROM rollouts WHERE policy = 'teacher'", [])
    page = pages.rollout(history, written, "", "surprise", 0)
    ascii_of = "".join(t.text for t in page["tokens"]).encode("ascii", "ignore")
    assert ascii_of.startswith(page["r"].text.encode("ascii", "ignore"))


@pytest.mark.slow
def test_a_run_that_was_killed_ends_with_the_scores_of_an_undisturbed_one(taught, tmp_path):
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path / "prefect")}
    fixed = ("tinker.local_deterministic=true", "problems.sources.0.train=6")
    subprocess.run(
        command("train", "demo", sets=taught("calm", *fixed)), env=environment, check=True
    )
    killed = command("train", "demo", sets=taught("killed", *fixed))
    reader = History(tmp_path / "history.duckdb", read_only=True)
    process = subprocess.Popen(killed, env=environment, start_new_session=True)
    scored = "SELECT count(*) AS n FROM teacher_scores WHERE run = 'killed' AND step = 1"
    wait_for(
        lambda: reader.query(scored).to_pylist()[0]["n"],
        "a score of the second step",
        while_runs=process,
    )
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run(killed, env=environment, check=True, timeout=1800)
    calm, again = (
        [
            {k: v for k, v in row.items() if k != "rollout"}
            for row in reader.query(READINGS, [run]).to_pylist()
        ]
        for run in ("calm", "killed")
    )
    assert calm == again
    metrics = [reader.step_metrics(run) for run in ("calm", "killed")]
    for step in metrics[0]:
        ours, theirs = (m[step] for m in metrics)
        assert {k: v for k, v in ours.items() if k.startswith(("spans", "teacher_kl"))} == {
            k: v for k, v in theirs.items() if k.startswith(("spans", "teacher_kl"))
        }


def checked(settings):
    done = invoke("check", "demo", "--json", sets=settings)
    lines = [line for line in json.loads(done.stdout) if line["about"] == "tokenizer"]
    return done.exit_code, lines[0]


def test_check_says_how_the_tokens_are_aligned_and_what_they_cost(taught):
    code, line = checked(taught("checked"))
    assert code == 0
    assert "tinker.teacher and student: aligned by spans of text: " in line["text"]
    assert "spans hold one token on both sides" in line["text"]
    assert "<|done|> ends its turn" in line["text"]
    shown = invoke("check", "demo", sets=taught("checked")).stdout
    assert "tokens for each of the student's" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (
            ("learning.algorithm=distribution_distillation",),
            "distribution_distillation compares next tokens",
        ),
        (
            ("learning.episodes=true", "episode.attempts=2", "episode.tools=[]"),
            "a conversation is one sequence in the student's tokens",
        ),
    ],
)
def test_what_needs_the_students_tokens_is_refused_by_name(taught, setting, words):
    code, line = checked(taught("refused", *setting))
    assert (code, line["level"]) == (2, "wrong")
    assert words in line["text"]
    assert line["remedy"]


@pytest.mark.usefixtures("prefect")
def test_a_run_that_needs_the_students_tokens_does_not_start(taught):
    from rtl_distill.flows.train import train

    settings = taught("refused", "learning.algorithm=distribution_distillation")
    with pytest.raises(ConfigError, match="compares next tokens"):
        asyncio.run(train("demo", settings))
