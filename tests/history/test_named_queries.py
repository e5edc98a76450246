"""The results of the named queries agree with the rollouts."""

import csv
import io
import json
import re
from collections import Counter, defaultdict
from datetime import timedelta

import numpy as np
import pytest
from rich.console import Console

from rtl_core.errors import HistoryError
from rtl_core.history import records, store
from rtl_core.history.named_queries import named_queries, named_query
from rtl_core.history.records import (
    AuditRecord,
    EvaluationRecord,
    RunRecord,
    StepPlan,
    StepRecord,
)
from rtl_core.learning.reward import Graded, Reward, reward
from rtl_core.reporting.live import live_view
from rtl_core.view.questions import runs_with_counts
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome, Stage
from tests.command import invoke, run
from tests.nouns import a_problem, a_rollout, a_verdict


def ask(history, name: str, **given: str) -> list[dict]:
    query = named_query(name)
    return history.query(query.sql, query.bind(given, "demo") or None).to_pylist()


@pytest.fixture(scope="module")
def rollouts(demo):
    """All training rollouts."""
    return [stored for step in range(12) for stored in demo.rollouts_of("demo", step)]


@pytest.mark.parametrize("name", list(named_queries()))
def test_every_named_query_runs_and_has_a_description(demo, name):
    query = named_query(name)
    assert query.about.endswith(".")
    rows = ask(demo, name)
    if name not in (
        "audit",
        "changed-verdicts",
        "regrades",
        "infrastructure",
        "never-solved",
        "turns",
        "netlists",
        "costs",  # tests/observe/test_usage.py
    ):
        assert rows, name


def test_pass_rate_by_epoch_and_difficulty(demo, rollouts):
    difficulty = {p.problem_id: p.record["difficulty"] for p in demo.problems_of("demo")}
    passed = defaultdict(list)
    for s in rollouts:
        passed[s.rollout.epoch + 1, difficulty[s.rollout.problem_id]].append(s.verdict.passed)
    found = {
        (r["epoch"], r["difficulty"]): (r["rollouts"], r["pass_rate"])
        for r in ask(demo, "pass-rate")
    }
    assert found == {k: (len(v), pytest.approx(np.mean(v))) for k, v in passed.items()}
    assert len(found) == 9


def test_of_equally_frequent_outcomes_the_first_in_order_is_the_usual_one(tmp_path):
    history, stored = (
        store.History(tmp_path / "h.duckdb"),
        [a_rollout(sample=n) for n in range(4)],
    )
    history.record_problems("r", [(a_problem(id="p"), "train", None)])
    history.record_rollouts(stored)
    outcomes = map(Outcome, ("tests_failed", "timeout", "no_answer", "compile_failed"))
    history.record_verdicts(
        [(r.key, a_verdict(o), None) for r, o in zip(stored, outcomes, strict=True)]
    )
    rows = history.query(named_query("problems").sql, {"run": "r"}).to_pylist()
    assert [row["usual_outcome"] for row in rows] == ["compile_failed"]


def test_mean_teacher_kl_by_step_is_weighted_by_tokens(demo, rollouts):
    found = ask(demo, "teacher-kl")
    assert [row["step"] for row in found] == list(range(12))
    for row in found:
        mine = [s for s in rollouts if s.rollout.step == row["step"]]
        k_T = np.concatenate(
            [np.subtract(s.rollout.logprobs_T, s.teacher.logprobs_T) for s in mine]
        )
        assert row["tokens"] == len(k_T)
        assert row["k1"] == pytest.approx(k_T.mean(), abs=1e-5)
        assert row["k2"] == pytest.approx((k_T**2 / 2).mean(), abs=1e-5)
        assert row["k3"] == pytest.approx((np.exp(-k_T) - 1 + k_T).mean(), abs=1e-5)


def test_the_ten_most_common_interface_mistakes(demo, rollouts):
    counts = Counter(
        (m.kind.value, m.name, m.expected, m.got)
        for s in rollouts
        for m in s.verdict.mismatches
    )
    found = ask(demo, "mistakes")
    assert [r["rollouts"] for r in found] == [n for _, n in counts.most_common(10)]
    assert all(
        counts[r["kind"], r["name"], r["expected"], r["got"]] == r["rollouts"] for r in found
    )
    example = demo.rollout(found[0]["example"])
    assert (found[0]["kind"], found[0]["name"]) in {
        (m.kind.value, m.name) for m in example.verdict.mismatches
    }
    assert len(ask(demo, "mistakes", limit="3")) == 3


def test_the_funnel_counts_every_answer_once_per_stage(demo, rollouts):
    found = ask(demo, "funnel")
    assert len({(row["epoch"], row["stage"]) for row in found}) == len(found) == 3 * len(Stage)
    for row in found:
        mine = [s.verdict for s in rollouts if s.rollout.epoch + 1 == row["epoch"]]
        statuses = [v.stage(Stage(row["stage"])).status for v in mine]
        assert (row["rollouts"], row["passed"]) == (len(mine), statuses.count("passed"))
        assert row["reached"] == len(mine) - statuses.count("skipped")


def test_group_mix(demo, rollouts):
    groups = defaultdict(list)
    for s in rollouts:
        groups[s.rollout.step, s.rollout.problem_id].append(s)
    found = ask(demo, "group-mix")
    assert [row["step"] for row in found] == list(range(12))
    for row in found:
        mine = [g for (step, _), g in groups.items() if step == row["step"]]
        good = [sum(s.verdict.passed for s in g) / len(g) for g in mine]
        assert (row["all_good"], row["all_bad"]) == (good.count(1.0), good.count(0.0))
        assert row["mixed"] == len(good) - good.count(1.0) - good.count(0.0)
        assert row["no_signal"] == sum(np.ptp([s.reward.total for s in g]) < 1e-9 for g in mine)


WEIGHTS = {"format": 0.05, "interface": 0.5, "syntax": 0.0, "tests": 0.5, "tests_fraction": 0.7}


def test_counterfactual_rewards_in_sql_are_those_of_the_reward_function(demo, rollouts):
    asked = Problem.model_validate(
        demo.problems_of("demo")[0].record
    )  # no term of the product reads it
    expected = {
        s.rollout.key: reward(
            Graded(asked, s.verdict, s.rollout.text, s.rollout.tokens_T, "stop"), WEIGHTS
        ).total
        for s in rollouts
    }
    found = ask(demo, "counterfactual-rollouts", weights=json.dumps(WEIGHTS))
    assert {r["rollout"]: r["reward_now"] for r in found} == pytest.approx(expected)
    assert {r["rollout"]: r["reward_was"] for r in found} == {
        s.rollout.key: s.reward.total for s in rollouts
    }
    groups = {s.rollout.key: (s.rollout.step, s.rollout.problem_id) for s in rollouts}
    now, was = defaultdict(list), defaultdict(list)
    for r in found:
        now[groups[r["rollout"]]].append(r["reward_now"])
        was[groups[r["rollout"]]].append(r["reward_was"])
    for r in found:
        group = groups[r["rollout"]]
        assert r["advantage_now"] == pytest.approx(r["reward_now"] - np.mean(now[group]))
        # The run's own advantage is also divided by the group's spread.
        assert r["advantage_was"] == pytest.approx(r["reward_was"] - np.mean(was[group]))
    assert [r["rollout"] for r in found] == sorted(groups, key=lambda key: (*groups[key], key))


def test_counterfactual_group_signal(demo, rollouts):
    groups = defaultdict(list)
    for s in rollouts:
        groups[s.rollout.epoch + 1, s.rollout.step, s.rollout.problem_id].append(
            s.verdict.outcome is Outcome.PASSED
        )
    found = ask(demo, "counterfactual", weights='{"tests": 1.0}')
    assert [row["epoch"] for row in found] == sorted({epoch for epoch, _, _ in groups})
    for row in found:
        mine = [g for (epoch, _, _), g in groups.items() if epoch == row["epoch"]]
        assert row["groups"] == len(mine)
        assert row["signal_now"] == pytest.approx(np.mean([0 < sum(g) < len(g) for g in mine]))
        assert row["reward_now"] == pytest.approx(np.mean([np.mean(g) for g in mine]))


def test_counterfactual_names_an_unknown_term(demo):
    with pytest.raises(HistoryError, match="unknown reward term"):
        ask(demo, "counterfactual", weights='{"test": 1.0}')


def test_pass_at_k_in_sql_equals_the_estimator(demo):
    found = {(r["policy"], r["step"], r["k"]): r["pass_at_k"] for r in ask(demo, "pass-at-k")}
    for e in demo.evaluations("demo"):
        assert {k: found[e.policy, e.step, k] for k in e.pass_at_k} == pytest.approx(
            e.pass_at_k
        )


def test_evaluations_of_the_same_weights_with_other_settings_stay_separate(history):
    history.start_run(RunRecord(name="r"))
    history.record_problems("r", [(a_problem(), "heldout", None)])
    for key, outcome, more in (
        ("own", Outcome.TESTS_FAILED, {}),
        ("with tools", Outcome.PASSED, {"turns": 4}),
        ("failed", Outcome.PASSED, {"status": "failed", "template": "plain"}),
    ):
        found = {
            "status": "done",
            "n_problems": 1,
            "pass_at_1": float(outcome is Outcome.PASSED),
            **more,
        }
        whose = {"run": "r", "policy": "student", "step": 2, "split": "heldout", "samples": 1}
        history.record_evaluation(EvaluationRecord(key=key, **whose, **found))
        rollout = a_rollout(purpose="evaluation", evaluation=key, epoch=-1, step=2)
        history.record_rollouts([rollout])
        history.record_verdicts(
            [(rollout.key, a_verdict(outcome), Reward(total=0.0, terms={}))]
        )
        found = {"result": "same", "detail": "", "relative_area": 2.0, "relative_levels": 1.0}
        place = {
            "rollout": rollout.key,
            "run": "r",
            "problem_id": "p",
            "key": "k",
            "executor": "test",
        }
        history.record_audits([AuditRecord(**place, **found)])
    for name, column in (("pass-at-k", "pass_at_k"), ("categories", "pass_at_1")):
        query = named_query(name)
        rows = history.query(query.sql, {"run": "r"}).to_pylist()
        assert {row["turns"]: row[column] for row in rows} == {None: 0.0, 4: 1.0}, name
        assert len(rows) == 2
    netlists = history.query(named_query("netlists").sql, {"run": "r"}).to_pylist()
    assert [(row["evaluation"], row["passes"]) for row in netlists] == [
        ("failed", 1),
        ("own", 1),
        ("with tools", 1),
    ]
    (home,) = runs_with_counts(history)
    assert home["last"] == 0.0
    console = Console(width=100)
    with console.capture() as shown:
        console.print(live_view(history, history.existing_run("r")))
    assert "student, heldout, turns 4" in shown.get()


def test_a_run_without_a_heartbeat_is_silent_wherever_runs_are_shown(history, monkeypatch):
    for minutes, name in ((6, "dead"), (4, "slow")):
        monkeypatch.setattr(
            store,
            "utc_now",
            lambda minutes=minutes: records.utc_now() - timedelta(minutes=minutes),
        )
        history.start_run(RunRecord(name=name, status="running"))
    expected = {"dead": "silent", "slow": "running"}
    assert {
        row["run"]: row["status"] for row in history.query(named_query("runs").sql).to_pylist()
    } == expected
    assert {row["run"]: row["status"] for row in runs_with_counts(history)} == expected
    assert {record.name: record.state for record in history.runs()} == expected
    console = Console(width=100)
    with console.capture() as shown:
        console.print(live_view(history, history.existing_run("dead")))
    assert "silent" in shown.get()


def test_a_stage_of_few_steps_has_a_small_share_of_the_total(history):
    for run_, last in (
        ("r", {"train": 4.0, "score": 3.0, "total": 10.0}),
        ("other", {"train": 50.0, "total": 50.0}),
    ):
        history.start_run(RunRecord(name=run_))
        history.plan_epoch(
            run_, 0, [StepPlan(step=step, problem_ids=("p",)) for step in (0, 1)]
        )
        for step, times in enumerate(({"train": 16.0, "total": 20.0}, last)):
            whose = {
                "run": run_,
                "epoch": 0,
                "step": step,
                "state_path": "st",
                "sampler_path": "sa",
            }
            history.finish_step(StepRecord(**whose, examples=1, train_tokens=1, times=times))
    rows = history.query(named_query("time").sql, {"run": "r"}).to_pylist()
    found = {
        row["stage"]: (row["steps"], row["seconds"], row["mean_s"], row["share_of_total"])
        for row in rows
    }
    assert found == {
        "total": (2, 30, 15, 1.0),
        "train": (2, 20, 10, 20 / 30),
        "score": (1, 3, 3, 0.1),
    }


def test_an_unknown_name_or_parameter_gets_help():
    with pytest.raises(HistoryError, match="pass-rate"):
        named_query("pasrate")
    with pytest.raises(HistoryError, match="it has: limit"):
        named_query("mistakes").bind({"most": "3"}, "demo")
    with pytest.raises(HistoryError, match="type int"):
        named_query("mistakes").bind({"limit": "many"}, "demo")


def told(history, *arguments: str) -> str:
    """The output of `query` in this process, into a pipe 200 columns wide."""
    done = invoke("query", *arguments, "--db", history.path, COLUMNS="200")
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_the_command_prints_tables_csv_and_json(demo):
    as_json = json.loads(told(demo, "pass-rate", "--run", "demo", "-o", "json"))
    assert as_json == ask(demo, "pass-rate")
    as_csv = list(csv.DictReader(io.StringIO(told(demo, "pass-rate", "-o", "csv"))))
    assert [float(r["pass_rate"]) for r in as_csv] == [r["pass_rate"] for r in as_json]
    table = told(demo, "pass-rate")
    assert "difficulty" in table
    assert table.count("hard") == 3
    sql = "SELECT sum(n_tokens) AS n, now()::TIMESTAMP AS t FROM rollouts WHERE run = $run"
    assert isinstance(json.loads(told(demo, sql, "-o", "json"))[0]["n"], int)


def test_a_wide_row_is_one_line_in_a_pipe_and_one_record_on_a_narrow_terminal(demo):
    wide = "SELECT * FROM evaluations ORDER BY evaluation LIMIT 2"
    heading, _, *rows = told(demo, wide).strip().splitlines()
    assert {"evaluation", "pass_at_1", "by_family"} <= set(heading.split())
    assert len(rows) == 2
    narrow = {"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "60"}
    records = run("query", wide, "--db", demo.path, timeout=600, env=narrow).stdout
    assert records.count("pass_at_1") == 2
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", records).splitlines())) <= 60


def test_model_texts_cannot_control_the_terminal(demo):
    out = told(demo, "SELECT text FROM rollouts WHERE contains(text, 'pwned') LIMIT 2")
    assert "pwned" in out
    assert "\x1b" not in out


def test_the_command_says_what_is_wrong(demo):
    wrong = run("query", "SELECT nothing FROM runs", "--db", demo.path, timeout=600)
    assert wrong.returncode == 2
    assert "nothing" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    with pytest.raises(HistoryError, match="runs there: demo"):
        told(demo, "pass-rate", "--run", "x")
