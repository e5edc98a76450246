"""What the matrix tries and the product does not have: a source, which the sources' `kind` names by this module."""

from pydantic import Field

from rtl_core.starter import Split
from rtl_core.starter.source import StarterSource
from rtl_grader.types.problem import Problem


class FewKnownGood(StarterSource):
    """The starter set with a harness for every training problem and known-good answers for few."""

    known_good: int = Field(ge=0)
    """How many training problems keep their known-good answer."""

    def make(self, split: Split, count: int, seed: int) -> list[Problem]:
        problems = super().make(split, count, seed)
        keep = self.known_good if split == "train" else count
        return problems[:keep] + [
            problem.model_copy(update={"golden": None}) for problem in problems[keep:]
        ]
