"""The configuration sections `[grading]` and `[reward]`: how answers are graded and rewarded."""

from __future__ import annotations

import importlib
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from rtl_core.learning.reward import TERMS
from rtl_core.types.section import Section


class GradingSection(Section):
    executor: Literal["bubblewrap", "docker"] = "bubblewrap"
    """Sandbox for simulators: `bubblewrap` with this machine's tools, or `docker` with an image."""
    image: str = "rtl-distill-sim"
    """Image for `docker`: ours (`make sim-image`), or another one with the same tools and cocotb 2, such as the public benchmark's."""
    workers: Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=r"^dask://[^\s/]+:\d+$")] = 0
    """Number of answers graded in parallel on this machine (0: one per core), or the scheduler of a Dask cluster, `dask://host:port`."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Timeout of one harness service, in seconds. Counts computing and sleeping, not waiting for a busy machine. CVDP uses 600."""
    cpu_s: float = Field(default=60.0, gt=0)
    """CPU limit of one harness service, in seconds summed over its processes."""
    cpu_floor_s: float = Field(default=2.0, gt=0)
    """An answer may use `cpu_factor` times the CPU time of the known-good answer, or of the slowest passing answer if there is none. The limit
    is at least this many seconds and at most `cpu_s`. Before any answer has passed it is `cpu_s`."""
    cpu_factor: float = Field(default=10.0, ge=1)
    """How many times slower than the known-good answer an answer may simulate. See `cpu_floor_s`."""
    memory_mb: int = Field(default=4096, ge=256)
    """Memory limit of a harness, in MiB."""
    disk_mb: int = Field(default=512, ge=8)
    """Maximum disk space of a harness, in MiB."""
    processes: int = Field(default=128, ge=16)
    """Maximum number of concurrent processes of a harness."""
    seed: int = Field(default=1, ge=0)
    """Seed passed to every harness (COCOTB_RANDOM_SEED), so that the same answer gets the same verdict."""
    seeds: int = Field(default=3, ge=1, le=15)
    """For problems without a golden answer: number of seeds that decide by majority on an answer that fails a harness with random stimuli.
    Some such harnesses fail correct designs under some seeds. 1: only the first seed."""
    retries: int = Field(default=3, ge=0)
    """How often grading is retried after an infrastructure error before the run stops."""
    until: Literal["format", "interface", "syntax", "tests"] = "tests"
    """Last grading stage in training, for early steps. The reward counts stages up to it. Evaluations always run the tests."""
    until_steps: int = Field(default=0, ge=0)
    """Number of initial steps to which `until` applies. Later steps run the tests. 0: all steps."""

    def last_stage(self, purpose: str, step: int) -> str:
        """Return the last grading stage of a batch: `until` in the training steps that it applies to, otherwise `tests`."""
        early = self.until_steps == 0 or step < self.until_steps
        return self.until if purpose == "train" and early else "tests"


class RewardSection(Section):
    plugins: tuple[str, ...] = ()
    """Python modules with your own reward terms (see `rtl_core/learning/reward.py`). They must be importable wherever the run executes."""
    weights: dict[str, float] = Field(
        default_factory=lambda: {"format": 0.1, "interface": 0.2, "syntax": 0.3, "tests": 1.0}
    )
    """Weight of each reward term. Terms not listed have weight 0 and are only recorded."""

    @property
    def pays_size(self) -> bool:
        """Whether a term with a non-zero weight needs the synthesised netlist."""
        return any(weight and TERMS[name].netlist for name, weight in self.weights.items())

    @field_validator("plugins")
    @classmethod
    def _import(cls, modules: tuple[str, ...]) -> tuple[str, ...]:
        """Import each module, which registers its terms."""
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
        if unknown and "plugins" in info.data:  # otherwise the failed import is reported
            raise ValueError(f"unknown reward term {', '.join(unknown)}; known: {', '.join(TERMS)}")
        if not any(weights.values()):
            raise ValueError("all reward weights are 0, so nothing would be learnt; give at least one term a weight")
        return weights
