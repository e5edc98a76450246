"""The section of a configuration about episodes, in which a model works with tools or tries again: what one may use."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rtl_core.types.section import Section

ToolName = Literal["list", "read", "write", "replace", "compile", "simulate", "synthesize", "submit"]


class Bounds(Section):
    """Bounds of one episode; the model is told each. Whichever is reached first ends it, and the files as they are then are the answer."""

    turns: int = Field(default=30, ge=1, le=1000)
    """How many times the model may write, each time with one call or several."""
    tokens: int = Field(default=32_768, ge=1)
    """Tokens that the model may write in all turns together."""
    seconds: float = Field(default=300.0, gt=0)
    """Time in which programs compute or sleep, all calls together. How busy the machine is does not count."""
    call_seconds: float = Field(default=30.0, gt=0, le=600)
    """The same for one program."""
    calls: int = Field(default=8, ge=1)
    """Calls of one turn that are carried out; further ones are told so."""
    result_bytes: int = Field(default=8_000, ge=400)
    """Longest result of a call; of a longer one the middle is left out."""
    argument_bytes: int = Field(default=1 << 20, ge=1_000)
    """Longest arguments of a call."""
    workspace_bytes: int = Field(default=16 << 20, ge=1_000)
    """All files together."""
    files: int = Field(default=500, ge=1)
    """How many files there may be."""
    tools: tuple[ToolName, ...] | None = None
    """The tools that are offered; left out: all that the sandbox has. None at all (`[]`): the first turn is a single-shot answer, to the
    single-shot prompt, and each further one a whole answer again, after the grader's words."""
    attempts: int = Field(default=1, ge=1, le=100)
    """How many answers an episode may hand in. One that fails and is not the last is met with what the grader says of it (interface
    differences, compiler messages, names and messages of failing checks), and the episode goes on."""
    feedback_chars: int = Field(default=1500, ge=40)
    """Longest list of the grader's reasons that is shown, in characters."""
    explain: bool = True
    """Tell the model how to work, its tools and the bounds. Off: the problem's text alone, for models that were trained on such conversations."""

    @property
    def whole_answers(self) -> bool:
        """Whether there are no tools, so that each turn is a whole answer."""
        return self.tools == ()

    @property
    def most_turns(self) -> int:
        """How many times the model may write: without tools each time is an attempt."""
        return min(self.turns, self.attempts) if self.whole_answers else self.turns

    @property
    def most_tool_tokens(self) -> int:
        """More tokens than tools or the grader can give in an episode: one for each byte of a result and 100 for what a chat template writes around
        it; calls that are not carried out cost the model a tenth of what they give, or more."""
        if self.whole_answers:
            return (self.most_turns - 1) * (4 * self.feedback_chars + 200)
        return self.turns * self.calls * (self.result_bytes + 100) + 10 * self.tokens

    def in_words(self) -> str:
        """All of them, for the model."""
        again = f" You may submit {self.attempts} times: if one fails you are told why." if self.attempts > 1 else ""
        return (
            f"You have at most {self.turns} turns, {self.tokens:,} tokens of your own and {self.seconds:g} seconds of programs"
            f" ({self.call_seconds:g} a program); at most {self.calls} calls a turn. A result is at most {self.result_bytes:,} bytes"
            f" (of a longer one the middle is left out), the arguments of a call {self.argument_bytes:,}, the workspace"
            f" {self.workspace_bytes:,} bytes in {self.files} files. When a bound is reached, the files as they are then are your answer.{again}"
        )
