"""Held-out pass@1 while training, a line per run: by step, against training time, and against cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from rtl_core.history.columns import Row
from rtl_core.history.records import EvaluationRecord
from rtl_core.reporting.blocks import Figure, Source, band, plain
from rtl_core.reporting.evaluations import scheduled_evaluations
from rtl_core.reporting.theme import LINES, PERCENT, Spec, axis, layout, line

Against = Literal["step", "time", "cost"]
"""What a curve is drawn against."""
# What the steps before each evaluation took; NULL where one of them has no record of it.
_SPENT = """
WITH taken AS (
    SELECT step, max(seconds) AS seconds, max(value) FILTER (WHERE name = 'cost/usd') AS usd,
           sum(value) FILTER (WHERE name LIKE 'tokens/%') AS tokens
    FROM steps s LEFT JOIN step_metrics m USING (run, step)
    LEFT JOIN step_times t ON t.run = s.run AND t.step = s.step AND t.stage = 'total'
    WHERE s.run = $run AND status = 'trained' GROUP BY step)
SELECT evaluation, e.step, CASE WHEN count(seconds) = count(t.step) THEN coalesce(sum(seconds), 0) END AS seconds,
       CASE WHEN count(usd) = count(t.step) THEN coalesce(sum(usd), 0) END AS usd,
       CASE WHEN count(tokens) = count(t.step) THEN coalesce(sum(tokens), 0) END AS tokens
FROM evaluations e LEFT JOIN taken t ON t.step < e.step WHERE e.run = $run GROUP BY ALL
"""
_TITLES = {"step": "while training", "time": "against time", "cost": "against cost"}
_CAPTIONS = {
    "step": "",
    "seconds": " Time: that of the train steps before the evaluation, without evaluations.",
    "usd": " Cost: that of the train steps before the evaluation, without evaluations.",
    "tokens": " Tokens of the train steps before the evaluation: read, sampled, scored and trained on. "
    "Dollars take their place where every model has a price.",
}
_CLOCK = ((7200.0, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
"""Seconds from which a unit is used, seconds in it, and its name."""


def held_out(sources: list[Source], against: Against = "step") -> Figure:
    """pass@1 of each evaluation of the student, and of the last one of the teacher; without curves where what
    they are drawn `against` was not recorded. `ids` of the points are the keys of the evaluations."""
    spent = {source.run: source.ask(_SPENT) for source in sources}
    column, divisor, unit = _unit(against, [row for rows in spent.values() for row in rows])
    data: list[Spec] = []
    for i, source in enumerate(sources):
        places = {
            r["evaluation"]: r[column] / divisor
            for r in spent[source.run]
            if r[column] is not None
        }
        if against == "step" or any(places.values()):
            data += _curves(source, places, i, alone=len(sources) == 1)
    return Figure(
        "held-out" if against == "step" else f"held-out-{against}",
        f"Held-out pass@1 {_TITLES[against]}",
        "Evaluations of the student, with 95 % intervals over problems; dotted: the last one of the teacher."
        + _CAPTIONS[column],
        data,
        layout(
            xaxis=axis(unit, rangemode="tozero", tickformat="~s" if column == "tokens" else ""),
            yaxis=axis("pass@1", **PERCENT),
        ),
    )


def _unit(against: Against, rows: list[Row]) -> tuple[str, float, str]:
    """Column of what a curve is drawn against, what it is divided by, and the title of the axis."""
    if against == "step":
        return "step", 1.0, "train steps"
    if against == "cost":
        priced = all(row["usd"] is not None for row in rows)
        return ("usd", 1.0, "US dollars") if priced else ("tokens", 1.0, "tokens")
    longest = max((row["seconds"] or 0.0 for row in rows), default=0.0)
    divisor, name = next((size, name) for least, size, name in _CLOCK if longest >= least)
    return "seconds", divisor, f"{name} of training"


def _curves(source: Source, places: dict[str, float], index: int, *, alone: bool) -> list[Spec]:
    """The traces of a run; `places`: key of an evaluation -> its place on the axis."""
    if source.history.existing_run(source.run).setting("run", "purpose") == "evaluation":
        return []
    scored = scheduled_evaluations(source.history, source.run)
    done = [e for e in scored if e.rate and e.key in places]
    mine = [e for e in done if e.policy == "student"]
    if not mine:
        return []
    run = plain(source.run)
    style = {"markers": True, "meta": source.run, "dash": "solid" if index < LINES else "dash"}
    x = [places[e.key] for e in mine]
    data = _evaluations(x, mine, "student" if alone else run, line(index), **style)
    for teacher in [e for e in done if e.policy == "teacher"][-1:]:
        name = "teacher" if alone else f"{run}: teacher"
        ends = [0.0, max(x) or 1.0]
        role = "@teacher" if alone else line(index)
        data += _evaluations(ends, [teacher, teacher], name, role, dash="dot", meta=source.run)[
            1:
        ]
    return data


def _evaluations(
    x: list[float], records: Sequence[EvaluationRecord], name: str, role: str, **style: Any
) -> list[Spec]:
    """The traces of evaluations at these places: their intervals, and their line."""
    intervals = [e.rate for e in records if e.rate]
    return band(x, intervals, name, role, ids=[e.key for e in records], **style)
