"""Reward for small and fast designs: `reward.plugins = ["rtl_core.learning.netlist_terms"]` adds the terms `area` and `depth`.

Both are paid only to a pass that was held against the golden answer, or against other passes, and agrees with it. With a weight on one of
them every pass of a train step is looked at (`rtl_core.rollouts.doubting`). They are apart from the other terms because those are
evaluated for every answer, also where nothing was synthesised.
"""

from __future__ import annotations

from rtl_core.learning.reward import Graded, term


@term("area", netlist=True)
def area(answer: Graded) -> float:
    """1 / (1 + a) for a times the cells of the golden answer, or of the median pass: 1/2 for as many; 0 for what is doubtful or not synthesised."""
    return _value(None if answer.netlist is None else answer.netlist.relative_area)


@term("depth", netlist=True)
def depth(answer: Graded) -> float:
    """1 / (1 + d) for d times the levels of the golden answer, or of the median pass: 1/2 for as many; 0 for what is doubtful or not synthesised."""
    return _value(None if answer.netlist is None else answer.netlist.relative_levels)


def _value(relative: float | None) -> float:
    return 0.0 if relative is None else 1 / (1 + relative)
