"""The report's table of contents: the sections that the files of `figures/` register, in the order of their places."""

from __future__ import annotations

from collections.abc import Sequence

from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.reporting.blocks import Section, Source
from rtl_core.reporting.figures import SECTIONS, compare


def sections(history: History, runs: list[str], own: Sequence[str] = ()) -> list[Section]:
    """The sections of a report: all about one run and the user's `own` (`module:function`), or several runs side by side.

    Raises ConfigError where one of `own` cannot be found, or where there are several runs, which it does not take.
    """
    if len(runs) > 1:
        if own:
            raise ConfigError("--section is for the report of one run", "name one run")
        lead = "The same questions of every run. A run by itself has a fuller report of its own."
        return [Section("compare", "Side by side", lead, compare.blocks([Source(history, run) for run in runs]))]
    source = Source(history, runs[0])
    wanted = [*SECTIONS.entries.items(), *((name.rpartition(":")[2], SECTIONS.find(name)) for name in own)]
    made = []
    for id_, entry in sorted(wanted, key=lambda item: item[1].place):
        with history.reading():  # one connection a section; whoever writes has its turn between two
            made.append(Section(id_, entry.title, entry.lead, entry.blocks(source)))
    return [section for section in made if section.blocks]
