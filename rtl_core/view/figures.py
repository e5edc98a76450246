"""The report's figures for the pages: each point links to the step, the evaluation or the answers that it
stands for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rtl_core.history.records import EvaluationRecord
from rtl_core.learning.intervals import Interval
from rtl_core.reporting.blocks import Block, Figure, Source, draw
from rtl_core.reporting.evaluations import scheduled_evaluations
from rtl_core.reporting.figures import compare, learning
from rtl_core.reporting.figures.result import band
from rtl_core.reporting.theme import PERCENT, Spec, axis, layout, line
from rtl_core.view.links import link


def curves(sources: list[Source]) -> list[Block]:
    """Held-out pass@1, reward, pass rate and KL, one line per run; for a single run also the raw curves, lighter."""
    return draw(
        sources, held_out, *(partial(by_step, quantity=quantity) for quantity in compare.CURVES)
    )


def with_raw(curves: Sequence[Block]) -> bool:
    """Return whether a figure shows both a raw curve and one at equal difficulty."""
    names = [
        str(trace["name"])
        for figure in curves
        if isinstance(figure, Figure)
        for trace in figure.data
    ]
    return any(name.endswith(", raw") for name in names)


def held_out(sources: list[Source]) -> Figure:
    """pass@1 of each evaluation of the student, and of the last one of the teacher."""
    data = []
    for i, source in enumerate(sources):
        done = [
            e
            for e in scheduled_evaluations(source.history, source.run)
            if e.pass_at_1 is not None
        ]
        mine = [e for e in done if e.policy == "student"]
        steps = [e.step for e in mine]
        data += _evaluations(steps, mine, source.run, line(i), markers=True)
        for teacher in [e for e in done if e.policy == "teacher"][-1:]:
            ends = [0, max(1, *steps)]
            data += _evaluations(
                ends, [teacher, teacher], f"{source.run}: teacher", "@teacher", dash="dot"
            )[1:]
    return Figure(
        "held-out",
        "Held-out pass@1",
        "Evaluations of the student, with 95 % intervals over problems; dotted: the last one of the teacher.",
        data,
        layout(xaxis=axis("train steps"), yaxis=axis("pass@1", **PERCENT)),
    )


def _evaluations(
    steps: list[int], records: Sequence[EvaluationRecord], name: str, role: str, **style: Any
) -> list[Spec]:
    """The traces of evaluations at these steps: their intervals, and their line."""
    if not records:
        return []
    intervals = [_interval(e) for e in records]
    shade, curve = band(steps, intervals, name, role, **style)
    return [
        shade,
        _linked(curve, [link("/step", run=e.run, evaluation=e.key) for e in records]),
    ]


def _interval(record: EvaluationRecord) -> Interval:
    """pass@1 of an evaluation; without a recorded interval, the interval is empty."""
    rate = record.pass_at_1 or 0.0
    low, high = (rate if end is None else end for end in (record.lo, record.hi))
    return Interval(rate, low, high, record.n_problems)


def by_step(sources: list[Source], quantity: compare.Quantity) -> Figure:
    """A curve of the report's comparison."""
    figure = compare.by_step(sources, quantity)
    for trace in figure.data:
        trace.update(mode="lines+markers", marker={"size": 5})
        _linked(
            trace, [link("/step", run=trace["meta"], step=round(step)) for step in trace["x"]]
        )
    return figure


def outcomes(source: Source) -> Figure:
    """The report's outcomes of training answers."""
    figure = learning.outcomes(source)
    half = (source.width() - 1) / 2
    for trace in figure.data:
        place = {"run": source.run, "outcome": trace["meta"], "purpose": "train"}
        ends = [(x - half, x + half) for x in trace["x"]]
        steps = [f"{first:.0f}-{last:.0f}" for first, last in ends]
        _linked(trace, [link("/rollouts", step=part, **place) for part in steps])
    return figure


def _linked(trace: Spec, links: list[str]) -> Spec:
    """Give each point of a trace the URL that a click opens (static/charts.js), and its step in the tooltip."""
    trace["hovertemplate"] = f"step %{{x}}: {trace['hovertemplate']}"
    trace["links"] = links
    return trace
