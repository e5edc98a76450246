"""Conformance tests for backends (rtl_core/backend/base.py), run on Tinker with the embedded service and on an in-process backend."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtl_core.backend.base import (
    Adam,
    Backend,
    Checkpoint,
    Datum,
    Provider,
    SampledAnswer,
    SamplingParams,
    Saved,
    Trainer,
    Weights,
)
from rtl_core.backend.registry import backend_of
from rtl_core.config import RunConfig, load_config
from rtl_core.errors import ConfigError, PolicyError, SamplerDriftError, WeightsGoneError

ADAM = Adam(learning_rate=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, grad_clip_norm=0.0)
STUDENT, TEACHER = Weights(), Weights("teacher")
# "<|im_start|>user\nWrite module counter.<|im_end|>\n<|im_start|>assistant\n": in the distribution that the models were trained on. After unseen
# tokens they may also sample ids of padded embedding rows, which are not in the vocabulary.
PROMPT = [
    1,
    87,
    281,
    84,
    201,
    57,
    84,
    280,
    71,
    223,
    302,
    535,
    16,
    2,
    201,
    1,
    305,
    85,
    523,
    446,
    201,
]
_names = count()


@dataclass
class Opened:
    """An open backend and the runner of its coroutines."""

    provider: Provider
    backend: Backend
    config: RunConfig
    runner: asyncio.Runner

    def __call__(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def sample(self, weights: Weights, number: int, **more: Any) -> list[SampledAnswer]:
        return self.sample_of(weights, PROMPT, number, **more)

    def sample_of(
        self,
        weights: Weights,
        prompt_P: Sequence[int],
        number: int,
        seeds: Sequence[int] | None = None,
        **more: Any,
    ) -> list[SampledAnswer]:
        params = SamplingParams(
            **{"max_tokens": 12, "temperature": 1.0, "stop": self.stop, **more}
        )
        return self(self.backend.sample(weights, prompt_P, number, params, seeds=seeds))

    @property
    def stop(self) -> tuple[int, ...]:
        return self.config.prompting.chat(
            self.backend.tokenizer, self.config.tinker.student
        ).stop

    def score(self, weights: Weights, tokens_T: Sequence[int]) -> np.ndarray:
        return self(self.backend.logprobs(weights, PROMPT, tokens_T))

    def datums(self) -> list[Datum]:
        """Return datums of two fixed answers, the first with a positive advantage."""
        scored = (
            (tokens_T, self.score(STUDENT, tokens_T))
            for tokens_T in ([50, 60, 70, 80], [90, 100, 110])
        )
        return [
            Datum(
                PROMPT,
                tokens_T,
                {
                    "logprobs": logprobs_T,
                    "advantages": np.full(len(tokens_T), sign, np.float32),
                },
            )
            for (tokens_T, logprobs_T), sign in zip(scored, (1.0, -1.0), strict=True)
        ]

    def train(self, trainer: Trainer, steps: int = 1) -> None:
        for _ in range(steps):
            self(trainer.step(self.datums(), "importance_sampling", {}, ADAM))

    def save(self, trainer: Trainer) -> Checkpoint:
        return self(trainer.save(f"saved-{next(_names)}", None))

    def open_trainer(self, state_path: str | None = None) -> Trainer:
        return self(self.backend.open_trainer(state_path))

    def trained(self, state_path: str | None, steps: int = 1) -> np.ndarray:
        """Return the log-probabilities of the first datum after `steps` steps from a saved state."""
        trainer = self.open_trainer(state_path)
        self.train(trainer, steps)
        return self.score(Weights(path=self.save(trainer).sampler_path), [50, 60, 70, 80])


def settings(name: str, folder: Path, *more: str) -> RunConfig:
    places = (
        f"backend.name={name}",
        f"run.directory={folder}",
        f"run.history={folder / 'h.duckdb'}",
    )
    return load_config(
        "demo",
        [*places, "tinker.local_deterministic=true", "tinker.lora_rank=8", *more],
        environment={},
    )


@pytest.fixture(scope="module", params=["tinker", "tests.backend.inprocess:BACKEND"])
def opened(request, tmp_path_factory):
    config = settings(request.param, tmp_path_factory.mktemp("backend"))
    provider = backend_of(config)
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        backend = runner.run(stack.enter_async_context(provider.open(config, print)))
        yield Opened(provider, backend, config, runner)
        runner.run(stack.aclose())


def test_sampled_answers_have_a_logprob_for_each_token(opened):
    answers = opened.sample(STUDENT, 5)
    (end,) = opened.stop
    assert len(answers) == 5
    for answer in answers:
        assert 0 < len(answer.tokens_T) == len(answer.logprobs_T) <= 12
        assert max(answer.logprobs_T) <= 0
        assert (answer.stop_reason == "stop") == (answer.tokens_T[-1] == end)
        assert answer.text == opened.backend.tokenizer.decode(
            [token for token in answer.tokens_T if token != end]
        )


def test_an_answer_ends_with_the_first_stop_token_and_its_text_omits_it(opened):
    (free,) = opened.sample(STUDENT, 1, seeds=[3])
    ends = [*opened.stop, free.tokens_T[4], free.tokens_T[7]]
    at = next(place for place, token in enumerate(free.tokens_T) if token in ends)
    (answer,) = opened.sample(STUDENT, 1, seeds=[3], stop=ends)
    assert (answer.tokens_T, answer.stop_reason) == (free.tokens_T[: at + 1], "stop")
    assert answer.text == opened.backend.tokenizer.decode(answer.tokens_T[:-1])


def test_a_tiny_top_p_leaves_only_the_likeliest_token(opened):
    answers = opened.sample(STUDENT, 4, max_tokens=6, top_p=1e-6)
    assert len({tuple(answer.tokens_T) for answer in answers}) == 1
    assert (
        len({tuple(opened.sample(STUDENT, 1, seeds=[seed])[0].tokens_T) for seed in range(4)})
        > 1
    )
    # The reported log-probabilities are of the full distribution, to be comparable with the teacher's scores.
    scored = opened.score(STUDENT, answers[0].tokens_T)
    np.testing.assert_allclose(answers[0].logprobs_T, scored, atol=1e-3)


def test_equal_seeds_give_equal_answers_and_other_seeds_others(opened):
    def texts(seeds):
        return [answer.tokens_T for answer in opened.sample(TEACHER, 3, seeds=seeds)]

    first = texts([1, 2, 3])
    assert first == texts([1, 2, 3])
    assert first != texts([4, 5, 6])


def test_scores_equal_the_samplers_logprobs_and_differ_from_the_teachers(opened):
    (answer,) = opened.sample(STUDENT, 1)
    own = opened.score(STUDENT, answer.tokens_T)
    assert own.dtype == np.float32
    assert own == pytest.approx(answer.logprobs_T, abs=1e-3)
    teacher = opened.score(TEACHER, answer.tokens_T)
    assert teacher.shape == own.shape
    assert not np.allclose(teacher, own, atol=1e-2)


def test_a_step_reports_its_datums_and_moves_the_weights_along_the_advantages(opened):
    trainer, datums = opened.open_trainer(), opened.datums()
    before = [opened.score(STUDENT, datum.tokens_T) for datum in datums]
    result = opened(trainer.step(datums, "importance_sampling", {}, ADAM))
    assert (result.examples, result.tokens) == (2, 2 * len(PROMPT) + (4 - 1) + (3 - 1))
    for found, expected in zip(result.logprobs, before, strict=True):
        assert found == pytest.approx(expected, abs=1e-3)
    assert all(np.isfinite(value) for value in result.metrics.values())
    path = opened.save(trainer).sampler_path
    likelier, less_likely = (
        (opened.score(Weights(path=path), datum.tokens_T) - old).sum()
        for datum, old in zip(datums, before, strict=True)
    )
    assert likelier > 0.05
    assert less_likely < -0.05


def test_a_step_that_a_check_refuses_is_not_applied(opened):
    trainer, datums = opened.open_trainer(), opened.datums()
    seen: list[Any] = []

    def check(logprobs):
        seen.extend(logprobs)
        raise SamplerDriftError("not this step")

    with pytest.raises(SamplerDriftError, match="not this step"):
        opened(trainer.step(datums, "importance_sampling", {}, ADAM, check))
    after = opened(trainer.logprobs([replace(datum, inputs={}) for datum in datums]))
    for checked, left, datum in zip(seen, after, datums, strict=True):
        assert checked == pytest.approx(datum.inputs["logprobs"], abs=1e-3)
        assert left == pytest.approx(checked, abs=1e-5)


def test_choices_returns_the_likeliest_tokens_with_the_scores(opened):
    tokens = [50, 60, 70, 80]
    scores_T, (ids_TK, values_TK) = opened(opened.backend.choices(TEACHER, PROMPT, tokens, 5))
    assert scores_T == pytest.approx(opened.score(TEACHER, tokens), abs=1e-4)
    assert ids_TK.shape == values_TK.shape == (4, 5)
    assert (np.diff(values_TK) <= 0).all()
    for at, ids in enumerate(ids_TK):
        assert opened.score(TEACHER, [*tokens[:at], int(ids[1])])[-1] == pytest.approx(
            values_TK[at, 1], abs=1e-3
        )


def test_named_tokens_are_scored_at_their_position(opened):
    tokens = [50, 60, 70, 80]
    scores_T, (ids_TK, values_TK) = opened(opened.backend.choices(TEACHER, PROMPT, tokens, 5))
    named = np.column_stack([np.array(tokens), ids_TK[:, ::-1]])
    asked = opened.backend.logprobs_of(TEACHER, PROMPT, tokens, named)
    own_T, named_TK = opened(asked)
    assert own_T == pytest.approx(scores_T, abs=1e-4)
    assert named_TK.shape == (4, 6)
    assert named_TK[:, 0] == pytest.approx(scores_T, abs=1e-4)
    assert named_TK[:, 1:] == pytest.approx(values_TK[:, ::-1], abs=1e-4)


def test_the_likeliest_tokens_come_with_a_sample(opened):
    params = SamplingParams(6, 1.0, [], likeliest=4)
    for answer in opened(opened.backend.sample(STUDENT, PROMPT, 3, params)):
        found, tokens = answer.choices, answer.tokens_T
        _, (_, values_TK) = opened(opened.backend.choices(STUDENT, PROMPT, tokens, 4))
        assert found.logprobs_TK == pytest.approx(values_TK, abs=1e-4)
        _, named_TK = opened(
            opened.backend.logprobs_of(STUDENT, PROMPT, tokens, found.tokens_TK)
        )
        assert found.logprobs_TK == pytest.approx(named_TK, abs=1e-4)
    (plain,) = opened(opened.backend.sample(STUDENT, PROMPT, 1, SamplingParams(6, 1.0, [])))
    assert plain.choices is None


def test_the_students_choices_give_the_gradient_that_the_trainers_pass_gives(opened):
    """On-policy: log-probabilities from the sample in place of those of the trainer, for the same tokens."""
    from rtl_core.algorithms.distribution_distillation import DistributionDistillation

    backend, trainer = opened.backend, opened.open_trainer()
    algorithm = DistributionDistillation(
        load_config("demo", ["learning.algorithm=distribution_distillation"], environment={})
    )
    params = SamplingParams(12, 1.0, [], likeliest=8)
    for answer in opened(backend.sample(STUDENT, PROMPT, 3, params)):
        ids_TK, student_TK = answer.choices
        asked = backend.logprobs_of(TEACHER, PROMPT, answer.tokens_T, ids_TK)
        _, teacher_TK = opened(asked)
        count = len(answer.tokens_T)
        inputs = {
            "logprobs": np.array(answer.logprobs_T, np.float32),
            "advantages": np.full(count, 0.7, np.float32),
            "kl_weights": np.full(count, 0.5, np.float32),
            "teacher_logprobs": teacher_TK,
            "student_logprobs": student_TK,
        }
        (found_TK,) = opened(trainer.logprobs([Datum(PROMPT, answer.tokens_T, {}, ids_TK)]))
        by_sample, by_trainer = (algorithm.weights(inputs, of) for of in (None, found_TK))
        p_TK = np.exp(found_TK[:, 1:])
        of_logits = [
            w_TK[:, 1:] - p_TK * w_TK.sum(-1, keepdims=True) for w_TK in (by_sample, by_trainer)
        ]
        assert np.abs(of_logits[1]).max() > 0.01
        assert of_logits[0] == pytest.approx(of_logits[1], abs=1e-4)


def test_all_targets_of_a_datum_are_scored_and_trained_on(opened):
    trainer, tokens = opened.open_trainer(), [50, 60, 70]
    others_TK = np.array([[51, 7], [61, 7], [71, 7]])
    datum = Datum(PROMPT, tokens, {}, others_TK)
    (before,) = opened(trainer.logprobs([datum]))
    assert before.shape == (3, 3)
    assert before[:, 0] == pytest.approx(opened.score(STUDENT, tokens), abs=1e-3)
    assert before[1, 1] == pytest.approx(opened.score(STUDENT, [50, 61])[-1], abs=1e-3)
    weighed = replace(
        datum, inputs={"weights": np.tile(np.array([0, 1, -1], np.float32), (3, 1))}
    )
    result = opened(trainer.step([weighed], "cross_entropy", {}, ADAM))
    assert result.logprobs[0] == pytest.approx(before[:, 0], abs=1e-3)
    (after,) = opened(trainer.logprobs([datum]))
    up_T, down_T = (after - before)[:, 1:].T
    assert (up_T - down_T).sum() > 0.5


@pytest.mark.parametrize("opened", ["tinker"], indirect=True)
def test_distributions_have_the_gradient_of_the_sdks_custom_loss(opened):
    """Reverse KL with a bucket and a reward: our cross entropy weights against torch's gradient through `forward_backward_custom`."""
    import torch
    from tinker import types

    from rtl_core.algorithms.distribution_distillation import DistributionDistillation
    from rtl_core.backend.tinker.training import to_datum

    chosen = DistributionDistillation(
        load_config("demo", ["learning.algorithm=distribution_distillation"], environment={})
    )
    tokens, scale = [50, 60, 70], np.array([0.5, 0.0, 0.5], np.float32)
    _, (ids_TK, teacher_TK) = opened(opened.backend.choices(TEACHER, PROMPT, tokens, 8))
    sampler_T = opened.score(STUDENT, tokens) + np.float32(0.3)  # as with stale weights
    inputs = {
        "logprobs": sampler_T,
        "advantages": np.full(3, 0.7, np.float32),
        "kl_weights": scale,
        "teacher_logprobs": teacher_TK,
    }
    datum = Datum(PROMPT, tokens, {}, ids_TK)

    def custom(_, logprobs):
        found = logprobs[0][-3:]
        log_p, log_q = found[:, 1:], torch.from_numpy(teacher_TK)
        p_rest, q_rest = ((1 - one.exp().sum(-1)).clamp(min=1e-5) for one in (log_p, log_q))
        kl_T = (log_p.exp() * (log_p - log_q)).sum(-1) + p_rest * (p_rest.log() - q_rest.log())
        reward = 0.7 * (found[:, 0] - torch.from_numpy(sampler_T)).exp()
        return (torch.from_numpy(scale) * kl_T - reward).sum(), {}

    async def by_the_sdk(client):
        backward = client.forward_backward_custom([to_datum(datum)], custom)
        optim = client.optim_step(types.AdamParams(**vars(ADAM)))
        await backward
        await optim

    ours, theirs = opened.open_trainer(), opened.open_trainer()
    (found_TK,) = opened(ours.logprobs([datum]))
    weighed = replace(datum, inputs={"weights": chosen.weights(inputs, found_TK)})
    opened(ours.step([weighed], "cross_entropy", {}, ADAM))
    opened(by_the_sdk(theirs._client))  # type: ignore[attr-defined]
    moved, expected = opened(ours.logprobs([datum]))[0], opened(theirs.logprobs([datum]))[0]
    assert np.abs(expected - found_TK).max() > 0.05
    assert moved == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("loss", ["cross_entropy", "ppo", "gspo", "cispo", "dro"])
def test_every_loss_is_computed_with_its_parameters(opened, loss):
    import torch

    from localtinker.losses import LOSSES

    datums = opened.datums()
    for datum in datums:  # ratios on both sides of the bounds
        datum.inputs["logprobs"] += np.linspace(
            -0.5, 0.5, len(datum.tokens_T), dtype=np.float32
        )
    if loss == "cross_entropy":
        datums = [
            replace(datum, inputs={"weights": np.ones(len(datum.tokens_T), np.float32)})
            for datum in datums
        ]
    if loss == "gspo":
        for datum in datums:
            datum.inputs["sequence_ratio_mask"] = np.ones(len(datum.tokens_T), np.float32)
    parameters = {name: 0.99 * value for name, value in LOSSES[loss].parameters.items()}
    result = opened(opened.open_trainer().step(datums, loss, parameters, ADAM))
    assert len(result.logprobs) == 2
    if LOSSES[loss].zero_is_silent:  # otherwise the prompt counts too
        expected = 0.0
        for datum, logp_T in zip(datums, result.logprobs, strict=True):
            inputs = {name: torch.from_numpy(values) for name, values in datum.inputs.items()}
            own = LOSSES[loss].function(torch.from_numpy(logp_T), inputs, parameters)
            expected += float(own.sum())
        assert result.metrics["loss:sum"] == pytest.approx(expected, rel=1e-3)


def test_a_repeated_step_counts_once(opened):
    first = opened.open_trainer()
    opened.train(first)
    state = opened.save(first).state_path
    for start in (None, state):
        once, twice = opened.trained(start), opened.trained(start, steps=2)
        abandoned = opened.open_trainer(start)
        opened.train(abandoned)  # has no effect, because nothing was saved
        assert opened.trained(start) == pytest.approx(once, abs=1e-4)
        assert not np.allclose(twice, once, atol=1e-2)


def test_a_saved_state_continues_like_its_trainer(opened):
    trainer = opened.open_trainer()
    opened.train(trainer)
    saved = opened.save(trainer)
    opened.train(trainer)
    live = opened.score(Weights(path=opened.save(trainer).sampler_path), [50, 60, 70, 80])
    assert opened.trained(saved.state_path) == pytest.approx(live, abs=1e-4)


def test_weights_only_restores_the_weights_with_a_new_optimizer(opened):
    trainer = opened.open_trainer()
    opened.train(trainer)
    saved = opened.save(trainer)
    begun = opened(opened.backend.open_trainer(saved.state_path, weights_only=True))
    own = opened.save(begun)
    for path in (own.sampler_path, saved.sampler_path):
        likely = opened.score(Weights(path=path), [50, 60, 70, 80])
        assert likely == pytest.approx(
            opened.score(Weights(path=saved.sampler_path), [50, 60, 70, 80]), abs=1e-5
        )
    # Adam's moments are not those of the saved state, and a state saved from the new trainer continues like it.
    opened.train(begun)
    went_on = opened.score(Weights(path=opened.save(begun).sampler_path), [50, 60, 70, 80])
    assert opened.trained(own.state_path) == pytest.approx(went_on, abs=1e-4)
    assert not np.allclose(opened.trained(saved.state_path), went_on, atol=1e-3)


def test_a_teacher_may_be_saved_weights_or_another_model(opened):
    trainer = opened.open_trainer()
    opened.train(trainer)
    path = opened.save(trainer).sampler_path
    assert opened(opened.backend.describe(path)) == Saved("student", 8)
    tokens = [50, 60, 70, 80]
    assert opened.score(Weights.of_teacher(path), tokens) == pytest.approx(
        opened.score(Weights(path=path), tokens)
    )
    assert opened.score(Weights.of_teacher("student"), tokens) == pytest.approx(
        opened.score(STUDENT, tokens)
    )
    assert opened.score(Weights.of_teacher("teacher"), tokens) == pytest.approx(
        opened.score(TEACHER, tokens)
    )
    with pytest.raises(PolicyError):
        opened(opened.backend.describe(f"{path}-none"))


def test_deleted_weights_no_longer_exist_and_can_be_deleted_again(opened):
    saved, other = (opened.save(opened.open_trainer()) for _ in range(2))
    paths = [saved.state_path, saved.sampler_path]
    assert opened(opened.backend.delete(paths)) == 2
    assert opened(opened.backend.delete([*paths, other.sampler_path])) == 1
    with pytest.raises(WeightsGoneError):
        opened.open_trainer(saved.state_path)
    with pytest.raises(WeightsGoneError):
        opened.sample(Weights(path=saved.sampler_path), 1)
    with pytest.raises(WeightsGoneError):
        opened(opened.backend.keep([saved.state_path]))
    opened.open_trainer(other.state_path)
    opened(opened.backend.keep([other.state_path]))


def test_an_invalid_request_is_a_policy_error_and_the_backend_still_works(opened):
    with pytest.raises(PolicyError):
        opened.sample_of(STUDENT, [10**9], 1, max_tokens=1)
    assert opened.sample(STUDENT, 1)
    wrong = replace(opened.datums()[0], inputs={"advantages": np.ones(4, np.float32)})
    with pytest.raises(PolicyError):
        opened(opened.open_trainer().step([wrong], "importance_sampling", {}, ADAM))
    opened.train(opened.open_trainer())


def test_an_adapter_is_exported_as_files(opened, tmp_path):
    saved = opened.save(opened.open_trainer())
    files = opened(opened.provider.export(opened.config, saved.state_path, "adapter", tmp_path))
    assert {file.name for file in files} == {"adapter_model.safetensors", "adapter_config.json"}
    assert all(file.stat().st_size for file in files)
    with pytest.raises(PolicyError):
        opened(
            opened.provider.export(
                opened.config, f"{saved.state_path}-none", "adapter", tmp_path
            )
        )


def test_check_reports_models_context_length_and_missing_models(opened, tmp_path):
    found = opened(opened.provider.check(opened.config))
    assert {finding.level for finding in found.findings} == {"ok"}
    longest = found.context["student"]
    opened.sample_of(STUDENT, [2] * (longest - 1), 1, max_tokens=1)
    with pytest.raises(PolicyError):
        opened.sample_of(STUDENT, [2] * (longest - 1), 1, max_tokens=2)
    lacking = settings(opened.config.backend.name, tmp_path, "tinker.student=nobody")
    (wrong,) = opened(opened.provider.check(lacking)).findings
    assert wrong.level == "wrong"
    assert "nobody" in wrong.text
    assert wrong.remedy


@pytest.mark.parametrize("name", ["tinker", "tests.backend.inprocess:BACKEND"])
def test_an_unknown_model_is_refused_on_open(name, tmp_path):
    config = settings(name, tmp_path, "tinker.student=nobody")

    async def open_it():
        async with backend_of(config).open(config, print):
            pytest.fail("it opened")

    with pytest.raises(PolicyError, match="nobody"):
        asyncio.run(open_it())


def test_an_unknown_backend_is_refused_with_the_known_ones(tmp_path):
    for name, why in (
        ("tinkre", r"no backend 'tinkre'.*did you mean tinker"),
        ("nobodys_module:BACKEND", "backend 'nobodys_module:BACKEND' cannot be imported"),
        ("json:loads", "`loads` in json is no backend"),
    ):
        with pytest.raises(ConfigError, match=f"(?s){why}"):
            backend_of(settings(name, tmp_path))
