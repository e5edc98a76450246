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

from rtl_core.backend.base import SampledAnswer
from rtl_core.config import RunConfig
from rtl_core.episodes.conversation import Conversation
from rtl_core.episodes.endpoint import Endpoint
from rtl_core.episodes.episode import Episode, Policy, Reply, Turn, to_messages, to_turns
from rtl_core.episodes.tools import Judge, definitions
from rtl_core.errors import InfrastructureError, PolicyError
from rtl_core.history.records import Conditions, MessageRecord, StoredRollout
from rtl_core.prompting.hints import feedback
from rtl_core.rollouts import batch as batches
from rtl_core.rollouts.batch import (
    Batch,
    keep_verdicts,
    last_stage,
    reader_of,
    rollout_seed,
    sampler_of,
    sampling_of,
    seed_place,
)
from rtl_core.rollouts.evaluation import EvaluationPlan, plan_evaluation
from rtl_core.run.conversations import ConversationPool, open_conversation_pool
from rtl_core.run.recorder import Recorder
from rtl_core.run.session import Session
from rtl_core.run.state import Graders
from rtl_core.types.rollout import Rollout
from rtl_core.types.tokenizer import TokenIds
from rtl_grader.progress import log_line
from rtl_grader.prompts import build_messages
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Verdict


@define(eq=False)
class Player:
    """How problems are answered in conversations."""

    pool: ConversationPool
    agentic: bool
    """Whether problems are answered in episodes; otherwise in one turn."""
    endpoint: Endpoint | None = None
    """The model that answers. None: the policy of the session, which gives single-shot answers without a player."""


@asynccontextmanager
async def players(session: Session) -> AsyncIterator[list[tuple[EvaluationPlan, Player]]]:
    """Yield the evaluations of an evaluation run with their players: the model in one turn and, if the run
    is agentic, in episodes."""
    config, endpoint = session.config, None
    plan, url = plan_evaluation(session, "student", 0), config.evaluation.endpoint
    if url is not None:
        params = sampling_of(config, "evaluation")
        endpoint = Endpoint(
            url, config.tinker.student, params.temperature, params.top_p, params.max_tokens
        )
    agentic = config.evaluation.agentic
    async with open_conversation_pool(config, agentic) as pool:
        evaluations = [(plan, Player(pool, False, endpoint))]
        if agentic:
            turns = Conditions(turns=config.episode.most_turns)
            in_turns = replace(plan, other=turns, kind=config.episode.kind)
            evaluations.append((in_turns, Player(pool, True, endpoint)))
        yield evaluations


def sampling_policy(
    session: Session, batch: Batch, problem_id: str, sample: int
) -> Conversation:
    """Return the batch's policy for one conversation. Call it in the session's event loop and use the
    result in another thread. Raises PolicyError for a teacher whose tokens are not the student's."""
    if reader_of(session, batch, problem_id) is not None:
        raise PolicyError(
            "a teacher with another tokenizer or chat template cannot be evaluated in episodes",
            "evaluate it on single answers, or by itself: rtl-distill evaluate --model",
        )
    config, policy, loop = session.config, session.policy, asyncio.get_running_loop()
    settings = sampling_of(config, batch.purpose, policy.chat.stop)
    weights = sampler_of(config, batch, session.problems[problem_id])
    place = config.run.seed, seed_place(batch), problem_id, sample

    def ask(
        prompt_P: TokenIds, most_tokens: int
    ) -> tuple[TokenIds, Sequence[float], int | None]:
        params = replace(settings, max_tokens=min(most_tokens, settings.max_tokens))
        # The prompt's length tells the turn.
        seeds = [rollout_seed(*place, len(prompt_P))] if config.sampling.seeded else None
        request = policy.backend.sample(weights, prompt_P, 1, params, seeds=seeds)
        (answer,) = asyncio.run_coroutine_threadsafe(request, loop).result()
        return answer.tokens_T, answer.logprobs_T, answer.n_cached

    return Conversation(policy.chat, ask, policy.context)


def judge_between_attempts(
    config: RunConfig, graders: Graders, recorder: Recorder, batch: Batch, problem: Problem
) -> Judge:
    """Return a judge that gives the run grader's feedback between two attempts; equal answers are graded
    once, and not again with the group.

    Call it in the session's event loop and use the judge in another thread. It raises InfrastructureError
    if grading itself fails.
    """
    loop, until = asyncio.get_running_loop(), last_stage(config, batch)

    async def verdict_on(answer: Answer) -> Verdict:
        with batch.clock.measure("grade"):
            verdicts = await graders.grade(problem, [answer], until)
        keep_verdicts(graders, recorder, batch, verdicts)
        return verdicts[0]

    def judge(answer: Answer) -> str | None:
        verdict = asyncio.run_coroutine_threadsafe(verdict_on(answer), loop).result()
        return None if verdict.passed else feedback(verdict, config.episode.feedback_chars)

    return judge


async def answer(
    session: Session, batch: Batch, problem_id: str, player: Player | None = None
) -> None:
    """Sample the missing answers of one group as the `player` answers or, without one, in one turn each; in episodes in
    a run that trains on them. An endpoint is asked for those of its batches. Raises what `play` raises."""
    pool = session.policy.conversations if player is None else player.pool
    if batch.sampler == "endpoint":
        assert pool is not None, "the session was opened with one"
        player = Player(pool, False, pool.endpoint)
    elif player is None and session.config.learning.episodes:
        assert pool is not None, "the session was opened with one"
        player = Player(pool, True)
    if player is None or not (player.agentic or player.endpoint):
        await batches.sample(session, batch, problem_id)
        return
    await play(session, batch, problem_id, player)
    if player.endpoint is not None and batch.sampler == "endpoint":
        url, model = player.endpoint.url, player.endpoint.model
        for name in player.endpoint.other_names():
            log_line(f"warning: {url} answers as {name!r:.99}, not as {model}")


async def play(session: Session, batch: Batch, problem_id: str, player: Player) -> None:
    """Sample the missing answers of one group in conversations.

    Raises BackendUnavailableError, and what `grade` raises if the sandbox or the grading between attempts
    fails; the turns so far are recorded, and a retry resumes from them.
    """
    config, recorder = session.config, session.recorder
    problem = session.problems[problem_id]
    loop = asyncio.get_running_loop()
    refusals: list[str] = []
    judge = None
    if config.episode.attempts > 1:
        judge = judge_between_attempts(config, session.graders, recorder, batch, problem)

    async def conversation(sample: int) -> Rollout:
        unanswered = SampledAnswer([], [], "stop", "")
        rollout = batch.rollout(session.run, problem_id, sample, (), unanswered)
        recorded = session.history.messages(rollout.key)

        def record(first: int, turn: Turn) -> None:
            refusals.extend(filter(None, [turn.reply.refusal]))
            messages = to_messages(rollout.key, first, turn)
            loop.call_soon_threadsafe(recorder.put, "record_messages", messages)

        policy = player.endpoint or sampling_policy(session, batch, problem_id, sample)
        return await player.pool.run(
            partial(_converse, session, player, policy, judge, rollout, recorded, record)
        )

    with batch.clock.measure("sample"):
        results = await asyncio.gather(
            *map(conversation, batch.missing(problem_id)), return_exceptions=True
        )
    if refusals:
        log_line(
            f"warning: {problem_id}: {len(refusals)} of {len(results)} answers count as failed: {refusals[0]}"
        )
    rollouts = [result for result in results if isinstance(result, Rollout)]
    batch.add(map(StoredRollout, rollouts))
    recorder.put("record_rollouts", rollouts)
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in errors:
        if type(error) is not InfrastructureError:  # errors of the service are subclasses
            raise error
    if errors:
        why = f"an episode of {problem_id} failed: {errors[0]}"
        batches.grading_failed(config, batch, problem_id, why)


def _converse(
    session: Session,
    player: Player,
    policy: Policy,
    judge: Judge | None,
    rollout: Rollout,
    recorded: Sequence[MessageRecord],
    record: Callable[[int, Turn], None],
) -> Rollout:
    """Play one conversation and return its rollout. `recorded`: the messages that the history already
    holds."""
    config, problem, turns = (
        session.config,
        session.problems[rollout.problem_id],
        to_turns(recorded),
    )
    prompt, bounds, place = session.prompts.get(problem.id), config.episode, len(recorded)
    # For an endpoint no prompt was prepared, because its tokens are not counted.
    single_shot = (
        prompt.messages if prompt else build_messages(problem, config.prompting.template)
    )

    def on_turn(turn: Turn) -> None:
        nonlocal place
        record(place, turn)
        turns.append(turn)
        place += 1 + len(turn.results)

    if not player.agentic:
        if not turns:
            started = time.monotonic()
            # A model may write tool calls even though it was given no tools.
            most = max(bounds.tokens, config.longest_answer, config.endpoint_limit)
            reply = replace(policy.reply(single_shot, (), most), calls=())
            on_turn(Turn(reply, reply.refused, time.monotonic() - started))
        reply = turns[0].reply
        stop_reason = "refused" if reply.refusal else "length" if reply.cut else "stop"
        said: dict[str, Any] = {"text": reply.text, "stop_reason": stop_reason}
        if rollout.policy == "endpoint":
            said |= _of_endpoint(session, rollout.problem_id, reply)
        return rollout.model_copy(update=said)
    assert player.pool.executor is not None, "the pool was opened with tools"
    if config.learning.permute_results and rollout.purpose == "train":
        context = permuted_context(config, session.loaded.train, rollout)
        problem = problem.model_copy(update={"context": context})
    opening = single_shot if bounds.whole_answers else None
    episode = Episode(
        problem, player.pool.executor, bounds, list(turns), judge=judge, opening=opening
    )
    episode.play(policy, on_turn)
    ended = episode.ended
    fields: dict[str, Any] = {
        "text": episode.text,
        "ended": ended,
        "n_turns": len(episode.turns),
    }
    reasons = {"submitted": "stop", "no call": "stop", "refused": "refused"}
    fields["stop_reason"] = reasons.get(str(ended), "length")
    if isinstance(policy, Conversation):
        tokens = policy.as_sequence(episode.messages, definitions(episode.tools.offered))
        cached = [turn.reply.n_cached for turn in episode.turns if turn.reply.tokens_T]
        fields |= asdict(tokens)
        fields["n_cached"] = None if None in cached else sum(filter(None, cached))
        if session.trains and not tokens.tokens_T:
            raise PolicyError(
                f"the prompt of an episode on {problem.id} leaves no room for an answer in the "
                f"context of {policy.context} tokens",
                "choose a model with a longer context, or set episode.explain = false for a model "
                "trained without instructions",
            )
    return rollout.model_copy(update=fields)


def _of_endpoint(session: Session, problem_id: str, reply: Reply) -> dict[str, Any]:
    """Fields of an answer to imitate: its text begins with the thought, as if the model had been sampled here,
    and its tokens are counted by the student's tokenizer where the endpoint does not count them."""
    text = (
        f"<think>\n{reply.thought}\n</think>\n\n{reply.text}" if reply.thought else reply.text
    )
    read = reply.n_prompt or len(session.prompts[problem_id].tokens_P)
    tokenizer = session.policy.chat.tokenizer
    written = reply.n_tokens or len(tokenizer.encode(text, add_special_tokens=False))
    return {"text": text, "counted": (read, written)}


def permuted_context(
    config: RunConfig, problems: Sequence[Problem], rollout: Rollout
) -> dict[str, str]:
    """Return the files of another training problem, always the same one for a rollout
    (`learning.permute_results`, a control)."""
    others = [problem for problem in problems if problem.id != rollout.problem_id]
    rng = random.Random(f"permute-results/{config.run.seed}/{rollout.key}")
    return rng.choice(others).context
