"""Figures from the ledger: each setting over its seeds, and what each ingredient adds, with 95 % intervals
over problems and seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.learning.crossed import crossed_interval
from benchmarks.learning.ledger import Cell, Ledger, TierLine
from benchmarks.learning.settings import (
    COMPARISONS,
    SETTINGS,
    TIERS,
    Comparison,
    Setting,
    TierName,
)
from rtl_core.learning.intervals import Interval, mean_interval

WINDOW = 8
"""Number of steps over which a pass rate in training is taken."""
COLLAPSED = 0.5
"""A run has collapsed if its last window passes less than this share of its best."""


@dataclass(frozen=True)
class Row:
    """A setting, over all its seeds."""

    setting: Setting
    cells: list[Cell]
    """One for each seed."""
    passed: Interval
    interface: Interval
    by_seed: tuple[float, ...]
    """pass@1 of each seed."""
    below_teacher: Interval | None
    """The teacher's pass@1 minus the student's, on the same problems; None if there is no teacher."""
    reached: tuple[list[tuple[int, float] | None], ...]
    """For each goal of the tier, and each seed, the result of `reached`."""

    def mean(self, figure: Callable[[Cell], float]) -> float:
        """Mean of a figure over the seeds."""
        return float(np.mean([figure(cell) for cell in self.cells]))


@dataclass(frozen=True)
class Added:
    """The difference between two settings, on the same problems and their common seeds."""

    comparison: Comparison
    seeds: int
    difference: Interval
    interface: Interval
    """Difference of the share of answers with the right interface."""

    @property
    def words(self) -> str:
        """Whether the difference is significant, which one seed cannot say."""
        if self.seeds == 1:
            return "one seed: unknown"
        if self.difference.lo > 0:
            return "pays"
        return "costs" if self.difference.hi < 0 else "no significant difference"


def rows(ledger: Ledger, tier: TierName) -> list[Row]:
    """One row for each setting of the tier that has a cell, in the order of the settings."""
    line = ledger.tiers.get(tier)
    found = []
    for setting in SETTINGS.values():
        cells = cells_of(ledger, setting.name)
        if line is None or setting.tier != tier or not cells:
            continue
        passed_SP = _table(cells, "pass@1", line)
        teacher_P = line.teacher and np.array(line.teacher.passed_P) / line.samples
        found.append(
            Row(
                setting,
                cells,
                crossed_interval(passed_SP, bounds=(0, 1)),
                crossed_interval(_table(cells, "interface", line), bounds=(0, 1)),
                tuple(float(rate) for rate in passed_SP.mean(axis=1)),
                None if teacher_P is None else crossed_interval(teacher_P - passed_SP),
                tuple(
                    [reached(cell, goal, line) for cell in cells] for goal in TIERS[tier].goals
                ),
            )
        )
    return found


def added(ledger: Ledger) -> list[Added]:
    """One entry for each comparison whose two settings share a seed."""
    found = []
    for asked in COMPARISONS:
        ours, theirs = (
            {c.seed: c for c in cells_of(ledger, name)}
            for name in (asked.setting, asked.against)
        )
        seeds = sorted(set(ours) & set(theirs))
        if seeds:
            line = ledger.tiers[SETTINGS[asked.setting].tier]
            passed, interface = (
                crossed_interval(
                    _table([ours[s] for s in seeds], figure, line)
                    - _table([theirs[s] for s in seeds], figure, line)
                )
                for figure in ("pass@1", "interface")
            )
            found.append(Added(asked, len(seeds), passed, interface))
    return found


MASKS = ((1, 5), (6, 8), (9, 12))
"""Tokens of the masked parts that a row of `by_mask` takes."""


@dataclass(frozen=True)
class MaskRow:
    """A setting on the problems whose masked part has `low` to `high` tokens."""

    setting: Setting
    low: int
    high: int
    problems: int
    untrained: Interval
    warm: Interval | None
    """After the supervised steps; None if a cell was not evaluated there."""
    passed: Interval
    gain: Interval
    """Over the untrained student, on the same problems."""
    gain_over_warm: Interval | None


def by_mask(ledger: Ledger, tier: TierName) -> list[MaskRow]:
    """For each setting of the tier that has a cell, all problems and those of each size of their masked part; empty for
    problems without masks."""
    line = ledger.tiers[tier]
    if line.masks_P is None:
        return []
    tokens_P = np.array(line.masks_P)
    untrained_P = np.array(line.untrained.passed_P) / line.samples
    found = []
    for row in rows(ledger, tier):
        passed_SP = _table(row.cells, "pass@1", line)
        counts = [cell.after_warm_start for cell in row.cells]
        known = [one.passed_P for one in counts if one is not None]
        warm_SP = np.array(known) / line.samples if len(known) == len(counts) else None
        for low, high in ((min(tokens_P), max(tokens_P)), *MASKS):
            chosen_P = (tokens_P >= low) & (tokens_P <= high)
            if chosen_P.sum() < 2:
                continue
            passed, before = passed_SP[:, chosen_P], untrained_P[chosen_P]
            warm = None if warm_SP is None else warm_SP[:, chosen_P]
            found.append(
                MaskRow(
                    row.setting,
                    int(low),
                    int(high),
                    int(chosen_P.sum()),
                    mean_interval(before),
                    None if warm is None else crossed_interval(warm, bounds=(0, 1)),
                    crossed_interval(passed, bounds=(0, 1)),
                    crossed_interval(passed - before),
                    None if warm is None else crossed_interval(passed - warm),
                )
            )
    return found


def cells_of(ledger: Ledger, name: str) -> list[Cell]:
    """The cells of a setting, by seed."""
    return [cell for (setting, _), cell in sorted(ledger.cells.items()) if setting == name]


def rate_of(passed_P: Sequence[int], samples: int) -> Interval:
    """A rate with its interval over problems."""
    return mean_interval([passed / samples for passed in passed_P])


def reached(cell: Cell, goal: float, line: TierLine) -> tuple[int, float] | None:
    """(steps, dollars) until a run passed at this rate; None: never.

    If the run was evaluated on its way: until the first evaluation of that rate, the last one included.
    Otherwise: until the student's answers of the last `WINDOW` steps had that rate, on training problems
    that it had not seen before. Supervised steps count as steps and cost, and have no answers of the
    student. A window needs `WINDOW` steps with answers.
    """
    answers_S, passed_S, usd_S = (np.array(values) for values in zip(*cell.steps, strict=True))
    whole = len(line.problems_P) * line.samples
    if cell.evaluations:
        ends = [*cell.evaluations, (len(usd_S), sum(cell.after.passed_P))]
        steps = next((steps for steps, passed in ends if passed >= goal * whole), None)
        return None if steps is None else (steps, float(usd_S[:steps].sum()))
    own_S = np.flatnonzero(answers_S)
    for last in range(WINDOW - 1, len(own_S)):
        window = own_S[last - WINDOW + 1 : last + 1]
        if passed_S[window].sum() >= goal * answers_S[window].sum():
            steps = int(own_S[last]) + 1
            return steps, float(usd_S[:steps].sum())
    return None


def has_collapsed(cell: Cell) -> bool:
    """Whether the last window of a run passes less than `COLLAPSED` of its best one."""
    rates = [step.passed / step.answers for step in cell.steps if step.answers]
    means = [float(np.mean(rates[end - WINDOW : end])) for end in range(WINDOW, len(rates) + 1)]
    return bool(means) and means[-1] < COLLAPSED * max(means)


def _table(cells: Sequence[Cell], figure: str, line: TierLine) -> np.ndarray:
    """A figure as an array, seeds by problems."""
    return np.array([cell.figure_P(figure, line.samples) for cell in cells])
