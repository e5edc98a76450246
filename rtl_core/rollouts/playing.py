"""Answers that are conversations: episodes in which a model uses tools or tries again, and single-shot
answers from an endpoint.

The text of such a rollout is its files in the form of a single-shot answer or, without tools, its last
answer. So it is graded, regraded and audited like any other; a verdict from between two attempts is reused.
If the model samples here, the rollout's tokens are those of the whole conversation, with a mask of the
sampled ones: it is trained on as one sequence. All messages are recorded turn by turn: an episode whose
process died resumes from there.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from attrs import define
from rich.console import RenderableType

from rtl_core.backend.base import SampledAnswer, SamplingParams
from rtl_core.episodes.conversation import Conversation
from rtl_core.episodes.endpoint import Endpoint
from rtl_core.episodes.episode import Episode, Policy, Turn, to_messages, to_turns
from rtl_core.episodes.tools import Judge, definitions
from rtl_core.errors import InfrastructureError, PolicyError
from rtl_core.history.records import Conditions, MessageRecord, StoredRollout
from rtl_core.prompting.hints import feedback
from rtl_core.reporting.transcript import transcript_view
from rtl_core.rollouts import batch as batches
from rtl_core.rollouts.batch import Batch, rollout_seed, sampler_of, sampling_of, seed_place
from rtl_core.rollouts.evaluation import EvaluationPlan, evaluation_batch, plan_evaluation
from rtl_core.run.conversations import ConversationPool, open_conversation_pool
from rtl_core.run.session import Session
from rtl_core.types.rollout import Rollout
from rtl_grader.prompts import build_messages
from rtl_grader.types.answer import Answer


@define(eq=False)
class Player:
    """How problems are answered."""

    policy: Callable[[Batch, str, int], Policy] | None
    """Creates the policy of one conversation from the batch, the problem's id and the sample's index. None:
    the session's own policy gives single-shot answers, as in any evaluation."""
    pool: ConversationPool
    agentic: bool
    """Whether problems are answered in episodes; otherwise in one turn."""


@asynccontextmanager
async def players(session: Session) -> AsyncIterator[list[tuple[EvaluationPlan, Player]]]:
    """Yield the evaluations of an evaluation run with their players: the model in one turn and, if the run
    is agentic, in episodes."""
    held, bounds = session.config.evaluation, session.config.episode
    plan = plan_evaluation(session, "student", 0)
    policy: Callable[[Batch, str, int], Policy] = partial(sampling_policy, session)
    if held.endpoint is not None:
        max_tokens, temperature, top_p = sampling_of(
            session.config, evaluation_batch(session, plan)
        )
        endpoint = Endpoint(
            held.endpoint, session.config.tinker.student, temperature, top_p, max_tokens
        )
        policy = lambda batch, problem_id, sample: endpoint  # noqa: E731
    async with open_conversation_pool(session.config, held.agentic) as pool:
        found = [(plan, Player(policy if held.endpoint else None, pool, False))]
        if held.agentic:
            in_turns = replace(plan, other=Conditions(turns=bounds.most_turns))
            found.append((in_turns, Player(policy, pool, True)))
        yield found


def sampling_policy(session: Session, batch: Batch, problem_id: str, sample: int) -> Conversation:
    """Return the batch's policy for one conversation. Call it in the session's event loop and use the
    result in another thread."""
    config, policy, loop = session.config, session.policy, asyncio.get_running_loop()
    max_tokens, temperature, top_p = sampling_of(config, batch)
    weights = sampler_of(session, batch, problem_id)

    def ask(prompt_P: Sequence[int], most_tokens: int) -> tuple[Sequence[int], Sequence[float]]:
        params = SamplingParams(min(most_tokens, max_tokens), temperature, policy.chat.stop, top_p)
        seeds = None
        if config.sampling.seeded:  # the prompt's length tells the turn
            seeds = [
                rollout_seed(config.run.seed, seed_place(batch), problem_id, sample, len(prompt_P))
            ]
        asked = policy.backend.sample(weights, prompt_P, 1, params, seeds=seeds)
        (answer,) = asyncio.run_coroutine_threadsafe(asked, loop).result()
        return answer.tokens_T, answer.logprobs_T

    return Conversation(policy.chat, ask, policy.context)


def judge_between_attempts(session: Session, batch: Batch, problem_id: str) -> Judge:
    """Return a judge that gives the run grader's feedback between two attempts; equal answers are graded
    once, and not again with the group.

    Call it in the session's event loop and use the judge in another thread. It raises InfrastructureError
    if grading itself fails.
    """
    loop = asyncio.get_running_loop()

    def judge(answer: Answer) -> str | None:
        grading = batches.verdicts_on(session, batch, problem_id, [answer])
        (verdict,) = asyncio.run_coroutine_threadsafe(grading, loop).result()
        return None if verdict.passed else feedback(verdict, session.config.episode.feedback_chars)

    return judge


async def answer(session: Session, batch: Batch, problem_id: str) -> None:
    """Sample the missing answers of one group: in one turn each or, in a run that trains on episodes, in
    episodes. Raises what `play` raises."""
    pool = session.policy.conversations
    if pool is None:
        await batches.sample(session, batch, problem_id)
    else:
        await play(
            session, batch, problem_id, Player(partial(sampling_policy, session), pool, True)
        )


async def play(session: Session, batch: Batch, problem_id: str, player: Player) -> None:
    """Sample the missing answers of one group in conversations.

    Raises BackendUnavailableError, and what `grade` raises if the sandbox or the grading between attempts
    fails; the turns so far are recorded, and a retry resumes from them.
    """
    policy_of = player.policy
    assert policy_of is not None, "the player has a policy of its own"
    missing = [
        sample for sample in range(batch.group_size) if (problem_id, sample) not in batch.rollouts
    ]
    loop = asyncio.get_running_loop()
    judge = (
        judge_between_attempts(session, batch, problem_id)
        if session.config.episode.attempts > 1
        else None
    )

    async def one(sample: int) -> Rollout:
        rollout = batch.rollout(
            session.run, problem_id, sample, (), SampledAnswer([], [], "stop", "")
        )
        known = session.history.messages(rollout.key)

        def record(first: int, turn: Turn) -> None:
            loop.call_soon_threadsafe(
                session.recorder.put, "record_messages", to_messages(rollout.key, first, turn)
            )

        work = partial(
            _converse,
            session,
            player,
            policy_of(batch, problem_id, sample),
            judge,
            rollout,
            known,
            record,
        )
        return await player.pool.run(work)

    with batch.clock.measure("sample"):
        done = await asyncio.gather(*map(one, missing), return_exceptions=True)
    rollouts = [found for found in done if isinstance(found, Rollout)]
    batch.add(map(StoredRollout, rollouts))
    session.recorder.put("record_rollouts", rollouts)
    failed = [found for found in done if isinstance(found, BaseException)]
    for error in failed:
        if type(error) is not InfrastructureError:  # errors of the service are subclasses
            raise error
    if failed:
        batches.grading_failed(
            session, batch, problem_id, f"an episode of {problem_id} failed: {failed[0]}"
        )


def _converse(
    session: Session,
    player: Player,
    policy: Policy,
    judge: Judge | None,
    rollout: Rollout,
    known: Sequence[MessageRecord],
    record: Callable[[int, Turn], None],
) -> Rollout:
    """Play one conversation and return its rollout. `known`: its messages that are already recorded."""
    problem, turns, place = session.problems[rollout.problem_id], to_turns(known), len(known)
    prompt, template = session.prompts.get(problem.id), session.config.prompting.template
    # For an endpoint no prompt was prepared, because its tokens are not counted.
    single_shot = prompt.messages if prompt else build_messages(problem, template)

    def on_turn(turn: Turn) -> None:
        nonlocal place
        record(place, turn)
        turns.append(turn)
        place += 1 + len(turn.results)

    if not player.agentic:
        if not turns:
            started = time.monotonic()
            # A model may write tool calls even though it was given no tools.
            reply = replace(policy.reply(single_shot, (), session.config.episode.tokens), calls=())
            on_turn(Turn(reply, (), time.monotonic() - started))
        reply = turns[0].reply
        return rollout.model_copy(
            update={"text": reply.text, "stop_reason": "length" if reply.cut else "stop"}
        )
    assert player.pool.executor is not None, "the pool was opened with tools"
    if session.config.learning.permute_results and rollout.purpose == "train":
        problem = problem.model_copy(update={"context": permuted_context(session, rollout)})
    bounds = session.config.episode
    opening = single_shot if bounds.whole_answers else None
    episode = Episode(
        problem, player.pool.executor, bounds, list(turns), judge=judge, opening=opening
    )
    episode.play(policy, on_turn)
    found: dict[str, Any] = {
        "text": episode.text,
        "ended": episode.ended,
        "n_turns": len(episode.turns),
    }
    found["stop_reason"] = "stop" if episode.ended in ("submitted", "no call") else "length"
    if isinstance(policy, Conversation):
        found |= asdict(policy.played(episode.messages, definitions(episode.tools.offered)))
        if session.trains and not found["tokens_T"]:
            raise PolicyError(
                f"the prompt of an episode on {problem.id} leaves no room for an answer in the "
                f"context of {policy.context} tokens",
                "choose a model with a longer context, or set episode.explain = false for a model "
                "trained without instructions",
            )
    return rollout.model_copy(update=found)


def permuted_context(session: Session, rollout: Rollout) -> dict[str, str]:
    """Return the files of another training problem, always the same one for a rollout
    (`learning.permute_results`, a control)."""
    others = [problem for problem in session.loaded.train if problem.id != rollout.problem_id]
    return (
        random.Random(f"permute-results/{session.config.run.seed}/{rollout.key}")
        .choice(others)
        .context
    )


def shown(episode: Episode) -> RenderableType:
    """Return the transcript of an episode that is not recorded."""
    messages: list[MessageRecord] = []
    for turn in episode.turns:
        messages += to_messages("", len(messages), turn)
    return transcript_view(messages)
