"""A batch of groups in progress: sample and grade each group, recording every result before the next stage.

The same functions serve training steps and evaluations. Each starts from what the history already holds, so calling it
again after a crash does only what is missing.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from attrs import define, field

from rtl_core.backend.base import SampledAnswer, SamplingParams, Weights
from rtl_core.config import RunConfig
from rtl_core.errors import InfrastructureError, RunHealthError
from rtl_core.history.records import StoredRollout
from rtl_core.learning.reward import Conduct, Graded, Reward, reward
from rtl_core.observe.stage_clock import StageClock
from rtl_core.run.session import Session
from rtl_core.types.rollout import PolicyName, Purpose, Rollout
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.progress import progress
from rtl_grader.types.answer import Answer
from rtl_grader.types.netlist import Netlist
from rtl_grader.types.verdict import Outcome, Stage, Verdict
from rtl_grader.words import counted


@define(eq=False)
class BatchPlan:
    """What to sample: from which policy, for which problems, and how many answers for each."""

    purpose: Purpose
    epoch: int
    step: int
    policy_step: int
    problem_ids: tuple[str, ...]
    """Planned problems, followed by those that replaced groups without signal."""
    group_size: int
    evaluation: str | None = None
    sampler: PolicyName = "student"
    sampler_path: str | None = None
    """Weights to sample from; None: the untrained student."""


@define(eq=False)
class Batch(BatchPlan):
    """The groups of one train step or of one evaluation, with the results so far."""

    rollouts: dict[tuple[str, int], StoredRollout] = field(factory=dict)
    """Mapping of (problem id, sample index) to the rollout, with verdict, reward and scores once recorded."""
    substitutes: dict[tuple[int, int], str] = field(factory=dict)
    """Mapping of (attempt, place in the plan) to the problem that replaced a group without signal."""
    candidates: list[str] | None = None
    """Problems that may replace others, in order; None until they are first needed."""
    quarantined: set[str] = field(factory=set)
    """Problems whose answers could not be graded; the step leaves them out."""
    failed_grades: Counter[str] = field(factory=Counter)
    """Mapping of problem id to the number of times grading itself failed."""
    clock: StageClock = field(factory=StageClock)

    @property
    def title(self) -> str:
        """Name of the batch in task runs, with steps counted from 1 as in the run's log."""
        match self.purpose:
            case "evaluation":
                return (
                    f"student after {counted(self.step, 'step')}"
                    if self.sampler == "student"
                    else self.sampler
                )
            case "measurement":
                return f"measuring the {self.sampler}"
            case _:
                return f"step {self.step + 1}"

    @property
    def planned(self) -> tuple[str, ...]:
        """The problems of the plan, without substitutes."""
        return self.problem_ids[: len(self.problem_ids) - len(self.substitutes)]

    def add_substitute(self, slot: int, attempt: int, problem_id: str) -> None:
        """Replace the group at a place of the plan. The order of substitutes does not depend on which came first."""
        planned = self.planned
        self.substitutes[attempt, slot] = problem_id
        self.problem_ids = (
            *planned,
            *(self.substitutes[place] for place in sorted(self.substitutes)),
        )

    def group(self, problem_id: str) -> list[StoredRollout]:
        """The rollouts of one problem, sorted by sample index."""
        return [
            stored
            for (problem, _), stored in sorted(self.rollouts.items())
            if problem == problem_id
        ]

    def rollout(
        self, run: str, problem_id: str, sample: int, prompt_P: Sequence[int], answer: SampledAnswer
    ) -> Rollout:
        """Return a new answer to a prompt of P tokens as a rollout of this batch."""
        return Rollout(
            run=run,
            purpose=self.purpose,
            evaluation=self.evaluation,
            epoch=self.epoch,
            step=self.step,
            problem_id=problem_id,
            sample=sample,
            prompt_P=tuple(prompt_P),
            tokens_T=tuple(answer.tokens_T),
            logprobs_T=tuple(answer.logprobs_T),
            stop_reason=answer.stop_reason,
            text=answer.text,
            policy_step=self.policy_step,
            policy=self.sampler,
        )

    def update(self, stored: StoredRollout, **found: Any) -> None:
        """Add a stage's results to a rollout. Grading and scoring run concurrently, so each updates the
        current state."""
        place = stored.rollout.problem_id, stored.rollout.sample
        self.rollouts[place] = replace(self.rollouts[place], **found)

    def add(self, rollouts: Iterable[StoredRollout]) -> None:
        """Add rollouts that were sampled now or that the history already holds."""
        for stored in rollouts:
            self.rollouts[stored.rollout.problem_id, stored.rollout.sample] = stored


def open_batch(session: Session, batch: Batch) -> Batch:
    """Return the batch with the rollouts that the history already holds."""
    place = batch.step if batch.evaluation is None else batch.evaluation
    batch.add(session.history.rollouts_of(session.run, place, batch.purpose, policy=batch.sampler))
    return batch


async def sample(session: Session, batch: Batch, problem_id: str) -> None:
    """Sample the missing answers of one group."""
    config, prompt = session.config, session.prompts[problem_id]
    missing = [
        index for index in range(batch.group_size) if (problem_id, index) not in batch.rollouts
    ]
    if not missing:
        return
    with batch.clock.measure("sample"):
        seeds = None
        if config.sampling.seeded:
            seeds = [
                rollout_seed(config.run.seed, seed_place(batch), problem_id, index)
                for index in missing
            ]
        answers = await answers_to(session, batch, problem_id, prompt.tokens_P, len(missing), seeds)
    places = zip(missing, answers, strict=True)
    rollouts = [
        batch.rollout(session.run, problem_id, index, prompt.tokens_P, answer)
        for index, answer in places
    ]
    # Added first: answers that are paid for are not sampled again when the recorder raises an earlier failure.
    batch.add(map(StoredRollout, rollouts))
    session.recorder.put("record_rollouts", rollouts)


def seed_place(batch: Batch) -> str:
    """Name of the batch from which the seeds of its answers are derived."""
    # Evaluations use the same seeds at every step, so that they differ only in the weights.
    return {"evaluation": "evaluation", "train": f"step/{batch.step}"}.get(
        batch.purpose, f"{batch.purpose}/{batch.sampler}/{batch.step}"
    )


def sampler_of(session: Session, batch: Batch, problem_id: str) -> Weights:
    """Return the weights that sample a batch's answers to a problem."""
    if batch.sampler == "student":
        return Weights("student", batch.sampler_path)
    return Weights.of_teacher(teacher_of(session, problem_id))


async def answers_to(
    session: Session,
    batch: Batch,
    problem_id: str,
    prompt_P: Sequence[int],
    count: int,
    seeds: list[int] | None,
) -> list[SampledAnswer]:
    """Sample `count` answers to one prompt from the batch's policy; `seeds` has one for each, or is None.

    Each text starts with what the end of the prompt opened (a thought, for example), so that it can be read
    without the prompt.
    """
    chat = session.policy.chat
    max_tokens, temperature, top_p = sampling_of(session.config, batch)
    if (room := session.room_after(prompt_P)) is not None:
        max_tokens = min(max_tokens, room)
        if max_tokens < 1:
            # An empty answer, which fails: a benchmark counts it.
            return [SampledAnswer([], [], "length", "") for _ in range(count)]
    answers = await session.policy.backend.sample(
        sampler_of(session, batch, problem_id),
        prompt_P,
        count,
        SamplingParams(max_tokens, temperature, chat.stop, top_p),
        seeds=seeds,
    )
    opening = chat.opening(prompt_P)
    return [replace(answer, text=opening + answer.text) for answer in answers]


def teacher_of(session: Session, problem_id: str) -> str:
    """Return the name of a problem's teacher: a model, or saved weights."""
    teacher = session.config.tinker.teacher_of(session.problems[problem_id].source)
    assert teacher is not None, "the configuration was checked"
    return teacher


def rollout_seed(*parts: object) -> int:
    """Return a 31-bit seed derived from all parts (run seed, step, problem, sample ...)."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def sampling_of(config: RunConfig, batch: Batch) -> tuple[int, float, float]:
    """Return max_tokens, temperature and top_p for the answers of a batch."""
    own, held = config.sampling, config.evaluation
    if batch.evaluation is None:
        return own.max_tokens, own.temperature, 1.0
    temperature = own.temperature if held.temperature is None else held.temperature
    return held.max_tokens or own.max_tokens, temperature, held.top_p


async def grade(session: Session, batch: Batch, problem_id: str) -> None:
    """Grade the ungraded answers of one group.

    Raises:
        InfrastructureError: grading itself failed for some answers; the verdicts on the others are
            recorded, so a retry is short.
        RunHealthError: it failed again after `grading.retries` retries.
    """
    problem = session.problems[problem_id]
    waiting = [stored for stored in batch.group(problem_id) if stored.verdict is None]
    answers = [answer_to(problem, stored.rollout.text) for stored in waiting]
    verdicts = await verdicts_on(session, batch, problem_id, answers)
    rows, failed = [], []
    for stored, verdict in zip(waiting, verdicts, strict=True):
        if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
            failed.append(verdict)
            continue
        earned = reward_of(session, stored.rollout, verdict)
        rows.append((stored.rollout.key, verdict, earned))
        batch.update(stored, verdict=verdict, reward=earned)
    session.recorder.put("record_verdicts", rows)
    if failed:
        why = f"grading failed for {counted(len(failed), 'answer')} of {problem_id}: {'; '.join(failed[0].reasons)}"
        grading_failed(session, batch, problem_id, why)


async def verdicts_on(
    session: Session, batch: Batch, problem_id: str, answers: Sequence[Answer]
) -> list[Verdict]:
    """Return verdicts on answers to one problem of a batch, in order (`GraderPool.grade`). New ones go to
    the history's cache."""
    graders, until = (
        session.graders,
        Stage(session.config.grading.last_stage(batch.purpose, batch.step)),
    )
    with batch.clock.measure("grade"):
        verdicts = await graders.grade(session.problems[problem_id], answers, until)
    if batch.purpose == "train":
        graders.doubts.graded_s += sum(verdict.cpu_s for verdict in verdicts if not verdict.cached)
    session.recorder.put("record_cached_verdicts", list(graders.cache.drain().items()))
    return verdicts


def grading_failed(session: Session, batch: Batch, problem_id: str, why: str) -> None:
    """Count a failure of grading itself for a problem. Returns only if the problem is quarantined.

    Raises:
        InfrastructureError: grading may be tried again.
        RunHealthError: it was retried `grading.retries` times.
    """
    batch.failed_grades[problem_id] += 1
    if batch.failed_grades[problem_id] <= session.config.grading.retries:
        raise InfrastructureError(why)
    if batch.purpose in ("train", "warm_start") and session.config.curriculum.quarantine:
        batch.quarantined.add(problem_id)
        if 2 * len(batch.quarantined) <= len(batch.problem_ids):
            progress.get().line(f"quarantined: {why}")
            return
    raise RunHealthError(
        f"{why} (tried {batch.failed_grades[problem_id]} times)",
        "fix the cause; the same command resumes the run and grades these answers again",
    )


def reward_of(
    session: Session, rollout: Rollout, verdict: Verdict, netlist: Netlist | None = None
) -> Reward:
    """Return the reward of a graded answer. `netlist`: of a pass that was audited and is not doubtful."""
    problem, bounds = session.problems[rollout.problem_id], session.config.episode
    conduct = None
    if rollout.ended is not None:
        used = (rollout.n_turns or 0) / bounds.most_turns, rollout.n_own / bounds.tokens
        conduct = Conduct(rollout.ended == "submitted", *(min(1.0, share) for share in used))
    graded = Graded(
        problem, verdict, rollout.text, rollout.tokens_T, rollout.stop_reason, netlist, conduct
    )
    return reward(
        graded, session.config.reward.weights, session.graders.ceilings.get(problem.id, math.inf)
    )
