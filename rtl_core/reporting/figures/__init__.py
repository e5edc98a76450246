"""The report's figures and tables. Each file answers one question: it registers a section, a function from a `Source` to its blocks.

A section of your own is such a function, with `section` above it, in a module of yours: `rtl-distill report --section
module:function` adds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rtl_core.registry import Registry
from rtl_core.reporting.blocks import Block, Source


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
