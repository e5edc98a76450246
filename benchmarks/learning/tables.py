"""The report's tables: every setting pooled over its seeds, and what each ingredient adds, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.learning.crossed import crossed_interval
from benchmarks.learning.measured import Measured
from benchmarks.learning.settings import COMPARISONS, SETTINGS
from rtl_core.learning.intervals import Interval, mean_interval

Results = Mapping[tuple[str, int], Measured]


@dataclass(frozen=True)
class Row:
    """A setting over all its seeds; rates with intervals over problems and seeds."""

    setting: str
    tier: str
    about: str
    seeds: tuple[int, ...]
    steps: int
    before: Interval
    after: Interval
    gain: Interval
    interface_before: Interval
    interface_after: Interval
    below_teacher: Interval | None
    """The teacher's rate minus the student's after training, over the same problems."""
    minutes: float


@dataclass(frozen=True)
class Added:
    """What one setting has over another, over the problems and seeds that both have."""

    about: str
    setting: str
    against: str
    seeds: int
    difference: Interval
    words: str


def rows(results: Results) -> list[Row]:
    """One row per setting that has a result, in the order of the list of settings."""
    found = []
    for name, setting in SETTINGS.items():
        lines = _lines(results, name)
        if not lines:
            continue
        after, before = _table(lines, "after", "passed"), _table(lines, "before", "passed")
        teacher = results.get((f"teacher-{setting.tier}", 0))
        below = None
        if teacher is not None:
            problems = _shared([*lines, teacher])
            below = crossed_interval(
                np.array([[teacher.after.passed[p] - line.after.passed[p] for p in problems] for line in lines])
            )
        found.append(
            Row(
                name,
                setting.tier,
                setting.about,
                tuple(line.seed for line in lines),
                lines[0].steps,
                crossed_interval(before, bounds=(0, 1)),
                crossed_interval(after, bounds=(0, 1)),
                crossed_interval(after - before),
                crossed_interval(_table(lines, "before", "interface"), bounds=(0, 1)),
                crossed_interval(_table(lines, "after", "interface"), bounds=(0, 1)),
                below,
                float(np.mean([line.minutes for line in lines])),
            )
        )
    return found


def added(results: Results) -> list[Added]:
    """One entry per comparison whose two settings share a seed."""
    found = []
    for asked in COMPARISONS:
        seeds = sorted({s for n, s in results if n == asked.setting} & {s for n, s in results if n == asked.against})
        if not seeds:
            continue
        ours = [results[asked.setting, seed].figure(asked.by) for seed in seeds]
        theirs = [results[asked.against, seed].figure(asked.to) for seed in seeds]
        problems = sorted(set.intersection(*(set(rates) for rates in (*ours, *theirs))))
        if not problems:
            continue
        table = [[a[p] - b[p] for p in problems] for a, b in zip(ours, theirs, strict=True)]
        difference = crossed_interval(np.array(table))
        found.append(Added(asked.about, asked.setting, asked.against, len(seeds), difference, in_words(difference)))
    return found


def in_words(difference: Interval) -> str:
    """Whether a difference can be told from none."""
    if difference.lo > 0:
        return "adds"
    return "costs" if difference.hi < 0 else "adds nothing that can be told from chance"


def teachers(results: Results) -> dict[str, tuple[Interval, Interval]]:
    """Tier -> (pass@1, interface right) of its teacher, with intervals over problems."""
    return {
        line.tier: (mean_interval([*line.after.passed.values()]), mean_interval([*line.after.interface.values()]))
        for (name, _), line in results.items()
        if name == f"teacher-{line.tier}"
    }


def markdown(results: Results, split: str) -> str:
    """Both tables as Markdown; `split` is the one that was judged on."""
    known = teachers(results)
    parts = []
    for tier in ("starter", "hard"):
        here = [row for row in rows(results) if row.tier == tier]
        if not here:
            continue
        n = here[0].after.n
        parts += [f"### {tier.capitalize()} tier, {n} problems of the {split} split, {here[0].steps} steps", ""]
        parts += [
            "| setting | seeds | before | after | gain, points | interface right before | after | below the teacher, points | minutes |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for row in here:
            cells = [row.about, str(len(row.seeds)), _rate(row.before), _rate(row.after), _points(row.gain)]
            cells += [_rate(row.interface_before), _rate(row.interface_after)]
            cells += [_points(row.below_teacher) if row.below_teacher else "–", f"{row.minutes:.1f}"]
            parts.append("| " + " | ".join(cells) + " |")
        if tier in known:
            passed, interface = known[tier]
            parts.append(f"| teacher | – | – | {_rate(passed)} | – | – | {_rate(interface)} | – | – |")
        parts.append("")
    compared = added(results)
    if compared:
        parts += ["### What each adds", "", "| ingredient | difference, points | so it |", "|---|---|---|"]
        parts += [f"| {a.about} | {_points(a.difference)} | {a.words} |" for a in compared]
        parts.append("")
    return "\n".join(parts)


def as_data(results: Results) -> dict[str, Any]:
    """Both tables as JSON-able data."""
    known = teachers(results)
    return {
        "settings": [asdict(row) for row in rows(results)],
        "added": [asdict(entry) for entry in added(results)],
        "teachers": {t: {"passed": asdict(p), "interface": asdict(i)} for t, (p, i) in known.items()},
    }


def _lines(results: Results, name: str) -> list[Measured]:
    return [results[key] for key in sorted(results) if key[0] == name]


def _shared(lines: Sequence[Measured]) -> list[str]:
    """The problems that all of them have a rate for."""
    return sorted(set.intersection(*(set(line.after.passed) for line in lines)))


def _table(lines: Sequence[Measured], when: str, what: str) -> np.ndarray:
    """Seeds by problems."""
    shared = set.intersection(*(set(getattr(getattr(line, w), what)) for line in lines for w in ("before", "after")))
    return np.array([[getattr(getattr(line, when), what)[p] for p in sorted(shared)] for line in lines])


def _rate(interval: Interval) -> str:
    return f"{interval.mean:.3f} [{interval.lo:.3f}, {interval.hi:.3f}]"


def _points(interval: Interval) -> str:
    return f"{100 * interval.mean:+.1f} [{100 * interval.lo:+.1f}, {100 * interval.hi:+.1f}]"
