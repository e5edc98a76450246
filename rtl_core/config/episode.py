"""The configuration section `[episode]`: limits of an episode, in which a model works with tools or retries."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat

from rtl_core.types.numbers import Count
from rtl_core.types.rollout import Kind
from rtl_grader.types.section import Section

ToolName = Literal[
    "list", "read", "write", "replace", "compile", "simulate", "synthesize", "submit"
]

LIMITS = (
    "You have at most {turns} turns, {tokens:,} tokens of your own and {seconds:g} seconds of "
    "programs ({call_seconds:g} a program); at most {calls} calls a turn. A result is at most "
    "{result_bytes:,} bytes (of a longer one the middle is left out), the arguments of a call "
    "{argument_bytes:,}, the workspace {workspace_bytes:,} bytes in {files} files. When a bound is "
    "reached, the files as they are then are your answer."
)


class Bounds(Section):
    """Limits of one episode, all of which the model is told. The first one reached ends the episode; the
    files at that point are the answer."""

    turns: int = Field(default=30, ge=1, le=1000)
    """Maximum number of model turns. A turn may contain several tool calls."""
    tokens: Count = 32_768
    """Maximum number of tokens the model may write over all turns."""
    seconds: PositiveFloat = 300.0
    """Time limit for the programs of all calls together. Counts computing and sleeping, not waiting for a
    busy machine."""
    call_seconds: float = Field(default=30.0, gt=0, le=600)
    """Time limit for one program, counted in the same way."""
    calls: Count = 8
    """Maximum number of calls carried out per turn. Further calls return an error."""
    result_bytes: int = Field(default=8_000, ge=400)
    """Maximum size of a call's result, in bytes. The middle of a longer result is left out."""
    argument_bytes: int = Field(default=1 << 20, ge=1_000)
    """Maximum size of a call's arguments, in bytes."""
    workspace_bytes: int = Field(default=16 << 20, ge=1_000)
    """Maximum total size of the workspace's files."""
    files: Count = 500
    """Maximum number of files in the workspace."""
    tools: tuple[ToolName, ...] | None = None
    """The tools offered. Default: all that the sandbox has. With an empty list (`[]`) the first turn
    answers the single-shot prompt, and each further turn is a new complete answer after the grader's
    feedback."""
    attempts: int = Field(default=1, ge=1, le=100)
    """Maximum number of answers per episode. After a failed one the model gets the grader's feedback
    (interface differences, compiler messages, names and messages of failing checks) and continues."""
    feedback_chars: int = Field(default=1500, ge=40)
    """Maximum length of the grader's feedback, in characters."""
    explain: bool = True
    """Explain to the model how to work, its tools and the limits. Off: only the problem's text, for models
    trained on such conversations."""

    @property
    def whole_answers(self) -> bool:
        """Whether each turn is a complete answer, because there are no tools."""
        return self.tools == ()

    @property
    def kind(self) -> Kind:
        """What kind of figure these episodes give."""
        if self.attempts > 1 and (self.most_turns > 1 or not self.whole_answers):
            return "feedback of the harness"
        return "single attempt" if self.whole_answers else "tools without harness"

    @property
    def most_turns(self) -> int:
        """Maximum number of turns. Without tools each turn is an attempt."""
        return min(self.turns, self.attempts) if self.whole_answers else self.turns

    @property
    def most_tool_tokens(self) -> int:
        """Upper bound on the tokens that tools or the grader add to an episode. Assumes one token per byte
        of a result and 100 for the chat template around it. A rejected call adds at most ten times the
        tokens that the model wrote for it."""
        if self.whole_answers:
            return (self.most_turns - 1) * (4 * self.feedback_chars + 200)
        return self.turns * self.calls * (self.result_bytes + 100) + 10 * self.tokens

    def in_words(self) -> str:
        """The limits as text for the model."""
        text = LIMITS.format_map(self.model_dump())
        if self.attempts > 1:
            text += f" You may submit {self.attempts} times: if one fails you are told why."
        return text
