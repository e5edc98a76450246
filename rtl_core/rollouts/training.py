"""One train step from a graded and scored batch, and its record.

Exactly once: an optimizer step cannot be undone, so a step counts only when the state saved after it is recorded in the
history. A step that was interrupted is repeated from the state recorded before it; what the interrupted attempt did to the
weights is left behind with its trainer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rtl_core.backend.base import Adam, Checkpoint, Datum, StepResult, Trainer
from rtl_core.errors import SamplerDriftError
from rtl_core.history.records import StepRecord
from rtl_core.learning.schedule import linear_decay
from rtl_core.observe.usage import cost_metrics
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.credit import algorithm_of
from rtl_core.rollouts.curriculum_sampling import pool_metrics
from rtl_core.rollouts.datums import build_datums, signal_share
from rtl_core.rollouts.equal_difficulty import equal_difficulty_metrics
from rtl_core.rollouts.kl_control import kl_weight_of
from rtl_core.rollouts.metrics import batch_metrics, batch_usage, drift_metrics, warm_start_metrics
from rtl_core.rollouts.turns import turn_metrics
from rtl_core.rollouts.warm_start import datums_to_imitate
from rtl_core.run.session import Session


async def train(session: Session, batch: Batch) -> Checkpoint:
    """Train on a batch, save the weights, record the step. Returns where the new weights are.

    Called again after a failure, it starts from the session's checkpoint: the step counts once, when its record is committed.

    Raises:
        TrainerLostError: the service was restarted in between.
        SamplerDriftError: trainer and sampler disagree by more than the configured KL; the state before the step is kept.
    """
    config = session.config
    with batch.clock.measure("train"):
        # Put back when the step is recorded; an error leaves it behind.
        trainer, session.trainer = session.trainer, None
        if trainer is None:
            before = session.checkpoint.state_path if session.checkpoint else None
            trainer = await session.require_backend().open_trainer(before)
        update = imitate if batch.purpose == "warm_start" else reinforce
        metrics, trained = await update(session, batch, trainer)
        drift = abs(metrics.get("optim/kl_sample_train_v1", 0.0))
        if drift > config.learning.max_sampler_trainer_kl:
            raise SamplerDriftError(
                f"step {batch.step + 1}: trainer and sampler differ by a KL of {drift:.3f} per token "
                f"(limit {config.learning.max_sampler_trainer_kl}): the weights that sampled are not the ones that train",
                "the state before this step is kept; lower learning.learning_rate or check the service, then "
                f"`rtl-distill set-aside {session.run}` has the step sampled anew",
            )
        checkpoint = await trainer.save(f"{session.run}-{batch.step + 1:06d}", config.checkpoints.ttl_s)
    session.store_mark = session.recorder.times()
    store = session.store_mark - batch.store_before
    batch.clock.add("store", store.busy_s)
    batch.clock.add("store_waited", store.waited_s)
    times = batch.clock.seconds()
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
            **cost_metrics(batch_usage(batch, trained.tokens, config, session.problems), config, session.prices),
            **{f"time/{k}": v for k, v in times.items()},
            "cpu/store": store.cpu_s,
        },
    )
    session.recorder.put("finish_step", [record])
    await session.recorder.settle()
    session.trainer = trainer
    session.checkpoint, session.last_step = checkpoint, record.metrics
    session.sampler_paths[batch.step + 1] = checkpoint.sampler_path
    return checkpoint


async def reinforce(session: Session, batch: Batch, trainer: Trainer) -> tuple[dict[str, float], StepResult]:
    """The update by rewards and the teacher's KL, on the student's own answers. Returns the step's metrics and what was trained on."""
    config = session.config
    kl_weight = kl_weight_of(session, batch.step)
    datums = build_datums(batch, algorithm_of(config, batch), kl_weight)
    share = linear_decay(batch.step, len(session.steps), config.learning.final_learning_rate_share)
    rate = share * config.learning.learning_rate
    learning = config.learning
    trained = await step(session, trainer, datums, learning.loss, learning.loss_settings, rate)
    metrics = {
        **batch_metrics(batch),
        **equal_difficulty_metrics(session, batch),
        **turn_metrics(batch),
        **drift_metrics(datums, trained),
        **reported(trained, rate),
        "learning/kl_weight": kl_weight,
        "learning/kl_share": signal_share(batch, config, kl_weight),
        "train/examples": float(trained.examples),
    }
    return metrics, trained


async def imitate(session: Session, batch: Batch, trainer: Trainer) -> tuple[dict[str, float], StepResult]:
    """The supervised update of a warm start. Returns the step's metrics and what was trained on."""
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
    learning_rate: float,
) -> StepResult:
    """One pass over all datums and one optimizer step; neither without datums."""
    learning = session.config.learning
    adam = Adam(learning_rate, learning.beta1, learning.beta2, learning.eps, learning.grad_clip_norm)
    # Everything that the step is made of is on disk before its weights are saved.
    async with session.recorder.settling():
        return await trainer.step(datums, loss, parameters, adam) if datums else StepResult()


def reported(trained: StepResult, learning_rate: float) -> dict[str, float]:
    """Metrics of a step that trained: `optim/lr`, and what the backend reports, under `service/`."""
    service = {f"service/{name}": value for name, value in trained.metrics.items()}
    return {"optim/lr": learning_rate, **service} if trained.examples else {}
