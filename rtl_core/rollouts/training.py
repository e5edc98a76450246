"""The train step: its weights, its λ, its record, and what happens when trainer and sampler disagree."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from rtl_core.algorithms.distribution_distillation import DistributionDistillation
from rtl_core.backend.base import Adam, Check, Checkpoint, Datum, Logprobs, StepResult, Trainer
from rtl_core.config import RunConfig
from rtl_core.config.learning import LearningSection
from rtl_core.errors import SamplerDriftError
from rtl_core.history.records import StepRecord
from rtl_core.history.store import History
from rtl_core.learning.health import disagreement
from rtl_core.learning.schedule import controlled_weight, scheduled
from rtl_core.observe.usage import cost_metrics, spent_in_step
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.datums import (
    algorithm_metrics,
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
from rtl_core.run.folder import command_for
from rtl_core.run.recorder import Recorder
from rtl_core.run.session import Session
from rtl_core.types.numbers import Floats
from rtl_grader.progress import log_line

DRIFT = "optim/kl_sample_train_v1"


async def take_start(session: Session) -> None:
    """Set the weights that a session starts with, unless it starts from a new adapter. The recorded start
    of a run never changes."""
    config, history = session.config, session.history
    record = history.existing_run(session.run)
    source = config.tinker.start_from
    if record.start_state and record.start_sampler:
        start = Checkpoint(record.start_state, record.start_sampler)
    elif source and not history.steps_done(session.run):
        trainer = await open_trainer(session, source, weights_only=True)
        start = await trainer.save(f"{session.run}-start", config.checkpoints.ttl_s)
        paths = start.state_path, start.sampler_path
        await session.recorder.call(history.record_start, session.run, *paths)
        session.weights.trainer = trainer
        log_line(f"the student starts from {source}")
    else:
        return
    session.weights.checkpoint, session.weights.sampler_paths[0] = start, start.sampler_path


async def open_trainer(
    session: Session, state_path: str | None, *, weights_only: bool = False
) -> Trainer:
    """Open a trainer, and record its page in the console of the service, if its backend names one."""
    backend = session.policy.backend
    trainer = await backend.open_trainer(state_path, weights_only=weights_only)
    if url := getattr(trainer, "console_url", None):
        await session.recorder.call(session.history.record_console, session.run, url)
    return trainer


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
            before = (
                session.weights.checkpoint.state_path if session.weights.checkpoint else None
            )
            trainer = await open_trainer(session, before)
        update = imitate if batch.purpose == "warm_start" else reinforce
        metrics, trained = await update(session, batch, trainer)
        checkpoint = await trainer.save(
            f"{session.run}-{batch.step + 1:06d}", config.checkpoints.ttl_s
        )
    # Spent since the step before was recorded, including the commit of that record.
    store = session.recorder.take_spent()
    batch.clock.add("store", store.busy_s)
    batch.clock.add("store_waited", store.waited_s)
    times = batch.clock.seconds(session.progress.step_ended)
    run, history = session.run, session.history
    usage = spent_in_step(history, run, config, batch.purpose, batch.step, trained.tokens)
    metrics |= pool_metrics(session, batch)
    metrics |= cost_metrics(usage, config, session.prices)
    metrics |= {f"time/{stage}": seconds for stage, seconds in times.items()}
    metrics["cpu/store"] = store.cpu_s
    record = StepRecord(
        run=run,
        epoch=batch.epoch,
        step=batch.step,
        state_path=checkpoint.state_path,
        sampler_path=checkpoint.sampler_path,
        examples=trained.examples,
        train_tokens=trained.tokens,
        times=times,
        metrics=metrics,
    )
    session.recorder.put("finish_step", [record])
    await session.recorder.settle()
    session.weights.trainer = trainer
    session.weights.checkpoint = checkpoint
    session.progress.last_step = record.metrics
    session.progress.step_ended = time.perf_counter()
    session.weights.sampler_paths[batch.step + 1] = checkpoint.sampler_path


async def reinforce(
    session: Session, batch: Batch, trainer: Trainer
) -> tuple[dict[str, float], StepResult]:
    """Update by rewards and the teacher's KL, on the student's own answers. Returns the step's metrics and
    the backend's result."""
    config, backend, steps = session.config, session.policy.backend, len(session.weights.steps)
    learning, step = config.learning, batch.step
    kl_weight = kl_weight_of(config, session.history, step, steps)
    algorithm = algorithm_of(config, batch)
    datums = build_datums(batch, algorithm, kl_weight, backend.tokenizer.decode)
    share = scheduled(step, steps, 1.0, learning.final_learning_rate_share, "linear")
    rate = share * learning.learning_rate
    check = partial(checked_drift, config, batch, datums)
    # Later steps are checked once they are done, so that the service runs both passes of a step in one cycle.
    early = None if DRIFT in (session.progress.last_step or {}) else check
    update = partial(optimize, learning, session.recorder, trainer, rate=rate, check=early)
    if isinstance(algorithm, DistributionDistillation) and kl_weight and datums:
        weighted, read = await against_choices(trainer, datums, algorithm)
        trained = await update(weighted, "cross_entropy", {})
        trained = replace(trained, tokens=trained.tokens + read)
    else:
        trained = await update(datums, learning.loss, learning.loss_settings)
    tokens = trainer_tokens(batch, datums, trained.logprobs)
    rows = [(rollout.key, values_T) for rollout, values_T in tokens]
    session.recorder.put("record_trainer_tokens", rows)
    metrics = batch_metrics(batch) | equal_difficulty_metrics(session, batch)
    for turn, rates in passed_by_turn(batch, config.episode).items():
        metrics[f"turn-{turn}/passed_by_then"] = float(np.mean([*rates.values()]))
    metrics |= check(trained.logprobs)
    metrics |= service_metrics(trained, rate)
    metrics["learning/kl_weight"] = kl_weight
    metrics["learning/kl_share"] = signal_share(batch, config, kl_weight)
    metrics["train/examples"] = float(trained.examples)
    metrics |= algorithm_metrics(batch, config)
    return metrics, trained


def checked_drift(
    config: RunConfig, batch: Batch, datums: Sequence[Datum], logprobs: Logprobs
) -> dict[str, float]:
    """Return the `drift_metrics` of the answers that datums train on; empty without any.

    Raises SamplerDriftError if the sampler's weights are too far from the trainer's, or its
    log-probabilities are not those of its weights.
    """
    tokens, learning = trainer_tokens(batch, datums, logprobs), config.learning
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
            "are not the trainer's, or its log-probabilities are not those of its tokens",
            "the state before this step is kept; check the service (`rtl-distill admin check-service "
            "URL`) or lower learning.learning_rate, then "
            f"run {command_for(config, 'admin set-aside')} so that the step is sampled again",
        )
    return metrics


async def against_choices(
    trainer: Trainer, datums: Sequence[Datum], algorithm: DistributionDistillation
) -> tuple[list[Datum], int]:
    """Return datums for a cross entropy on the sampled tokens and the choices, and the tokens of the
    forward pass for their weights."""
    targets = [
        Datum(d.prompt_P, d.tokens_T, {}, np.asarray(d.inputs["teacher_tokens"], np.int64))
        for d in datums
    ]
    logprobs: Sequence[Floats | None] = [None] * len(targets)
    read = 0
    if algorithm.config.learning.reads_trainer:
        logprobs = await trainer.logprobs(targets)
        read = sum(len(target.sequence) - 1 for target in targets)
    weighted = []
    for target, datum, trainer_TK in zip(targets, datums, logprobs, strict=True):
        weights = algorithm.weights(datum.inputs, trainer_TK)
        weighted.append(replace(target, inputs={"weights": weights}))
    return weighted, read


async def imitate(
    session: Session, batch: Batch, trainer: Trainer
) -> tuple[dict[str, float], StepResult]:
    """Supervised update of a warm start. Returns the step's metrics and the backend's result."""
    learning = session.config.learning
    datums = datums_to_imitate(session, batch)
    rate = learning.warm_start_learning_rate or learning.learning_rate
    trained = await optimize(
        learning, session.recorder, trainer, datums, "cross_entropy", {}, rate=rate
    )
    return warm_start_metrics(batch, trained) | service_metrics(trained, rate), trained


async def optimize(
    learning: LearningSection,
    recorder: Recorder,
    trainer: Trainer,
    datums: Sequence[Datum],
    loss: str,
    parameters: Mapping[str, float],
    *,
    rate: float,
    check: Check | None = None,
) -> StepResult:
    """Make one pass over all datums and one optimizer step with learning rate `rate`; neither without
    datums. `check`: see `Trainer.step`."""
    adam = Adam(rate, learning.beta1, learning.beta2, learning.eps, learning.grad_clip_norm)
    # All inputs of the step are on disk before its weights are saved.
    async with recorder.settling():
        return (
            await trainer.step(datums, loss, parameters, adam, check)
            if datums
            else StepResult()
        )


def service_metrics(trained: StepResult, learning_rate: float) -> dict[str, float]:
    """Metrics of a step that trained: `optim/lr`, and the backend's own under `service/`."""
    if not trained.examples:
        return {}
    service = {f"service/{name}": value for name, value in trained.metrics.items()}
    return {"optim/lr": learning_rate, **service}


_SET_ASIDE = (
    "SELECT 1 FROM rollouts WHERE run = ? AND step = ? AND purpose = 'set_aside' LIMIT 1"
)
_LAST = """
SELECT w.value AS weight, k.value AS kl FROM step_metrics w JOIN step_metrics k USING (run, step)
WHERE run = ? AND step < ? AND w.name = 'learning/kl_weight' AND k.name = 'teacher_kl' ORDER BY step DESC LIMIT 1
"""


def kl_weight_of(config: RunConfig, history: History, step: int, steps: int) -> float:
    """Return λ of the next step to train, of `steps` in all; the steps before it must be recorded.

    With a target it follows from the λ and the KL of the last recorded step, so that a resumed run
    continues with the same state of the controller.
    """
    learning = config.learning
    if learning.kl_schedule != "target":
        return learning.kl_weight_at(step, steps)
    assert learning.kl_target is not None, "the configuration was checked"
    before = history.rows(_LAST, [config.run.name, step])
    if not before:
        return learning.kl_weight
    lowest, highest = learning.kl_weight_bounds
    return controlled_weight(
        before[0]["weight"],
        before[0]["kl"],
        learning.kl_target,
        gain=learning.kl_gain,
        lowest=lowest,
        highest=highest,
    )


async def set_aside_once(session: Session, batch: Batch, why: SamplerDriftError) -> bool:
    """Set a step's answers aside, at most once per step. Returns whether it was done; a second time needs a
    decision of the user."""
    run, history, recorder = session.run, session.history, session.recorder
    if history.query(_SET_ASIDE, [run, batch.step]).num_rows:
        return False
    await recorder.settle()
    count = await recorder.call(history.set_step_aside, run, batch.step)
    aside = f"its {count} answers are set aside, and the step is sampled again"
    log_line(f"{why.message}; {aside}")
    return True
