"""Known faults of published problem sets, and which version of a set a problem is of.

Two files beside this one hold them. `editions.toml` has a table for each version of a set: problem -> beginning of
the digest of its texts. `errata.toml` lists faults, each of one version of a problem. So a problem with a known id
and other texts has no errata: the set was edited, or is of another version.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel

from rtl_grader.types.problem import Problem
from rtl_grader.words import counted


class Erratum(BaseModel, frozen=True, extra="forbid"):
    """A known fault of one problem."""

    problem: str
    """The problem's id."""
    version: str
    """The version of the set, a table of `editions.toml`, that has the fault."""
    fault: str
    """What is wrong, in a sentence."""
    said_by: str
    """Who says so."""
    link: str = ""
    """Where it is said; empty if only `validate` does."""

    def __str__(self) -> str:
        return f"{self.fault} ({self.said_by}{f', {self.link}' if self.link else ''})"


def errata_of(problem: Problem) -> tuple[Erratum, ...]:
    """Known faults of exactly this version of a problem; most have none."""
    version = version_of(problem)
    return tuple(one for one in _errata().get(problem.id, ()) if one.version == version)


def version_of(problem: Problem) -> str | None:
    """The published version that a problem is of; None for an unknown id or other texts."""
    digest = problem.edition or problem.fingerprint
    known = _editions().get(problem.id, ())
    return next((version for start, version in known if digest.startswith(start)), None)


def edited(problems: Iterable[Problem]) -> list[str]:
    """A sentence for each published version of which problems have the ids and other texts."""
    ids: dict[str, list[str]] = defaultdict(list)
    for problem in problems:
        known = _editions().get(problem.id, ())
        if known and version_of(problem) is None:
            ids[known[-1][1]].append(problem.id)
    return [
        f"{counted(len(names), 'problem')} with the ids of {version} and other texts ({', '.join(names[:3])}"
        f"{', ...' if len(names) > 3 else ''}): the set was edited or is of another version, and known faults "
        "do not apply"
        for version, names in ids.items()
    ]


@cache
def _errata() -> Mapping[str, list[Erratum]]:
    by_problem: dict[str, list[Erratum]] = defaultdict(list)
    for entry in table_of("errata")["erratum"]:
        erratum = Erratum.model_validate(entry)
        by_problem[erratum.problem].append(erratum)
    return by_problem


@cache
def _editions() -> Mapping[str, list[tuple[str, str]]]:
    """Problem -> (beginning of a digest, version) of each version that has the problem, oldest first."""
    by_problem: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for version, digests in table_of("editions").items():
        for problem, start in digests.items():
            by_problem[problem].append((start, version))
    return by_problem


def table_of(name: str) -> dict[str, Any]:
    """A TOML file of this package."""
    path = files("rtl_grader.problems") / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
