"""Untrusted texts and counts for display."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_LINES = 20
NAMES = {"": "rtl-grader"}
"""Command of this package -> its name where another program mounts it; that of "" is the program's own."""


def visible(text: str) -> str:
    """Text without terminal control: control and format characters, except newline and tab, become U+FFFD."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def first_lines(entries: Iterable[object]) -> list[str]:
    """A line for each entry, at most `MOST_LINES`, and the number of the others."""
    lines = list(map(str, entries))
    more = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], f"and {more:,} more"] if more > 0 else lines


def did_you_mean(
    name: str, names: Iterable[str], otherwise: str, written: Callable[[str], str] = str
) -> str:
    """Hint for an unknown name: up to three similar ones as `written`, or `otherwise` if none is similar."""
    known = list(names)
    near = get_close_matches(name, known, cutoff=0.7)
    if len(name) > 2:
        near += [other for other in known if name.casefold() in other.casefold()]
    texts = " or ".join(list(dict.fromkeys(map(written, near)))[:3])
    return f"did you mean {texts}?" if texts else otherwise


def command(words: str) -> str:
    """A command line of this package as the running program calls it: `rtl-grader problems fetch cvdp`.

    Reasons of verdicts do not use it: a record is the same whichever program writes it.
    """
    name, _, rest = words.partition(" ")
    return " ".join(filter(None, (NAMES[""], NAMES.get(name, name), rest)))


def counted(n: int, noun: str) -> str:
    """`1 step`, `1,200 steps`."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def escaping_templates(package: str) -> Environment:
    """The templates in `page/` of a package; every value is escaped and rid of control characters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package, "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            visible(value)
            if isinstance(value, str) and not isinstance(value, Markup)
            else value
        ),
    )
