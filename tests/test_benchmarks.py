"""Run benchmarks that no other test runs at their smallest size, so that every figure's command keeps working."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.rehearsal.faults import FAULTS
from rtl_core.tinymodels import model_path

STUDENT = str(model_path("student"))
MODEL = "--rounds 1 --prompts 1 --prompt-tokens 16 --group 2 --tokens 4 --sequences 4 --length 32 --steps 2"
COMMANDS = (
    "agreement --starter 1 --executors bubblewrap --data .",
    "consensus --sets starter --problems 1 --answers 4",
    "episode_throughput --at-once 2 --rate 5000",
    "episode_training --seeds 0 --arms tools --folder e --set problems.sources.0.train=2 --set problems.sources.0.heldout=2",
    "episodes --every 46",
    "equivalence --sets starter --starter 2 --mutants 1",
    "failure_levels --answers 24 --families counter,adder --cost",
    "grading --count 2 --rounds 1",
    "grading_service --grades 16 --rounds 1 --block 4",
    "hanging --hanging 1 --steps 1 --loads 1",
    "harnesses {data}/cvdp-single/problems.jsonl --only cvdp_copilot_secure_ALU_0001",
    "hints demo-self --problems 2 --set problems.sources.0.train=2 --set problems.sources.0.heldout=1",
    "history --rollouts 400 --steps 1 --folder history",
    "integrity --every 120",
    "localtinker --rounds 1 --prompts 2 --group 2 --tokens 8",
    f"localtinker --model {STUDENT} {MODEL}",
    "rehearsal --faults-a-run 6 --only 'a step twice' 'a positive score' 'NaN from the trainer' 'a poisoned step' 'session lost' '401, key refused'",
    "localtinker --start --rounds 1",
    "starter_strength --specs 1 --families mux",
    "step --steps 2",
    "step --staleness --steps 3 --factor 0.01",
    "weak_harness --seeds 0 --modes mask --epochs 1 --problems 16 --folder weak --set problems.sources.0.heldout=2 --set sampling.group_size=4",
)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split(" --")[0])
def test_a_benchmark_runs_through(tmp_path, data, command):
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root), "RTL_DISTILL_DATA": str(data)}
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(f"benchmarks.{command.replace('{data}', str(data))}")],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    # At this size steps do not overlap as they do in the cloud.
    assert done.returncode == 0 or "BREAKS its limit" in done.stdout, done.stdout + done.stderr


def test_faults_of_a_rehearsal_have_distinct_names_and_a_message_if_they_stop_the_run():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 44
    assert all(fault.sees for fault in FAULTS if fault.ends == "stops")
