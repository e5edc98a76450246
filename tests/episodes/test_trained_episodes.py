"""Training on episodes, by the functions that the flows call: the trainer's data, and resuming a killed run."""

import asyncio
import os
import signal
import subprocess

import numpy as np
import pytest

from rtl_core.algorithms.base import credit_of
from rtl_core.backend.base import SampledAnswer
from rtl_core.config import load_config
from rtl_core.episodes.episode import to_turns
from rtl_core.episodes.tools import definitions
from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.prompting.calls import ToolChat
from rtl_core.rollouts import playing
from rtl_core.rollouts.datums import algorithm_of, build_datums
from rtl_core.run.opening import open_session
from tests.command import command
from tests.episodes.steps import begin, break_off_sampling, one_step
from tests.waiting import wait_for


def overrides(folder, *more):
    return [
        "run.name=small", f"run.directory={folder}", f"run.history={folder / 'history.duckdb'}", "problems.sources.0.train=4",
        "problems.sources.0.heldout=2", "curriculum.problems_per_step=4", "sampling.group_size=12", "evaluation.samples=2",
        "evaluation.k=[1]", "sampling.seeded=true", "tinker.local_deterministic=true", *more,
    ]  # fmt: skip


def settings(folder, *more):
    return load_config("demo-episodes", overrides(folder, *more), environment={})


@pytest.mark.slow
def test_the_trainer_gets_exactly_the_sampled_and_rendered_tokens(tmp_path):
    step, session = asyncio.run(one_step(settings(tmp_path)))
    chat, history = session.policy.chat, session.history
    told = 0
    for rollout in (stored.rollout for stored in step.rollouts.values()):
        turns = to_turns(history.messages(rollout.key))
        tools = ToolChat(chat, definitions())
        opening = [{"role": "user", "content": session.problems[rollout.problem_id].prompt}]
        expected = [(token, None) for token in tools.first(opening)]
        start = len(expected)
        for number, turn in enumerate(turns):
            expected += zip(turn.reply.tokens_T, turn.reply.logprobs_T, strict=True)
            if number + 1 < len(turns):
                rendered = tools.after(
                    turn.reply.calls, [result.text for result in turn.results]
                )
                expected += [(token, None) for token in rendered]
                told += len(rendered)
        assert [*rollout.prompt_P, *rollout.tokens_T] == [token for token, _ in expected]
        assert list(rollout.own_T) == [logprob is not None for _, logprob in expected[start:]]
        assert list(rollout.logprobs_T) == [logprob or 0.0 for _, logprob in expected[start:]]
        assert (rollout.n_turns, rollout.n_own) == (
            len(turns),
            sum(turn.reply.n_tokens for turn in turns),
        )
        assert 0 <= rollout.n_cached <= len(turns) * len(expected)
    assert told, "no episode of the step read anything"

    datums = build_datums(step, algorithm_of(session.config, step), 0.0)
    by_tokens = {(one.prompt_P, one.tokens_T): one for one in datums}
    for stored in step.rollouts.values():
        if credit_of(stored).advantage:
            datum = by_tokens[stored.rollout.prompt_P, stored.rollout.tokens_T]
            assert np.array_equal(datum.inputs["advantages"] != 0, stored.rollout.sampled_T)
    metrics = {
        row["name"]: row["value"]
        for row in history.query("SELECT name, value FROM step_metrics").to_pylist()
    }
    assert abs(metrics["optim/kl_sample_train_v1"]) < 1e-4
    assert metrics["optim/kl_sample_train_v2"] < 1e-6
    assert metrics["episodes/tool_tokens"] * len(step.rollouts) == pytest.approx(told)
    # A resumed run reads the same; the trainer's log-probabilities are stored only for sampled tokens.
    again = history.rollouts_of("small", 0)
    rollouts = {one.rollout.key: one.rollout for one in again}
    assert all(
        step.rollouts[rollout.problem_id, rollout.sample].rollout == rollout
        for rollout in rollouts.values()
    )
    for row in history.query("SELECT rollout, logprobs_T FROM trainer_tokens").to_pylist():
        rollout = rollouts[row["rollout"]]
        assert not np.array(row["logprobs_T"])[~rollout.sampled_T].any()
        assert np.allclose(row["logprobs_T"], rollout.logprobs_T, atol=1e-3)


@pytest.mark.slow
def test_an_episode_whose_session_died_resumes_at_the_turn(tmp_path, monkeypatch):
    config = settings(tmp_path, "problems.sources.0.train=1", "curriculum.problems_per_step=1")

    async def interrupted(most):
        async with open_session(config) as session:
            step = await begin(session)
            asked = break_off_sampling(session, monkeypatch, most)
            (problem_id,) = step.planned
            try:
                await playing.answer(session, step, problem_id)
            except ConfigError:
                assert most is not None
            await session.recorder.settle()
            keys = (
                session.history.query("SELECT DISTINCT rollout FROM messages ORDER BY 1")
                .column(0)
                .to_pylist()
            )
            messages = [message for key in keys for message in session.history.messages(key)]
            return messages, step, asked["asked"]

    before, step, _ = asyncio.run(interrupted(7))
    assert len(step.rollouts) < 12
    after, step, asked = asyncio.run(interrupted(None))
    turns = sum(stored.rollout.n_turns or 0 for stored in step.rollouts.values())
    assert len(step.rollouts) == 12
    assert asked == turns - 7, "no turn is sampled twice"
    assert [
        one
        for one in after
        if (one.rollout, one.position) in {(m.rollout, m.position) for m in before}
    ] == before


@pytest.mark.slow
def test_the_same_command_resumes_training_on_episodes_after_a_sigkill(tmp_path):
    given = overrides(tmp_path, "problems.sources.0.train=8")
    train = command("train", "demo-episodes", sets=given)
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path / "prefect")}
    reader = History(tmp_path / "history.duckdb", read_only=True)
    # Which episodes are interrupted depends on the machine; the test above checks that one resumes at the turn.
    played = "SELECT count(*) AS n FROM messages WHERE rollout LIKE 'small/step/%'"
    process = subprocess.Popen(train, env=environment, start_new_session=True)
    wait_for(
        lambda: reader.query(played).to_pylist()[0]["n"],
        "a running episode",
        while_runs=process,
    )
    process.send_signal(signal.SIGKILL)
    process.wait()
    everything = (
        "SELECT * FROM messages WHERE rollout LIKE 'small/step/%' ORDER BY rollout, position"
    )
    before = reader.query(everything).to_pylist()
    subprocess.run(train, env=environment, check=True, timeout=1800)
    after = {
        (row["rollout"], row["position"]): row for row in reader.query(everything).to_pylist()
    }
    assert [after[row["rollout"], row["position"]] for row in before] == before, (
        "recorded turns are not played again"
    )
    assert [state.status for state in reader.steps("small")] == ["trained"] * 2
    for step in (0, 1):
        for rollout in (stored.rollout for stored in reader.rollouts_of("small", step)):
            turns = to_turns(reader.messages(rollout.key))
            sampled = [token for turn in turns for token in turn.reply.tokens_T]
            assert [
                token for token, own in zip(rollout.tokens_T, rollout.own_T, strict=True) if own
            ] == sampled


@pytest.mark.slow
def test_a_template_without_tools_is_refused_before_anything_is_sampled(tmp_path):
    async def opened():
        async with open_session(settings(tmp_path, "tinker.student=student")):
            pass

    with pytest.raises(ConfigError, match="cannot write tool calls"):
        asyncio.run(opened())
    assert (
        not History(tmp_path / "history.duckdb", read_only=True)
        .query("SELECT rollout FROM rollouts")
        .num_rows
    )


@pytest.mark.slow
def test_in_the_control_an_episode_reads_another_problems_document(tmp_path):
    config = settings(tmp_path, "learning.permute_results=true", "evaluation.at_once=4")

    async def read():
        async with open_session(config) as session:
            step = await begin(session)
            (problem_id, *_) = step.planned
            rollout = step.rollout(
                session.run, problem_id, 0, (), SampledAnswer([], [], "stop", "")
            )
            files = (
                playing.permuted_context(session.config, session.loaded.train, rollout),
                session.problems[problem_id].context,
            )
            return [each["docs/specification.md"] for each in files]

    other, own = asyncio.run(read())
    assert other.startswith("Module ")
    assert other != own
