"""The report's figures and tables. Each file answers one question: it registers a section, a function from a `Source` to its blocks.

A section of your own is such a function, with `section` above it, in a module of yours: `rtl-distill report --section
module:function` adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.registry import Registry
from rtl_core.reporting.blocks import Block, Section, Source
from rtl_core.reporting.figures import compare


@dataclass(frozen=True)
class RunSection:
    """A section of the report of one run, before it is drawn."""

    title: str
    """The question that it answers."""
    lead: str
    """A sentence below the title."""
    place: int
    """Sections stand in the order of their places."""
    blocks: Callable[[Source], list[Block]]
    """What it shows of a run; nothing leaves the section out."""


SECTIONS: Registry[RunSection] = Registry("section", __name__, lambda entry: isinstance(entry, RunSection))
"""Sections by their addresses in the page."""


def section(title: str, lead: str, place: int = 100) -> Callable[[Callable[[Source], list[Block]]], RunSection]:
    """A decorator that makes a section of a function from a `Source` to blocks."""
    return lambda blocks: RunSection(title, lead, place, blocks)


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
    return [one for one in made if one.blocks]
