"""A policy that makes given calls, one a turn."""

from collections.abc import Sequence
from dataclasses import dataclass

from rtl_core.episodes.episode import Messages, Reply
from rtl_core.prompting.calls import Call


@dataclass
class Script:
    """A policy that makes these calls, one a turn."""

    calls: Sequence[tuple[str, str]]
    """Name, and arguments as JSON."""

    def reply(self, messages: Messages, tools: Messages, most_tokens: int) -> Reply:
        turn = sum(message["role"] == "assistant" for message in messages)
        if turn >= len(self.calls):
            return Reply("")
        name, arguments = self.calls[turn]
        return Reply("", (Call(name, arguments, f"call_{turn}"),))
