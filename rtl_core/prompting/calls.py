"""Tool calls in a model's own format, and append-only conversations, with or without tools.

The format is derived from what the chat template renders for calls with made-up names, as in chat.py; no
model is known by name. There are three formats:

- *object*: `{"name": f, "arguments": {...}}`, with or without marks around it (Qwen3, Hermes, Llama);
- *named*: a mark, the name, then the arguments as JSON (DeepSeek, Kimi, gpt-oss);
- *tagged*: a mark, the name, and each argument as plain text between its own tags (Qwen3-Coder, Qwen3.5, Nemotron).

The prompt of the next turn is the previous prompt, the sampled tokens, and the template's rendering of the
tool results. Sampled tokens are never rendered again, so the trainer gets what the sampler saw. A template
that renders earlier turns differently (for example without their thoughts) is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rtl_core.errors import ConfigError, UserError
from rtl_core.learning.spans import shared_prefix
from rtl_core.prompting.chat import Chat, decoded
from rtl_grader.extraction.thoughts import without_thoughts
from rtl_grader.prompts import Message

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_TO_JSON = re.compile(r"[^{]{0,200}(?=\{)")
_KEYS, _VALUES = ("Key42", "Other42"), ("Value42", "Second42")
_ARGUMENTS = dict(zip(_KEYS, _VALUES, strict=True))
_THOUGHT, _ANSWER = "Thought42", "Result42"
_CHANNEL, _HEADER = "<|channel|>", "<|start|>assistant"
_ASKED: list[dict[str, Any]] = [{"role": "user", "content": "Question42"}]


@dataclass(frozen=True)
class Call:
    """A tool call as the model wrote it."""

    name: str
    arguments: str
    """JSON, possibly malformed."""
    id: str = ""


@dataclass(frozen=True)
class _Tags:
    """Texts around each argument: `between` separates name and value, `end` follows the last argument."""

    before: str
    between: str
    after: str
    end: str


class ToolChat:
    """A chat in which the model calls tools or, without tools, answers and gets a reply of the user.

    Args:
        chat: the model's chat.
        tools: the tools in OpenAI's format, as chat templates take them.

    Raises:
        ConfigError: the template does not support tools, or rewrites earlier turns.
    """

    def __init__(self, chat: Chat, tools: Sequence[Mapping[str, Any]]) -> None:
        self.chat, self.tools = chat, list(tools)
        self._turns: list[dict[str, Any]] = []
        """The turns so far, without texts: some templates number calls through the conversation."""
        if self.tools:
            self._read_format()
        self._refuse_rewriting()

    def first(self, messages: Sequence[Message]) -> list[int]:
        """Tokens of the first turn's prompt. Raises PolicyError when the template refuses the messages."""
        self._turns = []
        return list(
            self.chat.apply(
                messages, tokenize=True, add_generation_prompt=True, tools=self.tools or None
            )
        )

    def after(self, calls: Sequence[Call], results: Sequence[str]) -> list[int]:
        """Tokens to append after a turn: the results of its calls or, without tools, the user's one reply;
        then the next turn's header.

        Raises:
            PolicyError: the template refuses them, such as two calls when it allows one per turn.
        """
        places = [f"{_VALUES[0]}-{place}" for place in range(len(results))]
        tool_calls, replies = [], []
        for call, place, result in zip(calls, places, results, strict=bool(calls)):
            tool_calls.append(_tool_call(call.name, {_KEYS[0]: place}, call.id))
            replies.append(_reply(call.name, call.id, result))
        turn = self._assistant(tool_calls, "" if calls else places[0])
        if not calls:
            replies = [{"role": "user", "content": results[0]}]
        text = self._text([*_ASKED, *self._turns, turn, *replies], add_generation_prompt=True)
        before = shared_prefix(text, self._text([*_ASKED, *self._turns])) if self._turns else 0
        rest = text[before:].partition(places[-1])[2]
        self._turns += [turn, *({**message, "content": _ANSWER} for message in replies)]
        ends = [(rest.index(end), len(end)) for end in self._ends if end in rest]
        following = rest[sum(min(ends)) :]
        return self.chat.tokens_of_frame(following)

    def read(self, text: str) -> tuple[Call, ...]:
        """Parse the calls in a turn's text (which starts with what its prompt opened). A malformed call
        keeps the text as written."""
        if not self.tools:
            return ()
        part = text.rpartition(_HEADER)[2] if _CHANNEL in text else without_thoughts(text)
        if not self._mark:
            return (self._object(part.strip()),) if part.strip().startswith("{") else ()
        return tuple(map(self._call, part.split(self._mark)[1:]))

    def _call(self, piece: str) -> Call:
        """Parse the call that follows a mark."""
        if self._family == "object":
            return self._object(piece.lstrip())
        name = _NAME.match(piece)
        if name is None:
            return Call("", piece.strip())
        rest = piece[name.end() :]
        if self._family == "tagged":
            return Call(name[0], json.dumps(self._tagged(rest)))
        start = _TO_JSON.match(rest)
        return Call(name[0], _json_text(rest[start.end() :]) if start else rest.strip())

    def _object(self, text: str) -> Call:
        name_key, arguments_key = self._keys
        try:
            call = json.JSONDecoder(strict=False).raw_decode(text)[0]
            name, arguments = call[name_key], call.get(arguments_key, {})
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            match = re.search(rf'"{re.escape(name_key)}"\s*:\s*"([^"]*)"', text[:1000])
            return Call(match[1] if match else "", text.strip())
        return Call(
            str(name), arguments if isinstance(arguments, str) else json.dumps(arguments)
        )

    def _tagged(self, text: str) -> dict[str, str]:
        tags, arguments = self._tags, {}
        after = tags.after.strip()
        text = text.partition(tags.end)[0] if tags.end else text
        for piece in text.split(tags.before.strip())[1:]:
            name, separator, value = piece.partition(tags.between.strip())
            if separator:
                if after in value:
                    value = value.rpartition(after)[0]
                arguments[name.strip()] = value.removeprefix("\n").removesuffix("\n")
        return arguments

    # -- deriving the format from the template

    def _read_format(self) -> None:
        try:
            text = self._turn([_tool_call("tool42", _ARGUMENTS)])
            if "tool42" not in text or _VALUES[1] not in text:
                raise ValueError("a call is not rendered")
        except (UserError, ValueError) as error:
            why = str(error).splitlines()[0].rpartition("refuses the prompt: ")[2]
            raise ConfigError(
                f"the chat template of {self.chat.model} cannot write tool calls: {why}",
                "choose a model whose template can",
            ) from error
        start, key = text.index("tool42"), text.index(_KEYS[0])
        head, middle = text[:start], text[start + len("tool42") : key]
        self._keys, self._family = ("", ""), "tagged"
        outer = _enclosing(text, start, "tool42")
        if outer is not None:
            at, call = outer
            self._family, head = "object", text[:at]
            names = {json.dumps(value): name for name, value in call.items()}
            self._keys = names['"tool42"'], names[json.dumps(_ARGUMENTS)]
        elif _json_text(text[key - 2 :]) == json.dumps(_ARGUMENTS):
            self._family = "named"
        else:
            between = _between(text, _VALUES[0], _KEYS[1])
            before = "<" + _common_suffix(middle, between).rpartition("<")[2]
            after = between.removesuffix(before)
            tail = text.partition(_VALUES[1])[2][len(after) :]
            end = "".join(tail.partition(">")[:2])
            self._tags = _Tags(before, _between(text, _KEYS[0], _VALUES[0]), after, end)
        # The mark starts after the message's header. Of several tags only the last counts: Qwen3-Coder may
        # omit `<tool_call>`.
        mark = self._shared(head).rpartition(_HEADER)[2]
        self._mark = mark[max(mark.rfind("<"), 0) :].strip()

    def _shared(self, head: str) -> str:
        """The part of the text before the first call that precedes every call."""
        try:
            two = self._turn(
                [_tool_call("tool42", _ARGUMENTS), _tool_call("again42", _ARGUMENTS)]
            )
        except UserError:  # the template allows one call per turn
            return head
        if "again42" not in two:
            return head
        before = two[: two.index("again42")].rpartition(_VALUES[1])[2]
        before = before[: before.rindex("{")] if self._family == "object" else before
        return _common_suffix(head, before)

    def _refuse_rewriting(self) -> None:
        """Raise ConfigError unless the rendering of each turn starts with the previous one."""
        turn, reply = self._assistant([], _VALUES[0]), {"role": "user", "content": _ANSWER}
        if self.tools:
            turn = self._assistant([_tool_call("tool42", _ARGUMENTS, "call_0")])
            reply = _reply("tool42", "call_0", _ANSWER)
        prompt = self._text(_ASKED, add_generation_prompt=True)
        first = self._text([*_ASKED, turn, reply])
        second = self._text([*_ASKED, turn, reply, turn, reply])
        lost = self.chat.thinks and _THOUGHT not in second
        if lost or not first.startswith(prompt) or not second.startswith(first):
            what = "renders earlier turns differently"
            if lost:
                what = "drops the thoughts of earlier turns"
            raise ConfigError(
                f"the chat template of {self.chat.model} {what}, so a conversation cannot be extended turn by turn",
                "change prompting.thinking, or choose a model whose template keeps earlier turns",
            )

    def _turn(self, calls: Sequence[Mapping[str, Any]]) -> str:
        """Text that a turn with calls adds to its prompt."""
        text = self._text([*_ASKED, self._assistant(calls)])
        return text[shared_prefix(text, self._text(_ASKED, add_generation_prompt=True)) :]

    def _assistant(
        self, calls: Sequence[Mapping[str, Any]], content: str = ""
    ) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if calls:
            message["tool_calls"] = list(calls)
        if self.chat.thinks:
            message |= {"reasoning_content": _THOUGHT, "thinking": _THOUGHT}
        return message

    def _text(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = False
    ) -> str:
        tools = self.tools or None
        text = self.chat.apply(
            messages, tokenize=False, add_generation_prompt=add_generation_prompt, tools=tools
        )
        return str(text)

    @cached_property
    def _ends(self) -> list[str]:
        return [decoded(self.chat.tokenizer, [end]) for end in self.chat.stop]


def _tool_call(name: str, arguments: Mapping[str, str], id: str = "call_0") -> dict[str, Any]:
    return {
        "type": "function",
        "id": id,
        "function": {"name": name, "arguments": dict(arguments)},
    }


def _reply(name: str, id: str, content: str) -> dict[str, str]:
    return {"role": "tool", "name": name, "tool_call_id": id, "content": content}


def _between(text: str, one: str, other: str) -> str:
    return text[text.index(one) + len(one) : text.index(other)]


def _common_suffix(one: str, other: str) -> str:
    return one[len(one) - shared_prefix(one[::-1], other[::-1]) :]


def _enclosing(text: str, at: int, value: str) -> tuple[int, dict[str, Any]] | None:
    """(start, object) of the innermost JSON object around offset `at` that has `value` among its values."""
    for start in (place for place in range(at, -1, -1) if text[place] == "{"):
        try:
            outer = json.JSONDecoder().raw_decode(text[start:])[0]
        except ValueError:
            continue
        if value in outer.values():
            return start, outer
    return None


def _json_text(text: str) -> str:
    """Return the JSON value at the start of a text, or the whole text if there is none."""
    try:
        return text[: json.JSONDecoder(strict=False).raw_decode(text)[1]]
    except (ValueError, RecursionError):
        return text.strip()
