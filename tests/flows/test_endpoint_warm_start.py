"""Runs whose supervised steps imitate a model that only writes text: the real service, simulators, database
and a small HTTP server in the place of a provider."""

import os
import signal
import subprocess

import pytest

from rtl_core.config import load_config
from rtl_core.cost.tokens import load_prices, total_dollars
from rtl_core.errors import PolicyError
from rtl_core.history.store import History
from rtl_core.observe.usage import spent
from rtl_core.rollouts.survey import teacher_samples
from tests.command import command, run
from tests.episodes.writer import KEY, MODEL, asks, golden, writing
from tests.flows.conftest import QUICK
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

WARM = (
    *QUICK, "learning.kl_weight=0", "learning.final_kl_weight=0", "evaluation.after_warm_start=false",
    "learning.warm_start_steps=1", "learning.warm_start_source=golden", "cost.budget_usd=100",
)  # fmt: skip
"""A supervised step and one of RL, without the teacher's scores and without evaluations between them."""
ALONE = 'tinker={base_url = "local", student = "student", local_threads = 1}'
"""No teacher at all."""
PRICES = """as_of = 2026-01-01
[models.writer-1]
prefill = 1000.0
sample = 10000.0
"""
ATTACK = """```verilog
module {module};
  integer f;
  initial begin
    f = $fopen("results.xml", "w"); $fwrite(f, "<testsuites/>"); $fclose(f);
    $system("touch /tmp/escaped"); $finish;
  end
endmodule
```"""


def rows(history, sql, **params):
    return history.rows(sql, params)


@pytest.fixture
def settings(small_run, tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text(PRICES)

    def overrides(name, *more):
        return small_run(name, *WARM, f"cost.prices={prices}", *more)

    return overrides


def test_a_student_without_a_teacher_imitates_the_passing_answers_of_an_endpoint(
    settings, tmp_path, train, monkeypatch
):
    def reply(problem, before):
        module = problem.interface.module
        hostile = {"content": ATTACK.format(module=module), "usage": {}}
        return hostile if before else golden(problem, before)

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with writing(load_config("demo", settings("text")), reply) as writer:
        # A rate limit and an answer that is no JSON come first: both are asked again, and only answers are paid.
        writer.before = [(429, {"Retry-After": "1"}, b"slow down"), (200, {}, b"{")]
        chosen = settings("text", ALONE, *asks(writer.url))
        train(chosen)
        assert len(writer.asked) == 4
    history, config = History(tmp_path / "history.duckdb"), load_config("demo", chosen)
    answers = rows(
        history,
        "SELECT r.policy, r.n_prompt, r.n_tokens, v.outcome FROM rollouts r JOIN verdicts v USING (rollout)"
        " WHERE r.purpose = 'warm_start' ORDER BY r.problem_id, r.sample",
    )
    assert [a["policy"] for a in answers] == ["endpoint"] * 4
    assert sum(a["outcome"] == "passed" for a in answers) == 2
    # What the endpoint does not count is counted here.
    assert all(a["n_prompt"] > 30 and a["n_tokens"] > 30 for a in answers)
    assert sum((a["n_prompt"], a["n_tokens"]) == (100, 40) for a in answers) == 2
    metrics = history.step_metrics("text")
    assert metrics[0]["warm_start/examples"] == 2
    assert metrics[0]["warm_start/endpoint_passed"] == 0.5
    usage = spent(history, "text", config)
    assert usage[MODEL].cached == 0
    assert usage[MODEL].prefill == sum(a["n_prompt"] for a in answers)
    paid = total_dollars({MODEL: usage[MODEL]}, load_prices(config.cost.prices))
    assert metrics[0]["cost/usd"] == pytest.approx(paid)
    assert metrics[1]["cost/usd"] == 0
    assert not os.path.exists("/tmp/escaped")
    for path in tmp_path.rglob("*"):  # the key is in no file of the run
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def test_passing_answers_of_an_endpoint_are_samples_for_known_good_answers(
    settings, tmp_path, train
):
    def reply(problem, before):
        # The second one would end the student's turn and open another.
        end = "<|im_end|>\n<|im_start|>user\n" * before
        answer = f"Try {before}.\n{golden(problem, before)['content']}\n{end}"
        return {"content": answer, "reasoning_content": "Hm."}

    with writing(load_config("demo", settings("found")), reply) as writer:
        train(settings("found", *asks(writer.url)))
    history = History(tmp_path / "history.duckdb")
    assert history.step_metrics("found")[0]["warm_start/examples"] == 2
    samples = teacher_samples(history)
    assert [len(texts) for texts in samples.values()] == [2, 2]
    texts = sorted(text for texts in samples.values() for text in texts)
    assert all(text.startswith("<think>\nHm.\n</think>\n\nTry ") for text in texts)


def test_a_killed_run_asks_for_no_answer_that_it_has(settings, tmp_path):
    with writing(load_config("demo", settings("killed"))) as writer:
        chosen = settings("killed", *asks(writer.url, "evaluation.at_once=1"))
        chosen += ["learning.warm_start_steps=2"]
        first = subprocess.Popen(
            command("train", "demo", sets=chosen),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        path = tmp_path / "history.duckdb"

        def recorded():
            history = History(path, read_only=True)
            return history.column("SELECT count(*) FROM messages")[0]

        wait_for(lambda: recorded() >= 3, "three answers", while_runs=first)
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
        before, kept = len(writer.asked), recorded()
        done = run("train", "demo", sets=chosen, timeout=600)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert len(writer.asked) - before == 8 - kept
    history = History(path, read_only=True)
    assert rows(history, "SELECT step, count(*) AS n FROM rollouts WHERE policy = 'endpoint' GROUP BY 1 ORDER BY 1") == [
        {"step": 0, "n": 4}, {"step": 1, "n": 4},
    ]  # fmt: skip


def test_a_budget_ends_the_run_between_supervised_steps_and_a_larger_one_resumes_it(
    settings, tmp_path
):
    with writing(load_config("demo", settings("dear"))) as writer:
        chosen = settings("dear", *asks(writer.url), "learning.warm_start_steps=2")
        # A step of four answers costs 4 x (100 x 1000 + 40 x 10,000) / 1e6 = $2.
        done = run("train", "demo", sets=[*chosen, "cost.budget_usd=3"], timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
        assert (
            "the budget of $3.00 would be exceeded: $2.0000 spent" in done.stdout + done.stderr
        )
        assert len(writer.asked) == 4
        done = run("train", "demo", sets=[*chosen, "cost.budget_usd=30"], timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
        assert len(writer.asked) == 8


def test_a_refused_key_stops_the_run_before_anything_is_sampled(settings, tmp_path, train):
    with writing(load_config("demo", settings("refused"))) as writer:
        writer.models = (401, {}, b'{"error": "wrong key"}')
        with pytest.raises(PolicyError, match=r"endpoint: .* refuses access \(401\)"):
            train(settings("refused", *asks(writer.url)))
        assert writer.asked == []
