"""Does the figure of a card follow from its verdict records?

Every field that the records decide is computed from them again: figures, passes, kinds, data, tools, digests; and
departures from a protocol that comes with this package. What they cannot show is not checked: model, settings of
sampling, tokens, cost and times. With the data, labels and what is left out are compared with it. That the verdicts
themselves are right is shown only by grading the answers again (`rtl_grader.records.reproduce`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

from rtl_core.cards.card import (
    OF_RUN,
    Card,
    changes,
    derived,
    labels_of,
    read_card,
    verdicts_path,
)
from rtl_core.cards.settings import departures
from rtl_core.config.load import shipped_configs
from rtl_core.config.models import EvaluationSection
from rtl_core.errors import ProblemError
from rtl_grader.digest import sha256_of
from rtl_grader.grading.verdict_record import Conditions
from rtl_grader.problems.errata import errata_of
from rtl_grader.records.reproduce import read_records
from rtl_grader.settings import GradingSection, limits_of
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Stage


def check_card(
    path: Path, verdicts: Path | None = None, problems: Sequence[Problem] | None = None
) -> tuple[Path, list[str]]:
    """Check a card against its verdict records. Returns the records' file and what is wrong, a sentence each.

    Args:
        path: the card.
        verdicts: its records; None: the file beside it.
        problems: the data, if it is at hand; None: it is not checked.

    Raises ProblemError if the card or the records cannot be read.
    """
    card, changed = read_card(path)
    verdicts = verdicts or verdicts_path(path)
    claims = read_records(verdicts)
    faults = [f"card, {name}: altered since it was sealed" for name in changed]
    if card.protocol.hash != sha256_of(card.protocol.settings):
        faults.append("card, protocol: its hash is not that of its settings")
    usable, graded = [], []
    for claim in claims:
        faults += [f"{claim.name}: {kind}: {detail}" for kind, detail in claim.differences]
        if record := claim.record:
            graded.append(record.conditions)
            if record.id in card.problems:
                usable.append({**claim.raw, "id": record.id, "sample": record.sample})
            else:
                faults.append(f"{claim.name}: the card has no such problem")
    if not usable:
        why = f"{verdicts} has no verdict on a problem of {path}"
        raise ProblemError(why, "name the records of this card after it")
    there = Counter((record["id"], record["sample"]) for record in usable)
    faults += [
        f"two verdicts on {name} sample {sample}"
        for (name, sample), count in there.items()
        if count > 1
    ]
    for name, one in card.problems.items():
        missing = [sample for sample in one.verdicts if (name, sample) not in there]
        faults += [f"{name} sample {sample}: its verdict is missing" for sample in missing]
    faults += _departures(card)
    faults += _by_settings(card, graded)
    labels = {name: dict(problem) for name, problem in card.problems.items()}
    theirs = card.model_copy(update=derived(usable, labels, set(card.kinds)))
    ours, others = (one.model_dump(mode="json") for one in (card, theirs))
    faults += [f"{words} by the verdicts" for words in changes(ours, others, "card")]
    return verdicts, [*faults, *(_data(card, problems) if problems is not None else ())]


class _Settings(BaseModel):
    """The settings of a card that decide which verdicts it must have."""

    evaluation: EvaluationSection
    grading: GradingSection


def _by_settings(card: Card, graded: Iterable[Conditions]) -> Iterator[str]:
    """Where the verdicts are not those that the card's settings ask for."""
    place = "card, protocol, settings"
    try:
        settings = _Settings.model_validate(card.protocol.settings)
    except ValidationError as error:
        for one in error.errors():
            yield f"{place}, {', '.join(map(str, one['loc']))}: {one['msg']}"
        return
    yield from _samples(card, settings.evaluation)
    yield from _grading(settings.grading, graded, f"{place}, grading")


def _samples(card: Card, section: EvaluationSection) -> Iterator[str]:
    """An evaluation has all answers of each problem and a figure for each k; a part of them can be chosen so that it
    passes."""
    ks = {1, *(k for k in section.k if k <= section.samples)}
    if ks != card.kinds.keys():
        yield f"card, kinds: has k {sorted(card.kinds)}, but the card's settings ask for {sorted(ks)}"
    for name, one in card.problems.items():
        has = sorted(one.verdicts)
        if has != [*range(section.samples)]:
            numbers = ", ".join(map(str, has))
            yield f"{name}: has samples {numbers}, but the card's settings ask for {section.samples}"


def _departures(card: Card) -> Iterator[str]:
    """What a card with the name of a protocol that comes with this package says wrongly of it."""
    protocol = card.protocol
    if file := shipped_configs("protocols").get(protocol.name):
        actual = departures(protocol.settings, file)
        for one in dict.fromkeys([*actual, *protocol.departs]):
            if one not in protocol.departs:
                yield f"card, protocol, departs: is silent about {one}"
            elif one not in actual:
                yield f"card, protocol, departs: {one}: not by its settings"


def _grading(
    section: GradingSection, graded: Iterable[Conditions], place: str
) -> Iterator[str]:
    """Where verdicts were given under other conditions than the card's, each difference once."""
    stated = {
        "seed": section.seed,
        "limits": limits_of(section),
        "until": Stage.TESTS,
        "repeat": 1,
    }
    for own in dict.fromkeys(graded):
        # A problem with a golden answer needs one seed.
        seeds = 1 if own.seeds == 1 else section.seeds
        same = own.model_copy(update={**stated, "seeds": seeds})
        differing = changes(same.model_dump(mode="json"), own.model_dump(mode="json"), place)
        yield from (f"{words} by the verdicts" for words in differing)


def _data(card: Card, problems: Sequence[Problem]) -> Iterator[str]:
    """Where the problems of the card are not the given ones, and which of these it drops."""
    data = {one.id: one for one in problems}
    for name, one in card.problems.items():
        problem = data.pop(name, None)
        if problem is None:
            yield f"{name}: not among the given problems"
            continue
        if problem.fingerprint != one.fingerprint:
            yield f"{name}: other data than the card's"
        known = "; ".join(map(str, errata_of(problem)))
        theirs = labels_of(problem, known)
        ours = {label: getattr(one, label) for label in theirs}
        for words in changes(ours, theirs, f"card, problems, {name}"):
            yield f"{words} by the data"
    excused = {name for name, why in card.left_out.items() if isinstance(why, str)}
    dropped = sorted(data.keys() - excused)
    # Of a run's problems only a part is held out, and which one the card does not say.
    if dropped and card.protocol.name != OF_RUN:
        some = ", ".join(dropped[:3])
        yield f"card, left_out: {len(dropped)} of the given problems have neither verdict nor reason: {some}"
