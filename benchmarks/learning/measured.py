"""The result of one run as one line of JSON: pass and interface rates of each test problem, before and after."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rtl_core.history.store import History
from rtl_core.learning.passk import pass_at_k
from rtl_core.problems.starter.catalog import FAMILIES
from rtl_core.problems.starter.spec import Tier
from rtl_core.reporting.evaluations import INTERFACE_SQL, PROBLEMS_SQL

_FAMILY_SQL = "SELECT problem_id, family FROM run_problems WHERE run = $run AND split = 'heldout'"
_TURN_SQL = (
    "SELECT t.problem_id, count(*) FILTER (WHERE v.outcome = 'passed') AS passed FROM rollout_turns t JOIN verdicts v USING (rollout)"
    " WHERE t.run = $run AND t.base = $evaluation AND t.turn = 2 GROUP BY t.problem_id"
)


@dataclass(frozen=True)
class Rates:
    """Of each problem, by id: the share of its answers that passed, and that had the right interface."""

    passed: dict[str, float] = field(default_factory=dict)
    interface: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """What a run of one setting with one seed gave. A teacher's line has no `before`, and no steps."""

    setting: str
    tier: Tier
    seed: int
    steps: int
    recipe: str
    """Hash of the run's configuration: a result of another one is no result of this one."""
    before: Rates
    after: Rates
    families: dict[str, str]
    """Problem id -> family."""
    minutes: float
    samples: int = 1
    """Answers to each problem."""
    second_turn: dict[str, float] = field(default_factory=dict)
    """With refinement: problem id -> share of the answers that had passed by the end of the second turn, after training."""

    def figure(self, name: str) -> dict[str, float]:
        """Problem id -> `pass@1`, `pass@2` or `turn 2` after training. ValueError for another name."""
        if name == "pass@1":
            return self.after.passed
        if name == "pass@2":
            n = self.samples
            return {p: pass_at_k(n, round(rate * n), 2) for p, rate in self.after.passed.items()}
        if name == "turn 2":
            return self.second_turn
        raise ValueError(f"no figure is called {name!r}")

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> Measured:
        data: dict[str, Any] = json.loads(line)
        return cls(**{**data, "before": Rates(**data["before"]), "after": Rates(**data["after"])})


def read_rates(history: History, run: str, policy: str, tier: Tier) -> tuple[int, Rates, dict[str, str]]:
    """(steps, rates, families) of the newest finished evaluation of a policy, over the problems of the tier.

    Raises LookupError when there is none.
    """
    done = [e for e in history.evaluations(run) if e.status == "done" and e.policy == policy]
    if not done:
        raise LookupError(f"run {run} holds no finished evaluation of the {policy}")
    return _rates(history, run, done[-1].key, done[-1].step, tier)


def read_second_turn(history: History, run: str, tier: Tier) -> dict[str, float]:
    """Problem id -> share passed by the end of turn 2 in the newest evaluation of the student; empty for a single-shot run."""
    done = [e for e in history.evaluations(run) if e.status == "done" and e.policy == "student"]
    place = {"run": run, "evaluation": done[-1].key}
    found = {r["problem_id"]: r["passed"] for r in history.query(_TURN_SQL, place).to_pylist()}
    if not found:
        return {}
    rates = _rates(history, run, done[-1].key, done[-1].step, tier)[1]
    return {p: rate + found.get(p, 0) / done[-1].samples for p, rate in rates.passed.items()}


def read_before(history: History, run: str, tier: Tier) -> Rates:
    """Rates of the untrained student. Raises LookupError when it was not evaluated."""
    done = [e for e in history.evaluations(run) if e.status == "done" and e.policy == "student" and e.step == 0]
    if not done:
        raise LookupError(f"run {run} holds no finished evaluation of the untrained student")
    return _rates(history, run, done[0].key, 0, tier)[1]


def _rates(history: History, run: str, evaluation: str, step: int, tier: Tier) -> tuple[int, Rates, dict[str, str]]:
    ours = {family.name for family in FAMILIES[tier]}
    families = {
        row["problem_id"]: row["family"]
        for row in history.query(_FAMILY_SQL, {"run": run}).to_pylist()
        if row["family"] in ours
    }
    place = {"run": run, "evaluation": evaluation}
    passed = {r["problem_id"]: r["passed"] / r["samples"] for r in history.query(PROBLEMS_SQL, place).to_pylist()}
    interface = {r["problem_id"]: r["share"] for r in history.query(INTERFACE_SQL, place).to_pylist()}
    rates = Rates(
        {p: passed[p] for p in sorted(passed) if p in families},
        {p: interface[p] for p in sorted(interface) if p in families},
    )
    return step, rates, families


def read_lines(path: Path) -> list[Measured]:
    """Every result in a file of lines; none when there is no file. Lines of another version of this module are no results."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with suppress(TypeError, KeyError):
            found.append(Measured.from_json(line))
    return found
