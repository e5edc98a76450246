"""Syntax highlighting, line by line, and the difference of two texts. All results are escaped HTML."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import SystemVerilogLexer

from rtl_grader.words import visible

MOST_CHARACTERS = 60_000
"""Longer texts are not highlighted, which may take long for hostile text."""
MOST_WIDTH = 2_000
"""Maximum characters of a line in a highlighted text."""
MOST_LINES = 1_500
"""Longer texts are not compared: the time grows with the product of their lengths."""
CONTEXT = 4
"""Equal lines that are shown around a difference."""


@dataclass(frozen=True)
class DiffLine:
    """A line of a difference: `mark` is "+" (only this answer), "-" (only the other), " " (both) or "…"
    (omitted equal lines)."""

    mark: str
    old: int | None
    new: int | None
    code: Markup


def coloured(text: str) -> list[Markup]:
    """The lines of a text, each as complete HTML."""
    lines = _lines(text)
    # For each comment without an end the lexer searches the whole rest of the text.
    unended = text.rpartition("*/")[2].count("/*")
    if (
        len(text) > MOST_CHARACTERS
        or unended > 20
        or any(len(line) > MOST_WIDTH for line in lines)
    ):
        return [Markup.escape(line) for line in lines]
    html = highlight(
        "\n".join(lines),
        SystemVerilogLexer(stripnl=False, ensurenl=False),
        HtmlFormatter(nowrap=True),
    )
    # Pygments ends its spans before the end of a line.
    return list(map(Markup, html.split("\n")))[: len(lines)]


def difference(old: str, new: str) -> list[DiffLine] | None:
    """The lines that turn `old` into `new`; empty if they are equal, None if they are too long to compare."""
    old_lines, new_lines = _lines(old), _lines(new)
    if max(len(old_lines), len(new_lines)) > MOST_LINES:
        return None
    old_html, new_html = coloured(old), coloured(new)
    rows: list[DiffLine] = []
    # SequenceMatcher ignores frequent lines of long texts by default; without that, hostile texts take minutes.
    matcher = difflib.SequenceMatcher(None, old_lines, new_lines)
    groups = list(matcher.get_grouped_opcodes(CONTEXT))
    for number, group in enumerate(groups):
        if number or group[0][1]:
            rows.append(DiffLine("…", None, None, Markup("")))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                pairs = zip(range(i1, i2), range(j1, j2), strict=True)
                rows += [DiffLine(" ", i + 1, j + 1, old_html[i]) for i, j in pairs]
                continue
            rows += [DiffLine("-", i + 1, None, old_html[i]) for i in range(i1, i2)]
            rows += [DiffLine("+", None, j + 1, new_html[j]) for j in range(j1, j2)]
    return rows


def _lines(text: str) -> list[str]:
    lines = visible(text.replace("\r\n", "\n").replace("\r", "\n")).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def style() -> str:
    """The colours as CSS, for the light theme and for `[data-theme=dark]`."""
    light = HtmlFormatter(style="xcode").get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark").get_style_defs('[data-theme="dark"] .code')
    rules = [line for text in (light, dark) for line in text.splitlines() if ".code ." in line]
    return "\n".join(line for line in rules if ".linenos" not in line and ".hll" not in line)
