"""What the project asks of a tokenizer: a few of the methods that every one of transformers has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Tokenizer(Protocol):
    """Text to token ids and back, chat messages to token ids."""

    @property
    def eos_token_id(self) -> int:
        """The token that ends an answer."""

    def get_vocab(self) -> dict[str, int]: ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...

    def apply_chat_template(
        self, messages: Sequence[dict[str, str]], *, add_generation_prompt: bool, tokenize: bool, return_dict: bool
    ) -> Sequence[int]: ...
