"""The logic of rtl-distill, independent of Prefect, one package per noun (docs/architecture.md)."""

from __future__ import annotations

from rtl_grader.words import NAMES

__version__ = "0.3.0"

COMMANDS = {
    "grade": "grade answers",
    "reproduce": "grade reproduce",
    "serve-grader": "serve grader",
    "toolchain": "admin toolchain",
    "validate": "problems validate",
}
"""Command of `rtl-grader` -> its words in `rtl-distill`, where they differ."""
NAMES.update(COMMANDS, **{"": "rtl-distill"})
