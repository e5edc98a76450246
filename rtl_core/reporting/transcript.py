"""A conversation for the terminal: the model's texts, and each call with its result; failed calls are red."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from rtl_core.history.records import MessageRecord
from rtl_grader.words import counted, visible

LONG = 400
"""Maximum characters of an argument in the line of its call; a longer one is shown in full below it."""


def transcript_view(messages: Sequence[MessageRecord]) -> RenderableType:
    """All messages, and the totals of the conversation."""
    mine = [one for one in messages if one.who == "model"]
    parts = [part for message in messages for part in _message(message, mine)]
    return Group(*parts, Text(total(messages), style="dim"))


def total(messages: Sequence[MessageRecord]) -> str:
    """Totals of a conversation: turns, tokens, calls and seconds."""
    mine = [one for one in messages if one.who == "model"]
    told = [one for one in messages if one.who == "tool"]
    return (
        f"{counted(len(mine), 'turn')}, {sum(one.n_tokens for one in mine):,} tokens written, "
        f"{counted(len(told), 'call')}"
        f" ({sum(not one.ok for one in told)} failed), {sum(one.seconds for one in mine):.1f} s model,"
        f" {sum(one.seconds for one in told):.1f} s tools"
    )


def _message(message: MessageRecord, mine: Sequence[MessageRecord]) -> Iterator[RenderableType]:
    if message.who == "model":
        cut = "" if message.ok else ", cut"
        number = mine.index(message) + 1
        yield Text(
            f"turn {number}: {message.n_tokens:,} tokens in {message.seconds:.1f} s{cut}",
            style="bold cyan",
        )
        if message.thought:
            yield Padding(Text(visible(message.thought.strip()), style="dim italic"), (0, 0, 0, 2))
        if message.text.strip():
            yield Padding(Text(visible(message.text.strip())), (0, 0, 0, 2))
        return
    line, long = call_in_words(message.call)
    style = "green" if message.ok else "red"
    yield Padding(
        Text.assemble((line, f"bold {style}"), (f"  {message.seconds:.1f} s", "dim")), (0, 0, 0, 2)
    )
    for text in long:
        yield Padding(Text(text, style="dim"), (0, 0, 0, 6))
    yield Padding(
        Text(visible(message.text.rstrip()), style="" if message.ok else "red"), (0, 0, 0, 4)
    )


def call_in_words(call: Mapping[str, str] | None) -> tuple[str, list[str]]:
    """A call in one line, such as `read docs/spec.md, first 1`, and its long arguments. Arguments that are
    not a JSON object are shown unchanged. None stands for a message of the grader."""
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
