"""What a run looks at once its problems have prompts and before anything is sampled."""

from __future__ import annotations

from collections.abc import Iterator

from rtl_core.run.check.budgets import context, sizes
from rtl_core.run.check.cost import cost, disk
from rtl_core.run.check.known import Check, Known
from rtl_core.types.finding import Finding


def known_good(known: Known) -> Iterator[Finding]:
    """Whether there are golden answers to imitate, and to show a student that is its own teacher."""
    learning, train = known.config.learning, known.loaded.train
    without = sum(not problem.has_whole_golden for problem in train)
    if not without:
        return
    shows = learning.self_taught and learning.self_hint == "golden"
    for needed, key, verb, other, consequence in (
        (shows, "learning.self_hint", "shows", "verdict", "their answers learn from rewards alone"),
        (
            learning.imitates_golden,
            "learning.warm_start_source",
            "imitates",
            "teacher",
            "supervised steps repeat the others",
        ),
    ):
        if needed and without == len(train):
            words = f"none of the training problems has a known-good answer, which {key} = golden {verb}"
            yield Finding(key, "wrong", words, f'set {key} = "{other}"')
        elif needed and not known.config.problems.require_golden:  # with it, the run leaves these problems out
            words = f"{without} of {len(train)} training problems have no known-good answer: {consequence}"
            yield Finding(key, "warning", words)


CHECKS: tuple[Check, ...] = (context, sizes, known_good, disk, cost)


def before_sampling(known: Known) -> Iterator[Finding]:
    """What all of them find, in this order."""
    for check in CHECKS:
        yield from check(known)
