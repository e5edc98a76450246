"""Is the run healthy? λ, cut and duplicate answers, staleness, pools, safe ranges, groups that were set aside.

Blocks show metrics that the steps recorded; blocks whose metrics were not recorded are omitted.
"""

from __future__ import annotations

import json

from rtl_core.reporting.blocks import Block, Figure, Source, Table, cells, draw
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.figures.distillation import metric
from rtl_core.reporting.text import cell
from rtl_core.reporting.theme import PERCENT, axis, layout

_RANGE = """
SELECT arg_max(value, step) AS last, min(value) AS lowest, max(value) AS highest, count(*) AS steps,
       count(*) FILTER (WHERE {outside}) AS outside
FROM step_metrics WHERE run = $run AND name = $name
"""
_REASONS = {
    "groups/replaced": "replaced: equal rewards, no learning signal",
    "groups/quarantined": "quarantined: grading kept failing",
}
"""Metric -> why its groups were set aside."""
_SET_ASIDE = """
SELECT name, sum(value) AS groups, count(*) FILTER (WHERE value > 0) AS steps,
       max(step) FILTER (WHERE value > 0) AS last
FROM step_metrics WHERE run = $run AND name IN ('groups/replaced', 'groups/quarantined')
GROUP BY name HAVING sum(value) > 0 ORDER BY name
"""


@SECTIONS.register("control")
@section("Is the run healthy?", "Metrics to watch, and what the controllers did.", place=50)
def blocks(source: Source) -> list[Block]:
    return draw(source, drift, answers, kl_weight, staleness, ranges, set_aside)


def drift(source: Source) -> Figure:
    caption = (
        "Mean difference between the log-probabilities of sampler and trainer for the same "
        "tokens, in nats. Healthy is under "
        "0.01 (dotted); a larger value means that the sampling weights are not the trained weights."
    )
    return metric(
        source,
        "health",
        "optim/kl_sample_train_v1",
        "Sampler against trainer",
        caption,
        "@line3",
        limit=0.01,
    )


def kl_weight(source: Source) -> Figure:
    """λ and the KL by step; only where λ changed."""
    data = source.curves(
        ("learning/kl_weight", "λ", "@teacher", "%{y:.3g}", {"width": 2.4}),
        (
            "teacher_kl",
            "teacher KL",
            "@line0",
            "%{y:.4f}",
            {"width": 1.6, "dash": "dot", "yaxis": "y2"},
        ),
    )
    weights = [value for trace in data if trace["name"] == "λ" for value in trace["y"]]
    caption = (
        "The penalty on a token for each nat of KL to the teacher, as scheduled or controlled."
    )
    right = axis(
        "nats per token", overlaying="y", side="right", rangemode="tozero", showgrid=False
    )
    return source.by_step(
        "kl-weight",
        "λ, the weight of the KL",
        caption,
        data if len(set(weights)) > 1 else [],
        axis("λ", rangemode="tozero"),
        margin={"r": 60},
        yaxis2=layout(yaxis=right)["yaxis"],
    )


def answers(source: Source) -> Figure:
    data = source.curves(
        ("env/all/truncated", "cut at the token limit", "@bad", "%{y:.1%}"),
        ("env/all/duplicates", "duplicates within the group", "@mixed", "%{y:.1%}"),
        ("groups/no_signal", "groups without a learning signal", "@slow", "%{y:.1%}"),
        cliponaxis=False,
    )
    caption = (
        "Answers cut at the token limit should stay few, and so should groups with equal rewards, "
        "which train only the KL. "
        "Answers equal to an earlier one of their group grow with certainty: 60 to 90 % are "
        "normal where answers are short, as in the demo."
    )
    title = "Cut, duplicate and uninformative answers"
    return source.by_step("answers-health", title, caption, data, axis("share", **PERCENT))


def staleness(source: Source) -> Figure:
    """Staleness by step; only where it was ever above 0."""
    oldest = ("staleness/max", "oldest", "@muted", "%{y:.2f}", {"dash": "dot"})
    data = source.curves(("staleness/mean", "mean", "@after", "%{y:.2f}"), oldest)
    caption = "Train steps between the weights that sampled an answer and the weights that train on it."
    traces = data if any(any(trace["y"]) for trace in data) else []
    yaxis = axis("steps behind", rangemode="tozero")
    return source.by_step("staleness", "Staleness", caption, traces, yaxis, height=260)


def pools(source: Source) -> Figure:
    roles = {"easy": "@easy", "normal": "@medium", "hard": "@hard", "resting": "@silent"}
    lines = ((f"curriculum/{pool}", pool, role, "%{y:.0f}") for pool, role in roles.items())
    data = source.curves(*lines, width=0.8, stackgroup="pools")
    caption = (
        "Problems in each pool when a step was drawn, by the run's own measurements; "
        "resting problems are not drawn."
    )
    yaxis = axis("problems", rangemode="tozero")
    return source.by_step("pools", "Pools of the curriculum", caption, data, yaxis, wide=True)


def ranges(source: Source) -> Table:
    (run,) = source.ask("SELECT config FROM runs WHERE run = $run")
    limits = ((json.loads(run["config"] or "{}").get("health") or {}).get("ranges")) or {}
    rows = []
    for name, limit in sorted(limits.items()):
        lowest, highest = (
            None if end is None else float(end) for end in map(limit.get, ("min", "max"))
        )
        outside = ["isnan(value)"]
        outside += [] if lowest is None else [f"value < {lowest!r}"]
        outside += [] if highest is None else [f"value > {highest!r}"]
        (row,) = source.ask(_RANGE.format(outside=" OR ".join(outside)), name=name)
        bottom = "−∞" if lowest is None else f"{lowest:g}"
        top = "∞" if highest is None else f"{highest:g}"
        measured = [cell(row[column]) for column in ("last", "lowest", "highest")]
        steps = f"{row['outside']} of {row['steps']}"
        rows.append([name, f"{bottom} to {top}", *measured, steps])
    return Table(
        "safe-ranges",
        "Safe ranges",
        "Healthy ranges of the configuration (health.ranges), and the measured values. A run that "
        "is outside a range for "
        "health.patience consecutive steps stops.",
        "`metric` | range: | last: | lowest: | highest: | steps outside:",
        rows,
    )


def set_aside(source: Source) -> Table:
    lines = []
    for row in source.ask(_SET_ASIDE):
        groups = f"{row['groups']:.0f}"
        lines.append([_REASONS[row["name"]], groups, *cells(row, "steps", "last")])
    return Table(
        "set-aside",
        "Groups set aside",
        "Groups that were sampled and then replaced or not used.",
        "reason | groups: | in steps: | last step:",
        lines,
        wide=False,
    )
