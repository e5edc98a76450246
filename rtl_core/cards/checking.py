"""Does the figure of a card follow from its verdict records?

Every field that the records decide is computed from them again: figures, passes, kinds, data, tools, digests. What
they cannot show is not checked: model, settings, tokens, cost and times. That the verdicts themselves are right
is shown only by grading the answers again (`rtl_grader.records.reproduce`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rtl_core.cards.card import Card, changes, derived, read_card, verdicts_path
from rtl_core.errors import ProblemError
from rtl_grader.grading.cache import sha256_of
from rtl_grader.records.reproduce import read_records
from rtl_grader.types.problem import Problem


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
    for claim in claims:
        faults += [f"{claim.name}: {kind}: {detail}" for kind, detail in claim.differences]
        if claim.record and claim.record.id not in card.problems:
            faults.append(f"{claim.name}: the card has no such problem")
    usable = [
        {**claim.raw, "id": claim.record.id, "sample": claim.record.sample}
        for claim in claims
        if claim.record and claim.record.id in card.problems
    ]
    if not usable:
        why = f"{verdicts} has no verdict on a problem of {path}"
        raise ProblemError(why, "name the records of this card after it")
    there = {(record["id"], record["sample"]) for record in usable}
    for name, one in card.problems.items():
        missing = [sample for sample in one.verdicts if (name, sample) not in there]
        faults += [f"{name} sample {sample}: its verdict is missing" for sample in missing]
    theirs = card.model_copy(update=derived(usable, card.problems, set(card.kinds)))
    ours, others = (one.model_dump(mode="json") for one in (card, theirs))
    faults += [f"{words} by the verdicts" for words in changes(ours, others, "card")]
    return verdicts, [*faults, *(_data(card, problems) if problems is not None else ())]


def _data(card: Card, problems: Sequence[Problem]) -> Iterator[str]:
    """Which problems of the card are not the given ones, and whether it leaves more out than it says."""
    given = {one.id: one for one in problems}
    for name, one in card.problems.items():
        problem = given.pop(name, None)
        if problem is None:
            yield f"{name}: not among the given problems"
        elif problem.fingerprint != one.fingerprint:
            yield f"{name}: other data than the card's"
    said = sum(card.left_out.values())
    if "train steps" not in card.model and len(given) > said:
        some = ", ".join(list(given)[:3])
        yield f"card, left_out: {said}, but {len(given)} of the given problems have no verdict: {some}"
