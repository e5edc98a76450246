"""A model's chat: its chat template turns messages into tokens, and shows how the model thinks and ends a turn.

Everything is derived from what the template renders; names of models count only where no template is at hand
(`thinks_by_name`). Two facts go beyond rendering:

- A prompt may end with the beginning of the model's text: an opened thought (`<think>`), or the header of a
  channel's message (`<|start|>assistant`). `opening` returns it, and a rollout's text starts with it, so
  thoughts and answer can be told apart later without a tokenizer (thoughts.py).
- A turn ends with the token that the template puts after an assistant's message, which may differ from the
  tokenizer's end of text.

Templates that print today's date get a fixed one, so that a run resumed on another day sends the same prompts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from functools import cached_property
from typing import Any

from rtl_core.errors import ConfigError, PolicyError, UserError
from rtl_core.types.tokenizer import TokenIds, Tokenizer
from rtl_grader.extraction.thoughts import thought_and_answer, without_thoughts
from rtl_grader.prompts import Message

TODAY = date(2026, 1, 1)
"""The date in every prompt."""
SWITCHES = ("enable_thinking", "thinking")
"""Template variables that switch thinking on: the first in most, the second in DeepSeek's and Kimi's. Both
get the same value."""
EFFORTS = ("low", "medium", "high")

_NOW = re.compile(r"\bstrftime_now\(\s*(['\"])(.*?)\1\s*\)")
_OPENING = re.compile(
    r"(?:<(?:think|thinking|thought|reasoning)>|<\|start\|>assistant)\s*\Z", re.I
)
_OPENING_TOKENS = 32
_THINKERS = re.compile(
    r"qwen3(?!.*(instruct|coder|base))|gpt-oss|smollm3|nemotron-3|deepseek-r1|thinking", re.I
)
_THOUGHT, _ANSWER = "Thought42", "Answer42"
_ASKED: list[Message] = [{"role": "user", "content": "Question42"}]
_CALL = {"type": "function", "function": {"name": "f", "arguments": {}}}


class Chat:
    """A tokenizer with the settings of its chat template.

    Args:
        thinking: whether the model thinks before it answers; None: the template's default.
        reasoning_effort: how long it thinks, in the template's own terms.
        model: the model's name, for error messages.

    Raises:
        PolicyError: the tokenizer has no chat template.
        ConfigError: the template does not support a setting.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        thinking: bool | None = None,
        reasoning_effort: str | None = None,
        model: str = "the model",
    ) -> None:
        self.tokenizer, self.model = tokenizer, model
        self._settings: dict[str, Any] = {}
        try:
            template = tokenizer.get_chat_template()
        except ValueError as error:
            raise PolicyError(
                f"the tokenizer of {model} has no chat template",
                "choose a model that is tuned for chat; a base model has none",
            ) from error
        self._template = _NOW.sub(lambda call: repr(TODAY.strftime(call[2])), template)
        if thinking is not None:
            self._set_thinking(thinking)
        if reasoning_effort is not None:
            self._set_effort(reasoning_effort)

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Tokens of chat messages and the header of the assistant's turn. Raises PolicyError when the
        template refuses them."""
        return list(self.apply(messages, tokenize=True, add_generation_prompt=True))

    def opening(self, prompt_P: TokenIds) -> str:
        """The end of a prompt that the model's text continues: the tag of an open thought, a message
        header, or nothing."""
        match = _OPENING.search(decoded(self.tokenizer, prompt_P[-_OPENING_TOKENS:]))
        return match[0] if match else ""

    def tokens_of(self, answer: str) -> list[int]:
        """Tokens of a whole turn with `answer` and no thought: the template's lead, the text, and the end
        of the turn."""
        return [
            *self.tokens_of_frame(self.lead),
            *self.tokens_of_text(answer),
            self.stop[0],
        ]

    def tokens_of_text(self, text: str) -> list[int]:
        """Tokens of ordinary text: what looks like a special token in it stays text."""
        return list(
            self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        )

    def tokens_of_frame(self, text: str) -> list[int]:
        """Tokens of a piece of the template, with its special tokens."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def turn_of(self, response: str) -> list[int]:
        """Tokens of a whole turn with another model's response; none if it has no answer. Its thought stays if this
        model thinks too and its template writes thoughts; otherwise the turn has none."""
        answer = without_thoughts(response).strip()
        thought, place = thought_and_answer(response)
        if not answer:
            return []
        if not (
            thought and place and self.thinks and self._thought_end and self.around_thought
        ):
            return self.tokens_of(answer)
        before, between = self.around_thought
        inner = response[slice(*thought)]
        tokens = self.tokens_of_frame(f"{before}{inner}{between}{answer}")
        apart = self.tokens_of_frame(before) + self.tokens_of_text(inner)
        apart += self.tokens_of_frame(between) + self.tokens_of_text(answer)
        if self._added(tokens) != self._added(apart):  # text that looks like a special token
            tokens = apart
        return [*tokens, self.stop[0]]

    @cached_property
    def stop(self) -> tuple[int, ...]:
        """Tokens that end the assistant's turn: after an answer, after a tool call, and the tokenizer's
        own, in this order.

        Raises:
            PolicyError: there is none.
        """
        after_answer = self._assistant(content=_ANSWER).rpartition(_ANSWER)[2]
        ends = self._added(self._tokens(after_answer)[:1])
        with suppress(UserError):  # the template does not support tools
            after_call = self._assistant(content="", tool_calls=[_CALL])
            ends += self._added(self._tokens(after_call)[-1:])
        if self.tokenizer.eos_token_id is not None:
            ends.append(self.tokenizer.eos_token_id)
        # What ends a thought does not end a turn, even if a tokenizer says so.
        within = self._tokens(self._thought_end)
        stop = tuple(end for end in dict.fromkeys(ends) if end not in within)
        if not stop:
            raise PolicyError(
                f"neither the chat template of {self.model} nor its tokenizer has a token that ends a turn"
            )
        return stop

    @cached_property
    def lead(self) -> str:
        """Text between a prompt and an answer without a thought: an empty thought, the header of a channel,
        or nothing."""
        prompt = self._prompt()
        before = self._assistant(content=_ANSWER).rpartition(_ANSWER)[0]
        if before.startswith(prompt):
            return before[len(prompt) :]
        opening = _OPENING.search(prompt)
        if opening is None:
            return ""
        # The prompt opens a thought that the template's messages without thoughts lack: close it as the
        # template closes others.
        closing = opening[0].strip().replace("<", "</")
        return self._thought_end or f"\n{closing}\n\n"

    @cached_property
    def around_thought(self) -> tuple[str, str] | None:
        """Text between a prompt and a thought, and between a thought and an answer; None if the template, with these
        settings, takes no thoughts."""
        fields = dict.fromkeys(("reasoning_content", "thinking"), _THOUGHT)
        text = self._assistant(content=_ANSWER, **fields)
        before, _, rest = text.partition(_THOUGHT)
        prompt, (between, found, _) = self._prompt(), rest.partition(_ANSWER)
        if found and before.startswith(prompt):
            return before[len(prompt) :], between
        opening = _OPENING.search(
            prompt
        )  # its messages drop thoughts, and its prompt opens one
        return ("", self.lead) if opening and "think" in opening[0] else None

    @property
    def thinks(self) -> bool:
        """Whether the model thinks before it answers, according to its template."""
        on, off = self._switched()
        return self._prompt() == on if on != off else bool(_OPENING.search(on))

    def in_words(self) -> str:
        """Describe in one sentence whether it thinks, how a prompt ends, and what ends a turn. Raises as
        `stop` does."""
        how = "thinks" if self.thinks else "does not think"
        if opening := _OPENING.search(self._prompt()):
            how += f" (the prompt ends in {opening[0].strip()})"
        ends = " or ".join(decoded(self.tokenizer, [end]) for end in self.stop)
        return f"{self.model} {how}; {ends} ends its turn"

    def _switched(self) -> tuple[str, str]:
        """Return a prompt with thinking on, and one with thinking off."""
        on, off = (
            self._prompt(**dict.fromkeys(SWITCHES, thinking)) for thinking in (True, False)
        )
        return on, off

    def _set_thinking(self, thinking: bool) -> None:
        on, off = self._switched()
        if on != off:
            self._settings |= dict.fromkeys(SWITCHES, thinking)
        elif thinking and not self.thinks:
            raise ConfigError(
                f"prompting.thinking: the chat template of {self.model} does not support thinking",
                "leave it out or set it to false, or choose a model that thinks",
            )
        elif not thinking and self.thinks:
            effort = ""
            if self._knows_effort("low"):
                effort = ', and set prompting.reasoning_effort = "low"'
            raise ConfigError(
                f"prompting.thinking: the chat template of {self.model} always thinks",
                f"leave it out or set it to true{effort}, or choose a model that can answer without thinking",
            )

    def _set_effort(self, effort: str) -> None:
        if not self._knows_effort(effort):
            raise ConfigError(
                f"prompting.reasoning_effort: the chat template of {self.model} does not support effort {effort!r}",
                "leave it out, or look up the template's values (gpt-oss: low, medium, high)",
            )
        self._settings["reasoning_effort"] = effort

    def _knows_effort(self, effort: str) -> bool:
        """Whether the template distinguishes this effort from other words. gpt-oss's accepts any, so there
        only EFFORTS count."""
        try:
            prompt = self._prompt(reasoning_effort=effort)
        except UserError:
            return False
        if prompt.endswith("<|start|>assistant") and effort not in EFFORTS:
            return False
        try:
            return prompt != self._prompt(reasoning_effort=f"{effort}-")
        except UserError:  # the template refuses unknown words
            return True

    def _prompt(self, **settings: Any) -> str:
        return str(self.apply(_ASKED, tokenize=False, add_generation_prompt=True, **settings))

    def _assistant(self, **message: Any) -> str:
        """Text of a chat that ends with an assistant's message."""
        messages = [*_ASKED, {"role": "assistant", **message}]
        return str(self.apply(messages, tokenize=False, add_generation_prompt=False))

    def apply(self, messages: Sequence[Any], **how: Any) -> Any:
        """Render messages like transformers' `apply_chat_template`. Raises PolicyError when the template
        refuses them."""
        how = {**self._settings, **how}
        try:
            return self.tokenizer.apply_chat_template(
                list(messages), chat_template=self._template, return_dict=False, **how
            )
        except Exception as error:  # a template is a third-party program and may raise anything
            why = (str(error) or repr(error)).splitlines()[0]
            raise PolicyError(
                f"the chat template of {self.model} refuses the prompt: {why}",
                'if it takes no system message, use prompting.template = "bare" or your own template',
            ) from error

    @cached_property
    def _thought_end(self) -> str:
        """Text that the template puts between a thought and its answer; empty if it takes no thoughts."""
        text = self._assistant(content=_ANSWER, reasoning_content=_THOUGHT)
        after = text.partition(_THOUGHT)[2]
        return after.partition(_ANSWER)[0] if _ANSWER in after else ""

    def _tokens(self, text: str) -> list[int]:
        return self.tokens_of_frame(text.strip())

    def _added(self, tokens: TokenIds) -> list[int]:
        """Those of the tokens that are added ones, not pieces of text."""
        added = self.tokenizer.get_added_vocab().values()
        return [token for token in tokens if token in added]


def thinks_by_name(model: str) -> bool | None:
    """Whether a model whose template is not at hand thinks by default, by its name. None: not known to."""
    return bool(_THINKERS.search(model)) or None


def decoded(tokenizer: Tokenizer, tokens: TokenIds) -> str:
    """Exact text of tokens, with special tokens and with the spaces that some tokenizers drop before punctuation."""
    # Passed only where needed: custom tokenizers (Kimi's) take another code path when they get any option.
    if tokenizer.clean_up_tokenization_spaces:
        return tokenizer.decode(list(tokens), clean_up_tokenization_spaces=False)
    return tokenizer.decode(list(tokens))


def answer_text(tokenizer: Tokenizer, tokens_T: TokenIds, stop: TokenIds) -> tuple[str, bool]:
    """Return the text of a completion without its end token, and whether one of `stop` ended it."""
    ended = bool(tokens_T) and tokens_T[-1] in stop
    return decoded(tokenizer, tokens_T[:-1] if ended else tokens_T), ended
