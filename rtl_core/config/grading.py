"""The sections of a configuration about how answers are graded, and what a verdict is worth."""

from __future__ import annotations

import importlib
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from rtl_core.learning.reward import TERMS
from rtl_core.types.section import Section


class GradingSection(Section):
    executor: Literal["bubblewrap", "docker"] = "bubblewrap"
    """Where simulators run: `bubblewrap` with this machine's tools, or `docker` with an image."""
    image: str = "rtl-distill-sim"
    """The image of `docker`: ours (`make sim-image`), or another with its tools and cocotb 2, such as the public benchmark's own."""
    workers: Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=r"^dask://[^\s/]+:\d+$")] = 0
    """Answers graded at once on this machine, 0 for one per core; or `dask://host:port`, the scheduler of a Dask cluster."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Limit of one service of a harness, in seconds in which it computes or sleeps: what a busy machine keeps from it is not counted.
    CVDP's own is 600."""
    cpu_s: float = Field(default=60.0, gt=0)
    """CPU limit of one service of a harness, in seconds of all its processes together."""
    cpu_floor_s: float = Field(default=2.0, gt=0)
    """An answer may use `cpu_factor` times the CPU seconds of the known-good answer (of the slowest that passed, where there is none), but
    never less than these seconds and never more than `cpu_s`. Where nothing has passed yet, `cpu_s` alone holds."""
    cpu_factor: float = Field(default=10.0, ge=1)
    """See `cpu_floor_s`: how many times slower to simulate than the known-good answer an answer may be."""
    memory_mb: int = Field(default=4096, ge=256)
    """Memory limit of a harness, in MiB."""
    disk_mb: int = Field(default=512, ge=8)
    """How much a harness may write, in MiB."""
    processes: int = Field(default=128, ge=16)
    """How many processes a harness may have at once."""
    seed: int = Field(default=1, ge=0)
    """Seed handed to every harness (COCOTB_RANDOM_SEED), so that the same answer gets the same verdict."""
    seeds: int = Field(default=3, ge=1, le=15)
    """How many seeds decide by majority on an answer that fails a harness with random stimuli, for problems without a golden
    answer: some such harnesses fail right designs under some seeds. 1: the first seed alone."""
    retries: int = Field(default=3, ge=0)
    """How often a rollout is graded again after an infrastructure error before the run stops."""
    until: Literal["format", "interface", "syntax", "tests"] = "tests"
    """Last stage that training grades, for early training; the reward counts stages up to there. Evaluations grade to the tests."""
    until_steps: int = Field(default=0, ge=0)
    """For how many steps from the first on `until` holds, after which training grades to the tests; 0 for all."""

    def last_stage(self, purpose: str, step: int) -> str:
        """The last stage that a batch is graded to: the tests, but for the steps of training that `until` holds for."""
        early = self.until_steps == 0 or step < self.until_steps
        return self.until if purpose == "train" and early else "tests"


class RewardSection(Section):
    plugins: tuple[str, ...] = ()
    """Python modules with reward terms of your own (`rtl_core/learning/reward.py` shows one), importable where the run works."""
    weights: dict[str, float] = Field(
        default_factory=lambda: {"format": 0.1, "interface": 0.2, "syntax": 0.3, "tests": 1.0}
    )
    """Weight of each term; the others are stored with weight 0."""

    @property
    def pays_size(self) -> bool:
        """Whether a term with a weight reads what synthesis makes of an answer."""
        return any(weight and TERMS[name].netlist for name, weight in self.weights.items())

    @field_validator("plugins")
    @classmethod
    def _import(cls, modules: tuple[str, ...]) -> tuple[str, ...]:
        """To import a module is to register the terms that it holds."""
        for name in modules:
            try:
                importlib.import_module(name)
            except Exception as error:
                remedy = "; install it, or add its folder to PYTHONPATH" if isinstance(error, ImportError) else ""
                raise ValueError(f"cannot import {name}: {type(error).__name__}: {error}{remedy}") from error
        return modules

    @field_validator("weights")
    @classmethod
    def _known_terms(cls, weights: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        unknown = sorted(set(weights) - set(TERMS))
        if unknown and "plugins" in info.data:  # without its modules a term is not known, and they are the error
            raise ValueError(f"unknown reward term {', '.join(unknown)}; known: {', '.join(TERMS)}")
        if not any(weights.values()):
            raise ValueError("all reward weights are 0: nothing could be learnt; give at least one term a weight")
        return weights
