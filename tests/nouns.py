"""Factories of domain objects with defaults; a test only sets the fields that matter to it."""

from pathlib import Path
from typing import Any

from rtl_core.config import RunConfig, load_config
from rtl_core.errors import InfrastructureError
from rtl_core.starter import BY_NAME, Spec
from rtl_core.types.rollout import Rollout
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome, Verdict


def a_problem(**given: Any) -> Problem:
    """A problem `p` with the target `rtl/m.sv`, without harness and golden answer."""
    made = {
        "id": "p",
        "source": "cvdp",
        "category": "cid003",
        "difficulty": "easy",
        "prompt": "p",
        "harness": {},
    }
    return Problem(**{**made, "targets": ("rtl/m.sv",), **given})


COMPOSE = """services:
  direct:
    image: __OSS_SIM_IMAGE__
    env_file: ./src/.env
    command: {}
"""
"""A harness' docker-compose.yml of one service, without its command."""


def read_problem(**given: Any) -> Problem:
    """A problem as CVDP's reader returns it: with the interface that is derived from its texts."""
    from rtl_core.synthesis.variants import record_of
    from rtl_grader.problems.cvdp import problem_from_record

    return problem_from_record(record_of(a_problem(**given)), source="cvdp")


def a_verdict(outcome: Outcome, *reasons: str, **given: Any) -> Verdict:
    """A verdict without stages from the executor `test`."""
    return Verdict(
        outcome=outcome, reasons=reasons, **{"stages": (), "executor": "test", **given}
    )


def demo(folder: Path, *overrides: str, train: int = 2, heldout: int = 1) -> RunConfig:
    """The demo's configuration with few problems, whose run writes into `folder`."""
    places = (f"run.directory={folder}", f"run.history={folder / 'history.duckdb'}")
    sizes = (f"problems.sources.0.train={train}", f"problems.sources.0.heldout={heldout}")
    return load_config("demo", [*places, *sizes, *overrides], environment={})


class NoExecutor:
    """In place of a session's executor, for tests without gradings: it starts no process, and every job fails."""

    name, slots, cpu_s, derives_images = "none", 1, 0.0, False

    def tools(self) -> dict[str, str]:
        return {}

    def has_module(self, name: str) -> bool:
        return True

    def run(self, job: Any) -> Any:
        raise InfrastructureError("the disk is full")

    def close(self) -> None:
        pass


def a_rollout(**given: Any) -> Rollout:
    """An answer of one token in the first step of the run `r`, to the problem `p`."""
    made = {
        "run": "r",
        "purpose": "train",
        "epoch": 0,
        "step": 0,
        "problem_id": "p",
        "sample": 0,
        "text": "x",
    }
    tokens = {"prompt_P": (1,), "tokens_T": (2,), "logprobs_T": (-0.5,), "stop_reason": "stop"}
    return Rollout(**{**made, **tokens, "policy_step": given.get("step", 0), **given})


def golden_answer(spec: Spec) -> str:
    """Verilog that fulfils the specification."""
    return BY_NAME[spec.family].code(spec)


def textbook_answer(spec: Spec) -> str:
    """Verilog that a textbook would show instead: correct behaviour, but the textbook's interface and defaults."""
    family = BY_NAME[spec.family]
    return family.code(family.textbook_spec(spec))
