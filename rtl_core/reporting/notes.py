"""What must be said beside a run's figures."""

from __future__ import annotations

from rtl_core.history.records import RunRecord

DEMO = (
    "The embedded demo. Its tiny student was taught, on purpose, a habit of not minding the specification (the textbook interface; "
    "on the hard tier any variant of a design; with tools to write before it reads), to stand for what was seen in models of 30 billion parameters; what it learns here is "
    "to follow the specification, not to design hardware."
)
TINY = ("student", "reader", "hard-student", "agent")
"""Students that this package ships (`rtl_core/tinymodels`, a room above this one)."""


def demo_note(run: RunRecord) -> str | None:
    """The demo's disclosure, for a run whose student is a tiny one of the package."""
    tinker = run.config.get("tinker") or {}
    served = tinker.get("base_url") == "local" and run.student not in (tinker.get("local_models") or {})
    return DEMO if served and run.student in TINY else None
