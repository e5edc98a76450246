"""Inputs that tell two designs apart, as a waveform in text: a line for each input, a column for each step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rtl_core.history.store import History

MOST_STEPS = 40
AUDIT_SQL = "SELECT * FROM audits WHERE rollout = $rollout"


def audit_of(history: History, rollout: str) -> dict[str, Any] | None:
    """What an audit found of a pass, with the inputs that show a difference as `waveform` and its size in words as `netlist`; None where
    it was not looked at."""
    for row in history.query(AUDIT_SQL, {"rollout": rollout}).to_pylist():
        return {**row, "waveform": waveform(json.loads(row["trace"] or "[]")), "netlist": _size(row)}
    return None


def _size(row: Mapping[str, Any]) -> str:
    if row["cells"] is None:
        return ""
    beside = (
        ""
        if row["relative_area"] is None
        else f"; relative area {row['relative_area']:.2f}, levels {row['relative_levels']:.2f}"
    )
    return f"{row['cells']} cells, {row['flip_flops']} of them flip-flops, {row['levels']} levels{beside}"


def waveform(trace: Sequence[Mapping[str, int]]) -> str:
    """Values in hexadecimal; a dot where a value stays. Of a longer trace the last `MOST_STEPS` steps."""
    shown = list(trace)[-MOST_STEPS:]
    if not shown:
        return ""
    rows = {name: [f"{step[name]:x}" for step in shown] for name in shown[0]}
    wide = [max(len(values[at]) for values in rows.values()) for at in range(len(shown))]
    longest = max(map(len, rows))
    lines = []
    for name, values in rows.items():
        marks = [value if not at or value != values[at - 1] else "." for at, value in enumerate(values)]
        lines.append(
            f"{name:<{longest}}  " + " ".join(f"{mark:>{width}}" for mark, width in zip(marks, wide, strict=True))
        )
    left = len(trace) - len(shown)
    return "\n".join([*([f"({left} steps before)"] if left else []), *lines])
