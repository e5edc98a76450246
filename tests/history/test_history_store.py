"""The history stores each record once and returns it unchanged."""

import contextlib

import duckdb
import numpy as np
import pytest

from rtl_core.errors import HistoryError
from rtl_core.history.columns import table_names
from rtl_core.history.connection import ROW_GROUP
from rtl_core.history.named_queries import named_query
from rtl_core.history.records import RunRecord, StepPlan, StepRecord
from rtl_core.history.store import History
from rtl_core.learning.credit import Credit
from rtl_grader.grading.cache import MemoryCache
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome, Stage, StageResult, Verdict
from tests import synthetic
from tests.nouns import a_rollout, a_verdict


def test_a_run_is_returned_unchanged(tmp_path):
    history = History(tmp_path / "new" / "h.duckdb")
    record = RunRecord(
        name="r",
        config={"a": [1, {"b": "ü"}]},
        seed=3,
        student="s",
        teacher="t",
        versions={"x": "1"},
    )
    history.start_run(record)
    found = history.run("r")
    assert found.model_copy(update={"heartbeat_at": None}) == record
    assert history.run("other") is None


def test_starting_an_existing_run_resumes_it(history):
    first = RunRecord(name="r", config={"a": 1}, seed=3)
    history.start_run(first)
    history.set_run_status("r", "failed", "power cut")
    assert history.run("r").finished_at is not None
    history.start_run(RunRecord(name="r", status="running", config={"a": 2}, seed=9))
    found = history.run("r")
    assert (found.status, found.message, found.finished_at) == ("running", None, None)
    assert (found.config, found.seed, found.created_at) == ({"a": 2}, 9, first.created_at)
    assert len(history.runs()) == 1


def test_the_status_of_an_unknown_run_is_an_error(history):
    with pytest.raises(HistoryError, match="no run 'x'"):
        history.set_run_status("x", "failed")


def test_rollouts_are_returned_with_all_recorded_facts(history):
    rng = np.random.default_rng(1)
    p = synthetic.problem(1, "train")
    shape = synthetic.Shape()
    given = [synthetic.rollout("r", "train", None, 0, 2, p, i, shape, rng) for i in range(3)]
    assert history.record_rollouts(given) == 3
    bare = history.rollouts_of("r", 2)
    assert [b.rollout.text for b in bare] == [g.text for g in given]
    assert all(
        b.verdict is None and b.reward is None and b.teacher is None and b.credit is None
        for b in bare
    )

    judged = [synthetic.judge(p, 0.0, rng) for _ in given]
    history.record_verdicts([(g.key, *j) for g, j in zip(given, judged, strict=True)])
    teachers = [synthetic.teacher(g, 0.5, rng) for g in given]
    history.record_teacher(teachers)
    credits = [Credit(reward=1.5 - i, advantage=0.5 - i, counts=i < 2) for i in range(3)]
    history.record_advantages([(g.key, one) for g, one in zip(given, credits, strict=True)])
    for g, (verdict, reward), t, b in zip(
        given, judged, teachers, history.rollouts_of("r", 2), strict=True
    ):
        float32 = {"logprobs_T": tuple(np.float32(v).item() for v in g.logprobs_T)}
        assert b.rollout == g.model_copy(update=float32)
        assert b.verdict == verdict
        assert b.reward == reward
        assert (b.teacher.k1_mean, b.teacher.k3_mean, b.teacher.n_tokens) == (
            t.k1_mean,
            t.k3_mean,
            t.n_tokens,
        )
        np.testing.assert_array_equal(
            np.float32(b.teacher.logprobs_T), np.float32(t.logprobs_T)
        )
        assert b.credit == credits[g.sample]
    assert history.rollout(given[1].key).rollout.sample == 1
    assert history.rollout("none") is None


def test_every_write_may_be_repeated(tmp_path):
    def written():
        history = synthetic.write_run(
            tmp_path / "h.duckdb", shape=synthetic.Shape(steps=2, train=6, heldout=3)
        )
        return {name: history.query(f"SELECT 1 FROM {name}").num_rows for name in table_names()}

    counts = written()
    assert counts["rollouts"] == 2 * 6 * 4 + 3 * 3 * 4
    assert {name for name, n in counts.items() if n == 0} == {
        "regrades",
        "verdict_cache",
        "audits",
        "teacher_readings",
    }
    assert written() == counts


def test_a_rollout_keeps_its_first_text(history):
    first = a_rollout(text="first", tokens_T=(2, 3), logprobs_T=(-0.5, -0.5))
    history.record_rollouts([first])
    assert (
        history.record_rollouts(
            [first.model_copy(update={"text": "other", "tokens_T": (), "logprobs_T": ()})]
        )
        == 0
    )
    assert history.rollout(first.key).rollout == first


def test_rollouts_that_another_object_stored_are_known(history, tmp_path):
    History(tmp_path / "h.duckdb").record_rollouts(
        [a_rollout(step=3, sample=i) for i in range(2)]
    )
    new = [a_rollout(step=step) for step in (3, 4)]
    assert history.record_rollouts([*new, new[1]]) == 1
    assert history.record_rollouts(new) == 0
    assert [len(history.rollouts_of("r", step)) for step in (2, 3, 4, 5)] == [0, 2, 1, 0]
    with contextlib.suppress(KeyboardInterrupt), history.batch():
        history.record_rollouts([new[1].model_copy(update={"step": 5})])
        raise KeyboardInterrupt
    assert history.rollouts_of("r", 5) == []
    assert history.record_rollouts([new[1].model_copy(update={"step": 5})]) == 1


def test_queries_can_share_a_connection(history):
    history.start_run(RunRecord(name="r"))
    with history.reading():
        assert [r.name for r in history.runs()] == ["r"]
        assert history.steps("r") == []
        with pytest.raises(duckdb.InvalidInputException, match="read-only"):
            history.heartbeat("r")
    history.heartbeat("r")
    spent = history.take_spent()
    assert 0 < spent.cpu_s <= spent.busy_s + 0.1
    assert history.take_spent().busy_s == 0


def test_a_verdict_without_its_rollout_is_refused(history):
    verdict, reward = synthetic.judge(
        synthetic.problem(0, "train"), 1.0, np.random.default_rng(0)
    )
    with pytest.raises(HistoryError, match="first 'r/step/00001/x/0'"):
        history.record_verdicts([("r/step/00001/x/0", verdict, reward)])


def test_the_trainers_log_probabilities_replace_earlier_ones(history):
    history.record_trainer_tokens([("a", [-0.5, -1.0]), ("b", np.array([-2.0]))])
    history.record_trainer_tokens([("a", [-0.25, -1.5])])
    found = history.query(
        "SELECT rollout, logprobs_T FROM trainer_tokens ORDER BY rollout"
    ).to_pylist()
    assert found == [
        {"rollout": "a", "logprobs_T": [-0.25, -1.5]},
        {"rollout": "b", "logprobs_T": [-2.0]},
    ]


def test_a_planned_step_keeps_its_plan(history):
    history.plan_epoch(
        "r", 0, [StepPlan(step=0, problem_ids=("b", "a")), StepPlan(step=1, problem_ids=("c",))]
    )
    history.plan_epoch(
        "r", 0, [StepPlan(step=0, problem_ids=("z",)), StepPlan(step=2, problem_ids=("d",))]
    )
    assert [(s.step, s.problem_ids, s.status) for s in history.steps("r")] == [
        (0, ("b", "a"), "planned"),
        (1, ("c",), "planned"),
        (2, ("d",), "planned"),
    ]
    assert history.steps_done("r") == 0


def test_a_finished_step_has_its_weights(history):
    history.plan_epoch(
        "r", 0, [StepPlan(step=0, problem_ids=("a",)), StepPlan(step=1, problem_ids=("b",))]
    )
    record = StepRecord(
        run="r", epoch=0, step=0, state_path="st", sampler_path="sa", examples=3, train_tokens=90, times={"total": 2.0}, metrics={"m": 1}
    )  # fmt: skip
    history.finish_step(record)
    history.finish_step(record)
    (last,) = history.trained_steps("r")
    assert (last.step, last.state_path, last.sampler_path, last.problem_ids) == (
        0,
        "st",
        "sa",
        ("a",),
    )
    assert (last.examples, last.train_tokens) == (3, 90)
    assert history.steps("r")[1].train_tokens is None
    assert history.query("SELECT name, value FROM step_metrics").to_pylist() == [
        {"name": "m", "value": 1.0}
    ]


def test_evaluations_are_returned(demo):
    final = demo.evaluation("demo-student-12")
    assert (final.status, final.policy, final.step, final.n_problems) == (
        "done",
        "student",
        12,
        16,
    )
    assert final.lo <= final.pass_at_1 <= final.hi
    assert sorted(final.pass_at_k) == [1, 2, 4]
    assert [(e.policy, e.step) for e in demo.evaluations("demo")] == [
        ("student", 0),
        ("teacher", 0),
        ("student", 12),
    ]
    assert len(demo.rollouts_of("demo", "demo-teacher-0")) == 16 * 4
    assert demo.evaluation("none") is None


def test_validations_are_found_by_fingerprint_and_tools(demo):
    p = synthetic.problem(7, "train")
    found = demo.validations("bubblewrap-iverilog-11")[p.fingerprint]
    assert (found.problem_id, found.status) == (p.id, "flaky")
    assert demo.validations("other tools") == {}


def test_problems_are_returned_unchanged(demo):
    found = demo.problems_of("demo")
    assert len(found) == 24 + 16
    assert Problem.model_validate(found[-1].record) == synthetic.problem(23, "train")


def test_cached_verdicts_are_returned(history):
    verdict, _ = synthetic.judge(synthetic.problem(0, "train"), 0.0, np.random.default_rng(0))
    odd = verdict.model_copy(update={"reasons": ("a\ud800b\x00",)})
    history.record_cached_verdicts([("k", verdict), ("odd", odd), ("k", verdict)])
    again = verdict.model_copy(update={"cpu_limit_s": 20.0})
    history.record_cached_verdicts([("k", again)])
    cache = MemoryCache(history.cached_verdicts(9))
    assert cache.get("k") == again
    assert cache.get("odd").reasons == ("a?b\x00",)
    cache.put("own", odd)
    assert cache.get("own") == odd
    assert [key for key, _ in history.cached_verdicts(1)] == ["k"]


def test_a_full_cache_keeps_the_newest_verdicts(history):
    verdict, _ = synthetic.judge(synthetic.problem(0, "train"), 0.0, np.random.default_rng(0))
    for key in "bca":
        history.record_cached_verdicts([(key, verdict)])
    cache = MemoryCache(history.cached_verdicts(2), most=2)
    assert [cache.get(key) for key in "bca"] == [None, verdict, verdict]
    cache.put("d", verdict)
    assert [cache.get(key) for key in "bcad"] == [None, None, verdict, verdict]
    assert list(cache.drain()) == ["d"]


def test_the_cpu_time_of_known_good_answers_is_found(history):
    problem, other = synthetic.problem(1, "train"), synthetic.problem(2, "train")
    assert history.cpu_of_known_good() == ({}, {})
    history.record_problems("r", [(problem, "train", 0), (other, "train", 1)])
    for tools, evidence in (
        ("old", {"cpu_s": 0.5}),
        ("new", {"cpu_s": 0.25}),
        ("without", {"digest": "x"}),
    ):
        changes = {"tools_key": tools, "evidence": {"golden": evidence}}
        result = synthetic.validation(problem, 0).model_copy(update=changes)
        history.record_validations([("r", result)])
    given = [a_rollout(problem_id=other.id, sample=i) for i in range(3)]
    history.record_rollouts(given)
    took = [(Outcome.PASSED, 0.5), (Outcome.PASSED, 0.75), (Outcome.TIMEOUT, 2.0)]
    verdicts = [
        a_verdict(outcome).model_copy(update={"cpu_s": cpu_s}) for outcome, cpu_s in took
    ]
    history.record_verdicts(
        [(r.key, verdict, None) for r, verdict in zip(given, verdicts, strict=True)]
    )
    assert history.cpu_of_known_good() == (
        {problem.fingerprint: 0.25},
        {other.fingerprint: 0.75},
    )


def test_a_batch_is_all_or_nothing(history, tmp_path):
    history.start_run(RunRecord(name="r"))

    def half_a_batch():
        with history.batch():
            history.set_run_status("r", "failed")
            assert history.run("r").status == "failed"
            assert (
                History(tmp_path / "h.duckdb").run("r").status == "failed"
            )  # another object, the same transaction
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        half_a_batch()
    assert history.run("r").status == "created"


def test_a_reader_can_neither_write_nor_create(tmp_path, demo):
    (tmp_path / "history.duckdb").touch()
    with pytest.raises(HistoryError, match="no history at"):
        History(tmp_path / "absent.duckdb", read_only=True).runs()
    with pytest.raises(HistoryError, match=r"did you mean history\.duckdb"):
        History(tmp_path / "histroy.duckdb", read_only=True).runs()
    assert not (tmp_path / "absent.duckdb").exists()
    reader = History(demo.path, read_only=True)
    with pytest.raises(HistoryError, match="opened as read-only"):
        reader.heartbeat("demo")
    with pytest.raises(HistoryError, match="read-only"):
        reader.query("DELETE FROM runs")
    assert reader.run("demo").status == "finished"


def test_the_last_verdict_replaces_earlier_ones_from_any_object(history, tmp_path):
    rng, p = np.random.default_rng(4), synthetic.problem(0, "train")
    given = [a_rollout(sample=i) for i in range(3)]
    with pytest.raises(HistoryError, match="3 rollouts are not in"):
        history.record_advantages([(r.key, Credit(0.0, 0.0, True)) for r in given])
    history.record_rollouts(given)
    stages, reasons = (StageResult(stage=Stage.FORMAT, status="passed"),), ("the engine died",)
    broken = Verdict(
        outcome=Outcome.INFRASTRUCTURE_ERROR, stages=stages, reasons=reasons, executor="docker"
    )
    verdicts = [(broken, None), *(synthetic.judge(p, skill, rng) for skill in (0.0, 1.0))]
    for writer in (history, History(tmp_path / "h.duckdb"), history):
        for verdict, reward in verdicts:
            for _ in range(2):
                writer.record_verdicts([(r.key, verdict, reward) for r in given])
            assert [(s.verdict, s.reward) for s in history.rollouts_of("r", 0)] == [
                (verdict, reward)
            ] * 3
    assert history.query("SELECT count(*) AS n FROM verdict_stages").to_pylist() == [{"n": 12}]


def test_a_step_that_is_set_aside_keeps_its_answers_and_can_be_sampled_again(history):
    rng = np.random.default_rng(1)
    p = synthetic.problem(1, "train")
    given = [a_rollout(step=2, sample=i) for i in range(3)]
    for round_ in (1, 2):
        assert history.record_rollouts(given) == 3
        history.record_verdicts([(g.key, *synthetic.judge(p, 0.0, rng)) for g in given])
        history.record_teacher([synthetic.teacher(g, 0.5, rng) for g in given])
        assert history.set_step_aside("r", 2) == 3
        assert history.rollouts_of("r", 2) == []
        aside = history.rollouts_of("r", 2, "set_aside")
        assert len(aside) == 3 * round_
        assert all(one.verdict is not None and one.teacher is not None for one in aside)
        assert sorted({one.rollout.text for one in aside}) == sorted({g.text for g in given})
    for counted in ("pass_by_step", "reward_by_step", "teacher_kl_by_step"):
        assert history.query(f"SELECT * FROM {counted}").num_rows == 0

    history.finish_step(StepRecord(run="r", epoch=0, step=2, state_path="s", sampler_path="p", examples=1, train_tokens=1, times={}, metrics={}))  # fmt: skip
    with pytest.raises(HistoryError, match="step 3 of 'r' is trained"):
        history.set_step_aside("r", 2)


def test_a_commit_rewrites_at_most_one_row_group_of_a_table(history):
    """DuckDB rewrites a table's last row group with each commit: with one group for all steps, each step would cost more than the last."""
    history.start_run(RunRecord(name="r"))
    for step in range(3):
        history.record_rollouts(
            [a_rollout(step=step, sample=number) for number in range(ROW_GROUP // 2)]
        )
    groups = history.query("SELECT DISTINCT row_group_id FROM pragma_storage_info('tokens')")
    assert groups.num_rows == 2


def test_a_finished_run_keeps_its_end_until_it_trains_again(history):
    history.start_run(RunRecord(name="r", status="running"))
    history.set_run_status("r", "finished")
    end = history.run("r").finished_at
    for _ in range(2):
        history.start_run(RunRecord(name="r", status="running"))
        history.set_run_status("r", "running", "interrupted: a busy service")
        history.set_run_status("r", "finished")
        assert history.run("r").finished_at == end
    history.start_run(RunRecord(name="r", status="running"))
    history.plan_epoch("r", 0, [StepPlan(step=0, problem_ids=("p",))])
    history.finish_step(
        StepRecord(
            run="r",
            epoch=0,
            step=0,
            state_path="s",
            sampler_path="p",
            examples=1,
            train_tokens=9,
        )
    )
    assert history.run("r").finished_at is None
    history.set_run_status("r", "finished")
    assert history.run("r").finished_at > end


def test_a_run_that_only_validated_problems_is_not_the_newest(history):
    for name in ("first", "second", "demo.validation"):
        history.start_run(RunRecord(name=name))
    assert [record.name for record in history.runs()] == ["second", "first", "demo.validation"]
    assert [row["run"] for row in history.query(named_query("runs").sql).to_pylist()] == [
        "second",
        "first",
        "demo.validation",
    ]
