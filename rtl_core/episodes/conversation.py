"""A model that samples tokens as the policy of an episode: its prompt only grows (prompting/calls.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rtl_core.episodes.episode import Reply
from rtl_core.prompting.calls import Call, ToolChat
from rtl_core.prompting.chat import Chat, answer_text

Sample = Callable[[Sequence[int], int], tuple[Sequence[int], Sequence[float]]]
"""(prompt of P tokens, most tokens) -> T tokens of a completion, the one that ends it included, and their log-probabilities."""


@dataclass
class Conversation:
    """One episode's conversation. Turns that were recorded are taken up from the messages, token by token."""

    chat: Chat
    sample: Sample
    context: int | None = None
    """Tokens of prompt and completion together that the model takes."""
    tokens: list[int] = field(default_factory=list)
    """All so far: prompts, what was sampled, and what tools gave."""
    _read: int = 0
    """How many messages stand in them."""
    _tools: ToolChat | None = None

    def reply(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], most_tokens: int) -> Reply:
        """The next turn; cut and empty where the conversation fills the model's context.

        Raises:
            ConfigError: the chat template knows no tools, or rewrites the turns before.
            PolicyError: it refuses what is to be rendered.
        """
        if self._tools is None:
            self._tools = ToolChat(self.chat, tools)
            self._read = 2  # system and user
            self.tokens = self._tools.first(messages[:2])
        while self._read < len(messages):
            self._take(self._tools, messages)
        room = most_tokens if self.context is None else min(most_tokens, self.context - len(self.tokens))
        if room < 1:
            return Reply("", cut=True)
        tokens_T, logprobs_T = self.sample(self.tokens, room)
        text, ended = answer_text(self.chat.tokenizer, tokens_T, self.chat.stop)
        text = self.chat.opening(self.tokens) + text
        calls = [
            Call(call.name, call.arguments, f"call_{len(messages)}_{number}")
            for number, call in enumerate(self._tools.read(text))
        ]
        return Reply(
            text, tuple(calls), n_tokens=len(tokens_T), cut=not ended,
            tokens_T=tuple(tokens_T), logprobs_T=tuple(logprobs_T),
        )  # fmt: skip

    def _take(self, tools: ToolChat, messages: Sequence[dict[str, Any]]) -> None:
        """Add a turn that was sampled, exactly as it was, and what its calls gave."""
        turn = messages[self._read]
        self.tokens += turn["tokens"]
        calls = [Call(c["function"]["name"], c["function"]["arguments"], c["id"]) for c in turn["tool_calls"]]
        told = [message["content"] for message in messages[self._read + 1 :][: len(calls)]]
        self.tokens += tools.after(calls, told)
        self._read += 1 + len(calls)
