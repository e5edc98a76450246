"""Is the run healthy? Entropy, loss, gradients, length of answers, λ, staleness, pools, safe ranges, groups set aside.

Blocks show metrics that the steps recorded; blocks whose metrics were not recorded are omitted.
"""

from __future__ import annotations

from typing import Any

from rtl_core.learning.intervals import Interval
from rtl_core.reporting.blocks import (
    Block,
    Figure,
    Source,
    Table,
    band,
    curve,
    draw,
    listed,
    values,
)
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.figures.distillation import metric, single
from rtl_core.reporting.theme import Spec, axis, layout, part

# One value of each trained step: its loss by trained token (by token of the whole sequences where the service does
# not count trained ones), or its gradient norm.
_LOSS = """
max(value) FILTER (WHERE name IN ('service/loss:sum', 'service/total_loss:sum'))
/ coalesce(max(value) FILTER (WHERE name = 'service/tokens:sum'), any_value(nullif(train_tokens, 0)))
"""
_NORM = "max(value) FILTER (WHERE contains(name, 'grad_norm'))"
_TRAINED = """
SELECT avg(step) AS step, avg(value) AS value FROM (
    SELECT step, {value} AS value FROM step_metrics JOIN steps USING (run, step)
    WHERE run = $run AND name LIKE 'service/%' GROUP BY step)
WHERE value IS NOT NULL GROUP BY step // $width ORDER BY 1
"""
_LENGTH = """
SELECT avg(step) AS step, median(n_tokens) AS middle, quantile_disc(n_tokens, [0.1, 0.9]) AS ends,
       avg(CAST(stop_reason = 'length' AS INTEGER)) AS cut
FROM rollouts WHERE run = $run AND purpose = 'train' GROUP BY step // $width ORDER BY 1
"""
_RANGES = """
WITH limits AS (
    SELECT key AS name, CAST(value ->> 'min' AS DOUBLE) AS low, CAST(value ->> 'max' AS DOUBLE) AS high
    FROM (SELECT unnest(json_keys(config, '$.health.ranges')) AS key,
                 json_extract(config, '$.health.ranges."' || key || '"') AS value FROM runs WHERE run = $run))
SELECT name, coalesce(format('{:g}', low), '−∞') || ' to ' || coalesce(format('{:g}', high), '∞') AS healthy,
       arg_max(value, step) AS last, min(value) AS lowest, max(value) AS highest,
       format('{} of {}', count(*) FILTER (WHERE isnan(value) OR value < low OR value > high), count(step)) AS outside
FROM limits LEFT JOIN (SELECT * FROM step_metrics WHERE run = $run) USING (name) GROUP BY name, low, high ORDER BY name
"""
_SET_ASIDE = """
SELECT CASE name WHEN 'groups/replaced' THEN 'replaced: no learning signal'
                 ELSE 'quarantined: grading kept failing' END AS reason,
       format('{:.0f}', sum(value)) AS groups, count(*) FILTER (WHERE value > 0) AS steps,
       max(step) FILTER (WHERE value > 0) AS last
FROM step_metrics WHERE run = $run AND name IN ('groups/replaced', 'groups/quarantined')
GROUP BY name HAVING sum(value) > 0 ORDER BY name
"""


@SECTIONS.register("control")
@section("Is the run healthy?", "Metrics to watch, and what the controllers did.", place=50)
def blocks(source: Source) -> list[Block]:
    return draw(
        source,
        entropy,
        loss,
        gradient_norm,
        length,
        drift,
        kl_weight,
        staleness,
        ranges,
        set_aside,
    )


def entropy(source: Source) -> Figure:
    caption = (
        "Mean −log p of the sampled tokens, in nats: how uncertain the student is. "
        "At zero, the answers of a group are identical."
    )
    return metric(source, "entropy", "optim/entropy", "Entropy", caption, "@after")


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
    return source.by_step(
        "kl-weight",
        "λ, the weight of the KL",
        caption,
        data if len(set(weights)) > 1 else [],
        axis("λ", rangemode="tozero"),
        margin={"r": 60},
        yaxis2=right_axis("nats per token"),
    )


def loss(source: Source) -> Figure:
    """The loss for each token that the steps trained on."""
    steps, losses = values(source.ask(_TRAINED.format(value=_LOSS)), "step", "value")
    caption = (
        "What the train step minimised, per trained token, as the service reported it. "
        "Its level depends on the algorithm; watch for jumps."
    )
    data = [curve("loss", steps, losses, "@line4", "%{y:.4g}")] if steps else []
    return single(source, "loss", "Loss", caption, data, "loss per token")


def gradient_norm(source: Source) -> Figure:
    """The norm of the gradient, and above which it is clipped."""
    steps, norms = values(source.ask(_TRAINED.format(value=_NORM)), "step", "value")
    clip = source.history.existing_run(source.run).setting("learning", "grad_clip_norm")
    caption = "Norm of the gradient, before clipping."
    if clip:
        caption += f" Where it is above {clip:g} (dotted), it is scaled down to that."
    data = [curve("gradient norm", steps, norms, "@line3", "%{y:.4g}")] if steps else []
    return single(source, "gradient-norm", "Gradient norm", caption, data, "norm", clip or None)


def length(source: Source) -> Figure:
    """Tokens of an answer, and the share of answers that the limit cut."""
    rows = source.ask(_LENGTH)
    steps, middles, ends, cuts = values(rows, "step", "middle", "ends", "cut")
    spread = [
        Interval(middle, low, high, 0)
        for middle, (low, high) in zip(middles, ends, strict=True)
    ]
    name, formats = "median", (".0f", ".0f")
    data = band(steps, spread, name, "@after", formats=formats) if rows else []
    caption = (
        "Tokens of a training answer: the median, and a band with four fifths of all answers."
    )
    right: Spec = {}
    if any(cuts):
        style: Spec = {"yaxis": "y2", "dash": "dot"}
        data.append(curve("cut at the token limit", steps, cuts, "@bad", "%{y:.1%}", **style))
        right = {"margin": {"r": 60}, "yaxis2": right_axis("answers cut", tickformat=".2~%")}
        caption += (
            " Dotted, at the right: the share cut at the token limit, which should stay small."
        )
    else:
        caption += " None was cut at the token limit."
    yaxis = axis("tokens", rangemode="tozero")
    return source.by_step("length", "Length of answers", caption, data, yaxis, **right)


def right_axis(title: str, **changes: Any) -> Spec:
    """A second axis, at the right of a figure."""
    spec: Spec = layout(yaxis=axis(title, **part("right", **changes)))["yaxis"]
    return spec


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
    return listed(
        "safe-ranges",
        "Safe ranges",
        "Healthy ranges of the configuration (health.ranges), and the measured values. A run that "
        "is outside a range for "
        "health.patience consecutive steps stops.",
        "`metric` | range: | last: | lowest: | highest: | steps outside:",
        source.ask(_RANGES),
    )


def set_aside(source: Source) -> Table:
    return listed(
        "set-aside",
        "Groups set aside",
        "Groups that were sampled and then replaced or not used.",
        "reason | groups: | in steps: | last step:",
        source.ask(_SET_ASIDE),
        wide=False,
    )
