"""What the student is shown when it scores its own answers as its own teacher: the problem, and more than it saw when it wrote them.

Such prompts are built for scoring alone. They are not sampled from and not trained on: nothing of them is in a rollout's prompt, which is
what an answer is trained under.
"""

from __future__ import annotations

from collections.abc import Sequence

from rtl_core.errors import PolicyError
from rtl_core.prompting.chat import Chat
from rtl_core.prompting.feedback import ASK, feedback
from rtl_core.prompting.messages import Message
from rtl_core.prompting.thoughts import without_thoughts
from rtl_core.types.verdict import Verdict

RIGHT = "This is correct. Give the whole answer again."


def after_right_answer(messages: Sequence[Message], answer: str) -> list[Message]:
    """The chat of a problem, a correct answer to it, and the demand to give it again."""
    return [
        *messages,
        {"role": "assistant", "reasoning_content": "", "content": answer},
        {"role": "user", "content": RIGHT},
    ]


def after_verdict(messages: Sequence[Message], answer: str, verdict: Verdict, most_chars: int) -> list[Message]:
    """The chat of a problem, a failed answer to it without its thoughts, what the grader said of that, and the demand to correct it.

    Raises:
        ValueError: the answer passed.
    """
    # The empty thought, told apart, keeps templates from looking for one in the answer, where `</think>` may stand in a string.
    said_before = {"role": "assistant", "reasoning_content": "", "content": without_thoughts(answer).strip()}
    return [*messages, said_before, {"role": "user", "content": f"{feedback(verdict, most_chars)}\n{ASK}"}]


def hinted(chat: Chat, messages: Sequence[Message], max_tokens: int | None) -> list[int] | None:
    """Tokens of such a chat; None where they are more than `max_tokens`, or the chat template refuses what the model wrote."""
    try:
        tokens = chat.encode(messages)
    except PolicyError:
        return None
    return tokens if max_tokens is None or len(tokens) <= max_tokens else None
