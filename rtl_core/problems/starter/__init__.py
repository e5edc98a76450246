"""The starter set: parameterised problem families written for this project, as CVDP records with cocotb harnesses."""

from rtl_core.problems.starter.problems import (
    documented,
    golden_answer,
    problem_of,
    starter_problems,
    starter_specs,
    textbook_answer,
)
from rtl_core.problems.starter.spec import Family, Signal, Spec, Split, Tier

__all__ = [
    "Family",
    "Signal",
    "Spec",
    "Split",
    "Tier",
    "documented",
    "golden_answer",
    "problem_of",
    "starter_problems",
    "starter_specs",
    "textbook_answer",
]
