"""The starter set as a problem source."""

from __future__ import annotations

from typing import Self

from rtl_core.starter import Split, Tier, starter_problems
from rtl_grader.problems.sources import SOURCES, GeneratedSource
from rtl_grader.types.problem import Problem


@SOURCES.register("starter")
class StarterSource(GeneratedSource):
    """The parameterised problem families that come with the project."""

    tier: Tier = "starter"
    """Tier of families."""
    document: bool = False
    """Put the specification in `docs/specification.md` and only name the kind of design in the prompt, for
    episodes with tools."""
    form = "[=TIER]"

    @classmethod
    def from_text(cls, kind: str, text: str) -> Self:
        return cls.model_validate({"kind": kind, **({"tier": text} if text else {})})

    def make(self, split: Split, count: int, seed: int) -> list[Problem]:
        return starter_problems(split, count, seed, tier=self.tier, document=self.document)
