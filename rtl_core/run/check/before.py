"""What a run looks at once its problems have prompts and before anything is sampled."""

from __future__ import annotations

from collections.abc import Iterator

from rtl_core.run.check.budgets import context, sizes
from rtl_core.run.check.cost import cost, disk
from rtl_core.run.check.known import Check, Known
from rtl_core.types.finding import Finding


def hints(known: Known) -> Iterator[Finding]:
    """Whether there are golden answers to show a student that is its own teacher."""
    learning, train = known.config.learning, known.loaded.train
    if not learning.self_taught or learning.self_hint != "golden" or not train:
        return
    without = sum(not problem.golden for problem in train)
    if without == len(train):
        words = "none of the training problems has a known-good answer, which learning.self_hint = golden shows"
        yield Finding("learning.self_hint", "wrong", words, 'set learning.self_hint = "verdict"')
    elif without:
        words = f"{without} of {len(train)} training problems have no known-good answer: their answers learn from rewards alone"
        yield Finding("learning.self_hint", "warning", words)


CHECKS: tuple[Check, ...] = (context, sizes, hints, disk, cost)


def before_sampling(known: Known) -> Iterator[Finding]:
    """What all of them find, in this order."""
    for check in CHECKS:
        yield from check(known)
