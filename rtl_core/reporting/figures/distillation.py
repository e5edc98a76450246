"""How close is the student to the teacher? KL by step and by token position."""

from __future__ import annotations

from rtl_core.reporting.blocks import Block, Figure, Source, curve, draw, values
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.theme import Spec, axis, layout

POSITION_ROLLOUTS = 800
"""Maximum rollouts per quarter of the run for the curve by position."""
POSITION_SHARE = 0.05
"""Minimum share of those rollouts that must reach a position: a mean over a few long ones says little."""

_KL = """
SELECT avg(step) AS step, sum(k1 * tokens) / sum(tokens) AS k1, sum(k2 * tokens) / sum(tokens) AS k2,
       sum(k3 * tokens) / sum(tokens) AS k3
FROM teacher_kl_by_step WHERE run = $run GROUP BY step // $width ORDER BY 1
"""
# `own` is false for a token that a tool gave.
_KL_BY_POSITION = """
WITH span AS (SELECT greatest(1, max(step) + 1) AS steps FROM teacher_scores
              WHERE run = $run AND purpose = 'train'),
ranked AS (SELECT rollout, least(3, step * 4 // steps) AS quarter FROM teacher_scores, span
           WHERE run = $run AND purpose = 'train'
           QUALIFY row_number() OVER (PARTITION BY quarter ORDER BY hash(rollout)) <= $most),
tokens_of AS (SELECT quarter, unnest(s.logprobs_T) - unnest(q.logprobs_T) AS k,
                     generate_subscripts(s.logprobs_T, 1) AS position,
                     unnest(coalesce(s.own_T, list_transform(s.tokens_T, lambda token: true))) AS own
              FROM ranked JOIN tokens s USING (rollout) JOIN teacher_tokens q USING (rollout)
              WHERE quarter IN (0, 3)),
reached AS (SELECT quarter, position, avg(k) AS k, count(*) AS n FROM tokens_of WHERE own
            GROUP BY quarter, position QUALIFY n >= $few * max(n) OVER (PARTITION BY quarter)),
bins AS (SELECT ceil(max(position) / 120) AS width FROM reached)
SELECT quarter, (position - 1) // width * width + 1 AS place, sum(k * n) / sum(n) AS k, CAST(sum(n) AS BIGINT) AS tokens
FROM reached, bins GROUP BY quarter, place ORDER BY quarter, place
"""


@SECTIONS.register("teacher")
@section(
    "How close is the student to the teacher?",
    "The KL to the teacher, which distillation reduces.",
    place=40,
)
def blocks(source: Source) -> list[Block]:
    return draw(source, kl, kl_by_position)


def kl(source: Source) -> Figure | None:
    rows = source.ask(_KL)
    if not rows:
        return None
    # A few tokens with a large KL make k2 many times the others; then it is hidden until it is clicked.
    steps, k1, k2, k3 = values(rows, "step", "k1", "k2", "k3")
    dwarfs = max(k2) > 2 * max(*map(abs, k1), *k3)
    form, second = "%{y:.4f}", {"visible": "legendonly"} if dwarfs else {}
    data = [
        curve("k1", steps, k1, "@line0", form, width=2.4),
        curve("k2", steps, k2, "@line3", form, width=1.6, dash="dash", **second),
        curve("k3", steps, k3, "@line2", form, width=1.6),
    ]
    caption = (
        "Nats per token on the student's own samples, mean over tokens. Three estimators with r = "
        "log p(student) − log p(teacher): "
        "k1 = r (unbiased, used in training), k2 = r²/2, k3 = e⁻ʳ − 1 + r."
        + (" k2 is much larger than the others: click its name to show it." if dwarfs else "")
    )
    yaxis = axis("nats per token", rangemode="tozero")
    return source.by_step("teacher-kl", "Reverse KL to the teacher", caption, data, yaxis)


def kl_by_position(source: Source) -> Figure | None:
    rows = source.ask(_KL_BY_POSITION, most=POSITION_ROLLOUTS, few=POSITION_SHARE)
    if not rows:
        return None
    data = []
    for quarter, name, role in (
        (0, "first quarter of the run", "@before"),
        (3, "last quarter", "@after"),
    ):
        mine = [r for r in rows if r["quarter"] == quarter]
        x, means, tokens = values(mine, "place", "k", "tokens")
        hover = "%{y:.4f} (%{customdata} tokens)"
        data.append(curve(name, x, means, role, hover, customdata=tokens))
    return Figure(
        "kl-position",
        "KL by token position",
        "Mean k1 at each token position of the answer: where student and teacher differ. Over at most "
        f"{POSITION_ROLLOUTS} rollouts per quarter of the run; positions that fewer than "
        f"{POSITION_SHARE:.0%} of them reach are omitted.",
        data,
        layout(xaxis=axis("token position in the answer"), yaxis=axis("nats per token")),
    )


def metric(
    source: Source,
    id_: str,
    name: str,
    title: str,
    caption: str,
    role: str,
    limit: float | None = None,
) -> Figure:
    """One recorded metric by step, in nats per token, with a dotted line at `limit`."""
    data = source.curves((name, title, role, "%{y:.4g}"))
    return single(source, id_, title, caption, data, "nats per token", limit)


def single(
    source: Source,
    id_: str,
    title: str,
    caption: str,
    data: list[Spec],
    unit: str,
    limit: float | None = None,
) -> Figure:
    """A low figure of one curve by step, with a dotted line at `limit`."""
    for trace in data:
        trace["cliponaxis"] = False
    if data and limit is not None:
        ends = [data[0]["x"][0], data[0]["x"][-1]]
        style: Spec = {"width": 1.2, "dash": "dot", "hoverinfo": "skip"}
        data = [*data, curve("limit", ends, [limit, limit], "@muted", "", **style)]
    yaxis = axis(unit, rangemode="tozero")
    return source.by_step(
        id_, title, caption, data, yaxis, height=260, margin={"t": 12}, showlegend=False
    )
