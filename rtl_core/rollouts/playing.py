"""Answers that are conversations: episodes in which a model works with tools, and single-shot answers of one at an endpoint.

Such an answer is a rollout without tokens of its own; its text are the files, as a single-shot answer would give them. So it is graded,
regraded and audited like any other. What the model wrote and was told, with its tokens where it samples here, are messages of the history,
recorded turn by turn: an episode whose process died goes on from there. Programs of episodes run in sandboxes of their own, never in one that grades.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

from attrs import define
from rich.console import RenderableType
from rich.table import Table

from rtl_core.backend.base import SampledAnswer, SamplingParams, Weights
from rtl_core.episodes.conversation import Conversation
from rtl_core.episodes.endpoint import Endpoint
from rtl_core.episodes.episode import Episode, Policy, Turn
from rtl_core.episodes.recorded import to_messages, to_turns
from rtl_core.grading.executors.base import Executor, Job, JobResult
from rtl_core.history.records import Conditions, MessageRecord, StoredRollout
from rtl_core.prompting.answer_to import response_of
from rtl_core.prompting.messages import build_messages
from rtl_core.reporting import agentic
from rtl_core.reporting.transcript import transcript_view
from rtl_core.rollouts.batch import Batch, sampling_of
from rtl_core.rollouts.evaluation import EvaluationPlan, evaluation_batch, plan_evaluation
from rtl_core.run.graders import executor_of
from rtl_core.run.session import Session
from rtl_core.types.rollout import Rollout


class Cores:
    """An executor that runs as many jobs at once as there are cores: programs wait for one, and no episode for another episode."""

    def __init__(self, executor: Executor) -> None:
        self._executor, self._free = executor, threading.Semaphore(os.cpu_count() or 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def run(self, job: Job) -> JobResult:
        with self._free:
            return self._executor.run(job)


@define(eq=False)
class Player:
    """How the problems of an evaluation are answered."""

    plan: EvaluationPlan
    policy: Callable[[], Policy] | None
    """Makes whoever plays one conversation. None: the session's own policy gives single-shot answers, as in any evaluation."""
    threads: ThreadPoolExecutor
    """In which conversations wait for the model and for sandboxes."""
    executor: Executor | None = None
    """Of episodes; None for single-shot answers."""


@asynccontextmanager
async def players(session: Session) -> AsyncIterator[list[Player]]:
    """Who answers: the model in one turn and, if the run is agentic, in episodes."""
    held, bounds = session.config.evaluation, session.config.episode
    plan = plan_evaluation(session, "student", 0)
    threads = ThreadPoolExecutor(held.at_once, thread_name_prefix="conversation")
    policy = _policy(session, plan)
    found = [Player(plan, policy if held.endpoint else None, threads)]
    try:
        if held.agentic:
            executor = cast(Executor, Cores(await asyncio.to_thread(executor_of, session.config)))
            found.append(Player(replace(plan, other=Conditions(turns=bounds.turns)), policy, threads, executor))
        yield found
    finally:
        for player in found[1:]:
            player.executor.close()  # type: ignore[union-attr]
        threads.shutdown(cancel_futures=True)


def _policy(session: Session, plan: EvaluationPlan) -> Callable[[], Policy]:
    """Makes whoever plays a conversation: the endpoint, which all share, or the session's own model."""
    config = session.config
    max_tokens, temperature, top_p = sampling_of(config, evaluation_batch(session, plan))
    if config.evaluation.endpoint is not None:
        endpoint = Endpoint(config.evaluation.endpoint, config.tinker.student, temperature, top_p, max_tokens)
        return lambda: endpoint
    loop, policy = asyncio.get_running_loop(), session.policy

    def sample(prompt_P: Sequence[int], most_tokens: int) -> tuple[Sequence[int], Sequence[float]]:
        params = SamplingParams(min(most_tokens, max_tokens), temperature, policy.chat.stop, top_p)
        asked = policy.backend.sample(Weights("student", plan.sampler_path), prompt_P, 1, params, seeds=None)
        (answer,) = asyncio.run_coroutine_threadsafe(asked, loop).result()
        return answer.tokens_T, answer.logprobs_T

    return lambda: Conversation(policy.chat, sample, policy.context)


async def play(session: Session, batch: Batch, problem_id: str, player: Player) -> int:
    """Have what is missing of one group answered; returns how many answers there are now that were not before.

    Raises BackendUnavailableError and InfrastructureError; the turns so far are recorded, and a repeat goes on from them.
    """
    missing = [sample for sample in range(batch.group_size) if (problem_id, sample) not in batch.rollouts]
    loop = asyncio.get_running_loop()

    async def one(sample: int) -> Rollout:
        rollout = batch.rollout(session.run, problem_id, sample, (), SampledAnswer([], [], "stop", ""))
        known = session.history.messages(rollout.key)

        def record(first: int, turn: Turn) -> None:
            loop.call_soon_threadsafe(session.recorder.put, "record_messages", to_messages(rollout.key, first, turn))

        work = partial(_converse, session, player, problem_id, known, record)
        text, cut = await loop.run_in_executor(player.threads, work)
        return rollout.model_copy(update={"text": text, "stop_reason": "length" if cut else "stop"})

    with batch.clock.measure("sample"):
        done = await asyncio.gather(*map(one, missing), return_exceptions=True)
    rollouts = [found for found in done if isinstance(found, Rollout)]
    batch.take_up(map(StoredRollout, rollouts))
    session.recorder.put("record_rollouts", rollouts)
    for found in done:
        if isinstance(found, BaseException):
            raise found
    return len(rollouts)


def _converse(
    session: Session,
    player: Player,
    problem_id: str,
    known: Sequence[MessageRecord],
    record: Callable[[int, Turn], None],
) -> tuple[str, bool]:
    """The text of an answer, and whether a limit of tokens ended it. `known` are the messages of it that are recorded."""
    problem, turns, place = session.problems[problem_id], to_turns(known), len(known)
    assert player.policy is not None, "it is asked for a conversation"
    policy = player.policy()

    def on_turn(turn: Turn) -> None:
        nonlocal place
        record(place, turn)
        turns.append(turn)
        place += 1 + len(turn.results)

    if player.executor is None:
        if not turns:
            started = time.monotonic()
            messages = build_messages(problem, session.config.prompting.template)
            reply = policy.reply(messages, (), session.config.episode.tokens)
            on_turn(Turn(reply, (), time.monotonic() - started))
        return turns[0].reply.text, turns[0].reply.cut
    episode = Episode(problem, player.executor, session.config.episode, list(turns))
    return response_of(episode.play(policy, on_turn).files), episode.ended == "cut"


def table(session: Session, found: Sequence[Player]) -> Table:
    """pass@1 single-shot and of episodes, with what they cost."""
    record = session.history.evaluation(found[-1].plan.key(session.run))
    assert record is not None, "it was made"
    return agentic.table(session.history, record)


def shown(episode: Episode) -> RenderableType:
    """The transcript of an episode that is not recorded."""
    messages: list[MessageRecord] = []
    for turn in episode.turns:
        messages += to_messages("", len(messages), turn)
    return transcript_view(messages)
