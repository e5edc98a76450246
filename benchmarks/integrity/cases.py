"""Cases: an attack and its honest twin on one problem, with all that a grader needs."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from benchmarks.redteam.attack import BASES, Attack
from benchmarks.redteam.catalogue import GROUPS
from benchmarks.redteam.problems import OWN, find, own

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


_CLASSES = tomllib.loads(Path(__file__).with_name("classes.toml").read_text(encoding="utf-8"))["classes"]


def cases(every: int = 1) -> list[Case]:
    """The attacks on problems that need no data set, every n-th of each class. The twin of an openly wrong design is the problem's known-good
    answer; the twin of any other attack is a right design with an idiom that looks like it."""
    found = []
    for one in _CLASSES:
        idioms, usable = one["idioms"], [attack for attack in GROUPS[one["group"]] if _usable(attack)]
        for number, attack in enumerate(usable[::every]):
            # The red team's own LFSR replaces CVDP's, so that the cases are the same on every machine.
            problem = find("own/lfsr" if attack.problem == "cvdp/lfsr" else attack.problem)
            assert problem is not None
            base = BASES.get(attack.problem)
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


def _usable(attack: Attack) -> bool:
    kind = attack.problem.partition("/")[0]
    there = kind == "starter" or attack.problem in own() or attack.problem == "cvdp/lfsr"
    has_twin = attack.problem in BASES or kind == "starter"  # starter problems have a known-good answer
    return there and has_twin and isinstance(attack.text, str) and attack.primed is None and not attack.honest
