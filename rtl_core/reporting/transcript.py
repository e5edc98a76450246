"""A conversation for the terminal: the model's texts, and each call with its result; failed calls are red."""

from __future__ import annotations

import itertools
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
    numbers = itertools.count(1)
    parts = [part for message in messages for part in _message(message, numbers)]
    return Group(*parts, Text(total(messages), style="dim"))


def total(messages: Sequence[MessageRecord]) -> str:
    """Totals of a conversation: turns, tokens, calls and seconds."""
    turns = [one for one in messages if one.who == "model"]
    calls = [one for one in messages if one.who == "tool"]
    tokens = sum(one.n_tokens for one in turns)
    failed = sum(not one.ok for one in calls)
    model_s, tools_s = (sum(one.seconds for one in part) for part in (turns, calls))
    parts = (
        counted(len(turns), "turn"),
        f"{tokens:,} tokens written",
        f"{counted(len(calls), 'call')} ({failed} failed)",
        f"{model_s:.1f} s model",
        f"{tools_s:.1f} s tools",
    )
    return ", ".join(parts)


def _message(message: MessageRecord, numbers: Iterator[int]) -> Iterator[RenderableType]:
    """A message; one of the model takes the next of the turns' numbers."""
    if message.who == "model":
        cut = "" if message.ok else ", cut"
        tokens = f"{message.n_tokens:,} tokens in {message.seconds:.1f} s{cut}"
        yield Text(f"turn {next(numbers)}: {tokens}", style="bold cyan")
        if message.thought:
            yield _indented(visible(message.thought.strip()), "dim italic")
        if message.text.strip():
            yield _indented(visible(message.text.strip()))
        return
    line, long = call_in_words(message.call)
    style = "green" if message.ok else "red"
    seconds = f"  {message.seconds:.1f} s"
    head = Text.assemble((line, f"bold {style}"), (seconds, "dim"))
    yield Padding(head, (0, 0, 0, 2))
    for text in long:
        yield _indented(text, "dim", 6)
    yield _indented(visible(message.text.rstrip()), "" if message.ok else "red", 4)


def _indented(text: str, style: str = "", left: int = 2) -> Padding:
    return Padding(Text(text, style=style), (0, 0, 0, left))


def call_in_words(call: Mapping[str, str] | None) -> tuple[str, list[str]]:
    """A call in one line, such as `read docs/spec.md, first 1`, and its long arguments. Arguments that are
    not a JSON object are shown unchanged. None stands for a message of the grader."""
    if call is None:
        return "the grader", []
    try:
        items = list(json.loads(call["arguments"] or "{}").items())
    except (ValueError, RecursionError, AttributeError):
        return visible(f"{call['name']} {call['arguments'][:LONG]}"), []
    words, long = [], []
    for name, value in items:
        text = value if isinstance(value, str) else json.dumps(value)
        if "\n" in text or len(text) > LONG:
            words.append(f"{name} ({len(text.splitlines())} lines)")
            long.append(visible(text.rstrip()))
        else:
            words.append(
                text if name in ("path", "bench", "top", "under") else f"{name} {text}"
            )
    return visible(" ".join([call["name"], ", ".join(words)]).strip()), long
