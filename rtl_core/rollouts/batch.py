"""A batch of groups in progress: sample and grade each group, recording every result before the next stage.

The same functions serve training steps and evaluations. Each starts from what the history already holds, so calling it
again after a crash does only what is missing.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from attrs import define, field

from rtl_core.backend.base import Backend, SampledAnswer, SamplingParams, Weights
from rtl_core.config import RunConfig
from rtl_core.errors import InfrastructureError, RunHealthError
from rtl_core.history.records import StoredRollout
from rtl_core.history.store import History
from rtl_core.learning.reward import Conduct, Graded, Reward, reward
from rtl_core.observe.stage_clock import StageClock
from rtl_core.prompting.chat import Chat
from rtl_core.prompting.reading import Reader
from rtl_core.run.recorder import Recorder
from rtl_core.run.session import Session
from rtl_core.run.state import Graders
from rtl_core.types.rollout import PolicyName, Purpose, Rollout
from rtl_core.types.tokenizer import TokenIds
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.progress import log_line
from rtl_grader.types.netlist import Netlist
from rtl_grader.types.problem import Problem
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
    algorithms: Mapping[str, str] = field(factory=dict)
    """Mapping of problem id to algorithm, for problems whose source has its own (`learning.by_source`)."""

    @property
    def title(self) -> str:
        """Name of the batch in task runs, with steps counted from 1 as in the run's log."""
        match self.purpose:
            case "evaluation" if self.sampler == "student":
                return f"student after {counted(self.step, 'step')}"
            case "evaluation":
                return self.sampler
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
        in_order = [problem for _, problem in sorted(self.substitutes.items())]
        self.problem_ids = (*planned, *in_order)

    def group(self, problem_id: str) -> list[StoredRollout]:
        """The rollouts of one problem, sorted by sample index."""
        return [
            stored
            for (problem, _), stored in sorted(self.rollouts.items())
            if problem == problem_id
        ]

    def missing(self, problem_id: str) -> list[int]:
        """Sample indices of the answers to one problem that were not sampled yet."""
        return [i for i in range(self.group_size) if (problem_id, i) not in self.rollouts]

    def rollout(
        self,
        run: str,
        problem_id: str,
        sample: int,
        prompt_P: TokenIds,
        answer: SampledAnswer,
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
            n_cached=answer.n_cached,
            policy_step=self.policy_step,
            policy=self.sampler,
        )

    def update(self, stored: StoredRollout, **results: Any) -> None:
        """Add a stage's results to a rollout. Grading and scoring run concurrently, so each updates the
        current state."""
        place = stored.rollout.problem_id, stored.rollout.sample
        self.rollouts[place] = replace(self.rollouts[place], **results)

    def add(self, rollouts: Iterable[StoredRollout]) -> None:
        """Add rollouts that were sampled now or that the history already holds."""
        for stored in rollouts:
            self.rollouts[stored.rollout.problem_id, stored.rollout.sample] = stored


def open_batch(history: History, run: str, batch: Batch) -> Batch:
    """Return the batch with the rollouts that the history already holds."""
    place = batch.step if batch.evaluation is None else batch.evaluation
    batch.add(history.rollouts_of(run, place, batch.purpose, policy=batch.sampler))
    return batch


async def sample(session: Session, batch: Batch, problem_id: str) -> None:
    """Sample the missing answers of one group."""
    missing = batch.missing(problem_id)
    if not missing:
        return
    config, prompt = session.config, session.prompts[problem_id]
    chat, prompt_P = session.policy.chat, prompt.tokens_P
    weights = sampler_of(config, batch, session.problems[problem_id])
    reader = reader_of(session, batch, problem_id)
    if reader is not None:
        chat, prompt_P = reader.teacher, reader.teacher.encode(prompt.messages)
    params = sampling_of(config, batch.purpose, chat.stop)
    learning = config.learning
    if batch.purpose == "train" and learning.uses_kl_at(batch.step, len(session.weights.steps)):
        params = replace(params, likeliest=learning.sampled_choices)
    room = session.room_after(prompt_P)
    if room is not None:
        params = replace(params, max_tokens=min(params.max_tokens, room))
    seeds = None
    if config.sampling.seeded:
        place = seed_place(batch)
        seeds = [rollout_seed(config.run.seed, place, problem_id, index) for index in missing]
    with batch.clock.measure("sample"):
        answers = await answers_to(
            session.policy.backend, chat, weights, prompt_P, len(missing), params, seeds
        )
    rollouts = [
        batch.rollout(session.run, problem_id, index, prompt_P, answer)
        for index, answer in zip(missing, answers, strict=True)
    ]
    # Added first: answers that are paid for are not sampled again when the recorder raises an earlier failure.
    batch.add(
        StoredRollout(rollout, choices=answer.choices)
        for rollout, answer in zip(rollouts, answers, strict=True)
    )
    session.recorder.put("record_rollouts", rollouts)


def seed_place(batch: Batch) -> str:
    """Name of the batch from which the seeds of its answers are derived."""
    match batch.purpose:
        case "evaluation":
            # The same seeds at every step, so that evaluations differ only in the weights.
            return "evaluation"
        case "train":
            return f"step/{batch.step}"
        case _:
            return f"{batch.purpose}/{batch.sampler}/{batch.step}"


def sampler_of(config: RunConfig, batch: Batch, problem: Problem) -> Weights:
    """Return the weights that sample a batch's answers to a problem."""
    if batch.sampler == "student":
        return Weights("student", batch.sampler_path)
    return Weights.of_teacher(teacher_of(config, problem))


def reader_of(session: Session, batch: Batch, problem_id: str) -> Reader | None:
    """Return the reader of the teacher that samples a batch's answers; None if they are in the student's tokens."""
    if batch.sampler == "student":
        return None
    teacher = teacher_of(session.config, session.problems[problem_id])
    return session.policy.readers.get(teacher)


async def answers_to(
    backend: Backend,
    chat: Chat,
    weights: Weights,
    prompt_P: TokenIds,
    count: int,
    params: SamplingParams,
    seeds: list[int] | None,
) -> list[SampledAnswer]:
    """Sample `count` answers to a prompt of P tokens in these weights' `chat`; `seeds` has one for each, or is None.

    Each text starts with what the end of the prompt opened (a thought, for example), so that it can be read
    without the prompt. Without room for a token (`params.max_tokens` below 1) the answers are empty.
    """
    if params.max_tokens < 1:
        # An empty answer fails: a benchmark counts it.
        return [SampledAnswer([], [], "length", "") for _ in range(count)]
    # Given only where it matters: a backend of one's own may know no other tokenizer.
    other = {} if chat.tokenizer is backend.tokenizer else {"tokenizer": chat.tokenizer}
    answers = await backend.sample(weights, prompt_P, count, params, seeds=seeds, **other)
    opening = chat.opening(prompt_P)
    return [replace(answer, text=opening + answer.text) for answer in answers]


def teacher_of(config: RunConfig, problem: Problem) -> str:
    """Return the name of a problem's teacher: a model, or saved weights."""
    teacher = config.tinker.teacher_of(problem.source)
    assert teacher is not None, "the configuration was checked"
    return teacher


def rollout_seed(*parts: object) -> int:
    """Return a 31-bit seed derived from all parts (run seed, step, problem, sample ...)."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def sampling_of(config: RunConfig, purpose: Purpose, stop: TokenIds = ()) -> SamplingParams:
    """Return how the answers of a batch with this purpose are sampled; `stop`: the tokens that end one."""
    training, evaluation = config.sampling, config.evaluation
    if purpose != "evaluation":
        return SamplingParams(training.max_tokens, training.temperature, stop)
    temperature = evaluation.temperature
    if temperature is None:
        temperature = training.temperature
    max_tokens = evaluation.max_tokens or training.max_tokens
    return SamplingParams(max_tokens, temperature, stop, evaluation.top_p)


async def grade(session: Session, batch: Batch, problem_id: str) -> None:
    """Grade the ungraded answers of one group.

    Raises:
        InfrastructureError: grading itself failed for some answers; the verdicts on the others are
            recorded, so a retry is short.
        RunHealthError: it failed again after `grading.retries` retries.
    """
    config, graders, recorder = session.config, session.graders, session.recorder
    problem = session.problems[problem_id]
    waiting = [stored for stored in batch.group(problem_id) if stored.verdict is None]
    answers = [answer_to(problem, stored.rollout.text) for stored in waiting]
    with batch.clock.measure("grade"):
        verdicts = await graders.grade(problem, answers, last_stage(config, batch))
    keep_verdicts(graders, recorder, batch, verdicts)
    rows, failed = [], []
    for stored, verdict in zip(waiting, verdicts, strict=True):
        if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
            failed.append(verdict)
            continue
        result = reward_of(config, graders, problem, stored.rollout, verdict)
        rows.append((stored.rollout.key, verdict, result))
        batch.update(stored, verdict=verdict, reward=result)
    recorder.put("record_verdicts", rows)
    if failed:
        answers_in_words = f"{counted(len(failed), 'answer')} of {problem_id}"
        reasons = "; ".join(failed[0].reasons)
        why = f"grading failed for {answers_in_words}: {reasons}"
        grading_failed(config, batch, problem_id, why)


def last_stage(config: RunConfig, batch: Batch) -> Stage:
    """Return the last stage at which the answers of a batch are graded."""
    return Stage(config.grading.last_stage(batch.purpose, batch.step))


def keep_verdicts(
    graders: Graders, recorder: Recorder, batch: Batch, verdicts: Sequence[Verdict]
) -> None:
    """Count the CPU time of verdicts on a batch's answers, and record the new ones in the history's cache."""
    if batch.purpose == "train":
        graders.doubts.graded_s += sum(
            verdict.cpu_s for verdict in verdicts if not verdict.cached
        )
    recorder.put("record_cached_verdicts", list(graders.cache.drain().items()))


def grading_failed(config: RunConfig, batch: Batch, problem_id: str, why: str) -> None:
    """Count a failure of grading itself for a problem. Returns only if the problem is quarantined.

    Raises:
        InfrastructureError: grading may be tried again.
        RunHealthError: it was retried `grading.retries` times.
    """
    batch.failed_grades[problem_id] += 1
    tries = batch.failed_grades[problem_id]
    if tries <= config.grading.retries:
        raise InfrastructureError(why)
    if batch.purpose in ("train", "warm_start") and config.curriculum.quarantine:
        batch.quarantined.add(problem_id)
        if 2 * len(batch.quarantined) <= len(batch.problem_ids):
            log_line(f"quarantined: {why}")
            return
    raise RunHealthError(
        f"{why} (tried {tries} times)",
        "fix the cause; the same command resumes the run and grades these answers again",
    )


def reward_of(
    config: RunConfig,
    graders: Graders,
    problem: Problem,
    rollout: Rollout,
    verdict: Verdict,
    netlist: Netlist | None = None,
) -> Reward:
    """Return the reward of a graded answer. `netlist`: of a pass that was audited and is not doubtful."""
    conduct = None
    if rollout.ended is not None:
        turns = (rollout.n_turns or 0) / config.episode.most_turns
        tokens = rollout.n_own / config.episode.tokens
        conduct = Conduct(rollout.ended == "submitted", min(1.0, turns), min(1.0, tokens))
    graded = Graded(
        problem, verdict, rollout.text, rollout.tokens_T, rollout.stop_reason, netlist, conduct
    )
    ceiling = graders.ceilings.get(problem.id, math.inf)
    return reward(graded, config.reward.weights, ceiling)
