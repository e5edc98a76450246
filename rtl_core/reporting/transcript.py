"""A conversation on a terminal: what the model wrote, each call as a person reads it, and what it gave; what failed is red."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from rtl_core.history.records import MessageRecord
from rtl_core.reporting.text import counted, visible

LONG = 400
"""Characters of an argument that are shown in the line of its call; a longer one stands below it, whole."""


def transcript_view(messages: Sequence[MessageRecord]) -> RenderableType:
    """All messages, with what the whole conversation took."""
    mine = [one for one in messages if one.who == "model"]
    parts = [part for message in messages for part in _message(message, mine)]
    return Group(*parts, Text(total(messages), style="dim"))


def total(messages: Sequence[MessageRecord]) -> str:
    """What a conversation took, in words."""
    mine = [one for one in messages if one.who == "model"]
    told = [one for one in messages if one.who == "tool"]
    return (
        f"{counted(len(mine), 'turn')}, {sum(one.n_tokens for one in mine):,} tokens written, {counted(len(told), 'call')}"
        f" ({sum(not one.ok for one in told)} failed), {sum(one.seconds for one in mine):.1f} s model,"
        f" {sum(one.seconds for one in told):.1f} s tools"
    )


def _message(message: MessageRecord, mine: Sequence[MessageRecord]) -> Iterator[RenderableType]:
    if message.who == "model":
        cut = "" if message.ok else ", cut"
        number = mine.index(message) + 1
        yield Text(f"turn {number}: {message.n_tokens:,} tokens in {message.seconds:.1f} s{cut}", style="bold cyan")
        if message.thought:
            yield Padding(Text(visible(message.thought.strip()), style="dim italic"), (0, 0, 0, 2))
        if message.text.strip():
            yield Padding(Text(visible(message.text.strip())), (0, 0, 0, 2))
        return
    line, long = call_in_words(message.call)
    style = "green" if message.ok else "red"
    yield Padding(Text.assemble((line, f"bold {style}"), (f"  {message.seconds:.1f} s", "dim")), (0, 0, 0, 2))
    for text in long:
        yield Padding(Text(text, style="dim"), (0, 0, 0, 6))
    yield Padding(Text(visible(message.text.rstrip()), style="" if message.ok else "red"), (0, 0, 0, 4))


def call_in_words(call: Mapping[str, str] | None) -> tuple[str, list[str]]:
    """A call in a line, such as `read docs/spec.md, first 1`, and its long arguments. What is no JSON is shown as it is. Without a call the
    grader speaks."""
    if call is None:
        return "the grader", []
    try:
        given = json.loads(call["arguments"] or "{}")
        items = list(given.items())
    except (ValueError, RecursionError, AttributeError):
        return visible(f"{call['name']} {call['arguments'][:LONG]}"), []
    words, long = [], []
    for name, value in items:
        text = value if isinstance(value, str) else json.dumps(value)
        if "\n" in text or len(text) > LONG:
            words.append(f"{name} ({len(text.splitlines())} lines)")
            long.append(visible(text.rstrip()))
        else:
            words.append(text if name in ("path", "bench", "top", "under") else f"{name} {text}")
    return visible(" ".join([call["name"], ", ".join(words)]).strip()), long
