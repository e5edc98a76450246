"""One train step from a graded and scored batch, and its record."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rtl_core.config import RunConfig
from rtl_core.errors import InfrastructureError, RunHealthError
from rtl_core.grading.verdict import Stage
from rtl_core.history.records import StepRecord, StoredRollout
from rtl_core.learning.advantage import group_advantages, token_advantages
from rtl_core.learning.schedule import linear_decay
from rtl_core.pipeline.batch import Batch
from rtl_core.pipeline.session import Session, open_trainer
from rtl_core.pipeline.spending import batch_usage, cost_metrics
from rtl_core.policy.faults import lost_client
from rtl_core.policy.trainer import Checkpoint, TrainExample, save_checkpoint, train_step


def build_examples(batch: Batch, config: RunConfig) -> tuple[list[TrainExample], dict[str, float]]:
    """Training examples of a batch, and the scalar advantage of each rollout by key.

    Rollouts whose every token advantage is 0 teach nothing and are left out.
    """
    learning = config.learning
    scalars: dict[str, float] = {}
    rows: list[tuple[StoredRollout, np.ndarray]] = []
    for problem_id in batch.problem_ids:
        group = batch.group(problem_id)
        rewards_G = np.array([stored.reward.total for stored in group if stored.reward is not None])
        if len(rewards_G) != len(group):
            raise RuntimeError(f"{batch.key}: a rollout of {problem_id} has no verdict; it must not be trained on")
        advantages_G = learning.reward_weight * group_advantages(
            rewards_G, baseline=learning.baseline, normalise_std=learning.normalise_std
        )
        for stored, advantage in zip(group, advantages_G, strict=True):
            scalars[stored.rollout.key] = float(advantage)
            advantages_T = token_advantages(
                float(advantage),
                np.array(stored.rollout.logprobs_T),
                None if stored.teacher is None else np.asarray(stored.teacher.logprobs_T),
                kl_weight=learning.kl_weight,
                kl_discount=learning.kl_discount,
                kl_clamp=learning.kl_clamp,
            )
            rows.append((stored, advantages_T))
    if learning.permute_advantages:
        rows = permute(rows, random.Random(f"permute/{config.run.seed}/{batch.step}"))
    examples = [
        TrainExample(
            prompt_P=stored.rollout.prompt_P,
            tokens_T=stored.rollout.tokens_T,
            logprobs_T=np.array(stored.rollout.logprobs_T, np.float32),
            advantages_T=advantages_T.astype(np.float32),
        )
        for stored, advantages_T in rows
        if advantages_T.any()
    ]
    return examples, scalars


def permute(rows: list[tuple[StoredRollout, np.ndarray]], rng: random.Random) -> list[tuple[StoredRollout, np.ndarray]]:
    """Hand each rollout the mean token advantage of another, so that size and spread of the signal stay and its meaning goes."""
    means = [float(advantages_T.mean()) for _, advantages_T in rows]
    rng.shuffle(means)
    return [
        (stored, np.full(len(advantages_T), mean)) for (stored, advantages_T), mean in zip(rows, means, strict=True)
    ]


@contextmanager
def client_may_be_lost() -> Iterator[None]:
    """Turn the loss of a training client (the service was restarted) into an error that a repetition of the step mends."""
    try:
        yield
    except Exception as error:
        if not lost_client(error):
            raise
        raise InfrastructureError(
            f"the service lost the training client ({type(error).__name__}); the step is repeated from the last saved state"
        ) from error


async def train(session: Session, batch: Batch) -> Checkpoint:
    """Train on a batch, save the weights, record the step. Returns where the new weights are.

    Called again after a failure, it starts from the session's checkpoint: the step counts once, when its record is committed.

    Raises:
        InfrastructureError: the service was restarted in between.
        RunHealthError: trainer and sampler disagree by more than the configured KL; the state before the step is kept.
    """
    config = session.config
    policy = session.require_policy()
    with batch.clock.measure("train"):
        if policy.trainer is None:
            await open_trainer(session)
        trainer, policy.trainer = policy.trainer, None  # put back when the step is recorded; an error leaves it behind
        examples, scalars = build_examples(batch, config)
        session.recorder.put("record_advantages", list(scalars.items()))
        share = linear_decay(batch.step, len(session.steps), config.learning.final_learning_rate_share)
        # Everything that the step is made of is on disk before its weights are saved.
        async with session.recorder.settling():
            with client_may_be_lost():
                rate = share * config.learning.learning_rate
                metrics = await train_step(trainer, examples, config, rate) if examples else {}
        drift = abs(metrics.get("optim/kl_sample_train_v1", 0.0))
        if drift > config.learning.max_sampler_trainer_kl:
            raise RunHealthError(
                f"step {batch.step}: trainer and sampler differ by a KL of {drift:.3f} per token "
                f"(limit {config.learning.max_sampler_trainer_kl}): the weights that sampled are not the ones that train",
                "the state before this step is kept; lower learning.learning_rate or check the service, then run the same command",
            )
        with client_may_be_lost():
            days = config.checkpoints.ttl_days
            ttl_s = None if days is None else int(days * 86400)
            checkpoint = await save_checkpoint(trainer, f"{session.run}-{batch.step + 1:06d}", ttl_s)
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
        times=times,
        metrics={
            **batch_metrics(batch),
            **metrics,
            "train/examples": float(len(examples)),
            **cost_metrics(batch_usage(batch, config), config, session.prices),
            **{f"time/{k}": v for k, v in times.items()},
            "cpu/store": store.cpu_s,
        },
    )
    session.recorder.put("finish_step", [record])
    await session.recorder.settle()
    policy.trainer = trainer
    session.checkpoint, session.last_step = checkpoint, record.metrics
    return checkpoint


def batch_metrics(batch: Batch) -> dict[str, float]:
    """Metrics of a graded batch under the community's names, and what the groups look like."""
    stored = list(batch.rollouts.values())
    verdicts = [s.verdict for s in stored if s.verdict is not None]
    groups = [[s.verdict.passed for s in batch.group(p) if s.verdict is not None] for p in batch.problem_ids]
    mix = Counter("all_good" if all(g) else "mixed" if any(g) else "all_bad" for g in groups)
    stages = {
        name: np.mean([v.stage(stage).status == "passed" for v in verdicts])
        for name, stage in (
            ("format_valid", Stage.FORMAT),
            ("interface_valid", Stage.INTERFACE),
            ("syntax_valid", Stage.SYNTAX),
        )
    }
    metrics: dict[str, Any] = {
        "env/all/reward/total": np.mean([s.reward.total for s in stored if s.reward is not None]),
        **{f"env/all/{name}": value for name, value in stages.items()},
        "env/all/tests_passed": np.mean([v.passed for v in verdicts]),
        "env/all/ac_tokens_per_turn": np.mean([len(s.rollout.tokens_T) for s in stored]),
        "env/all/truncated": np.mean([s.rollout.stop_reason == "length" for s in stored]),
        "env/all/duplicates": 1 - len({(s.rollout.problem_id, s.rollout.text) for s in stored}) / len(stored),
        **{f"groups/{kind}": mix[kind] / len(groups) for kind in ("all_good", "mixed", "all_bad")},
        "grade/cached": np.mean([v.cached for v in verdicts]),
    }
    teacher = [s.teacher for s in stored if s.teacher is not None]
    if teacher:
        tokens = sum(t.n_tokens for t in teacher)
        metrics |= {
            "teacher_kl": sum(t.k1_mean * t.n_tokens for t in teacher) / tokens,
            "teacher_kl/k2": sum(t.k2_mean * t.n_tokens for t in teacher) / tokens,
            "teacher_kl/k3": sum(t.k3_mean * t.n_tokens for t in teacher) / tokens,
        }
    return {name: float(value) for name, value in metrics.items()}
