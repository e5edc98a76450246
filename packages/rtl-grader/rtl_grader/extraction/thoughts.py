"""Remove the thoughts from a response.

A response starts with what its prompt opened (chat.py), if that was a thought or a channel's message. In
other texts a closing tag without an opening one ends a thought that began with the response, unless the tag
is part of code.

Every step is linear in the length of the response.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rtl_grader.extraction.offers import blocks_in
from rtl_grader.hdl.text import code_of

_OPEN = re.compile(r"<(think|thinking|thought|reasoning)>", re.I)
_CLOSE = re.compile(r"</(think|thinking|thought|reasoning)>", re.I)
_LONE_CLOSE = re.compile(r"(?<![`\"'])" + _CLOSE.pattern, re.I)  # not a quoted one
_CLOSE_ALONE = re.compile(
    r"^[ \t]*+(</(?:think|thinking|thought|reasoning)>)[ \t]*+$", re.I | re.M
)
# OpenAI's harmony format (https://cookbook.openai.com/articles/openai-harmony): messages in channels, of
# which `final` holds the answer.
_CHANNELS = re.compile(r"\s*(?:<\|start\|>assistant|<\|channel\|>)")
_FINAL = re.compile(
    r"(?:\A\s*|<\|start\|>assistant)<\|channel\|>final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>"
)
_FINAL_END = re.compile(r"<\|end\|>\s*(?:<\|start\|>|\Z)|<\|(?:return|call)\|>\s*\Z")

_LEADING = re.compile(
    rf"\s*(?:{_OPEN.pattern}|(?:<\|start\|>assistant)?<\|channel\|>analysis[^<]*<\|message\|>)",
    re.I,
)
_LEADING_END = re.compile(rf"{_CLOSE.pattern}|<\|end\|>|\Z", re.I)

THOUGHT_END = re.compile(
    r"(?:</(?:think|thinking|thought|reasoning)>|<\|(?:end|return)\|>)\s*\Z", re.I
)
"""The end of a response that ends with a finished thought or message."""


class Place(NamedTuple):
    """A part of a text, in characters."""

    start: int
    stop: int


def without_thoughts(text: str) -> str:
    """Return the response without its thoughts; empty if it ends within them."""
    return "".join(text[start:stop] for start, stop in between_thoughts(text))


def between_thoughts(text: str) -> list[tuple[int, int]]:
    """Return the places, as half-open ranges, of what `without_thoughts` leaves of a response; none is empty, and
    there is a thought between two of them."""
    places: list[tuple[int, int]] = []
    for start, stop in _places(text):
        if places and places[-1][1] == start:
            places[-1] = places[-1][0], stop
        elif start < stop:
            places.append((start, stop))
    return places


def thought_and_answer(text: str) -> tuple[Place | None, Place | None]:
    """Return the places of the thought with which a response begins and of its answer; None for one that it lacks.

    The white space around a thought belongs to neither. An answer in several pieces with thoughts between them counts
    as none.
    """
    if not text:
        return None, Place(0, 0)
    thought = None
    if opened := _LEADING.match(text):
        closed = _LEADING_END.search(text, opened.end())
        thought = _stripped(text, opened.end(), closed.start() if closed else len(text))
    places = between_thoughts(text)
    written = [place for place in places if text[slice(*place)].strip()] or places[-1:]
    if len(written) != 1 or (thought and written[0][0] < thought.stop):
        return thought, None
    ((start, stop),) = written
    return thought, Place(_stripped(text, start, stop).start if start else 0, stop)


def _stripped(text: str, start: int, stop: int) -> Place:
    """The part without white space at its ends; an empty one is at its end."""
    part = text[start:stop]
    start = stop - len(part.lstrip())
    return Place(start, start + len(part.strip()))


def _places(text: str) -> Iterator[tuple[int, int]]:
    if _CHANNELS.match(text):
        if final := _FINAL.search(text):
            ended = _FINAL_END.search(text, final.end())
            yield final.end(), ended.start() if ended else len(text)
        return
    opened = _OPEN.search(text)
    at = _after_lone_close(text, opened.start() if opened else len(text))
    opened = _OPEN.search(text, at)
    while opened:
        fence = text.find("```", at, opened.start())
        if fence >= 0:
            # A tag inside a block is part of the code: continue after that block.
            end = text.find("\n```", fence + 3)
            if end < 0:
                break
            yield at, end + 4
            at = end + 4
            if at > opened.start():
                opened = _OPEN.search(text, at)
            continue
        yield at, opened.start()
        close = _CLOSE.search(text, opened.end())
        if close is None:
            return
        at = close.end()
        opened = _OPEN.search(text, at)
    yield at, len(text)


def _after_lone_close(text: str, end: int) -> int:
    """Offset after a tag, at most `end`, that closes a thought which the text does not open; 0 if there is none."""
    blocks = [(*block.span, block.broken_off) for block in blocks_in(text)]
    if not blocks:
        close = _LONE_CLOSE.search(code_of(text), 0, end)  # without comments and strings
        return close.end() if close else 0
    at = 0
    blocks.append((len(text), len(text), False))
    for start, stop, broken_off in blocks:
        # From `at`, so that the fence before it does not count as a quote.
        close = _LONE_CLOSE.search(text[at:start])
        after = at + close.end() if close else _after_draft(text[start:stop], start, broken_off)
        if after:
            return after if after <= end else 0
        at = stop
    return 0


def _after_draft(block: str, at: int, broken_off: bool) -> int:
    """The same within a block at `at`, for a thought that broke off a draft: the tag is alone on its line,
    or another block opens after it. A tag in a comment or a string is part of the code."""
    if _CLOSE.search(block):
        alone = {line.end(1) for line in _CLOSE_ALONE.finditer(block)}
        for close in _CLOSE.finditer(code_of(block)):
            if broken_off or close.end() in alone:
                return at + close.end()
    return 0
