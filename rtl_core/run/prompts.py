"""The prompts of a run, and whether student and teachers read them alike: all that can be known of rendering before a token is sampled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rtl_core.backend.base import check_same_tokens
from rtl_core.config import RunConfig
from rtl_core.errors import ProblemError
from rtl_core.prompting.budget import Prompt, build_prompt
from rtl_core.prompting.chat import Chat
from rtl_core.prompting.templates import Message
from rtl_core.types.problem import Problem
from rtl_core.types.tokenizer import Tokenizer

COMPARED = 16
"""So many prompts are rendered by every teacher's chat template, too."""


@dataclass(frozen=True)
class Prepared:
    """What a run sends: the student's chat, the same in words, the prompts by problem id, and why other problems have none."""

    chat: Chat
    rendering: str
    prompts: dict[str, Prompt] = field(default_factory=dict)
    unfit: dict[str, str] = field(default_factory=dict)

    @property
    def samples(self) -> list[list[Message]]:
        """The messages that are compared between models."""
        return [prompt.messages for prompt in list(self.prompts.values())[:COMPARED]]

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max((len(prompt.tokens_P) for prompt in self.prompts.values()), default=0)


def prepare(
    config: RunConfig, problems: Iterable[Problem], student: Tokenizer, teachers: Mapping[str, Tokenizer] | None = None
) -> Prepared:
    """Check the chat templates against the settings, build every prompt, and compare with the teachers (name -> tokenizer).

    Raises:
        ConfigError: a chat template cannot do what `prompting` sets.
        PolicyError: a tokenizer has no chat template or no token that ends a turn, or a teacher reads other tokens than the student.
    """
    section = config.prompting
    chat = section.chat(student, config.tinker.student)
    found = Prepared(chat, chat.in_words())
    for problem in problems:
        try:
            found.prompts[problem.id] = build_prompt(problem, chat, section.template, section.max_prompt_tokens)
        except ProblemError as error:
            found.unfit[problem.id] = error.message
    for name, tokenizer in (teachers or {}).items():
        check_same_tokens(chat, section.chat(tokenizer, name), found.samples)
    return found
