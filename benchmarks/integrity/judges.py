"""Graders behind one method: does this answer get the reward? A grader of your own is `module:Class`, made without arguments."""

import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import httpx

from benchmarks import public_runner
from benchmarks.integrity.cases import Case
from benchmarks.redteam.grading import LIMITS
from rtl_core.errors import ConfigError, InfrastructureError
from rtl_core.grading.compose import read_services
from rtl_core.grading.executors import NAMES, make_executor
from rtl_core.grading.grader import Grader
from rtl_core.grading.jobs import workspace_files
from rtl_core.problems.cvdp import problem_from_record
from rtl_core.types.answer import Answer
from rtl_core.types.verdict import Outcome

BARE_CPU_S = 20
"""CPU seconds of a process after which the bare harness gives up: a busy machine must lose no twin."""
BARE_S = 120
"""Seconds after which it gives up on what sleeps."""


class Judge(Protocol):
    """A grader under test."""

    def paid(self, case: Case, text: str) -> bool | None:
        """Whether `text`, written to the case's target, gets the reward; None where the grader cannot be asked about the case. Raises
        where the grader itself failed."""


class Ours:
    """The project's grader in one of its executors."""

    def __init__(self, executor: str) -> None:
        self._grader = Grader(make_executor(executor), limits=LIMITS)

    def paid(self, case: Case, text: str) -> bool:
        problem = problem_from_record(_record(case, case.problem, ""), source="integrity")
        verdict = self._grader.grade(problem, Answer(files={case.target: text}))
        if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
            raise InfrastructureError("; ".join(verdict.reasons))
        return verdict.passed


class PublicRunner:
    """The public CVDP runner of a checkout (`benchmarks/public_runner.py` says what it needs), which grades a record's known-good answer."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout.resolve()

    def paid(self, case: Case, text: str) -> bool | None:
        if case.testbench is not None:  # its harness needs our sandbox
            return None
        # The runner names containers and networks by the record: two runs at one time must not share them.
        key = hashlib.sha256((case.name + text).encode()).hexdigest()[:16]
        with tempfile.TemporaryDirectory(prefix="public-runner-") as folder:
            file = Path(folder) / "answer.jsonl"
            file.write_text(json.dumps(_record(case, f"cvdp_copilot_{key}_0001", text)) + "\n")
            return public_runner.run(self._checkout, file, 1)[1] == 1


def _record(case: Case, name: str, golden: str) -> dict[str, object]:
    """The case as a line of CVDP's single-turn set."""
    return {
        "id": name,
        "categories": ["cid003", "easy"],
        "input": {"prompt": case.prompt, "context": {}},
        "output": {"response": "", "context": {case.target: golden}},
        "harness": {"files": case.harness},
    }


class NemoGymCvdp:
    """NeMo Gym's CVDP server at an address, as `gym env start` prints it; it grades the files beside a response."""

    def __init__(self, address: str) -> None:
        self._http = httpx.Client(base_url=address, timeout=None)

    def paid(self, case: Case, text: str) -> bool | None:
        if case.testbench is not None:  # its harness needs our sandbox
            return None
        content = [{"type": "output_text", "text": text, "annotations": []}]
        message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
        response = {"id": "r", "object": "response", "created_at": 0, "model": "", "output": [message], "tools": []}
        metadata = {"task_id": case.problem, "categories": ["cid003", "easy"], "target_files": [case.target]}
        asked = {
            "responses_create_params": {"input": case.prompt},
            "response": {**response, "parallel_tool_calls": False, "tool_choice": "auto"},
            "verifier_metadata": {**metadata, "harness_files": case.harness},
            "rtl_files": {case.target: text},
        }
        reply = self._http.post("/verify", json=asked).raise_for_status().json()
        if str(reply["container_stderr"]).startswith("sandbox"):
            raise InfrastructureError(reply["container_stderr"])
        return reply["reward"] == 1.0


class Bare:
    """What most evaluations do: compile answer and test bench together, run, search the output for the words of a pass; or run the
    cocotb harness and take its exit code. It runs in a plain bubblewrap, for the sake of this machine and not of the verdict."""

    def paid(self, case: Case, text: str) -> bool:
        with tempfile.TemporaryDirectory(prefix="bare-") as folder:
            root = Path(folder)
            for place in ("code/rtl", "code/rundir", "src"):
                (root / place).mkdir(parents=True)
            target = root / "code" / case.target
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            if case.testbench is not None:
                (root / "code/tb.sv").write_text(case.testbench)
                command = f"iverilog -g2012 -o rundir/a.out tb.sv {case.target} && vvp rundir/a.out"
                code, said = _run(root, ("sh", "-c", command), {}, "/code")
                return code == 0 and re.search(case.passes or "", said) is not None
            for path, content in workspace_files(case.harness).items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(content)
            services, _ = read_services(case.harness)
            return all(_run(root, step.argv, step.env, step.cwd)[0] == 0 for step in services)


def _run(root: Path, argv: tuple[str, ...], env: Mapping[str, str], cwd: str) -> tuple[int | None, str]:
    """(exit code, or None when time ran out, and output) of a command that sees this machine's programs, /code and /src, and no network."""
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for top in sorted(os.listdir("/")):
        if top not in ("proc", "dev", "tmp", "code", "src", "rundir"):
            command += ["--ro-bind", f"/{top}", f"/{top}"]
    command += ["--bind", str(root / "code"), "/code", "--bind", str(root / "src"), "/src", "--chdir", cwd]
    path = f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
    try:
        done = subprocess.run(
            [*command, "--", "prlimit", f"--cpu={BARE_CPU_S}", "--", *argv], env={"PATH": path, "HOME": "/tmp", **env}, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=BARE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout.decode(errors="replace")


def judge(name: str) -> Judge:
    """`bubblewrap` and `docker` are ours, `bare` is the plain harness, `public=CHECKOUT` CVDP's runner, `nemo-gym=URL` a
    server. Raises ConfigError for another name."""
    if name in NAMES:
        return Ours(name)
    if name == "bare":
        return Bare()
    kind, _, place = name.partition("=")
    if place and kind == "public":
        return PublicRunner(Path(place))
    if place and kind == "nemo-gym":
        return NemoGymCvdp(place)
    module, _, attribute = name.partition(":")
    if not attribute:
        raise ConfigError(
            f"`{name}` is no grader",
            f"use {', '.join(NAMES)}, bare, public=CHECKOUT, nemo-gym=URL, or module:Class of your own",
        )
    return getattr(importlib.import_module(module), attribute)()
