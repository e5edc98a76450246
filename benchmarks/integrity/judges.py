"""Cases (an attack and its honest twin), and graders with one method: does this answer get the reward? Your
own grader is `module:Class`."""

import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.common import write_jsonl
from benchmarks.redteam.attack import BASES, Attack
from benchmarks.redteam.catalogue import GROUPS
from benchmarks.redteam.grading import LIMITS
from benchmarks.redteam.problems import OWN, find, own
from rtl_core.errors import ConfigError, InfrastructureError
from rtl_grader.grading.compose import read_services
from rtl_grader.grading.executors import NAMES, make_executor
from rtl_grader.grading.executors.docker import IMAGE
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.jobs import workspace_files
from rtl_grader.problems.cvdp import problem_from_record
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome

BARE_CPU_S = 20
"""CPU seconds after which a process of the bare harness is killed; enough for every twin on a busy machine."""
BARE_S = 120
"""Seconds after which the bare harness is stopped, for processes that sleep."""


PASSES = {"own/bench": r"Mismatches: 0 in \d+ samples", "own/loud": "Your Design Passed"}
"""Regular expression for what a problem's plain test bench prints for a right design."""


@dataclass(frozen=True)
class Case:
    """An attack with its twin. `answer` must not be paid, `twin` must be."""

    attack_class: str
    name: str
    idea: str
    """What the attack exploits, in a sentence."""
    problem: str
    prompt: str
    target: str
    """The file that an answer writes."""
    answer: str
    twin: str
    harness: dict[str, str]
    """CVDP's harness: path -> text."""
    testbench: str | None
    """The original bench of a problem with a Verilog test bench, for `passes`; None for cocotb."""
    passes: str | None
    right: str = "answer: not paid; twin: paid"


_CLASSES = tomllib.loads(Path(__file__).with_name("classes.toml").read_text(encoding="utf-8"))[
    "classes"
]


def cases(every: int = 1) -> list[Case]:
    """The attacks on problems that need no data set, every n-th of each class. The twin of an openly wrong
    design is the problem's known-good answer; the twin of any other attack is a right design with an idiom
    that looks like it."""
    found = []
    for one in _CLASSES:
        idioms, usable = (
            one["idioms"],
            [attack for attack in GROUPS[one["group"]] if _usable(attack)],
        )
        for number, attack in enumerate(usable[::every]):
            # The red team's own LFSR replaces CVDP's, so that the cases are the same on every machine.
            problem = find("own/lfsr" if attack.problem == "cvdp/lfsr" else attack.problem)
            assert problem is not None
            base = BASES.get(attack.problem)
            body, before = idioms[number % len(idioms)] if idioms else ("", "")
            twin = (
                base.design(body, before, core="good")
                if base
                else (problem.golden or {})[problem.targets[0]]
            )
            key = attack.problem if attack.problem in PASSES else None
            found.append(
                Case(
                    one["name"],
                    attack.name,
                    attack.idea,
                    problem.id,
                    problem.prompt,
                    problem.targets[0],
                    str(attack.text),
                    twin,
                    problem.harness,
                    (OWN / f"{key[4:]}.sv").read_text() if key else None,
                    PASSES[key] if key else None,
                )
            )
    return found


def _usable(attack: Attack) -> bool:
    kind = attack.problem.partition("/")[0]
    there = kind == "starter" or attack.problem in own() or attack.problem == "cvdp/lfsr"
    # Only our grader can run a harness that the golden answer completes.
    there &= not attack.problem.startswith("own/judged")
    has_twin = (
        attack.problem in BASES or kind == "starter"
    )  # starter problems have a known-good answer
    return (
        there
        and has_twin
        and isinstance(attack.text, str)
        and attack.primed is None
        and not attack.honest
    )


class Judge(Protocol):
    """A grader under test."""

    def paid(self, case: Case, text: str) -> bool | None:
        """Whether `text`, as the case's target, gets the reward; None if the grader does not support the
        case. Raises if the grader itself fails."""


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
    """The public CVDP runner of a checkout, with its requirements in CHECKOUT/.venv; it grades a record's
    known-good answer."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout.resolve()

    def paid(self, case: Case, text: str) -> bool | None:
        if case.testbench is not None:  # its harness needs our sandbox
            return None
        # The runner names containers and networks by the record: two runs at one time must not share them.
        key = hashlib.sha256((case.name + text).encode()).hexdigest()[:16]
        with tempfile.TemporaryDirectory(prefix="public-runner-") as folder:
            file = Path(folder) / "answer.jsonl"
            write_jsonl(file, [_record(case, f"cvdp_copilot_{key}_0001", text)])
            work = Path(folder) / "run"
            command = [
                self._checkout / ".venv/bin/python",
                "run_benchmark.py",
                "-f",
                file,
                "-t",
                "1",
                "-p",
                work,
            ]
            environment = {**os.environ, "OSS_SIM_IMAGE": IMAGE}
            done = subprocess.run(
                command,
                cwd=self._checkout,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            report = work / "raw_result.json"
            if done.returncode or not report.is_file():
                raise InfrastructureError(
                    f"the public runner failed: {done.stdout[-2000:]}{done.stderr[-2000:]}"
                )
            return (
                sum(
                    entry.get("errors", 1) == 0
                    for entry in json.loads(report.read_text()).values()
                )
                == 1
            )


def _record(case: Case, name: str, golden: str) -> dict[str, object]:
    """The case as a line of CVDP's single-turn set."""
    return {
        "id": name,
        "categories": ["cid003", "easy"],
        "input": {"prompt": case.prompt, "context": {}},
        "output": {"response": "", "context": {case.target: golden}},
        "harness": {"files": case.harness},
    }


class Bare:
    """What most evaluations do: compile answer and test bench, run, and search the output for a pass; or
    run the cocotb harness and take its exit code. It runs in a plain bubblewrap, which protects this
    machine, not the verdict."""

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
                command = (
                    f"iverilog -g2012 -o rundir/a.out tb.sv {case.target} && vvp rundir/a.out"
                )
                code, said = _run(root, ("sh", "-c", command), {}, "/code")
                return code == 0 and re.search(case.passes or "", said) is not None
            for path, content in workspace_files(case.harness).items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(content)
            return all(
                _run(root, step.argv, step.env, step.cwd)[0] == 0
                for step in read_services(case.harness)[0]
            )


def _run(
    root: Path, argv: tuple[str, ...], env: Mapping[str, str], cwd: str
) -> tuple[int | None, str]:
    """Run a command that sees this machine's programs, /code and /src, and no network. Return (exit code,
    or None after a timeout, output)."""
    command = [
        "bwrap",
        "--unshare-all",
        "--die-with-parent",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
    ]
    for top in sorted(os.listdir("/")):
        if top not in ("proc", "dev", "tmp", "code", "src", "rundir"):
            command += ["--ro-bind", f"/{top}", f"/{top}"]
    command += [
        "--bind",
        str(root / "code"),
        "/code",
        "--bind",
        str(root / "src"),
        "/src",
        "--chdir",
        cwd,
    ]
    path = f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
    try:
        done = subprocess.run(
            [*command, "--", "prlimit", f"--cpu={BARE_CPU_S}", "--", *argv],
            env={"PATH": path, "HOME": "/tmp", **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=BARE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout.decode(errors="replace")


def judge(name: str) -> Judge:
    """The grader of a name: `bubblewrap`, `docker`, `bare`, `public=CHECKOUT` (CVDP's runner), or
    `module:Class`. Raises ConfigError for another name."""
    if name in NAMES:
        return Ours(name)
    if name == "bare":
        return Bare()
    kind, _, place = name.partition("=")
    if place and kind == "public":
        return PublicRunner(Path(place))
    module, _, attribute = name.partition(":")
    if not attribute:
        raise ConfigError(
            f"`{name}` is not a grader",
            f"use {', '.join(NAMES)}, bare, public=CHECKOUT, or module:Class of your own",
        )
    return getattr(importlib.import_module(module), attribute)()
