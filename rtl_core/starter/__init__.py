"""The starter set: parameterised problem families written for this project, as CVDP records with cocotb harnesses."""

from __future__ import annotations

import random

from rtl_core.errors import ProblemError
from rtl_core.starter import families, hard_families
from rtl_core.starter.record import record_of
from rtl_core.starter.spec import DOCUMENT, Family, Spec, Split, Tier, families_in
from rtl_grader.problems.cvdp import problem_from_record
from rtl_grader.types.problem import Problem
from rtl_grader.words import did_you_mean

__all__ = [
    "BY_NAME",
    "FAMILIES",
    "Spec",
    "Split",
    "Tier",
    "documented",
    "problem_of",
    "starter_problems",
    "starter_specs",
]
MAX_DRAWS = 1000
FAMILIES: dict[Tier, list[Family]] = {
    "starter": families_in(families),
    "hard": families_in(hard_families),
}
BY_NAME: dict[str, Family] = {
    family.name: family for tier in FAMILIES.values() for family in tier
}


def starter_specs(split: Split, count: int, seed: int, tier: Tier = "starter") -> list[Spec]:
    """Draw `count` different specifications of a split, taking families in turn; a longer list starts with
    the shorter one.

    Raises ProblemError for an unknown tier, or when a family runs out of specifications.
    """
    in_tier = FAMILIES.get(tier, ())
    if not in_tier:
        raise ProblemError(
            f"the starter set has no tier {tier!r}",
            did_you_mean(tier, FAMILIES, f"choose one of {', '.join(FAMILIES)}"),
        )
    rng = random.Random(f"{tier}/{split}/{seed}")
    specs: list[Spec] = []
    prompts: set[str] = set()
    for index in range(count):
        family = in_tier[index % len(in_tier)]
        for _ in range(MAX_DRAWS):
            spec = family.draw(rng, split)
            if (prompt := family.prompt(spec)) not in prompts:
                break
        else:
            raise ProblemError(
                f"{family.name}: no new specification after {MAX_DRAWS} draws",
                "ask for fewer problems",
            )
        prompts.add(prompt)
        specs.append(spec)
    return specs


def problem_of(spec: Spec) -> Problem:
    """Return the problem of a specification, read from its CVDP record."""
    problem = problem_from_record(record_of(BY_NAME[spec.family], spec), source="starter")
    return problem.model_copy(update={"family": spec.family, "generated": True})


def documented(spec: Spec) -> Problem:
    """Return the problem with the specification in a document; the prompt names the kind of design and the
    file to write."""
    problem, family = problem_of(spec), BY_NAME[spec.family]
    document = {DOCUMENT: f"{family.prompt(spec)}\n"}
    return problem.model_copy(
        update={
            "id": f"{problem.id}_document",
            "prompt": family.pointer(spec),
            "context": document,
        }
    )


def starter_problems(
    split: Split, count: int, seed: int, tier: Tier = "starter", document: bool = False
) -> list[Problem]:
    """Return `count` problems of a split and tier, equal for equal arguments. No specification is in two
    splits, whatever the seeds.

    document: put each specification in a document.
    """
    return [
        (documented if document else problem_of)(spec)
        for spec in starter_specs(split, count, seed, tier)
    ]
