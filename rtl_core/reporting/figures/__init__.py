"""The report's figures and tables. Each file registers a section on one question: a function from a `Source` to blocks.

Your own section is such a function in a module of yours, decorated with `section`; add it with `rtl-distill
report --section module:function`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.reporting.blocks import Block, Section, Source
from rtl_core.reporting.figures import compare
from rtl_grader.registry import Registry


@dataclass(frozen=True)
class RunSection:
    """Definition of a section in the report of one run."""

    title: str
    lead: str
    """A sentence below the title."""
    place: int
    """Sections are ordered by place."""
    blocks: Callable[[Source], list[Block]]
    """Builds the blocks; a section without blocks is omitted."""


SECTIONS: Registry[RunSection] = Registry(
    "section", __name__, lambda entry: isinstance(entry, RunSection)
)
"""Section id in the page -> section."""


def section(
    title: str, lead: str, place: int = 100
) -> Callable[[Callable[[Source], list[Block]]], RunSection]:
    """Decorate a function from a `Source` to blocks as a section."""
    return lambda blocks: RunSection(title, lead, place, blocks)


def sections(history: History, runs: list[str], own: Sequence[str] = ()) -> list[Section]:
    """The sections of a report: those of one run with the user's `own` (`module:function`), or a comparison
    of several runs.

    Raises ConfigError when one of `own` cannot be found, or is given with several runs.
    """
    if len(runs) > 1:
        if own:
            raise ConfigError("--section is for the report of one run", "name one run")
        lead = "The report of a single run has more detail."
        return [
            Section(
                "compare",
                "Comparison",
                lead,
                compare.blocks([Source(history, run) for run in runs]),
            )
        ]
    source = Source(history, runs[0])
    entries = [
        *SECTIONS.entries.items(),
        *((name.rpartition(":")[2], SECTIONS.find(name)) for name in own),
    ]
    filled = []
    for id_, entry in sorted(entries, key=lambda item: item[1].place):
        with (
            history.reading()
        ):  # one connection per section, so that a writer can proceed between two
            filled.append(Section(id_, entry.title, entry.lead, entry.blocks(source)))
    return [one for one in filled if one.blocks]
