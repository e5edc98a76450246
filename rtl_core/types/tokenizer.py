"""The interface of a tokenizer: those methods of transformers' tokenizers that the project uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

TokenIds = Sequence[int]


class Tokenizer(Protocol):
    """Text to token ids and back, chat messages to token ids."""

    @property
    def eos_token_id(self) -> int | None:
        """Token that ends a text, if any. For the tokens that end a chat turn see `Chat.stop` (prompting/chat.py)."""

    def __hash__(self) -> int: ...

    def get_vocab(self) -> dict[str, int]: ...

    def get_added_vocab(self) -> dict[str, int]:
        """Special tokens, which are never split, such as those of a chat template."""

    def get_chat_template(self) -> str:
        """Return the Jinja template. Raises ValueError if there is none."""

    def encode(
        self, text: str, *, add_special_tokens: bool, split_special_tokens: bool = False
    ) -> list[int]:
        """With `split_special_tokens`, text that looks like a special token is encoded like any other."""

    @property
    def clean_up_tokenization_spaces(self) -> bool:
        """Default of `decode` for removing spaces before punctuation."""

    def decode(self, tokens: Sequence[int], **how: bool) -> str: ...

    def apply_chat_template(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        chat_template: str,
        return_dict: bool,
        **settings: Any,
    ) -> Sequence[int] | str: ...
