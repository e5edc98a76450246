"""Our train step equals the tinker-cookbook's field by field, for the same rollouts on the same service.

The required settings: `EQUAL` below, `baseline = "group_mean"`, no `kl_clamp` and no replaced groups. What differs on
purpose: we do not send answers without a gradient, `kl_discount` reaches only the answer's tokens, the KL is not centred
by the batch, and a batch is one optimizer step.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinker

from localtinker.losses import LOSSES
from localtinker.process import LocalTinker
from rtl_core.backend.base import Backend, SamplingParams, Weights
from rtl_core.backend.registry import backend_of
from rtl_core.backend.tinker.training import TinkerTrainer, open_training_client
from rtl_core.config import load_config
from rtl_core.history.records import StoredRollout, TeacherRecord
from rtl_core.history.store import History
from rtl_core.learning.reward import Reward
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.datums import algorithm_of, build_datums, compute_credit
from rtl_core.rollouts.training import optimize
from rtl_core.run.recorder import Recorder
from rtl_core.tinymodels import model_path
from rtl_core.types.rollout import Rollout

pytestmark = pytest.mark.cookbook

REWARDS = {"a": (1.6, 0.1, 0.6), "b": (0.0, 0.3, 0.3), "equal": (0.1, 0.1, 0.1)}
"""Mapping of problem to rewards of its answers."""
RATE = 3e-4
EQUAL = (
    f"learning.learning_rate={RATE}",
    "learning.final_learning_rate_share=1.0",
    "learning.grad_clip_norm=0.0",
    "learning.warm_start_steps=0",
    "learning.kl_schedule=constant",
    'learning.truncated="keep"',
    "learning.normalise_std=false",
    'learning.kl_on="all"',
)
"""Changes to the demo that make it a recipe of the cookbook. Other keys of `[learning]` have their defaults."""
CONFIG = load_config("demo", ["tinker.lora_rank=8"], environment={})
ROUNDING = 1e-5
"""The cookbook computes advantages in float32, we in float64; both send float32. Terms are at most about 20 nats here, with a relative
rounding error of 2^-24 in each of a few operations."""


@dataclass
class Sent:
    """Request to a training client."""

    data: list[tinker.Datum]
    loss_fn: str
    loss_fn_config: dict[str, float] | None
    adam: tinker.AdamParams | None = None


@dataclass
class Recording:
    """A training client that records its requests."""

    client: tinker.TrainingClient
    sent: list[Sent] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def forward_backward(
        self, data: list[tinker.Datum], loss_fn: Any, loss_fn_config: Any = None
    ) -> Any:
        self.sent.append(Sent(data, loss_fn, loss_fn_config))
        return self.client.forward_backward(data, loss_fn, loss_fn_config)

    async def forward_backward_async(
        self, data: list[tinker.Datum], loss_fn: Any, loss_fn_config: Any = None
    ) -> Any:
        return self.forward_backward(data, loss_fn, loss_fn_config)

    def optim_step(self, adam: tinker.AdamParams) -> Any:
        self.sent[-1].adam = adam
        return self.client.optim_step(adam)

    async def optim_step_async(self, adam: tinker.AdamParams) -> Any:
        return self.optim_step(adam)


@dataclass
class Bench:
    """A service with the tiny models, and answers of the untrained student with the teacher's scores."""

    service: tinker.ServiceClient
    teacher: tinker.SamplingClient
    groups: dict[str, list[StoredRollout]]

    def client(self) -> Recording:
        """Open a new adapter, always with the same weights."""

        async def opened() -> tinker.TrainingClient:
            return await open_training_client(self.service, CONFIG, None)

        return Recording(asyncio.run(opened()))

    def scores_after(self, client: Recording) -> np.ndarray:
        """Return the log-probabilities of all answers after a step. They are equal for equal steps."""
        sampler = client.client.save_weights_and_get_sampling_client().result()
        answers = [stored.rollout for group in self.groups.values() for stored in group]
        asked = [
            sampler.compute_logprobs(tinker.ModelInput.from_ints([*a.prompt_P, *a.tokens_T]))
            for a in answers
        ]
        return np.concatenate([future.result()[1:] for future in asked])


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    models = {name: model_path(name) for name in ("student", "teacher")}
    with LocalTinker(models, tmp_path_factory.mktemp("service"), deterministic=True) as local:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("TINKER_API_KEY", local.api_key)
            groups = asyncio.run(answers(local))
        service = tinker.ServiceClient(base_url=local.base_url, api_key=local.api_key)
        yield Bench(
            service, service.create_sampling_client(base_model="teacher").result(), groups
        )
        service.close("success").result()


async def answers(local: LocalTinker) -> dict[str, list[StoredRollout]]:
    folders = ", ".join(f'{name} = "{model_path(name)}"' for name in ("student", "teacher"))
    config = load_config(
        "demo",
        [f"tinker.base_url={local.base_url}", f"tinker.local_models={{{folders}}}"],
        environment={},
    )
    async with backend_of(config).open(config, print) as backend:
        return await sampled_from(backend)


async def sampled_from(backend: Backend) -> dict[str, list[StoredRollout]]:
    groups = {}
    stop = CONFIG.prompting.chat(backend.tokenizer, "student").stop
    for number, (problem, rewards) in enumerate(REWARDS.items()):
        text = f"Module m{number} adds a and b, {number + 3} bits each."
        prompt_P = backend.tokenizer.encode(text, add_special_tokens=False)
        seeds = [10 * number + i for i in range(len(rewards))]
        sampled = await backend.sample(
            Weights(), prompt_P, 3, SamplingParams(30, 1.0, stop), seeds=seeds
        )
        groups[problem] = []
        for i, (one, reward) in enumerate(zip(sampled, rewards, strict=True)):
            rollout = Rollout(
                run="r", purpose="train", epoch=0, step=0, problem_id=problem, sample=i, prompt_P=tuple(prompt_P),
                tokens_T=tuple(one.tokens_T), logprobs_T=tuple(one.logprobs_T), stop_reason=one.stop_reason, text=one.text,
                policy_step=0,
            )  # fmt: skip
            scores_T = await backend.logprobs(Weights("teacher"), prompt_P, one.tokens_T)
            teacher = TeacherRecord(rollout.key, scores_T, 0.0, 0.0, 0.0, len(scores_T))
            groups[problem].append(
                StoredRollout(rollout, reward=Reward(total=reward, terms={}), teacher=teacher)
            )
    return groups


def ours(bench: Bench, tmp_path: Path, *overrides: str) -> Recording:
    """Train one step as a run does, from stored rollouts to the service."""
    config = load_config("demo", [*EQUAL, *overrides], environment={})
    batch = Batch("train", 0, 0, 0, tuple(bench.groups), 3)
    batch.add(stored for group in bench.groups.values() for stored in group)
    algorithm = algorithm_of(config, batch)
    for problem in bench.groups:
        compute_credit(batch, problem, algorithm)
    datums = build_datums(batch, algorithm, config.learning.kl_weight)
    client, learning = bench.client(), config.learning
    recorder, trainer = (
        Recorder(History(tmp_path / "h.duckdb")),
        TinkerTrainer(client, nullcontext, {}, set()),
    )
    asyncio.run(
        optimize(
            learning,
            recorder,
            trainer,
            datums,
            learning.loss,
            learning.loss_settings,
            rate=learning.learning_rate,
        )
    )
    return client


def cookbook(
    bench: Bench,
    loss: str,
    *,
    kl: float,
    discount: float = 0.0,
    config: dict[str, float] | None,
) -> Recording:
    """Train one step by the cookbook's functions, called as in `rl.train` and `distillation.train_on_policy`."""
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.distillation.train_on_policy import incorporate_kl_penalty
    from tinker_cookbook.rl import data_processing as cook
    from tinker_cookbook.rl.train import train_step
    from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition

    def group(answers: list[StoredRollout]) -> TrajectoryGroup:
        taken = [
            Transition(
                ob=tinker.ModelInput.from_ints(list(one.rollout.prompt_P)),
                ac=TokensWithLogprobs(list(one.rollout.tokens_T), list(one.rollout.logprobs_T)),
                reward=0.0,
                episode_done=True,
            )
            for one in answers
        ]
        rewards = [one.reward.total for one in answers if one.reward is not None]
        return TrajectoryGroup(
            [Trajectory([t], tinker.ModelInput.empty()) for t in taken],
            rewards,
            [{} for _ in taken],
        )

    groups = [group(answers) for answers in bench.groups.values()]
    if not kl:  # with a KL both keep them
        groups = cook.remove_constant_reward_groups(groups)
    data, _ = cook.assemble_training_data(groups, cook.compute_advantages(groups))
    client = bench.client()

    async def run() -> None:
        if kl:
            await incorporate_kl_penalty(
                data, [bench.teacher] * len(data), [0] * len(data), kl, discount
            )
        await train_step(data, client, RATE, 1, loss, config)

    asyncio.run(run())
    return client


def values(datum: tinker.Datum, name: str) -> np.ndarray:
    return np.asarray(datum.loss_fn_inputs[name].to_numpy())


@pytest.mark.parametrize("kl", [0.0, 0.5], ids=["verdicts", "verdicts and teacher"])
@pytest.mark.parametrize("loss", ["importance_sampling", "ppo", "cispo"])
def test_equal_rollouts_give_equal_steps(bench, tmp_path, loss, kl):
    settings = dict(LOSSES[loss].parameters) or None
    mine = ours(bench, tmp_path, f"learning.loss={loss}", f"learning.kl_weight={kl}")
    theirs = cookbook(bench, loss, kl=kl, config=settings)
    ((left,), (right,)) = mine.sent, theirs.sent
    assert (left.loss_fn, left.loss_fn_config) == (right.loss_fn, right.loss_fn_config)
    assert left.adam is not None
    assert left.adam == right.adam
    assert len(left.data) == len(right.data) == (9 if kl else 6)
    for one, other in zip(left.data, right.data, strict=True):
        assert one.model_input == other.model_input
        # The cookbook removes its mask before sending, so both sides have the same fields.
        assert (
            set(one.loss_fn_inputs)
            == set(other.loss_fn_inputs)
            == {"target_tokens", "logprobs", "advantages"}
        )
        for name, tensor in one.loss_fn_inputs.items():
            assert (tensor.dtype, tensor.shape) == (
                other.loss_fn_inputs[name].dtype,
                other.loss_fn_inputs[name].shape,
            )
        for name in ("target_tokens", "logprobs"):
            assert np.array_equal(values(one, name), values(other, name))
        np.testing.assert_allclose(
            values(one, "advantages"), values(other, "advantages"), rtol=0, atol=ROUNDING
        )
    assert np.abs(np.concatenate([values(one, "advantages") for one in left.data])).max() > 0.1
    after = bench.scores_after(mine)
    np.testing.assert_allclose(after, bench.scores_after(theirs), rtol=0, atol=1e-3)
    # Without settings the service uses the same defaults.
    if settings:
        np.testing.assert_allclose(
            after,
            bench.scores_after(cookbook(bench, loss, kl=kl, config=None)),
            rtol=0,
            atol=1e-3,
        )


def test_pure_distillation_equals_the_cookbooks(bench, tmp_path):
    groups = {
        p: [replace(s, reward=Reward(total=0.0, terms={})) for s in group]
        for p, group in bench.groups.items()
    }
    (left,) = ours(bench, tmp_path, "learning.reward_weight=0", "learning.kl_weight=1").sent
    (right,) = cookbook(
        replace(bench, groups=groups), "importance_sampling", kl=1.0, config=None
    ).sent
    for one, other in zip(left.data, right.data, strict=True):
        np.testing.assert_allclose(
            values(one, "advantages"), values(other, "advantages"), rtol=0, atol=ROUNDING
        )


def test_a_discounted_kl_is_equal_on_the_answer_and_0_on_the_prompt(bench, tmp_path):
    (left,) = ours(bench, tmp_path, "learning.kl_weight=0.5", "learning.kl_discount=0.9").sent
    (right,) = cookbook(bench, "importance_sampling", kl=0.5, discount=0.9, config=None).sent
    answers = [stored.rollout for group in bench.groups.values() for stored in group]
    for one, other, answer in zip(left.data, right.data, answers, strict=True):
        n = len(answer.tokens_T)
        np.testing.assert_allclose(
            values(one, "advantages")[-n:], values(other, "advantages")[-n:], rtol=0, atol=1e-4
        )
        assert not values(one, "advantages")[:-n].any()
        assert values(other, "advantages")[:-n].any()
