"""The experiments of the matrix."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.learning import experiments
from rtl_core.config import load_config
from rtl_core.history.records import StoredRollout
from rtl_core.learning.reward import Graded
from rtl_core.types.problem import Interface, InterfaceSource, Port, Problem
from rtl_core.types.rollout import Rollout
from rtl_core.types.verdict import InterfaceMismatch, MismatchKind, Outcome, Stage, StageResult, Verdict

PORTS = tuple(Port(name=name, direction="input", width=1) for name in ("a", "b", "y", "z"))
PROBLEM = Problem(
    id="p", source="starter", category="cid003", difficulty="easy", prompt="p", targets=("rtl/a.sv",), harness={},
    interface=Interface(module="m", ports=PORTS, source=InterfaceSource.GOLDEN),
)  # fmt: skip


def right_ports(outcome: Outcome, *mismatches: tuple[MismatchKind, str], failing: tuple[str, ...] = ()) -> float:
    verdict = Verdict(
        outcome=outcome,
        stages=(StageResult(stage=Stage.TESTS, status="failed", reasons=failing),),
        mismatches=tuple(InterfaceMismatch(kind=kind, name=name) for kind, name in mismatches),
        executor="bubblewrap",
    )
    return experiments.signals(Graded(PROBLEM, verdict, "x", (1,), "stop"))


def test_the_ports_that_nothing_is_wrong_with_are_paid() -> None:
    missing, extra = (MismatchKind.MISSING_PORT, "a"), (MismatchKind.EXTRA_PORT, "c")
    assert right_ports(Outcome.PASSED) == 1.0
    assert right_ports(Outcome.INTERFACE_MISMATCH, missing) == 0.75
    assert right_ports(Outcome.INTERFACE_MISMATCH, missing, extra) == 0.6
    assert right_ports(Outcome.INTERFACE_MISMATCH, (MismatchKind.WRONG_MODULE, "m")) == 0.0
    assert right_ports(Outcome.COMPILE_FAILED) == 0.0


def test_an_output_that_a_failing_check_names_is_wrong() -> None:
    failing = (
        "test_random: after a rising clock edge, a=0x1, b=0x0: y is 0x10, expected 0110",
        "test_reset: in reset, a=0x1: z is 1, expected 0",
    )
    assert right_ports(Outcome.TESTS_FAILED, failing=failing) == 0.5
    # A check that names no output, as one of a lint service: something is wrong.
    assert right_ports(Outcome.TESTS_FAILED, failing=("lint: 3 warnings",)) == 0.75


def test_only_the_least_sure_tokens_are_trained_on() -> None:
    logprobs = (-0.1, -2.0, -0.2, -0.3, -1.0, -0.1)
    rollout = Rollout(
        run="r", purpose="train", epoch=0, step=0, problem_id="p", sample=0, prompt_P=(1,), tokens_T=tuple(range(6)),
        logprobs_T=logprobs, stop_reason="stop", text="x", policy_step=0,
    )  # fmt: skip
    algorithm = experiments.LeastSure(load_config("demo", environment={}))
    # A fifth of six tokens, rounded up.
    assert algorithm.advantages_T(StoredRollout(rollout), 0.5, 0.0).tolist() == pytest.approx([0, 0.5, 0, 0, 0.5, 0])
    assert np.count_nonzero(algorithm.advantages_T(StoredRollout(rollout), 0.0, 0.0)) == 0
