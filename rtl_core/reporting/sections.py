"""The report's table of contents: a new figure is one function in `figures/` and its place here."""

from __future__ import annotations

from rtl_core.history.store import History
from rtl_core.reporting.blocks import Section, Source
from rtl_core.reporting.figures import audit, compare, distillation, health, learning, mistakes, progress, result

_ONE_RUN = (
    ("learned", "Did it learn?", "Problems that training never saw, before and after, and the teacher for comparison.", result.blocks),
    ("audited", "Were the passes deserved?", "Passed answers beside the golden ones.", audit.blocks),
    ("training", "What training saw", "The rollouts of the train steps; those that taught nothing were not trained on.", learning.blocks),
    ("teacher", "How near is the teacher?", "What distillation pulls at.", distillation.blocks),
    ("control", "Is it healthy?", "What a run should keep an eye on, and what its controllers did.", health.blocks),
    ("wrong", "What goes wrong", "Where answers miss what was asked, and problems that deserve a look themselves.", mistakes.blocks),
    ("progress", "How the run went", "Which problems came when, and where the time went.", progress.blocks),
)  # fmt: skip


def sections(history: History, runs: list[str]) -> list[Section]:
    """The sections of a report: all about one run, or several side by side."""
    if len(runs) > 1:
        lead = "The same questions of every run. A run by itself has a fuller report of its own."
        return [Section("compare", "Side by side", lead, compare.blocks([Source(history, run) for run in runs]))]
    source = Source(history, runs[0])
    made = [Section(id_, title, lead, build(source)) for id_, title, lead, build in _ONE_RUN]
    return [section for section in made if section.blocks]
