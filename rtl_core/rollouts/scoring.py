"""Teacher scores of a group: which weights score an answer, after which prompt, and what is recorded.

The teacher is a configured model that reads the student's prompt and tokens (if its own tokens are others, its
own reading of them: prompting/reading.py). With the algorithm `self_distillation` it is the student itself, which
reads a prompt with a hint (prompting/hints.py). Only this file uses hints: the recorded prompt of a rollout,
which is also trained on, is the one that the answer was sampled from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from rtl_core.backend.base import Backend, Weights
from rtl_core.config import RunConfig
from rtl_core.errors import PolicyError
from rtl_core.history.records import StoredRollout, TeacherReading, TeacherRecord
from rtl_core.learning.distributions import Choices
from rtl_core.learning.kl import k1, k2, k3
from rtl_core.learning.spans import SpanArray, heard_T, token_scores
from rtl_core.prompting.hints import after_right_answer, after_verdict, hinted
from rtl_core.rollouts.batch import Batch, teacher_of
from rtl_core.rollouts.datums import golden_response
from rtl_core.run.session import Session
from rtl_core.types.numbers import Floats, Floats32
from rtl_core.types.tokenizer import TokenIds
from rtl_grader.extraction.thoughts import without_thoughts
from rtl_grader.prompts import Message
from rtl_grader.types.problem import Problem


@dataclass(frozen=True)
class Scorer:
    """The weights that score one answer, and the prompt they read."""

    weights: Weights
    prompt_P: TokenIds
    tokens_T: TokenIds
    """The answer: the student's own tokens, or the teacher's reading of their text."""
    name: str
    """The model or saved weights whose price applies."""
    hint: str | None = None
    """Name of the hint that the prompt contains."""
    spans_S4: SpanArray | None = None
    """If the tokens are the teacher's: the spans that they share with the student's."""


@dataclass(frozen=True)
class Hint:
    """What a self-teacher reads in place of the answer's own prompt."""

    name: str
    messages: list[Message]


async def score(session: Session, batch: Batch, problem_id: str) -> None:
    """Record the teacher's log-probabilities of one group's tokens.

    An episode is scored as one sequence; at tokens from tools the scores are set to 0. With a self-teacher,
    answers without a hint get no scores; an answer that a teacher with other tokens cannot read gets a record without
    spans. Choices are kept only in memory: a resumed step asks for them again.
    """
    learning, backend = session.config.learning, session.policy.backend
    k = learning.asked_choices
    ask: Ask = partial(_teacher_scores, backend, k)
    if learning.sampled_choices:
        ask = partial(_scores_of_own_choices, backend, k, Weights(path=batch.sampler_path))
    requests: list[tuple[StoredRollout, Scorer]] = []
    for stored in batch.group(problem_id):
        is_scored = stored.teacher is not None and (not k or stored.teacher.choices is not None)
        if is_scored or not stored.rollout.tokens_T:  # an empty answer has no scores
            continue
        scorer = scorer_of(session, batch, stored)
        if scorer is not None:
            requests.append((stored, scorer))
    with batch.clock.measure("score"):
        answers = await _scores(ask, requests)
    records = []
    for (stored, scorer), scores in zip(requests, answers, strict=True):
        record = _record(stored, scorer, scores, learning.choices_stored_above)
        records.append(record)
        batch.update(stored, teacher=record, choices=scores.own)
    session.recorder.put("record_teacher", records)


class Scores(NamedTuple):
    """Log-probabilities of the tokens that the teacher reads; the choices that are compared, with the teacher's
    log-probabilities; and with the student's, if the choices are its own."""

    logprobs_T: Floats32
    choices: Choices | None = None
    own: Choices | None = None


Ask = Callable[[StoredRollout, Scorer], Awaitable[Scores]]


async def _scores(ask: Ask, requests: Sequence[tuple[StoredRollout, Scorer]]) -> list[Scores]:
    """Ask for the scores of each answer, in order. Equal answers to one prompt have equal scores and are asked for
    once."""
    texts = [
        (scorer.weights, tuple(scorer.prompt_P), tuple(scorer.tokens_T))
        for _, scorer in requests
    ]
    distinct = dict(zip(texts, requests, strict=True))
    scores = await asyncio.gather(*(ask(*request) for request in distinct.values()))
    by_text = dict(zip(distinct, scores, strict=True))
    return [by_text[text] for text in texts]


async def _teacher_scores(
    backend: Backend, k: int, stored: StoredRollout, scorer: Scorer
) -> Scores:
    """Ask a teacher for the scores of an answer and, with `k` above 0, for its own `k` choices."""
    if not scorer.tokens_T:
        return Scores(np.zeros(0, np.float32))
    text = scorer.weights, scorer.prompt_P, scorer.tokens_T
    if k:
        return Scores(*await backend.choices(*text, k))
    return Scores(await backend.logprobs(*text))


async def _scores_of_own_choices(
    backend: Backend, k: int, sampler: Weights, stored: StoredRollout, scorer: Scorer
) -> Scores:
    """Ask a teacher for its scores of an answer and of the student's `k` choices there. After a restart, which
    loses them, the weights that sampled the answer are asked for them."""
    rollout, own = stored.rollout, stored.choices
    if own is None:
        _, own = await backend.choices(sampler, rollout.prompt_P, rollout.tokens_T, k)
    scores_T, teacher_TK = await backend.logprobs_of(
        scorer.weights, scorer.prompt_P, scorer.tokens_T, own.tokens_TK
    )
    order_TK = np.argsort(-teacher_TK, axis=-1, kind="stable")
    ordered = partial(np.take_along_axis, indices=order_TK, axis=-1)
    tokens_TK = ordered(own.tokens_TK)
    own = Choices(tokens_TK, ordered(own.logprobs_TK))
    return Scores(scores_T, Choices(tokens_TK, ordered(teacher_TK)), own)


def _record(
    stored: StoredRollout, scorer: Scorer, scores: Scores, stored_above: float
) -> TeacherRecord:
    """Return the record of an answer's scores. Choices are stored at tokens whose k1 is `stored_above` or
    more. The means are over the tokens that the teacher has scored, also in spans."""
    own_T, reading, scores_T = stored.rollout.sampled_T, None, scores.logprobs_T
    student_T = np.array(stored.rollout.logprobs_T)
    if scorer.spans_S4 is not None:
        reading = TeacherReading(scorer.tokens_T, scores_T, scorer.spans_S4)
        own_T = own_T & heard_T(scorer.spans_S4, len(own_T))
        scores_T = token_scores(student_T, scores_T, scorer.spans_S4).astype(np.float32)
    scores_T = np.where(stored.rollout.sampled_T, scores_T, np.float32(0.0))
    k1_T = k1(student_T, scores_T)
    return TeacherRecord(
        rollout=stored.rollout.key,
        logprobs_T=scores_T,
        k1_mean=_mean(k1_T[own_T]),
        k2_mean=_mean(k2(student_T, scores_T)[own_T]),
        k3_mean=_mean(k3(student_T, scores_T)[own_T]),
        n_tokens=int(own_T.sum()),
        teacher=scorer.name,
        hint=scorer.hint,
        n_prompt=None if scorer.hint is None and reading is None else len(scorer.prompt_P),
        reading=reading,
        choices=scores.choices,
        choices_at=np.flatnonzero(own_T & (k1_T >= stored_above)).tolist(),
    )


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else 0.0


def scorer_of(session: Session, batch: Batch, stored: StoredRollout) -> Scorer | None:
    """Return the scorer of an answer; None if the student is its own teacher and there is no hint for the
    answer, or the prompt with the hint does not fit. A teacher with other tokens that cannot read the answer is not
    asked: no tokens."""
    config, policy, rollout = session.config, session.policy, stored.rollout
    problem, tokens_T = session.problems[rollout.problem_id], rollout.tokens_T
    if not config.learning.self_taught:
        teacher = teacher_of(config, problem)
        weights, reader = Weights.of_teacher(teacher), policy.readers.get(teacher)
        if reader is None:
            return Scorer(weights, rollout.prompt_P, tokens_T, teacher)
        read = reader.read(session.prompts[problem.id].messages, rollout.prompt_P, tokens_T)
        return Scorer(weights, read.prompt_P, read.tokens_U, teacher, spans_S4=read.spans_S4)
    hint = _hint(config, batch, problem, session.prompts[problem.id].messages, stored)
    if hint is None:
        return None
    room = None if policy.context is None else policy.context - len(rollout.tokens_T)
    prompt_P = hinted(policy.chat, hint.messages, room)
    if prompt_P is None:
        return None
    path = _own_weights(config, session.weights.sampler_paths, batch)
    return Scorer(
        Weights("student", path), prompt_P, tokens_T, config.tinker.student, hint.name
    )


def _own_weights(
    config: RunConfig, sampler_paths: Mapping[int, str], batch: Batch
) -> str | None:
    """Return the student's weights that serve as its teacher; None: the untrained student's."""
    learning = config.learning
    if learning.self_weights == "current":
        return batch.sampler_path
    first = learning.warm_start_steps
    if first and first not in sampler_paths:
        raise PolicyError(
            f"the weights after the warm start ({first} steps), which are the self-teacher, are not in the history",
            'set learning.self_weights = "current" with --accept-changes',
        )
    return sampler_paths.get(first)


def _hint(
    config: RunConfig,
    batch: Batch,
    problem: Problem,
    messages: list[Message],
    stored: StoredRollout,
) -> Hint | None:
    """Return the hint for an answer to a prompt of these messages; None if there is none."""
    if config.learning.self_hint == "golden":
        if not problem.has_whole_golden:
            return None
        return Hint("golden", after_right_answer(messages, golden_response(problem)))
    if stored.verdict is None or stored.passed:
        return None
    right = next((other for other in batch.group(problem.id) if other.passed), None)
    if right is not None:
        text = without_thoughts(right.rollout.text).strip()
        return Hint("passed", after_right_answer(messages, text))
    most_chars = config.episode.feedback_chars
    text = stored.rollout.text
    return Hint("verdict", after_verdict(messages, text, stored.verdict, most_chars))
