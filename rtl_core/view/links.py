"""URLs of the pages; the URL determines everything that a page shows."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from rtl_core.history.columns import Row


def link(path: str, **values: Any) -> str:
    """The URL of a page; values that are None or empty are omitted."""
    text = urlencode(
        {name: value for name, value in values.items() if value not in (None, "")}, doseq=True
    )
    return f"{path}?{text}" if text else path


def rollout_link(key: str, **values: Any) -> str:
    return link("/rollout", key=key, **values)


def group_link(row: Row) -> str:
    """The URL of a rollout's group, from a row with the rollout's place columns."""
    return link("/group", run=row["run"], problem=row["problem_id"], **place(row))


def step_link(row: Row) -> str:
    """The URL of a rollout's step or evaluation, from a row with the rollout's place columns."""
    return link("/step", run=row["run"], **place(row))


def place(row: Row) -> dict[str, Any]:
    """A rollout's evaluation, or its step and purpose, as URL parameters."""
    if row["evaluation"] is not None:
        return {"evaluation": row["evaluation"]}
    kind = row.get("purpose")
    return {
        "step": row["step"],
        "purpose": kind if kind in ("warm_start", "measurement") else None,
    }
