"""A model that samples tokens, as an episode's policy; its prompt only grows (prompting/calls.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rtl_core.episodes.episode import Messages, Reply
from rtl_core.prompting.calls import Call, ToolChat
from rtl_core.prompting.chat import Chat, answer_text
from rtl_core.types.tokenizer import TokenIds

Sample = Callable[[TokenIds, int], tuple[TokenIds, Sequence[float], int | None]]
"""(prompt of P tokens, largest number of tokens) -> T tokens of a completion, including its end token, their
log-probabilities, and the prompt's tokens that the service read from its cache (None: unknown)."""


@dataclass(frozen=True)
class TokenSequence:
    """A conversation for training: see `Rollout`."""

    prompt_P: tuple[int, ...]
    tokens_T: tuple[int, ...]
    logprobs_T: tuple[float, ...]
    own_T: tuple[bool, ...]


@dataclass
class Conversation:
    """The conversation of an episode. Recorded turns are restored from the messages, token by token."""

    chat: Chat
    sample: Sample
    context: int | None = None
    """Largest number of tokens of prompt and completion together."""
    tokens: list[int] = field(default_factory=list)
    """All tokens so far: prompts, samples, and results of tools."""
    logprobs: list[float] = field(default_factory=list)
    """The sampler's log-probabilities of the tokens after the first prompt; 0 for tokens from tools."""
    own: list[bool] = field(default_factory=list)
    """Whether each of these tokens was sampled."""
    _read: int = 0
    """Number of messages in the tokens."""
    _tools: ToolChat | None = None

    def reply(self, messages: Messages, tools: Messages, most_tokens: int) -> Reply:
        """The next turn; cut and empty if the conversation fills the model's context.

        Raises:
            ConfigError: the chat template does not support tools, or rewrites earlier turns.
            PolicyError: the template refuses the messages.
        """
        self._catch_up(messages, tools)
        room = most_tokens
        if self.context is not None:
            room = min(room, self.context - len(self.tokens))
        if room < 1:
            return Reply("", cut=True)
        tokens_T, logprobs_T, n_cached = self.sample(self.tokens, room)
        text, ended = answer_text(self.chat.tokenizer, tokens_T, self.chat.stop)
        text = self.chat.opening(self.tokens) + text
        assert self._tools is not None, "the prompt was read"
        calls = [
            Call(call.name, call.arguments, f"call_{len(messages)}_{number}")
            for number, call in enumerate(self._tools.read(text))
        ]
        return Reply(
            text,
            tuple(calls),
            n_tokens=len(tokens_T),
            cut=not ended,
            tokens_T=tuple(tokens_T),
            logprobs_T=tuple(logprobs_T),
            n_cached=n_cached,
        )

    def as_sequence(self, messages: Messages, tools: Messages) -> TokenSequence:
        """A finished episode as one sequence up to the last sampled token. Raises what `reply` raises."""
        self._catch_up(messages, tools, ended=True)
        length = max((place + 1 for place, own in enumerate(self.own) if own), default=0)
        start = len(self.tokens) - len(self.own)
        prompt_P, tokens_T = self.tokens[:start], self.tokens[start : start + length]
        logprobs_T, own_T = self.logprobs[:length], self.own[:length]
        return TokenSequence(tuple(prompt_P), tuple(tokens_T), tuple(logprobs_T), tuple(own_T))

    def _catch_up(
        self,
        messages: Messages,
        tools: Messages,
        ended: bool = False,
    ) -> None:
        """Add the messages that are not in the tokens yet; `ended`: the results of the last calls were not sent."""
        if self._tools is None:
            self._tools = ToolChat(self.chat, tools)
            self._read = sum(message["role"] in ("system", "user") for message in messages)
            self.tokens = self._tools.first(messages[: self._read])
        while self._read < len(messages):
            turn = messages[self._read]
            self._add(turn.get("tokens", ()), turn.get("logprobs", ()), own=True)
            calls = [
                Call(c["function"]["name"], c["function"]["arguments"], c["id"])
                for c in turn.get("tool_calls", ())
            ]
            self._read += 1
            results: list[str] = []
            while self._read < len(messages) and messages[self._read]["role"] != "assistant":
                results.append(messages[self._read]["content"])
                self._read += 1
            if results and not (ended and self._read == len(messages)):
                tokens = self._tools.after(calls, results)
                self._add(tokens, [0.0] * len(tokens), own=False)

    def _add(self, tokens_T: TokenIds, logprobs_T: Sequence[float], own: bool) -> None:
        self.tokens += tokens_T
        self.logprobs += logprobs_T
        self.own += [own] * len(tokens_T)
