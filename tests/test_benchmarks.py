"""Benchmarks that no other test starts run at their smallest size, so that the commands in the documentation work."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.rehearsal.faults import FAULTS
from benchmarks.weak_harness import BENCH, CHECKS, weakened
from rtl_core.starter import starter_problems
from rtl_core.tinymodels import model_path

STUDENT = str(model_path("student"))
MODEL = "--rounds 1 --prompts 1 --prompt-tokens 16 --group 2 --tokens 4 --sequences 4 --length 32 --steps 2"
DESIGN = "module inc(input clk, input [3:0] d, output reg [3:0] q); always @(posedge clk) q <= d + 1; endmodule"
COMMANDS = (
    "bridge --rounds 1 --answers 8 --step 1000",
    "consensus --sets starter --problems 1 --answers 4",
    "distributions --problems 1 --samples 2 --rounds 1",
    "equivalence --sets starter --starter 2 --mutants 1",
    "failure_levels --answers 12 --families counter,adder",
    "gpu_memory --rank 8",
    "grading --count 2 --rounds 1",
    "grading_service --grades 16 --rounds 1 --block 4",
    "harnesses {data}/cvdp-single/problems.jsonl --only cvdp_copilot_secure_ALU_0001",
    "hints demo-self --problems 2 --set problems.sources.0.train=2 --set problems.sources.0.heldout=1",
    "history --rollouts 400 --steps 1 --folder history",
    "integrity --every 240",
    "judge --count 4",
    "judge --mutants 1 --longest 2000",
    "localtinker --rounds 1 --prompts 2 --group 2 --tokens 8",
    f"localtinker --model {STUDENT} {MODEL}",
    "rehearsal --faults-a-run 3 --only 'a step twice' 'a poisoned step' '401, key refused'",
    "rehearsal --config verilog-9b --steps 4 --speed 200 --only '429, rate limit'",
    f"spans --problems 1 --samples 2 --teacher {STUDENT}",
    "starter_strength --specs 1 --families mux",
    "step --steps 2",
)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split(" --")[0])
def test_benchmark_runs(tmp_path, data, command):
    root = Path(__file__).parents[1]
    design = {"files": {"inc.v": DESIGN}, "top_module": "inc"}
    (tmp_path / "designs.jsonl").write_text(json.dumps(design))
    environment = {**os.environ, "PYTHONPATH": str(root), "RTL_DISTILL_DATA": str(data)}
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(f"benchmarks.{command.replace('{data}', str(data))}")],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_faults_of_a_rehearsal_have_unique_names_and_those_that_stop_a_run_say_so():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 44
    assert all(fault.sees for fault in FAULTS if fault.ends == "stops")


def test_a_weak_harness_makes_fewer_checks():
    problem = starter_problems("train", 1, 0)[0]
    assert f"self.checks <= {CHECKS}" in weakened(problem).harness[BENCH]


def test_the_history_benchmark_deletes_only_its_own_files(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    command = [
        sys.executable,
        "-m",
        "benchmarks.history",
        "store",
        "--steps",
        "1",
        "--folder",
        str(tmp_path),
    ]
    subprocess.run(command, check=True, capture_output=True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["hints", "no-such-configuration"], "error: "),
        (["failure_levels", "--families", "mux,no_such"], "no_such is none of"),
        (["history", "no_such"], "no_such is none of"),
    ],
)
def test_a_mistake_in_a_command_is_told_without_a_traceback(words, told):
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{words[0]}", *words[1:]],
        capture_output=True,
        text=True,
    )
    assert done.returncode
    assert told in done.stderr
    assert "Traceback" not in done.stderr
