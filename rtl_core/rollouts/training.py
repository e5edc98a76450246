"""The train step: its weights, its λ, its record, and what happens when trainer and sampler disagree."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rtl_core.algorithms.distribution_distillation import DistributionDistillation
from rtl_core.backend.base import Adam, Check, Checkpoint, Datum, Logprobs, StepResult, Trainer
from rtl_core.errors import SamplerDriftError
from rtl_core.history.records import StepRecord
from rtl_core.learning.health import disagreement
from rtl_core.learning.schedule import controlled_weight, scheduled
from rtl_core.observe.usage import cost_metrics, spent_in_step
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.datums import (
    algorithm_of,
    build_datums,
    datums_to_imitate,
    signal_share,
    trainer_tokens,
)
from rtl_core.rollouts.evaluation import passed_by_turn
from rtl_core.rollouts.metrics import (
    batch_metrics,
    drift_metrics,
    equal_difficulty_metrics,
    warm_start_metrics,
)
from rtl_core.rollouts.planning import pool_metrics
from rtl_core.run.session import Session
from rtl_grader.progress import progress

DRIFT = "optim/kl_sample_train_v1"


async def take_start(session: Session) -> None:
    """Set the weights that a session starts with, unless it starts from a new adapter. The recorded start
    of a run never changes."""
    config, history = session.config, session.history
    record = history.existing_run(session.run)
    if record.start_state and record.start_sampler:
        start = Checkpoint(record.start_state, record.start_sampler)
    elif config.tinker.start_from and history.last_trained_step(session.run) is None:
        trainer = await session.policy.backend.open_trainer(
            config.tinker.start_from, weights_only=True
        )
        start = await trainer.save(f"{session.run}-start", config.checkpoints.ttl_s)
        await session.recorder.call(
            history.record_start, session.run, start.state_path, start.sampler_path
        )
        session.weights.trainer = trainer
        progress.get().line(f"the student starts from {config.tinker.start_from}")
    else:
        return
    session.weights.checkpoint, session.weights.sampler_paths[0] = start, start.sampler_path


async def train(session: Session, batch: Batch) -> None:
    """Train on a batch, save the weights, record the step.

    A retry starts from the session's checkpoint: the step counts once, when its record is committed.

    Raises:
        TrainerLostError: the service was restarted in between.
        SamplerDriftError: trainer and sampler disagree (`checked_drift`); the state before the step is kept.
    """
    config = session.config
    with batch.clock.measure("train"):
        # Put back when the step is recorded; after an error it is discarded.
        trainer, session.weights.trainer = session.weights.trainer, None
        if trainer is None:
            before = session.weights.checkpoint.state_path if session.weights.checkpoint else None
            trainer = await session.policy.backend.open_trainer(before)
        update = imitate if batch.purpose == "warm_start" else reinforce
        metrics, trained = await update(session, batch, trainer)
        checkpoint = await trainer.save(
            f"{session.run}-{batch.step + 1:06d}", config.checkpoints.ttl_s
        )
    # Spent since the step before was recorded, including the commit of that record.
    store = session.recorder.take_spent()
    batch.clock.add("store", store.busy_s)
    batch.clock.add("store_waited", store.waited_s)
    times = batch.clock.seconds(session.life.step_ended)
    usage = spent_in_step(
        session.history, session.run, config, batch.purpose, batch.step, trained.tokens
    )
    record = StepRecord(
        run=session.run,
        epoch=batch.epoch,
        step=batch.step,
        state_path=checkpoint.state_path,
        sampler_path=checkpoint.sampler_path,
        examples=trained.examples,
        train_tokens=trained.tokens,
        times=times,
        metrics={
            **metrics,
            **pool_metrics(session, batch),
            **cost_metrics(usage, config, session.prices),
            **{f"time/{k}": v for k, v in times.items()},
            "cpu/store": store.cpu_s,
        },
    )
    session.recorder.put("finish_step", [record])
    await session.recorder.settle()
    session.weights.trainer = trainer
    session.weights.checkpoint = checkpoint
    session.life.last_step, session.life.step_ended = record.metrics, time.perf_counter()
    session.weights.sampler_paths[batch.step + 1] = checkpoint.sampler_path


async def reinforce(
    session: Session, batch: Batch, trainer: Trainer
) -> tuple[dict[str, float], StepResult]:
    """Update by rewards and the teacher's KL, on the student's own answers. Returns the step's metrics and
    the backend's result."""
    config = session.config
    kl_weight = kl_weight_of(session, batch.step)
    algorithm = algorithm_of(config, batch)
    datums = build_datums(batch, algorithm, kl_weight, session.policy.backend.tokenizer.decode)
    learning = config.learning
    share = scheduled(
        batch.step, len(session.weights.steps), 1.0, learning.final_learning_rate_share, "linear"
    )
    rate = share * learning.learning_rate
    check = partial(checked_drift, session, batch, datums)
    # Later steps are checked once they are done, so that the service runs both passes of a step in one cycle.
    early = None if DRIFT in (session.life.last_step or {}) else check
    if isinstance(algorithm, DistributionDistillation) and kl_weight and datums:
        sent, read = await against_choices(trainer, datums, algorithm)
        trained = await step(session, trainer, sent, "cross_entropy", {}, rate, early)
        trained = replace(trained, tokens=trained.tokens + read)
    else:
        trained = await step(
            session, trainer, datums, learning.loss, learning.loss_settings, rate, early
        )
    tokens = trainer_tokens(batch, datums, trained.logprobs)
    session.recorder.put(
        "record_trainer_tokens", [(rollout.key, values_T) for rollout, values_T in tokens]
    )
    metrics = {
        **batch_metrics(batch),
        **equal_difficulty_metrics(session, batch),
        **{
            f"turn-{k}/passed_by_then": float(np.mean([*p.values()]))
            for k, p in passed_by_turn(batch, config.episode).items()
        },
        **check(trained.logprobs),
        **reported(trained, rate),
        "learning/kl_weight": kl_weight,
        "learning/kl_share": signal_share(batch, config, kl_weight),
        "train/examples": float(trained.examples),
    }
    return metrics, trained


def checked_drift(
    session: Session, batch: Batch, datums: Sequence[Datum], logprobs: Logprobs
) -> dict[str, float]:
    """Return the `drift_metrics` of the answers that datums train on; empty without any.

    Raises SamplerDriftError if the sampler's weights are too far from the trainer's, or its
    log-probabilities are not those of its weights.
    """
    tokens, learning = trainer_tokens(batch, datums, logprobs), session.config.learning
    if not tokens:
        return {}
    sampler_T = np.concatenate(
        [np.array(rollout.logprobs_T)[rollout.sampled_T] for rollout, _ in tokens]
    )
    trainer_T = np.concatenate([values_T[rollout.sampled_T] for rollout, values_T in tokens])
    metrics = drift_metrics(sampler_T, trainer_T)
    drift, limit = abs(metrics[DRIFT]), learning.max_sampler_trainer_kl
    stale = any(rollout.policy_step < batch.step for rollout, _ in tokens)
    share = math.inf if stale else learning.max_sampler_trainer_difference
    words = disagreement(sampler_T, trainer_T, share)
    if drift > limit:
        words = f"a KL of {drift:.3f} per token (limit {limit})"
    if words:
        raise SamplerDriftError(
            f"step {batch.step + 1}: trainer and sampler differ by {words}: the sampler's weights "
            "are not the trainer's, or its "
            "log-probabilities are not those of its tokens",
            "the state before this step is kept; check the service (`rtl-distill check-service "
            "URL`) or lower learning.learning_rate, then "
            f"run `rtl-distill set-aside {session.run}` so that the step is sampled again",
        )
    return metrics


async def against_choices(
    trainer: Trainer, datums: Sequence[Datum], algorithm: DistributionDistillation
) -> tuple[list[Datum], int]:
    """Return datums for a cross entropy on the sampled tokens and the teacher's, and the tokens of the
    forward pass for their weights."""
    sent = [
        Datum(d.prompt_P, d.tokens_T, {}, np.asarray(d.inputs["teacher_tokens"], np.int64))
        for d in datums
    ]
    logprobs: Sequence[NDArray[np.float64] | None] = [None] * len(sent)
    read = 0
    if algorithm.config.learning.reads_trainer:
        logprobs = await trainer.logprobs(sent)
        read = sum(len(datum.sequence) - 1 for datum in sent)
    weighted = [
        replace(target, inputs={"weights": algorithm.weights(datum.inputs, trainer_TK)})
        for target, datum, trainer_TK in zip(sent, datums, logprobs, strict=True)
    ]
    return weighted, read


async def imitate(
    session: Session, batch: Batch, trainer: Trainer
) -> tuple[dict[str, float], StepResult]:
    """Supervised update of a warm start. Returns the step's metrics and the backend's result."""
    config = session.config
    datums = datums_to_imitate(session, batch)
    rate = config.learning.warm_start_learning_rate or config.learning.learning_rate
    trained = await step(session, trainer, datums, "cross_entropy", {}, rate)
    return {**warm_start_metrics(batch, trained), **reported(trained, rate)}, trained


async def step(
    session: Session,
    trainer: Trainer,
    datums: Sequence[Datum],
    loss: str,
    parameters: Mapping[str, float],
    rate: float,
    check: Check | None = None,
) -> StepResult:
    """Make one pass over all datums and one optimizer step with learning rate `rate`; neither without
    datums. `check`: see `Trainer.step`."""
    learning = session.config.learning
    adam = Adam(rate, learning.beta1, learning.beta2, learning.eps, learning.grad_clip_norm)
    # All inputs of the step are on disk before its weights are saved.
    async with session.recorder.settling():
        return await trainer.step(datums, loss, parameters, adam, check) if datums else StepResult()


def reported(trained: StepResult, learning_rate: float) -> dict[str, float]:
    """Metrics of a step that trained: `optim/lr`, and the backend's own under `service/`."""
    service = {f"service/{name}": value for name, value in trained.metrics.items()}
    return {"optim/lr": learning_rate, **service} if trained.examples else {}


_LAST = """
SELECT w.value AS weight, k.value AS kl FROM step_metrics w JOIN step_metrics k USING (run, step)
WHERE run = ? AND step < ? AND w.name = 'learning/kl_weight' AND k.name = 'teacher_kl' ORDER BY step DESC LIMIT 1
"""


def kl_weight_of(session: Session, step: int) -> float:
    """Return λ of the next step to train; all steps before it must be recorded.

    With a target it follows from the λ and the KL of the last recorded step, so that a resumed run
    continues with the same state of the controller.
    """
    learning = session.config.learning
    if learning.kl_schedule != "target":
        return learning.kl_weight_at(step, len(session.weights.steps))
    assert learning.kl_target is not None, "the configuration was checked"
    before = session.history.query(_LAST, [session.run, step]).to_pylist()
    if not before:
        return learning.kl_weight
    weight, kl = before[0]["weight"], before[0]["kl"]
    lowest, highest = learning.kl_weight_bounds
    return controlled_weight(
        weight, kl, learning.kl_target, gain=learning.kl_gain, lowest=lowest, highest=highest
    )


async def set_aside_once(session: Session, batch: Batch, why: SamplerDriftError) -> bool:
    """Set a step's answers aside, at most once per step. Returns whether it was done; a second time needs a
    decision of the user."""
    aside = "SELECT 1 FROM rollouts WHERE run = ? AND step = ? AND purpose = 'set_aside' LIMIT 1"
    if session.history.query(aside, [session.run, batch.step]).num_rows:
        return False
    await session.recorder.settle()
    count = await session.recorder.call(session.history.set_step_aside, session.run, batch.step)
    progress.get().line(
        f"{why.message}; its {count} answers are set aside, and the step is sampled again"
    )
    return True
