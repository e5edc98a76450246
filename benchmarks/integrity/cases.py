"""The noun *case*: an attack and its honest twin on one problem, with all that a grader needs."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.redteam.attack import BASES, Attack
from benchmarks.redteam.catalogue import GROUPS
from benchmarks.redteam.problems import OWN, find, own
from rtl_core.types.problem import Problem

PASSES = {"own/bench": r"Mismatches: 0 in \d+ samples", "own/loud": "Your Design Passed"}
"""What the plain test bench of a problem prints for a right design, as a regular expression."""


@dataclass(frozen=True)
class Case:
    """One attack with its twin. The right verdicts: `answer` is not paid, `twin` is."""

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
    """For a problem that a Verilog test bench judges: the bench as it was written, with `passes`; None where cocotb judges."""
    passes: str | None
    right: str = "answer: not paid; twin: paid"


_CLASSES = tomllib.loads(Path(__file__).with_name("classes.toml").read_text(encoding="utf-8"))["classes"]


def cases(every: int = 1) -> list[Case]:
    """The attacks on problems that need no data set, every n-th of each class. The twin of a design that is wrong in the open is the
    problem's known-good answer; that of any other attack is a right design with an idiom that looks like it."""
    found = []
    for one in _CLASSES:
        idioms, usable = one["idioms"], [attack for attack in GROUPS[one["group"]] if _usable(attack)]
        for number, attack in enumerate(usable[::every]):
            problem, base = _problem(attack.problem), BASES.get(attack.problem)
            body, before = idioms[number % len(idioms)] if idioms else ("", "")
            twin = base.design(body, before, core="good") if base else (problem.golden or {})[problem.targets[0]]
            key = attack.problem if attack.problem in PASSES else None
            found.append(
                Case(
                    one["name"], attack.name, attack.idea, problem.id, problem.prompt, problem.targets[0], str(attack.text), twin,
                    problem.harness, (OWN / f"{key[4:]}.sv").read_text() if key else None, PASSES[key] if key else None,
                )
            )  # fmt: skip
    return found


def _problem(key: str) -> Problem:
    """The red team's own LFSR stands for CVDP's, so that the cases are the same on every machine."""
    problem = own()["own/lfsr"] if key == "cvdp/lfsr" else find(key)
    assert problem is not None
    return problem


def _usable(attack: Attack) -> bool:
    kind = attack.problem.partition("/")[0]
    there = kind == "starter" or attack.problem in own() or attack.problem == "cvdp/lfsr"
    has_twin = attack.problem in BASES or kind == "starter"  # these come with their known-good answer
    return there and has_twin and isinstance(attack.text, str) and attack.primed is None and not attack.honest


def write(path: Path, found: Sequence[Case]) -> None:
    """The cases as JSON Lines."""
    path.write_text("".join(json.dumps(asdict(case)) + "\n" for case in found))
