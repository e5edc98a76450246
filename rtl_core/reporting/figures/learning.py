"""The training rollouts: reward and pass rate, raw and at equal difficulty, outcomes, stages and groups."""

from __future__ import annotations

from collections import defaultdict

from rtl_core.learning.equal_difficulty import SUFFIX
from rtl_core.learning.intervals import mean_interval
from rtl_core.reporting.blocks import (
    STACKED,
    Block,
    Figure,
    Source,
    bar,
    curve,
    draw,
    left_out,
    values,
)
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.figures.result import band
from rtl_core.reporting.text import EQUAL_DIFFICULTY
from rtl_core.reporting.theme import OUTCOMES, PERCENT, Spec, axis, faded, layout, line

_STAGES = ("format", "interface", "syntax", "tests")

_TERMS = """
SELECT avg(step) AS step, term, sum(contribution * n) / sum(n) AS contribution
FROM (SELECT step, term, avg(weight * value) AS contribution, count(*) AS n FROM reward_terms
WHERE run = $run AND purpose = 'train' AND weight <> 0 GROUP BY step, term)
GROUP BY step // $width, term ORDER BY 1
"""
_TOTALS = """
SELECT avg(step) AS step, sum(reward * rollouts) / sum(rollouts) AS reward
FROM reward_by_step WHERE run = $run GROUP BY step // $width ORDER BY 1
"""
_PASS_RATE = """
SELECT step // $width AS bin, difficulty, v.problem_id, avg(step) AS step,
       avg(CAST(outcome = 'passed' AS INTEGER)) AS rate
FROM verdicts v JOIN run_problems p ON p.run = v.run AND p.problem_id = v.problem_id
WHERE v.run = $run AND purpose = 'train' AND outcome <> 'infrastructure_error'
GROUP BY ALL ORDER BY bin
"""
_OUTCOMES = """
SELECT step // $width AS bin, outcome, sum(rollouts) AS n FROM outcomes_by_step
WHERE run = $run GROUP BY bin, outcome ORDER BY bin
"""
_FUNNEL = """
SELECT {part} AS part, stage, count(*) FILTER (WHERE status = 'passed') AS passed,
       count(*) AS rollouts, avg(CAST(status = 'passed' AS INTEGER)) AS passed_share
FROM verdict_stages WHERE run = $run AND purpose = 'train'
GROUP BY part, stage ORDER BY part, min(position)
"""
_GROUPS = """
SELECT step // $width AS bin, sum(groups) AS groups, sum(all_good) AS all_good,
       sum(mixed) AS mixed, sum(all_bad) AS all_bad, sum(no_signal) AS no_signal
FROM group_mix WHERE run = $run GROUP BY bin ORDER BY bin
"""


@SECTIONS.register("training")
@section(
    "Training rollouts",
    "The rollouts of the train steps; those without a learning signal were not trained on, and equal answers as one.",
    place=30,
)
def blocks(source: Source) -> list[Block]:
    return draw(source, reward, equal_difficulty, pass_rate, outcomes, funnel, groups)


def reward(source: Source) -> Figure:
    rows = source.ask(_TERMS)
    terms = sorted(
        {r["term"] for r in rows}, key=lambda t: (_STAGES.index(t) if t in _STAGES else 9, t)
    )
    data: list[Spec] = []
    for i, term in enumerate(terms):
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
        rates, steps = defaultdict(list), defaultdict(list)
        for r in rows:
            if r["difficulty"] == difficulty:
                rates[r["bin"]].append(r["rate"])
                steps[r["bin"]].append(r["step"])
        if rates:
            x = [sum(steps[b]) / len(steps[b]) for b in rates]
            data += band(
                x, [mean_interval(rates[b]) for b in rates], difficulty, f"@{difficulty}"
            )
    caption = "Share of training rollouts that pass, with 95 % intervals over the problems of each point."
    yaxis = axis("pass rate", **PERCENT)
    return source.by_step("pass-rate", "Pass rate by difficulty", caption, data, yaxis, most=10)


def outcomes(source: Source) -> Figure:
    rows = source.ask(_OUTCOMES)
    totals: dict[int, float] = defaultdict(float)
    for r in rows:
        totals[r["bin"]] += float(r["n"])
    data = []
    for outcome, (role, words) in OUTCOMES.items():
        counts = {r["bin"]: float(r["n"]) for r in rows if r["outcome"] == outcome}
        if counts:
            x = list(map(source.middle, totals))
            answers = [int(counts.get(b, 0)) for b in totals]
            shares = [counts.get(b, 0.0) / totals[b] for b in totals]
            more = {"customdata": answers, "meta": outcome}
            data.append(bar(words, x, shares, role, "%{y:.1%} (%{customdata})", **more))
    caption = "Outcome of each training rollout, decided by the first stage that fails."
    return source.by_step(
        "outcomes", "Outcomes", caption, data, axis("share", **PERCENT), **STACKED
    )


def funnel(source: Source) -> Figure:
    parts = source.parts
    rows = source.ask(_FUNNEL.format(part=parts.sql))
    every = sorted({r["part"] for r in rows})
    periods = every
    if len(every) > 6:
        places = [round(i * (len(every) - 1) / 5) for i in range(6)]
        periods = sorted({every[place] for place in places})
    data = []
    for i, part in enumerate(periods):
        mine = [r for r in rows if r["part"] == part]
        stages, shares, passed, answers = values(
            mine, "stage", "passed_share", "passed", "rollouts"
        )
        depth = 1.0 if len(periods) == 1 else 0.3 + 0.7 * i / (len(periods) - 1)
        data.append(
            bar(
                f"{parts.name} {part + 1}",
                stages,
                shares,
                faded("@after", round(depth, 2)),
                "%{y:.1%} (%{customdata[0]} of %{customdata[1]})",
                customdata=list(zip(passed, answers, strict=True)),
                text=[f"{100 * share:.0f}" for share in shares],
                textposition="outside",
                textfont={"size": 10.5, "color": "@muted"},
                cliponaxis=False,
            )
        )
    return Figure(
        "funnel",
        "How far answers get",
        f"Share of all training answers that passed each stage of grading, in percent, by {parts.name}"
        f"{' of the run' if parts.name == 'quarter' else ''}.{left_out(len(periods), len(every), 'epochs')}",
        data,
        layout(
            xaxis=axis(""),
            yaxis=axis("passed", **{**PERCENT, "range": [0, 1.1]}),
            barmode="group",
            bargap=0.22,
            bargroupgap=0.06,
        ),
    )


def groups(source: Source) -> Figure:
    rows = source.ask(_GROUPS)
    x = [source.middle(r["bin"]) for r in rows]
    kinds = (
        ("all_bad", "all bad", "@bad"),
        ("mixed", "mixed", "@mixed"),
        ("all_good", "all good", "@good"),
    )
    shares = {
        kind: [float(r[kind]) / float(r["groups"]) for r in rows]
        for kind in (*(k for k, _, _ in kinds), "no_signal")
    }
    data = [bar(words, x, shares[kind], role, "%{y:.0%}") for kind, words, role in kinds]
    data.append(
        curve(
            "equal rewards", x, shares["no_signal"], "@ink", "%{y:.0%}", width=1.8, dash="dot"
        )
    )
    caption = (
        "Share of groups (the samples of a problem in a step) in which all, some or no answers "
        "pass. Groups with equal rewards train only "
        "the KL to the teacher."
    )
    yaxis = axis("share of groups", **PERCENT)
    return source.by_step(
        "groups", "Group mix", caption, data if rows else [], yaxis, **STACKED
    )
