"""The section of a configuration about further turns."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rtl_core.types.section import Section


class RefinementSection(Section):
    turns: int = Field(default=1, ge=1, le=3)
    """Answers in a row to one problem. 1: single-shot. 2 or 3: an answer that failed is followed by another that sees it and what
    compiler and tests said, in training and in evaluation; single-shot figures are told beside."""
    improvement_weight: float = Field(default=0.5, ge=0)
    """How much of its improvement over the answer before is added to the reward that a later turn is trained on."""
    style: Literal["chat", "terse"] = "chat"
    """`chat` shows the answer before and then what was said of it. `terse` adds only the names in question to the problem's own
    message: for models that know a single turn and few words, such as the embedded student."""
    feedback_chars: int = Field(default=1500, ge=40)
    """With `chat`: longest list of reasons that is shown, in characters. The prompt keeps to `prompting.max_prompt_tokens`."""
