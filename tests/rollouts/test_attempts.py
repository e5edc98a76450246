"""Episodes without tools, in which the grader's feedback follows a failed answer: real service, simulators and database."""

import asyncio
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rtl_core.backend.base import SamplingParams
from rtl_core.config import RunConfig
from rtl_core.episodes.episode import Turn, to_turns
from rtl_core.errors import ConfigError, InfrastructureError
from rtl_core.history.named_queries import named_query
from rtl_core.history.records import Conditions, EvaluationRecord
from rtl_core.history.store import History
from rtl_core.prompting.calls import ToolChat
from rtl_core.prompting.hints import ASK, feedback
from rtl_core.reporting.breakdown import in_words
from rtl_core.rollouts import batch as batches
from rtl_core.rollouts import evaluation, playing
from rtl_core.run.opening import open_session
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.types.verdict import Outcome
from tests.episodes.steps import begin, break_off_sampling, one_step
from tests.nouns import a_rollout, a_verdict, demo


def settings(folder: Path, *more: str) -> RunConfig:
    return demo(
        folder, "run.name=again", "run.epochs=1", "curriculum.problems_per_step=2", "sampling.group_size=6",
        "learning.warm_start_steps=0", "learning.kl_weight=0", "learning.kl_schedule=constant", "learning.replacements=0",
        "evaluation.teacher=false", "evaluation.samples=2", "evaluation.k=[1]", "sampling.seeded=true", "tinker.local_deterministic=true",
        "prompting.max_prompt_tokens=700", "learning.episodes=true", "episode.tools=[]", "episode.attempts=2", *more, heldout=2,
    )  # fmt: skip


def as_fed(chat: ToolChat, turns: Sequence[Turn]) -> tuple[list[int], list[bool]]:
    """Tokens after the prompt, turn by turn, and which of them were sampled."""
    tokens: list[int] = []
    own: list[bool] = []
    for turn in turns:
        tokens += turn.reply.tokens_T
        own += [True] * len(turn.reply.tokens_T)
        if turn is not turns[-1]:
            rendered = chat.after([], [result.text for result in turn.results])
            tokens += rendered
            own += [False] * len(rendered)
    return tokens, own


@pytest.mark.slow
def test_a_failed_answer_is_followed_by_feedback_and_another_attempt_and_nothing_is_graded_twice(
    tmp_path, monkeypatch
):
    graded: Counter[str] = Counter()

    def count(session):
        under_seeds = session.graders.grader._under_seeds

        def counted(problem, answer, until):
            graded[f"{problem.id} {sorted(answer.files.items())}"] += bool(answer.files)
            return under_seeds(problem, answer, until)

        monkeypatch.setattr(session.graders.grader, "_under_seeds", counted)

    step, session = asyncio.run(one_step(settings(tmp_path), count))
    history, grader, seen = session.history, session.graders.grader, Counter()
    for stored in step.rollouts.values():
        rollout, problem = stored.rollout, session.problems[stored.rollout.problem_id]
        turns = to_turns(history.messages(rollout.key))
        assert rollout.prompt_P == tuple(session.prompts[problem.id].tokens_P), (
            "turn 1 is the single-shot answer"
        )
        tokens, own = as_fed(ToolChat(session.policy.chat, []), turns)
        assert (list(rollout.tokens_T), list(rollout.own_T)) == (tokens, own)
        assert rollout.text == turns[-1].reply.text
        first = grader.cache.get(grader.key(problem, answer_to(problem, turns[0].reply.text)))
        if first is None:
            first = grader.grade(
                problem, answer_to(problem, turns[0].reply.text)
            )  # without a file: not cached
            assert first.outcome is Outcome.NO_ANSWER or rollout.ended == "cut"
        assert stored.verdict is not None
        if rollout.n_turns == 1:
            assert rollout.ended == "cut" or (stored.verdict.passed and stored.verdict.cached)
        else:
            assert turns[0].results[0].text == f"{feedback(first, 1500)}\n{ASK}"
            assert history.messages(rollout.key)[1].who == "user"
        seen[rollout.n_turns, stored.verdict.passed] += 1
    assert seen[1, True], "no answer passed at the first attempt"
    assert seen[2, True] + seen[2, False], "no answer failed"
    assert max(graded.values()) == 1
    metrics = {
        r["name"]: r["value"]
        for r in history.query("SELECT name, value FROM step_metrics").to_pylist()
    }
    assert metrics["optim/kl_sample_train_v2"] < 1e-6
    assert metrics["turn-1/passed_by_then"] == pytest.approx(seen[1, True] / len(step.rollouts))
    assert metrics["turn-2/passed_by_then"] == pytest.approx(
        (seen[1, True] + seen[2, True]) / len(step.rollouts)
    )
    for stored in step.rollouts.values():
        assert stored.credit is not None
        assert np.isfinite(stored.credit.advantage)
    key = asyncio.run(evaluated(tmp_path / "history.duckdb"))
    record = history.evaluation(key)
    assert record is not None
    assert (record.status, record.split, record.n_problems, record.template) == (
        "done",
        "heldout",
        2,
        "table",
    )
    assert (
        in_words(record)
        == "student after 0 steps (× 2, template table, temperature 0.2, top_p 0.9, max_tokens 100)"
    )


async def evaluated(history: Path) -> str:
    other = Conditions(template="table", temperature=0.2, top_p=0.9, max_tokens=100)
    async with open_session(
        evaluation.config_for(history, "again", "heldout", other), as_visitor=True
    ) as session:
        plan = evaluation.plan_evaluation(session, "student", 0, 2, other)
        held = evaluation.evaluation_batch(session, plan)
        assert batches.sampling_of(session.config, held.purpose) == SamplingParams(
            100, 0.2, (), 0.9
        )
        for problem_id in held.problem_ids:
            await playing.answer(session, held, problem_id)
            await batches.grade(session, held, problem_id)
        record = await evaluation.record(session, held, plan)
        _, *turns = evaluation.in_words(session, held, plan, record)
        assert [line.split(":")[0] for line in turns] == ["  by turn 1", "  by turn 2"]
        return plan.key("again")


@pytest.mark.slow
def test_a_recorded_turn_is_not_sampled_again_and_a_failing_grader_gives_no_feedback(
    tmp_path, monkeypatch
):
    config = settings(
        tmp_path,
        "problems.sources.0.train=1",
        "curriculum.problems_per_step=1",
        "grading.retries=1",
    )

    async def played(most, broken=False):
        async with open_session(config) as session:
            step = await begin(session)
            asked = break_off_sampling(session, monkeypatch, most)
            if broken:
                failure = a_verdict(Outcome.INFRASTRUCTURE_ERROR, "no disk")
                monkeypatch.setattr(session.graders.grader, "grade", lambda *_: failure)
            (problem_id,) = step.planned
            expected = (InfrastructureError, "no disk") if broken else (ConfigError, "dead")
            if broken or most is not None:
                with pytest.raises(expected[0], match=expected[1]):
                    await playing.answer(session, step, problem_id)
            else:
                await playing.answer(session, step, problem_id)
            return step, asked["asked"]

    step, _ = asyncio.run(played(None, broken=True))
    history = History(tmp_path / "history.duckdb", read_only=True)
    assert not history.query("FROM messages WHERE who = 'user'").num_rows
    asyncio.run(played(3))
    recorded = history.query(
        "SELECT rollout, position FROM messages WHERE who = 'model'"
    ).num_rows
    assert recorded
    step, asked = asyncio.run(played(None))
    assert (
        asked
        == sum(stored.rollout.n_turns or 0 for stored in step.rollouts.values()) - recorded
    )


def test_pass_rates_by_turn_are_reported_for_episodes_only(tmp_path):
    history = History(tmp_path / "h.duckdb")

    def answer(evaluation, sample, passed, **more):
        rollout = a_rollout(
            step=5, sample=sample, evaluation=evaluation, purpose="evaluation", **more
        )
        outcome = Outcome.PASSED if passed else Outcome.TESTS_FAILED
        history.record_rollouts([rollout])
        history.record_verdicts([(rollout.key, a_verdict(outcome), None)])

    for key in ("episodes", "single-shot"):
        history.record_evaluation(
            EvaluationRecord(
                key=key, run="r", policy="student", step=0, split="test", status="done"
            )
        )
    for sample, (passed, turns) in enumerate([(True, 1), (True, 3), (False, 3), (False, 1)]):
        answer("episodes", sample, passed, n_turns=turns, ended="submitted")
    for sample, passed in enumerate([True, False]):
        answer("single-shot", sample, passed)
    rows = [
        tuple(row.values())
        for row in history.query(named_query("turns").sql, {"run": "r"}).to_pylist()
    ]
    assert rows == [
        ("episodes", 1, 2, 1, 0.25),
        ("episodes", 3, 2, 1, 0.5),
    ]


def test_keys_of_evaluations_need_no_quotes_in_a_shell():
    other = Conditions(template="table", temperature=0.2, top_p=0.9, max_tokens=100)
    key = evaluation.EvaluationPlan("student", 4, "test", 8, other=other).key("demo")
    assert key == shlex.quote(key)
    assert "," not in key
    keys = {
        evaluation.EvaluationPlan("student", 4, "test", 8, other=Conditions(temperature=t)).key(
            "demo"
        )
        for t in (None, 0.2, 0.5)
    }
    assert len(keys) == 3
