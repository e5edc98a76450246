"""Problem sets and grader as a tinker-cookbook dataset, for unchanged cookbook recipes.

    from tinker_cookbook.rl import train
    from rtl_core.interop.cookbook import RtlDatasetBuilder

    config = train.Config(
        dataset_builder=RtlDatasetBuilder(config="cvdp", groups_per_batch=8, group_size=4),
        model_name="Qwen/Qwen3.6-35B-A3B", recipe_name="rtl", learning_rate=4e-5, max_tokens=4096,
        log_path="runs/cookbook",
    )
    asyncio.run(train.main(config))

Our configuration supplies problem sources, prompt template, budget, thinking, grading and reward weights.
The recipe supplies the rest. Prompts are rendered by the tokenizer's chat template, as in our own runs,
regardless of the recipe's renderer.

Validation (run `rtl-distill problems validate CONFIG` first), history and resuming are not included. Tested with
cookbook 0.5.8; docs/learning.md explains how to install it beside our newer transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import chz
import tinker
from tinker_cookbook.rl.types import (
    Action,
    ActionExtra,
    Env,
    EnvGroupBuilder,
    RLDataset,
    RLDatasetBuilder,
    StepResult,
)

from rtl_core.backend.registry import backend_of
from rtl_core.config import RunConfig, load_config
from rtl_core.errors import ProblemError
from rtl_core.learning.curriculum import order_problems
from rtl_core.learning.reward import Graded, reward
from rtl_core.prompting.budget import Prompt, build_prompt
from rtl_core.prompting.chat import answer_text
from rtl_grader.exports.exported import judged
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.grading.cache import MemoryCache
from rtl_grader.grading.pool import GraderPool
from rtl_grader.problems.sources import load_problems
from rtl_grader.settings import executor_of, grader_of, graders_of
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Stage


class Workbench:
    """Objects shared by the environments of one process: tokenizer, grader and its threads."""

    def __init__(self, config: RunConfig) -> None:
        """Start the executor of the configuration. Raises what `executor_of` raises."""
        self.config = config
        self.tokenizer = backend_of(config).tokenizer(config, config.tinker.student)
        self.chat = config.prompting.chat(self.tokenizer, config.tinker.student)
        self.pool = GraderPool(
            grader_of(config.grading, executor_of(config.grading), cache=MemoryCache()),
            graders_of(config.grading),
        )


class RtlEnv(Env):
    """Single-use, single-turn environment for one answer to one problem."""

    def __init__(self, bench: Workbench, problem: Problem, prompt: Prompt) -> None:
        self._bench, self._problem, self._prompt = bench, problem, prompt

    async def initial_observation(self) -> tuple[tinker.ModelInput, list[int]]:
        return tinker.ModelInput.from_ints(self._prompt.tokens_P), self._stop

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        """Grade the answer. Raises InfrastructureError, for the recipe's rollout strategy to handle."""
        tokens_T = list(action)
        bench = self._bench
        text, ended = answer_text(bench.tokenizer, tokens_T, self._stop)
        text = bench.chat.opening(self._prompt.tokens_P) + text
        verdict = await judged(bench.pool, self._problem, answer_to(self._problem, text))
        graded = Graded(self._problem, verdict, text, tokens_T, "stop" if ended else "length")
        earned = reward(graded, bench.config.reward.weights)
        metrics: dict[str, float | int] = {
            **{
                f"{stage.value}_valid": float(verdict.stage(stage).status == "passed")
                for stage in list(Stage)[:3]
            },
            "tests_passed": float(verdict.passed),
        }
        return StepResult(
            reward=earned.total,
            episode_done=True,
            next_observation=tinker.ModelInput.empty(),
            next_stop_condition=self._stop,
            metrics=metrics,
            logs={
                "problem": self._problem.id,
                "outcome": verdict.outcome.value,
                "reasons": "; ".join(verdict.reasons),
            },
        )

    @property
    def _stop(self) -> list[int]:
        return list(self._bench.chat.stop)


@dataclass(frozen=True)
class RtlGroupBuilder(EnvGroupBuilder):
    """A group of `size` answers to one problem."""

    bench: Workbench
    problem: Problem
    prompt: Prompt
    size: int

    async def make_envs(self) -> Sequence[Env]:
        return [RtlEnv(self.bench, self.problem, self.prompt) for _ in range(self.size)]

    def logging_tags(self) -> list[str]:
        return [self.problem.source, self.problem.difficulty]


class RtlDataset(RLDataset):
    """Batches of groups in the order of the curriculum, repeated `epochs` times."""

    def __init__(
        self, groups: Sequence[RtlGroupBuilder], per_batch: int, epochs: int = 1
    ) -> None:
        self._groups, self._per_batch, self._epochs = list(groups), per_batch, epochs

    def __len__(self) -> int:
        return self._epochs * self._batches

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        start = index % self._batches * self._per_batch
        return self._groups[start : start + self._per_batch]

    @property
    def _batches(self) -> int:
        return -(-len(self._groups) // self._per_batch)


@chz.chz
class RtlDatasetBuilder(RLDatasetBuilder):
    """Training and held-out problems of one configuration."""

    config: str = "demo"
    """A TOML file, or the name of a shipped configuration."""
    overrides: tuple[str, ...] = ()
    """`section.key=value` texts that override the file."""
    groups_per_batch: int = 8
    group_size: int = 4
    heldout_group_size: int = 1
    """Answers per held-out problem in the recipe's evaluations."""
    epochs: int = 1

    async def __call__(self) -> tuple[RtlDataset, RtlDataset]:
        """Raises ProblemError if no problem fits the prompt budget, and what loading and the executor raise."""
        settings = load_config(self.config, self.overrides)
        bench = _workbench(settings.model_dump_json())
        loaded = load_problems(
            settings.problems.sources,
            settings.run.seed,
            settings.problems.split,
            exclude=settings.problems.exclude,
        )
        ordered = order_problems(loaded.train, settings.curriculum.order, settings.run.seed)
        train = self._groups(bench, ordered, self.group_size)
        heldout = self._groups(bench, loaded.heldout, self.heldout_group_size)
        if not train:
            raise ProblemError(
                "no training problem fits the prompt's budget",
                "raise prompting.max_prompt_tokens",
            )
        return RtlDataset(train, self.groups_per_batch, self.epochs), RtlDataset(
            heldout, self.groups_per_batch
        )

    def _groups(
        self, bench: Workbench, problems: Sequence[Problem], size: int
    ) -> list[RtlGroupBuilder]:
        section = bench.config.prompting
        groups = []
        for problem in problems:
            with suppress(
                ProblemError
            ):  # too long even without context; skipped as in our own runs
                prompt = build_prompt(
                    problem, bench.chat, section.template, section.max_prompt_tokens
                )
                groups.append(RtlGroupBuilder(bench, problem, prompt, size))
        return groups


@cache
def _workbench(config: str) -> Workbench:
    """Return the process's workbench for a configuration."""
    return Workbench(RunConfig.model_validate_json(config))
