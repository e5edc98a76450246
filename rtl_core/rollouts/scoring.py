"""Teacher scores of a group: which weights score an answer, after which prompt, and what is recorded.

The teacher is a configured model that reads the student's prompt or, with the algorithm
`self_distillation`, the student itself, which reads a prompt with a hint (prompting/hints.py). Only this
file uses hints: the recorded prompt of a rollout, which is also trained on, is the one that the answer was
sampled from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rtl_core.backend.base import Weights
from rtl_core.errors import PolicyError
from rtl_core.history.records import StoredRollout, TeacherRecord
from rtl_core.learning.distributions import Choices
from rtl_core.learning.kl import k1, k2, k3
from rtl_core.prompting.hints import after_right_answer, after_verdict, hinted
from rtl_core.rollouts.batch import Batch, teacher_of
from rtl_core.rollouts.datums import golden_response
from rtl_core.run.session import Session
from rtl_grader.extraction.thoughts import without_thoughts


@dataclass(frozen=True)
class Scorer:
    """The weights that score one answer, and the prompt they read."""

    weights: Weights
    prompt_P: Sequence[int]
    name: str
    """The model or saved weights whose price applies."""
    hint: str | None = None
    """Name of the hint that the prompt contains."""


async def score(session: Session, batch: Batch, problem_id: str) -> None:
    """Record the teacher's log-probabilities of one group's tokens.

    An episode is scored as one sequence; at tokens from tools the scores are set to 0. With a self-teacher,
    answers without a hint get no scores. The teacher's choices are kept only in memory: a resumed step asks
    for them again.
    """
    backend, learning = session.policy.backend, session.config.learning
    k = learning.asked_choices

    async def ask(
        weights: Weights, prompt_P: Sequence[int], tokens_T: Sequence[int]
    ) -> tuple[NDArray[np.float32], Choices | None]:
        if k:
            return await backend.choices(weights, prompt_P, tokens_T, k)
        return await backend.logprobs(weights, prompt_P, tokens_T), None

    asked = [
        (stored, scorer)
        for stored in batch.group(problem_id)
        if stored.rollout.tokens_T  # an empty answer has no scores
        and (stored.teacher is None or (k and stored.teacher.choices is None))
        and (scorer := scorer_of(session, batch, stored)) is not None
    ]
    with batch.clock.measure("score"):
        # Equal answers to one prompt have equal scores.
        texts = [(by.weights, tuple(by.prompt_P), stored.rollout.tokens_T) for stored, by in asked]
        distinct = list(dict.fromkeys(texts))
        scores = dict(
            zip(distinct, await asyncio.gather(*(ask(*text) for text in distinct)), strict=True)
        )
    records = []
    for (stored, by), text in zip(asked, texts, strict=True):
        scores_T, choices = scores[text]
        own_T = stored.rollout.sampled_T
        scores_T = np.where(own_T, scores_T, np.float32(0.0))
        student_T = np.array(stored.rollout.logprobs_T)
        record = TeacherRecord(
            rollout=stored.rollout.key,
            logprobs_T=scores_T,
            k1_mean=float(k1(student_T, scores_T)[own_T].mean()),
            k2_mean=float(k2(student_T, scores_T)[own_T].mean()),
            k3_mean=float(k3(student_T, scores_T)[own_T].mean()),
            n_tokens=stored.rollout.n_own,
            teacher=by.name,
            hint=by.hint,
            n_prompt=None if by.hint is None else len(by.prompt_P),
            choices=choices,
            choices_at=np.flatnonzero(
                own_T & (k1(student_T, scores_T) >= learning.choices_stored_above)
            ).tolist(),
        )
        records.append(record)
        batch.update(stored, teacher=record)
    session.recorder.put("record_teacher", records)


def scorer_of(session: Session, batch: Batch, stored: StoredRollout) -> Scorer | None:
    """Return the scorer of an answer; None if the student is its own teacher and there is no hint for the answer."""
    if not session.config.learning.self_taught:
        teacher = teacher_of(session, stored.rollout.problem_id)
        return Scorer(Weights.of_teacher(teacher), stored.rollout.prompt_P, teacher)
    found = _hint(session, batch, stored)
    if found is None:
        return None
    hint, prompt_P = found
    return Scorer(
        Weights("student", _own_weights(session, batch)),
        prompt_P,
        session.config.tinker.student,
        hint,
    )


def _own_weights(session: Session, batch: Batch) -> str | None:
    """Return the student's weights that serve as its teacher; None: the untrained student's."""
    learning = session.config.learning
    if learning.self_weights == "current":
        return batch.sampler_path
    first = learning.warm_start_steps
    if first and first not in session.weights.sampler_paths:
        raise PolicyError(
            f"the weights after the warm start ({first} steps), which are the self-teacher, are not in the history",
            'set learning.self_weights = "current" with --accept-changes',
        )
    return session.weights.sampler_paths.get(first)


def _hint(session: Session, batch: Batch, stored: StoredRollout) -> tuple[str, list[int]] | None:
    """Return the name of the hint for an answer and the prompt with it; None if there is none or it does not fit."""
    problem_id = stored.rollout.problem_id
    problem, messages = session.problems[problem_id], session.prompts[problem_id].messages
    if session.config.learning.self_hint == "golden":
        if not problem.has_whole_golden:
            return None
        name, shown = "golden", after_right_answer(messages, golden_response(problem))
    else:
        if stored.verdict is None or stored.passed:
            return None
        right = next((s for s in batch.group(problem_id) if s.passed), None)
        if right is not None:
            name, shown = (
                "passed",
                after_right_answer(messages, without_thoughts(right.rollout.text).strip()),
            )
        else:
            most_chars = session.config.episode.feedback_chars
            name, shown = (
                "verdict",
                after_verdict(messages, stored.rollout.text, stored.verdict, most_chars),
            )
    room = (
        None
        if session.policy.context is None
        else session.policy.context - len(stored.rollout.tokens_T)
    )
    tokens_P = hinted(session.policy.chat, shown, room)
    return None if tokens_P is None else (name, tokens_P)
