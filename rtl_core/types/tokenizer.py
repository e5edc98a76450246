"""What the project asks of a tokenizer: a few of the methods that every one of transformers has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Tokenizer(Protocol):
    """Text to token ids and back, chat messages to token ids."""

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends a text, if it has one. Which ones end a turn of a chat says `Chat.stop` (prompting/chat.py)."""

    def __hash__(self) -> int: ...

    def get_vocab(self) -> dict[str, int]: ...

    def get_added_vocab(self) -> dict[str, int]:
        """The tokens that are one in any text, such as those of a chat."""

    def get_chat_template(self) -> str:
        """In Jinja. Raises ValueError when there is none."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    @property
    def clean_up_tokenization_spaces(self) -> bool:
        """Whether `decode` drops spaces before punctuation unless it is told not to."""

    def decode(self, tokens: Sequence[int], **how: bool) -> str: ...

    def apply_chat_template(
        self, messages: Sequence[dict[str, Any]], *, chat_template: str, return_dict: bool, **settings: Any
    ) -> Sequence[int] | str: ...
