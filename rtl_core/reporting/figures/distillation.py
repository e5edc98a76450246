"""How close is the student to the teacher? KL and entropy by step."""

from __future__ import annotations

from typing import Any

from rtl_core.reporting.blocks import Block, Figure, Source, curve, draw
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.theme import axis


@SECTIONS.register("teacher")
@section("How close is the student to the teacher?", "The KL to the teacher, which distillation reduces.", place=40)
def blocks(source: Source) -> list[Block]:
    return draw(source, kl, entropy)


def kl(source: Source) -> Figure:
    caption = "Mean over tokens of log p(student) − log p(teacher), in nats, on the student's own samples: the k1 that training uses."
    return metric(source, "teacher-kl", "teacher_kl", "Reverse KL to the teacher", caption, "@line0")


def entropy(source: Source) -> Figure:
    caption = "Mean −log p of the sampled tokens, in nats: how uncertain the student is. At zero, the answers of a group are identical."
    return metric(source, "entropy", "optim/entropy", "Entropy", caption, "@after")


def metric(
    source: Source, id_: str, name: str, title: str, caption: str, role: str, limit: float | None = None
) -> Figure:
    """One recorded metric by step, with a dotted line at `limit`."""
    data = source.curves((name, title, role, "%{y:.4g}"), cliponaxis=False)
    if data and limit is not None:
        ends = [data[0]["x"][0], data[0]["x"][-1]]
        style: dict[str, Any] = {"width": 1.2, "dash": "dot", "hoverinfo": "skip"}
        data.append(curve("healthy below", ends, [limit, limit], "@muted", "", **style))
    yaxis = axis("nats per token", rangemode="tozero")
    return source.by_step(id_, title, caption, data, yaxis, height=260, margin={"t": 12}, showlegend=False)
