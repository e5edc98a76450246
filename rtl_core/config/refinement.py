"""The section of a configuration about further turns."""

from __future__ import annotations

from pydantic import Field

from rtl_core.config.section import Section


class RefinementSection(Section):
    turns: int = Field(default=1, ge=1, le=3)
    """Answers in a row to one problem. 1: single-shot. 2 or 3: an answer that failed is followed by another that sees it and what
    compiler and tests said, in training and in evaluation; single-shot figures are told beside."""
    improvement_weight: float = Field(default=0.5, ge=0)
    """How much of its improvement over the answer before is added to the reward that a later turn is trained on."""
    show_answer: bool = True
    """Show the answer before, as a chat. Off: what was said follows the problem in one message, for models of single turns."""
    feedback_chars: int = Field(default=1500, ge=40)
    """Longest list of reasons that is shown, in characters. The prompt keeps to `prompting.max_prompt_tokens`."""
