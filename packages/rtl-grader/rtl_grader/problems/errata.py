"""Known faults of published problem sets: read from the file `errata.toml` beside this one, whose head explains
its keys.

A fault belongs to the exact texts in which it was seen. A problem that has a known id and other texts has no
errata: the set was edited, or is of another version.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict

from rtl_grader.types.problem import Problem


class Erratum(BaseModel):
    """A known fault of one problem."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    problem: str
    """The problem's id."""
    digests: tuple[str, ...]
    """Beginnings of the digests of the texts that have the fault."""
    fault: str
    """What is wrong, in a sentence."""
    said_by: str
    """Who says so."""
    link: str = ""
    """Where it is said; empty if only `validate` says so."""


def errata_of(problem: Problem) -> tuple[Erratum, ...]:
    """Known faults of exactly this version of a problem; most have none."""
    known = _errata().get(problem.id, ())
    return tuple(one for one in known if problem.fingerprint.startswith(one.digests))


@cache
def _errata() -> Mapping[str, list[Erratum]]:
    text = (files("rtl_grader.problems") / "errata.toml").read_text(encoding="utf-8")
    by_problem: dict[str, list[Erratum]] = defaultdict(list)
    for entry in tomllib.loads(text)["erratum"]:
        erratum = Erratum.model_validate(entry)
        by_problem[erratum.problem].append(erratum)
    return by_problem
