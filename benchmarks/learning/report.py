"""The report as Markdown, from the ledger alone: report.md beside it is its output."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.common import markdown as markdown_table
from benchmarks.learning.figures import (
    Added,
    Row,
    added,
    by_mask,
    cells_of,
    has_collapsed,
    rate_of,
    rows,
)
from benchmarks.learning.ledger import Ledger
from benchmarks.learning.settings import SETTINGS, STEPS, TIERS, TierName
from rtl_core.learning.intervals import Interval

REPORT = Path(__file__).with_name("report.md")

_HEAD = (
    Path(__file__).with_name("report_head.md").read_text(encoding="utf-8").format(STEPS=STEPS)
)


def markdown(ledger: Ledger) -> str:
    """The whole report."""
    entries = added(ledger)
    tiers = [_tier(ledger, tier) for tier in TIERS if tier in ledger.tiers]
    tables = (_gains(ledger), _added(entries), _use(entries), _not_run(ledger), _where(ledger))
    parts = [_HEAD, *tiers, *tables]
    return "\n".join(part for part in parts if part)


def _tier(ledger: Ledger, tier: TierName) -> str:
    line = ledger.tiers[tier]
    low, high = TIERS[tier].goals
    title = f"## {TIERS[tier].title}, {len(line.problems_P)} test problems × {line.samples}\n\n"
    head = [
        "setting",
        "seeds",
        "pass@1",
        "by seed",
        "below the teacher, points",
        "interface right",
    ]
    head += [f"steps to {low:g}", f"steps to {high:g}", f"dollars to {high:g}"]
    head += ["dollars in all", "answers", "train tokens", "collapsed", "minutes", "GB"]
    body = [_row(row) for row in rows(ledger, tier)]
    known = (("untrained", line.untrained), ("teacher", line.teacher))
    for about, counts in ((about, counts) for about, counts in known if counts is not None):
        passed, interface = (
            _rate(rate_of(values, line.samples))
            for values in (counts.passed_P, counts.interface_P)
        )
        body.append([about, "", passed, "", "", interface, *[""] * (len(head) - 6)])
    return title + markdown_table(head, body) + _masks(ledger, tier)


def _masks(ledger: Ledger, tier: TierName) -> str:
    head = ["setting", "tokens of the mask", "problems", "untrained", "after supervised steps"]
    head += ["pass@1", "over untrained, points", "over supervised steps, points"]
    body = [
        [
            f"`{row.setting.name}`",
            f"{row.low} to {row.high}",
            str(row.problems),
            _rate(row.untrained),
            "" if row.warm is None else _rate(row.warm),
            _rate(row.passed),
            _points(row.gain),
            "" if row.gain_over_warm is None else _points(row.gain_over_warm),
        ]
        for row in by_mask(ledger, tier)
    ]
    return "\n" + markdown_table(head, body) if body else ""


def _row(row: Row) -> list[str]:
    low, high = row.reached
    memory = [cell.ran.memory_gb for cell in row.cells if cell.ran.memory_gb is not None]
    return [
        f"`{row.setting.name}`: {row.setting.about}",
        str(len(row.cells)),
        _rate(row.passed),
        ", ".join(f"{rate:.2f}" for rate in row.by_seed),
        "" if row.below_teacher is None else _points(row.below_teacher),
        _rate(row.interface),
        _steps(low),
        _steps(high),
        _median([r and r[1] for r in high], ".2f"),
        f"{row.mean(lambda cell: sum(step.usd for step in cell.steps)):.2f}",
        f"{row.mean(lambda cell: cell.answers):,.0f}",
        f"{row.mean(lambda cell: cell.train_tokens):,.0f}",
        f"{sum(map(has_collapsed, row.cells))} of {len(row.cells)}",
        f"{row.mean(lambda cell: cell.ran.minutes):.1f}",
        f"{max(memory):.1f}" if memory else "",
    ]


def _added(entries: list[Added]) -> str:
    head = [
        "ingredient",
        "setting",
        "against",
        "seeds",
        "difference, points",
        "so it",
        "interface right, points",
    ]
    body = []
    for e in entries:
        setting, against = f"`{e.comparison.setting}`", f"`{e.comparison.against}`"
        difference, interface = _points(e.difference), _points(e.interface)
        body.append(
            [
                e.comparison.ingredient,
                setting,
                against,
                str(e.seeds),
                difference,
                e.words,
                interface,
            ]
        )
    return "## What each adds\n\n" + markdown_table(head, body) if body else ""


def _gains(ledger: Ledger) -> str:
    """What RL taught, for the cells that recorded it: means over the seeds, and each seed."""
    body = []
    parts = ["pass@1", "compiles", "… right interface", "… right behaviour"]
    for name in SETTINGS:
        gains = [cell.gain for cell in cells_of(ledger, name) if cell.gain]
        if not gains:
            continue
        points = [[gain[part] for gain in gains] for part in parts]
        each = [
            f" ({', '.join(f'{p:+.1f}' for p in found)})" * (len(found) > 1) for found in points
        ]
        means = [f"{np.mean(found):+.1f}" for found in points]
        body.append(
            [f"`{name}`", str(len(gains)), *map("".join, zip(means, each, strict=True))]
        )
    head = [
        "setting",
        "seeds",
        "gain in pass@1",
        "more compile",
        "more of those have the right interface",
    ]
    head.append("more of these behave right")
    about = (
        "Points of pass@1 from the beginning of RL to its end, and their parts (`rtl-distill query what-rl-taught`);"
        " older lines of the ledger lack them.\n\n"
    )
    return "## What RL taught\n\n" + about + markdown_table(head, body) if body else ""


def _use(entries: list[Added]) -> str:
    """Which ingredients to use, and where: those whose interval excludes 0, by size."""
    pays = sorted((e for e in entries if e.words == "pays"), key=lambda e: -e.difference.mean)
    costs = sorted((e for e in entries if e.words == "costs"), key=lambda e: e.difference.mean)
    if not pays and not costs:
        return ""
    head = ["", "ingredient", "where it was measured", "points"]
    body = [
        [word, e.comparison.ingredient, f"`{e.comparison.against}`", _points(e.difference)]
        for word, found in (("use", pays), ("avoid", costs))
        for e in found
    ]
    rest = "\nThe other comparisons show no significant difference: choose by cost.\n"
    return "## Use this when\n\n" + markdown_table(head, body) + rest


def _not_run(ledger: Ledger) -> str:
    lacking = []
    for setting in SETTINGS.values():
        seeds = sorted(
            set(setting.seeds) - {cell.seed for cell in cells_of(ledger, setting.name)}
        )
        if seeds:
            lacking.append(
                f"- `{setting.name}`: {setting.about} (seeds {', '.join(map(str, seeds))})"
            )
    return "## Not run yet\n\n" + "\n".join(lacking) + "\n" if lacking else ""


def _where(ledger: Ledger) -> str:
    ran = [tier.ran for tier in ledger.tiers.values()] + [
        cell.ran for cell in ledger.cells.values()
    ]
    lines = [
        *sorted({entry.machine for entry in ran}),
        f"commits {', '.join(sorted({entry.commit for entry in ran}))}",
    ]
    return "## Machines and commits\n\n" + "".join(f"- {line}\n" for line in lines)


def _steps(reached: Sequence[tuple[int, float] | None]) -> str:
    """The median number of steps, followed by that of each seed."""
    steps = [r and r[0] for r in reached]
    each = (
        f" ({', '.join('–' if s is None else str(s) for s in steps)})" if len(steps) > 1 else ""
    )
    return _median(steps, "g") + each


def _median(values: Sequence[float | None], form: str) -> str:
    """Median over seeds; a dash if it is not reached, because half of the values or more are None."""
    median = float(np.median([np.inf if value is None else value for value in values]))
    return "–" if np.isinf(median) else format(median, form)


def _rate(interval: Interval) -> str:
    return f"{interval.mean:.3f} [{interval.lo:.3f}, {interval.hi:.3f}]"


def _points(interval: Interval) -> str:
    return f"{100 * interval.mean:+.1f} [{100 * interval.lo:+.1f}, {100 * interval.hi:+.1f}]"
