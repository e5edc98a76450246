"""What a run looks at once its problems have prompts and before anything is sampled."""

from __future__ import annotations

from collections.abc import Iterator

from rtl_core.run.check.budgets import context, sizes
from rtl_core.run.check.cost import cost, disk
from rtl_core.run.check.known import Check, Known
from rtl_core.types.finding import Finding

CHECKS: tuple[Check, ...] = (context, sizes, disk, cost)


def before_sampling(known: Known) -> Iterator[Finding]:
    """What all of them find, in this order."""
    for check in CHECKS:
        yield from check(known)
