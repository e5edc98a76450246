"""Two cards side by side: what differs, and whether one model is better."""

from __future__ import annotations

from collections.abc import Iterator

from rtl_core.cards.card import WHOLE, Card, changes
from rtl_core.cards.rendering import title
from rtl_core.learning.intervals import unpaired_difference
from rtl_core.reporting.evaluations import paired_rates, rates_of
from rtl_core.reporting.text import paired_in_words
from rtl_grader.words import counted, first_lines


def comparison(first: Card, second: Card) -> Iterator[str]:
    """Lines: both figures, why they are not comparable, and the test of second minus first.

    It is paired over the problems that are the same in both, else (no problem is) of two independent means.
    """
    yield from (title(first), title(second))
    one, two = _versions(first), _versions(second)
    both = sorted(one.keys() & two.keys())
    for what, ours, theirs in (
        ("protocol", first.protocol.settings, second.protocol.settings),
        ("kind", first.kinds[1], second.kinds[1]),
        ("tools", sorted(first.tools), sorted(second.tools)),
        ("data", {name: one[name] for name in both}, {name: two[name] for name in both}),
    ):
        yield from first_lines(
            [f"not comparable: {change}" for change in changes(ours, theirs, what)]
        )
    for which, names in (("first", one.keys() - both), ("second", two.keys() - both)):
        if names:
            some = ", ".join(sorted(names)[:3])
            yield f"not comparable: data, {counted(len(names), 'problem')} only in the {which}: {some}"
    counts = (
        {
            f"{name} {problem.fingerprint}": problem.count
            for name, problem in card.problems.items()
        }
        for card in (first, second)
    )
    if test := paired_rates(*map(rates_of, counts)):
        over = counted(test.n, "problem")
        yield f"second minus first, paired over the {over} of both: {paired_in_words(test)}"
        return
    gap = unpaired_difference(*(card.figures[WHOLE].pass_at[1] for card in (first, second)))
    gain, low, high = (100 * share for share in (gap.mean, gap.lo, gap.hi))
    words = f"{gain:+z.1f} points [{low:+z.1f}, {high:+z.1f}]"
    yield f"second minus first, unpaired, since no problem is in both: {words}"


def _versions(card: Card) -> dict[str, str]:
    return {name: one.fingerprint for name, one in card.problems.items()}
