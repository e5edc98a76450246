"""The starter set: parameterised problem families written for this project, as CVDP records with cocotb harnesses.

By split, deterministic, families in turn, no two alike.
"""

from __future__ import annotations

import random

from rtl_core.errors import ProblemError
from rtl_core.problems.cvdp import problem_from_record
from rtl_core.problems.starter.catalog import BY_NAME, FAMILIES
from rtl_core.problems.starter.record import record_of
from rtl_core.problems.starter.spec import DOCUMENT, Family, Signal, Spec, Split, Tier
from rtl_core.problems.starter.splits import modules_of, widths_of
from rtl_core.types.problem import Problem

__all__ = ["Family", "Signal", "Spec", "Split", "Tier", "documented", "golden_answer", "problem_of", "starter_problems", "starter_specs", "textbook_answer"]  # fmt: skip
MAX_DRAWS = 1000


def starter_specs(split: Split, count: int, seed: int, tier: Tier = "starter") -> list[Spec]:
    """`count` different specifications of a split, one family after the other; the first n of a longer list are the
    list of n.

    Raises ProblemError when the tier has no family or a family has no further specification to give.
    """
    families = FAMILIES.get(tier, ())
    if not families:
        raise ProblemError(f"the starter set has no tier {tier!r}", f"choose one of {', '.join(FAMILIES)}")
    rng = random.Random(f"{tier}/{split}/{seed}")
    specs: list[Spec] = []
    prompts: set[str] = set()
    for index in range(count):
        family = families[index % len(families)]
        for _ in range(MAX_DRAWS):
            spec = family.draw(rng, widths_of(family, split), modules_of(split))
            if (prompt := family.prompt(spec)) not in prompts:
                break
        else:
            raise ProblemError(f"{family.name}: no new specification after {MAX_DRAWS} draws", "ask for fewer problems")
        prompts.add(prompt)
        specs.append(spec)
    return specs


def problem_of(spec: Spec) -> Problem:
    """The problem that a specification makes: a CVDP record, read like any other."""
    problem = problem_from_record(record_of(BY_NAME[spec.family], spec), source="starter")
    return problem.model_copy(update={"family": spec.family, "generated": True})


def documented(spec: Spec) -> Problem:
    """The problem whose specification stands in a document of its workspace; the prompt names the kind of design and the file to write."""
    problem, family = problem_of(spec), BY_NAME[spec.family]
    document = {DOCUMENT: f"{family.prompt(spec)}\n"}
    return problem.model_copy(
        update={"id": f"{problem.id}_document", "prompt": family.pointer(spec), "context": document}
    )


def starter_problems(
    split: Split, count: int, seed: int, tier: Tier = "starter", document: bool = False
) -> list[Problem]:
    """`count` problems of a split (`train`, `heldout`, `test`) and tier (`starter`, `hard`), the same for the same
    arguments. No specification is in two splits (see splits.py), whatever the seeds. `document`: each stands in a document.
    """
    return [(documented if document else problem_of)(spec) for spec in starter_specs(split, count, seed, tier)]


def golden_answer(spec: Spec) -> str:
    """The Verilog that does what the specification asks."""
    return BY_NAME[spec.family].code(spec)


def textbook_answer(spec: Spec) -> str:
    """The Verilog that a textbook would show instead: right behaviour, its own interface and defaults."""
    family = BY_NAME[spec.family]
    return family.code(family.textbook_spec(spec))
