"""The card of an evaluation: its figures and what they depend on, as one JSON file.

It is sealed like a verdict record (`sums`, `digest`) and names the beginning of the digest of every record behind
it; the records are in a file beside it. A seal is not a signature: checking.py says what follows from the records.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    model_validator,
)

from rtl_core.config.episode import Bounds
from rtl_core.errors import ProblemError
from rtl_core.reporting.breakdown import Slice, slices
from rtl_core.reporting.text import figure_kind, leaves
from rtl_grader.digest import sha256_of
from rtl_grader.grading.verdict_record import Record, changed_fields, sealed
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome

VERSION = 1
"""The version of the format that this code writes, and the newest that it reads."""
OF_RUN = "the settings of the run"
"""Name of the protocol of a run's own evaluations: it may train, and only a part of its problems is held out."""
WHOLE = "all: all problems"
"""Name of the figures over all problems."""
_LABELS = {"source", "category", "difficulty", "family"}
"""Fields of a problem that stand in its card."""
_HINT = "`rtl-distill evaluate --card` writes cards as .json; records end in .jsonl"


class GradedProblem(BaseModel):
    """A problem and the verdicts on its answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    source: str
    category: str
    difficulty: str
    family: str | None = None
    errata: str = ""
    """Known faults of this version of the problem, when it was evaluated."""
    fingerprint: str
    passed: int
    verdicts: dict[int, str] = Field(min_length=1)
    """Sample -> beginning of the digest of its record."""

    @property
    def count(self) -> tuple[int, int]:
        """Numbers of samples and passes."""
        return len(self.verdicts), self.passed


class Protocol(BaseModel):
    """How answers were asked for and graded."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    hash: str
    """SHA-256 (hex) of `settings`."""
    departs: list[str]
    """What differs from the protocol's file."""
    settings: dict[str, Any]
    """All on which the figures depend, besides model and problems."""


class Card(BaseModel):
    """One evaluation, from which a reader can tell what its figure means."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    card: PositiveInt = VERSION
    model: dict[str, str | int]
    protocol: Protocol
    kinds: dict[PositiveInt, str]
    """k -> what kind of figure pass@k is."""
    data: dict[str, str]
    """Source -> SHA-256 (hex) of the fingerprints of its problems, sorted."""
    tools: dict[str, int]
    """Executor and tools, by version or digest -> number of verdicts."""
    problems: dict[str, GradedProblem] = Field(min_length=1)
    figures: dict[str, Slice]
    """What the problems have in common -> pass@k with 95 % intervals over problems."""
    left_out: dict[str, str | int]
    """Problem that is not in the figures -> why; and why -> how many, for broken lines and files that were not given.
    """
    spent: dict[str, float | None]
    """`answers`, and how many an endpoint refused; means of one; `usd` for all, by the price list. None: not reported,
    or a price is missing."""
    verdicts: str
    """SHA-256 (hex) over the digests of `problems`."""
    provenance: dict[str, Any]
    """When, with which seed and versions, besides those of `protocol`; and which problems of a set were edited."""

    @model_validator(mode="after")
    def _has_pass_at_1_of_a_model(self) -> Card:
        whole = self.figures.get(WHOLE)
        if 1 not in self.kinds or whole is None or 1 not in whole.pass_at:
            raise ValueError("pass@1 over all problems is missing")
        if "name" not in self.model:
            raise ValueError("the model has no name")
        return self


def derived(
    records: Collection[Record], labels: Mapping[str, Mapping[str, Any]], ks: Collection[int]
) -> dict[str, Any]:
    """The fields of a card that follow from the verdict records of some problems, of which at least one is there."""
    own: dict[str, dict[int, Record]] = defaultdict(dict)
    for record in records:
        own[record["id"]][record["sample"]] = record
    problems = {name: _graded(labels[name], own[name]) for name in sorted(own)}
    counts = {name: one.count for name, one in problems.items()}
    faulty = {name for name, one in problems.items() if one.errata}
    parts = slices(counts, problems, sorted(ks), faulty)
    prints: dict[str, list[str]] = defaultdict(list)
    for one in problems.values():
        prints[one.source].append(one.fingerprint)
    kind = " and ".join(sorted({_kind(record) for record in records}))
    return {
        "kinds": {k: figure_kind(kind, k) for k in sorted(ks)},
        "data": {source: sha256_of(sorted(own)) for source, own in prints.items()},
        "tools": Counter(map(_tools, records)),
        "problems": problems,
        "figures": {f"{part.kind}: {part.name}": part for part in parts},
        "verdicts": sha256_of([[name, one.verdicts] for name, one in problems.items()]),
    }


def labels_of(problem: Problem, errata: str) -> dict[str, str | None]:
    """What a card says of a problem with these known faults, besides its verdicts."""
    return {**problem.model_dump(include=_LABELS), "errata": errata}


def _graded(labels: Mapping[str, Any], records: Mapping[int, Record]) -> GradedProblem:
    prints = {record["graded"].get("problem", "") for record in records.values()}
    follows = {
        "fingerprint": " and ".join(sorted(prints)),
        "passed": sum(one["outcome"] == Outcome.PASSED for one in records.values()),
        "verdicts": {sample: str(records[sample]["digest"])[:16] for sample in sorted(records)},
    }
    return GradedProblem(**{**labels, **follows})


def _kind(record: Record) -> str:
    if "episode" not in record:
        return "single attempt"
    try:
        return Bounds.model_validate(record["episode"]["bounds"]).kind
    except (LookupError, TypeError, ValueError):
        return "unknown"


def _tools(record: Record) -> str:
    return ", ".join([record["executor"], *map(" ".join, sorted(record["tools"].items()))])


def changes(was: Any, now: Any, place: str) -> Iterator[str]:
    """Yield where two JSON values differ, by name, with both values; objects in a list are named by number."""
    ours, theirs = (leaves(value, ", ", place) for value in (was, now))
    for name in {**ours, **theirs}:
        before, after = ours.get(name), theirs.get(name)
        if isinstance(before, float) and isinstance(after, float):
            before = after if math.isclose(before, after, abs_tol=1e-9) else before
        if before != after:
            yield f"{name}: {_shown(before)}, {_shown(after)}"


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def read_card(path: Path) -> tuple[Card, list[str]]:
    """Read a card, and the names of its fields that were altered since it was sealed. Raises ProblemError if
    the file is no card of a version that is known here."""
    try:
        raw = json.loads(path.read_bytes())
        version = raw["card"]
        if type(version) is int and version > VERSION:
            raise ProblemError(
                f"{path} is a card of version {version}; this rtl-distill reads up to {VERSION}",
                "install a newer rtl-distill",
            )
        changed = changed_fields(raw)
        fields = {name: raw[name] for name in raw if name not in ("sums", "digest")}
        return Card.model_validate(fields), changed
    except OSError as error:
        why = f"cannot read the card {path}: {error.strerror}"
        raise ProblemError(why, "check the path") from error
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ProblemError(f"{path} is no card: {_why_none(error)}", _HINT) from error


def _why_none(error: Exception) -> str:
    """Why a text is no card."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    if isinstance(error, (LookupError, TypeError)):
        return "it has no field `card`"
    return f"it is not JSON: {error}"


def read_sealed(path: Path) -> Card:
    """Read a card that was not altered. Raises ProblemError."""
    card, changed = read_card(path)
    if changed:
        raise ProblemError(
            f"{path} was altered since it was sealed: {', '.join(changed)}",
            "ask for the original; `rtl-distill grade reproduce` says what follows from its verdicts",
        )
    return card


def to_json(card: Card) -> str:
    """The text of a card's file."""
    return json.dumps(sealed(card.model_dump(mode="json")), indent=1) + "\n"


def verdicts_path(card: Path) -> Path:
    """The file of a card's verdict records."""
    return card.with_suffix(".verdicts.jsonl")
