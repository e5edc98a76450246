"""How close is the student to the teacher? KL by step and by token position, entropy."""

from __future__ import annotations

from typing import Any

from rtl_core.reporting.blocks import Block, Figure, Source, curve, draw
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.theme import axis, layout

POSITION_ROLLOUTS = 800
"""Maximum rollouts per quarter of the run for the curve by position."""
POSITION_SHARE = 0.05
"""Minimum share of those rollouts that must reach a position: a mean over a few long ones says little."""


@SECTIONS.register("teacher")
@section(
    "How close is the student to the teacher?",
    "The KL to the teacher, which distillation reduces.",
    place=40,
)
def blocks(source: Source) -> list[Block]:
    return draw(source, kl, kl_by_position, entropy)


def kl(source: Source) -> Figure | None:
    rows = source.ask(
        "SELECT avg(step) AS step, sum(k1 * tokens) / sum(tokens) AS k1, sum(k2 * tokens) / sum(tokens) AS k2,"
        " sum(k3 * tokens) / sum(tokens) AS k3 FROM teacher_kl_by_step WHERE run = $run GROUP BY "
        "step // $width ORDER BY 1"
    )
    if not rows:
        return None
    # A few tokens with a large KL make k2 many times the others; then it is hidden until it is clicked.
    dwarfs = max(r["k2"] for r in rows) > 2 * max(max(abs(r["k1"]), r["k3"]) for r in rows)
    styles: dict[str, dict[str, Any]] = {
        "k1": {"width": 2.4},
        "k2": {"width": 1.6, "dash": "dash"},
        "k3": {"width": 1.6},
    }
    if dwarfs:
        styles["k2"]["visible"] = "legendonly"
    data = [
        curve(
            name,
            [r["step"] for r in rows],
            [r[name] for r in rows],
            role,
            "%{y:.4f}",
            **styles[name],
        )
        for name, role in (("k1", "@line0"), ("k2", "@line3"), ("k3", "@line2"))
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
    rows = source.ask(
        "WITH span AS (SELECT greatest(1, max(step) + 1) AS steps FROM teacher_scores WHERE run = "
        "$run AND purpose = 'train'),"
        " ranked AS (SELECT rollout, least(3, step * 4 // steps) AS quarter FROM teacher_scores, span"
        "   WHERE run = $run AND purpose = 'train' QUALIFY row_number() OVER (PARTITION BY "
        "quarter ORDER BY hash(rollout)) <= $most),"
        " tokens_of AS (SELECT quarter, unnest(s.logprobs_T) - unnest(q.logprobs_T) AS k,"
        "   generate_subscripts(s.logprobs_T, 1) AS position,"
        "   unnest(coalesce(s.own_T, list_transform(s.tokens_T, lambda token: true))) AS own"  # false: a tool gave it
        "   FROM ranked JOIN tokens s USING (rollout) JOIN teacher_tokens q USING (rollout) WHERE quarter IN (0, 3))"
        " SELECT quarter, position, avg(k) AS k, count(*) AS n FROM tokens_of WHERE own GROUP BY quarter, position"
        " QUALIFY n >= $few * max(n) OVER (PARTITION BY quarter) ORDER BY quarter, position",
        most=POSITION_ROLLOUTS,
        few=POSITION_SHARE,
    )
    if not rows:
        return None
    longest = max(r["position"] for r in rows)
    width = max(1, -(-longest // 120))
    data = []
    for quarter, name, role in (
        (0, "first quarter of the run", "@before"),
        (3, "last quarter", "@after"),
    ):
        bins: dict[int, tuple[float, int]] = {}
        for r in rows:
            if r["quarter"] == quarter:
                total, n = bins.get((r["position"] - 1) // width, (0.0, 0))
                bins[(r["position"] - 1) // width] = (total + r["k"] * r["n"], n + r["n"])
        x, means = [b * width + 1 for b in bins], [total / n for total, n in bins.values()]
        counts = [n for _, n in bins.values()]
        data.append(
            curve(name, x, means, role, "%{y:.4f} (%{customdata} tokens)", customdata=counts)
        )
    return Figure(
        "kl-position",
        "KL by token position",
        "Mean k1 at each token position of the answer: where student and teacher differ. Over at most "
        f"{POSITION_ROLLOUTS} rollouts per quarter of the run; positions that fewer than "
        f"{POSITION_SHARE:.0%} of them reach are omitted.",
        data,
        layout(xaxis=axis("token position in the answer"), yaxis=axis("nats per token")),
    )


def entropy(source: Source) -> Figure:
    caption = "Mean −log p of the sampled tokens, in nats: how uncertain the student is. At zero, the answers of a group are identical."
    return metric(source, "entropy", "optim/entropy", "Entropy", caption, "@after")


def metric(
    source: Source,
    id_: str,
    name: str,
    title: str,
    caption: str,
    role: str,
    limit: float | None = None,
) -> Figure:
    """One recorded metric by step, with a dotted line at `limit`."""
    data = source.curves((name, title, role, "%{y:.4g}"), cliponaxis=False)
    if data and limit is not None:
        ends = [data[0]["x"][0], data[0]["x"][-1]]
        style: dict[str, Any] = {"width": 1.2, "dash": "dot", "hoverinfo": "skip"}
        data.append(curve("healthy below", ends, [limit, limit], "@muted", "", **style))
    yaxis = axis("nats per token", rangemode="tozero")
    return source.by_step(
        id_, title, caption, data, yaxis, height=260, margin={"t": 12}, showlegend=False
    )
