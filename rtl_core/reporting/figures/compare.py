"""Comparison of several runs: results, curves and settings."""

from __future__ import annotations

import itertools
import json
from functools import partial
from typing import NamedTuple, get_args

from rtl_core.learning.equal_difficulty import SUFFIX
from rtl_core.learning.intervals import Interval
from rtl_core.reporting.blocks import (
    Block,
    Figure,
    Source,
    Table,
    curve,
    draw,
    plain,
    rates,
)
from rtl_core.reporting.evaluations import (
    ALL_SOURCES,
    MIXTURE,
    PROBLEMS_SQL,
    ROLES,
    EvaluationView,
    RunResult,
    paired_rates,
    same_problems,
)
from rtl_core.reporting.figures.gain_parts import causes
from rtl_core.reporting.figures.held_out import Against, held_out
from rtl_core.reporting.text import (
    BY_P,
    EQUAL_DIFFICULTY,
    gain_in_words,
    leaves,
    p_in_words,
    rate_in_words,
)
from rtl_core.reporting.theme import LEVELS, LINES, PERCENT, axis, dots, faded, line
from rtl_grader.words import visible


class Quantity(NamedTuple):
    """A recorded metric that is drawn as a curve."""

    id: str
    """Of the figure."""
    title: str
    caption: str
    unit: str
    metric: str


CURVES = (
    Quantity(
        "compare-reward",
        "Reward",
        "Mean reward of the training rollouts (at equal difficulty where recorded)",
        "reward",
        "env/all/reward/total",
    ),
    Quantity(
        "compare-pass",
        "Pass rate",
        "Share of the training rollouts that pass (at equal difficulty where recorded)",
        "pass rate",
        "env/all/tests_passed",
    ),
    Quantity(
        "compare-kl",
        "Reverse KL to the teacher",
        "Mean k1 over tokens",
        "nats per token",
        "teacher_kl",
    ),
)
_RESULTS = """
SELECT run, policy, step, pass_at_1, lo, hi FROM evaluations WHERE run = $run AND status = 'done'
"""
_LEVELS = """
SELECT coalesce(level, 'passed') AS level, count(*) / sum(count(*)) OVER () AS share FROM verdicts
LEFT JOIN (SELECT rollout, level FROM failure_levels WHERE run = $run) USING (rollout)
WHERE run = $run AND evaluation = $evaluation AND outcome NOT IN ('infrastructure_error', 'not_tested')
GROUP BY level
"""


def blocks(sources: list[Source]) -> list[Block]:
    return draw(
        sources,
        results,
        table,
        *(partial(held_out, against=against) for against in get_args(Against)),
        causes,
        failures,
        *(partial(by_step, quantity=quantity) for quantity in CURVES),
        differences,
    )


def results(sources: list[Source]) -> Figure:
    data = []
    for name, role in ROLES.items():
        own: dict[str, Interval] = {}
        for source in sources:
            own |= {plain(source.run): v.pass_at_1 for n, v in source.result.views if n == name}
        if own:
            data.append(rates(name, [*own.values()], [*own], role, "%{y}: %{x:.1%}", size=11))
    for source in sources:
        source.ask(_RESULTS)
    return Figure(
        "compare-result",
        "Held-out pass@1",
        "Student before, student after and teacher, one row per run; bars are 95 % intervals over problems.",
        data,
        dots(yaxis={"range": [len(sources) - 0.5, -0.5], "type": "category"}),
        height=150 + 42 * len(sources),
        wide=True,
    )


def table(sources: list[Source]) -> Table:
    """Last results compared with those of the first run, paired by problem: by source of problems and for
    all together."""
    results = [source.result for source in sources]
    # A run with one source is compared with the same source of a run with several.
    labels: list[str] = []
    if any(result.mixed for result in results):
        labels = list(dict.fromkeys(label for result in results for label in result.by_source))
    same = [same_problems(source.history, sources[0].run, source.run) for source in sources]
    rows, changed = [], set[str]()
    for label in [*labels, ALL_SOURCES]:
        ends = [_last(result, label) for result in results]
        first = ends[0].rates if ends[0] else {}
        for source, after, shared in zip(sources, ends, same, strict=True):
            if after is None:
                continue
            against = ["–"] * 3
            if source.run != sources[0].run:
                changed |= first.keys() & after.rates.keys() - shared
                theirs = {p: rate for p, rate in after.rates.items() if p in shared}
                if test := paired_rates(first, theirs):
                    against = [gain_in_words(test), str(test.n), p_in_words(test.p_value)]
            names = [label, source.run] if labels else [source.run]
            shares = map(rate_in_words, (after.pass_at_1, after.interface))
            rows.append([*names, str(after.record.step), *shares, *against])
            source.ask(PROBLEMS_SQL, evaluation=after.record.key)
    examples = visible(", ".join(sorted(changed)[:3]))
    named = f": {len(changed)}, such as {examples}" if changed else ""
    header = "`run` | steps: | pass@1: | interface right: | difference: | shared problems: | p:"
    return Table(
        "compare-table",
        "Results in numbers",
        f"The last evaluation of each student. The difference is in points to {sources[0].run}, "
        "over the problems of both "
        f"(bootstrap interval, sign-flip permutation test). {BY_P} Problems whose prompt, context or "
        f"harness changed are not compared{named}." + (f" {MIXTURE}" if labels else ""),
        f"source | {header}" if labels else header,
        rows,
    )


def _last(result: RunResult, label: str) -> EvaluationView | None:
    """The last evaluation of the student on the problems of a source, or on all of them."""
    part = result if label == ALL_SOURCES else result.by_source.get(label)
    return part.after if part else None


def failures(sources: list[Source]) -> Table:
    columns: dict[str, dict[str, float]] = {}
    for source in sources:
        result = source.result
        for name, view in (("before", result.before), ("after", result.after)):
            if view is not None:
                rows = source.ask(_LEVELS, evaluation=view.record.key)
                columns[f"{source.run} {name}:"] = {r["level"]: r["share"] for r in rows}
    lines = []
    for level in ("passed", *reversed(LEVELS)):
        percents = [100 * shares.get(level, 0) for shares in columns.values()]
        if any(percents):
            lines.append([level, *(f"{percent:.1f} %" for percent in percents)])
    return Table(
        "compare-failures",
        "Kinds of failure",
        "Held-out answers by level, before and after training. "
        "Rules derive the level from the reports of the harness.",
        " | ".join(["answers", *columns]),
        lines,
    )


def differences(sources: list[Source]) -> Table:
    flat = [leaves(source.history.existing_run(source.run).config, ".") for source in sources]
    names = {*itertools.chain(*flat)} - {"run.name"}
    lines = []
    for name in sorted(names):
        values = [json.dumps(one[name], default=str) if name in one else "–" for one in flat]
        if len({*values}) > 1:
            lines.append([name, *values])
    for source in sources:
        source.ask("SELECT run, config FROM runs WHERE run = $run")
    return Table(
        "compare-configuration",
        "Settings that differ",
        "Keys of the configuration whose values differ between the runs.",
        " | ".join(["`key`", *(f"`{source.run}`" for source in sources)]),
        lines,
    )


def by_step(sources: list[Source], quantity: Quantity) -> Figure:
    """One quantity by step, a line per run. For a single run also the raw curve, lighter."""
    metric, unit = quantity.metric, quantity.unit
    data, caption = [], f"{quantity.caption}, by step."
    longest = max(sources, key=Source.width)
    for i, source in enumerate(sources):
        points = source.recorded(longest.width(), metric, metric + SUFFIX)
        dash = "solid" if i < LINES else "dash"
        equal, raw = points.get(metric + SUFFIX), points.get(metric)
        if raw and equal and len(sources) == 1:
            colour = faded(line(i), 0.35)
            data.append(curve(f"{source.run}, raw", *raw, colour, "%{y:.3f}", meta=source.run))
            caption += f" {EQUAL_DIFFICULTY}"
        if main := equal or raw:
            data.append(
                curve(source.run, *main, line(i), "%{y:.3f}", dash=dash, meta=source.run)
            )
    yaxis = axis(unit, **(PERCENT if unit == "pass rate" else {"rangemode": "tozero"}))
    return longest.by_step(quantity.id, quantity.title, caption, data, yaxis)
