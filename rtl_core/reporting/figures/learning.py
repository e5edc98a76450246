"""The training rollouts: reward and pass rate, raw and at equal difficulty, outcomes, rewards and groups."""

from __future__ import annotations

import numpy as np

from rtl_core.learning.equal_difficulty import SUFFIX
from rtl_core.learning.intervals import mean_interval
from rtl_core.reporting.blocks import (
    STACKED,
    Block,
    Figure,
    Source,
    band,
    bar,
    curve,
    draw,
    left_out,
    spread,
    values,
)
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.text import EQUAL_DIFFICULTY
from rtl_core.reporting.theme import OUTCOMES, PERCENT, Spec, axis, faded, layout, line

_STAGES = ("format", "interface", "syntax", "tests")

_TERMS = """
SELECT avg(step) AS step, term, sum(contribution * n) / sum(n) AS contribution
FROM (SELECT step, term, avg(weight * value) AS contribution, count(*) AS n FROM reward_terms
WHERE run = $run AND purpose = 'train' AND weight <> 0 GROUP BY step, term)
GROUP BY step // $width, term ORDER BY list_position(['format', 'interface', 'syntax', 'tests'], term), term, 1
"""
_TOTALS = """
SELECT avg(step) AS step, sum(reward * rollouts) / sum(rollouts) AS reward
FROM reward_by_step WHERE run = $run GROUP BY step // $width ORDER BY 1
"""
_PASS_RATE = """
SELECT bin, difficulty, avg(step) AS step, list(rate) AS rates FROM (
    SELECT step // $width AS bin, difficulty, v.problem_id, avg(step) AS step,
           avg(CAST(outcome = 'passed' AS INTEGER)) AS rate
    FROM verdicts v JOIN run_problems p ON p.run = v.run AND p.problem_id = v.problem_id
    WHERE v.run = $run AND purpose = 'train' AND outcome <> 'infrastructure_error' GROUP BY ALL)
GROUP BY bin, difficulty ORDER BY bin
"""
_OUTCOMES = """
WITH counts AS (SELECT step // $width AS bin, outcome, CAST(sum(rollouts) AS BIGINT) AS n FROM outcomes_by_step
                WHERE run = $run GROUP BY ALL)
SELECT outcome, bin * $width + ($width - 1) / 2 AS middle, coalesce(n, 0) AS answers,
       coalesce(n, 0) / sum(n) OVER (PARTITION BY bin) AS share
FROM (SELECT DISTINCT bin FROM counts) CROSS JOIN (SELECT DISTINCT outcome FROM counts)
LEFT JOIN counts USING (bin, outcome) ORDER BY bin
"""
# Bars are 1, 2 or 5 in a power of ten wide, and at most 20.
_REWARDS = """
WITH mine AS (SELECT {part} AS part, total FROM rewards WHERE run = $run AND purpose = 'train'),
span AS (SELECT greatest(max(total) - min(total), 0.1) / 20 AS least, pow(10, floor(log10(least))) AS unit FROM mine),
bars AS (SELECT unit * list_min(list_filter([1, 2, 5, 10], lambda m: m * unit >= least)) AS size FROM span)
SELECT part, round(round(total / size) * size, 6) AS reward, any_value(size) AS size, count(*) AS answers,
       count(*) / sum(count(*)) OVER (PARTITION BY part) AS share
FROM mine, bars GROUP BY part, reward ORDER BY part, reward
"""
_GROUPS = """
SELECT step // $width * $width + ($width - 1) / 2 AS middle, sum(all_good) / sum(groups) AS all_good,
       sum(mixed) / sum(groups) AS mixed, sum(all_bad) / sum(groups) AS all_bad,
       sum(no_signal) / sum(groups) AS no_signal
FROM group_mix WHERE run = $run GROUP BY step // $width ORDER BY middle
"""


@SECTIONS.register("training")
@section(
    "Training rollouts",
    "The rollouts of the train steps; those without a learning signal were not trained on, and equal answers as one.",
    place=30,
)
def blocks(source: Source) -> list[Block]:
    return draw(source, reward, equal_difficulty, pass_rate, outcomes, rewards, groups)


def reward(source: Source) -> Figure:
    rows = source.ask(_TERMS)
    data: list[Spec] = []
    for i, term in enumerate(dict.fromkeys(r["term"] for r in rows)):
        mine = [r for r in rows if r["term"] == term]
        role = f"@{term}" if term in _STAGES else line(i)
        x, y = values(mine, "step", "contribution")
        area = {"stackgroup": "terms", "fillcolor": faded(role, 0.85)}
        data.append(curve(term, x, y, role, "%{y:.3f}", width=0.5, **area))
    totals = source.ask(_TOTALS)
    equal = source.recorded(source.width(), f"env/all/reward/total{SUFFIX}")
    if totals:
        colour = faded("@ink", 0.35) if equal else "@ink"
        steps, rewards = values(totals, "step", "reward")
        data.append(curve("total", steps, rewards, colour, "%{y:.3f}", width=1.8))
    data += [
        curve("total at equal difficulty", *points, "@ink", "%{y:.3f}", width=2.4)
        for points in equal.values()
    ]
    caption = (
        "Mean reward of the training rollouts, split into the contribution of each term (weight × value). "
        "Where problems.weak_ceiling applies, the total is less than the sum. "
        f"The KL to the teacher is not included.{f' {EQUAL_DIFFICULTY}' if equal else ''}"
    )
    return source.by_step(
        "reward", "Reward by term", caption, data, axis("reward", rangemode="tozero")
    )


def equal_difficulty(source: Source) -> Figure:
    raw = "env/all/tests_passed"
    data = source.curves(
        (raw, "raw", faded("@after", 0.35), "%{y:.1%}", {"width": 1.6}),
        (raw + SUFFIX, "at equal difficulty", "@after", "%{y:.1%}", {"width": 2.4}),
    )
    title, traces = "Pass rate at equal difficulty", data if len(data) == 2 else []
    return source.by_step(
        "equal-difficulty", title, EQUAL_DIFFICULTY, traces, axis("pass rate", **PERCENT)
    )


def pass_rate(source: Source) -> Figure:
    rows = source.ask(_PASS_RATE, width=source.width(10))
    data: list[Spec] = []
    for difficulty in ("easy", "medium", "hard"):
        steps, rates = values(
            [r for r in rows if r["difficulty"] == difficulty], "step", "rates"
        )
        if steps:
            data += band(steps, list(map(mean_interval, rates)), difficulty, f"@{difficulty}")
    caption = "Share of training rollouts that pass, with 95 % intervals over the problems of each point."
    yaxis = axis("pass rate", **PERCENT)
    return source.by_step("pass-rate", "Pass rate by difficulty", caption, data, yaxis, most=10)


def outcomes(source: Source) -> Figure:
    rows = source.ask(_OUTCOMES)
    data = []
    for outcome, (role, words) in OUTCOMES.items():
        mine = [r for r in rows if r["outcome"] == outcome]
        x, shares, answers = values(mine, "middle", "share", "answers")
        more = {"customdata": answers, "meta": outcome}
        if mine:
            data.append(bar(words, x, shares, role, "%{y:.1%} (%{customdata})", **more))
    caption = "Outcome of each training rollout, decided by the first stage that fails."
    return source.by_step(
        "outcomes", "Outcomes", caption, data, axis("share", **PERCENT), **STACKED
    )


def rewards(source: Source) -> Figure | None:
    """Histogram of the rewards of the training answers, for a few periods of the run."""
    kind, sql = source.parts
    rows = source.ask(_REWARDS.format(part=sql))
    if not rows:
        return None
    every = sorted({r["part"] for r in rows})
    periods = spread(every, 4)
    data = []
    size = rows[0]["size"]
    width = 0.85 * size / len(periods)
    depths = np.linspace(1, 0.25, len(periods))[::-1]
    for i, (part, depth) in enumerate(zip(periods, depths, strict=True)):
        mine = [r for r in rows if r["part"] == part]
        x, shares, answers = values(mine, "reward", "share", "answers")
        name, colour = f"{kind} {part + 1}", faded("@after", round(depth, 2))
        hover = "%{y:.1%} (%{customdata} answers)"
        place = {"width": width, "offset": (i - len(periods) / 2) * width}
        data.append(bar(name, x, shares, colour, hover, customdata=answers, **place))
    return Figure(
        "rewards",
        f"Rewards by {kind}",
        f"Share of the training answers with a reward around each value (± {size / 2:g}); the stronger, the "
        f"later the {kind}.{left_out(periods, len(every), 'epochs')}",
        data,
        layout(xaxis=axis("reward"), yaxis=axis("share of answers", tickformat=".0%")),
    )


def groups(source: Source) -> Figure:
    rows = source.ask(_GROUPS)
    x, equal = values(rows, "middle", "no_signal")
    data = []
    for kind, role in (("all_bad", "@bad"), ("mixed", "@mixed"), ("all_good", "@good")):
        (shares,) = values(rows, kind)
        data.append(bar(kind.replace("_", " "), x, shares, role, "%{y:.0%}"))
    style: Spec = {"width": 1.8, "dash": "dot"}
    data.append(curve("equal rewards", x, equal, "@ink", "%{y:.0%}", **style))
    repeats = ("env/all/duplicates", "repeated answers", "@ink", "%{y:.0%}", {"width": 1.2})
    caption = (
        "Share of groups (the samples of a problem in a step) in which all, some or no answers "
        "pass. Dotted: groups with equal rewards, which train at most the KL to the teacher. "
        "Thin: answers that repeat one of their group; they grow with certainty, and 60 to 90 % "
        "are normal where answers are short, as in the demo."
    )
    yaxis = axis("share of groups", **PERCENT)
    data += source.curves(repeats)
    return source.by_step(
        "groups", "Group mix", caption, data if rows else [], yaxis, **STACKED
    )
