"""Which pairs of settings the matrix compares (settings.py): what each ingredient adds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """What one setting is asked to add to another, in points of pass@1 at an equal budget."""

    setting: str
    against: str
    ingredient: str
    """What the first has and the second has not."""
    by: str = "pass@1"
    """Figure of `setting`: `pass@1`, or `turn 2` (passed by the end of the second turn)."""
    to: str = "pass@1"
    """Figure of `against`: `pass@1`, or `pass@2` (of two answers at least one passes: a second turn has had two tries)."""


COMPARISONS = (
    Comparison("hard-warm", "hard-rl", "a warm start on known-good answers"),
    Comparison("hard-warm-falling", "hard-rl", "warm start and teacher"),
    Comparison("hard-warm-88", "hard-rl", "a longer warm start on known-good answers (fewer rollouts)"),
    Comparison("hard-warm-88-falling", "hard-rl", "a longer warm start and the teacher (fewer rollouts)"),
    Comparison("hard-warm-88-falling", "hard-warm-88", "the teacher, λ falling, after a longer warm start"),
    Comparison("hard-warm-88", "hard-imitation-128", "RL in place of the last 40 of 128 supervised steps"),
    Comparison("hard-imitation-128", "hard-rl", "128 supervised steps in place of RL (no rollouts)"),
    Comparison("hard-warm-128", "hard-imitation-128", "64 steps of RL after 128 supervised steps"),
    Comparison("hard-warm-128", "hard-imitation-192", "64 steps of RL in place of as many supervised steps"),
    Comparison("hard-imitation-192", "hard-imitation-128", "64 more supervised steps after 128"),
    Comparison("hard-warm-192", "hard-imitation-192", "64 steps of RL after 192 supervised steps"),
    Comparison("hard-warm-192", "hard-imitation-256", "64 steps of RL in place of as many supervised steps, after 192"),
    Comparison("hard-warm-128-falling", "hard-warm-128", "the teacher, λ falling, after 128 supervised steps"),
    Comparison("hard-distillation", "hard-rl", "distillation in place of the reward, without a warm start"),
    Comparison("hard-led", "hard-rl", "the teacher, led, without a warm start"),
    Comparison("hard-both", "hard-rl", "the teacher at λ = 0.1, without a warm start"),
    Comparison("hard-both-0.5", "hard-rl", "the teacher at λ = 0.5, without a warm start"),
    Comparison("hard-both-1", "hard-rl", "the teacher at λ = 1, without a warm start"),
    Comparison("hard-target", "hard-rl", "the teacher at a target KL, without a warm start"),
    Comparison("hard-failed", "hard-both-0.5", "the teacher on failed answers only"),
    Comparison("hard-led", "hard-both-0.5", "letting λ fall, without a warm start"),
    Comparison("hard-both-1", "hard-distillation", "the reward, beside the teacher at λ = 1"),
    Comparison("hard-warm", "hard-imitation", "RL after 40 supervised steps, over supervised steps alone"),
    Comparison(
        "hard-warm-falling", "hard-imitation", "RL and teacher after 40 supervised steps, over supervised steps alone"
    ),
    Comparison("hard-warm-falling", "hard-warm", "the teacher, λ falling, after a warm start"),
    Comparison("hard-warm-both", "hard-warm", "the teacher at λ = 0.1, after a warm start"),
    Comparison("hard-warm-both-0.5", "hard-warm", "the teacher at λ = 0.5, after a warm start"),
    Comparison("hard-warm-distillation", "hard-warm", "distillation in place of the reward, after a warm start"),
    Comparison("hard-warm-self", "hard-warm", "the student as its own teacher, after a warm start"),
    Comparison("hard-warm-teacher", "hard-warm", "the teacher's answers in place of known-good ones in the warm start"),
    Comparison("hard-warm", "hard-warm-16", "40 supervised steps in place of 16"),
    Comparison(
        "hard-imitation-teacher",
        "hard-imitation-192",
        "the teacher's answers in place of known-good ones, in 192 supervised steps",
    ),
    *(
        Comparison(f"hard-few-{setting}", f"hard-few-{against}", f"known-good answers for 24 of 512 problems: {what}")
        for setting, against, what in (
            ("imitation-128", "imitation-64", "64 more supervised steps after 64"),
            ("warm-64", "imitation-64", "64 steps of RL after 64 supervised steps"),
            ("warm-64", "imitation-128", "64 steps of RL in place of as many supervised steps"),
            ("warm-64-falling", "warm-64", "the teacher, λ falling, after 64 supervised steps"),
            ("warm-64-falling", "imitation-128", "RL and the teacher in place of 64 supervised steps"),
            ("warm-64-distillation", "warm-64", "distillation in place of the reward, after 64 supervised steps"),
            ("warm-64-distillation", "imitation-128", "distillation in place of 64 supervised steps"),
        )
    ),
    Comparison("hard-rl", "hard-pass-only", "partial credit by stages, without a warm start"),
    Comparison("hard-partial", "hard-rl", "partial credit by tests as well, without a warm start"),
    Comparison("hard-warm", "hard-warm-pass-only", "partial credit by stages, after a warm start"),
    Comparison("hard-warm-tests", "hard-warm-pass-only", "partial credit by tests alone, after a warm start"),
    Comparison("hard-warm-partial", "hard-warm", "partial credit by tests as well, after a warm start"),
    Comparison("hard-warm-signals", "hard-warm-pass-only", "partial credit by right ports, after a warm start"),
    Comparison("hard-warm-least-sure", "hard-warm", "RL on the least sure tokens alone, after a warm start"),
    Comparison("hard-easy-first", "hard-rl", "easy problems first, without a warm start"),
    Comparison("hard-warm-easy-first", "hard-warm", "easy problems first, after a warm start"),
    Comparison("hard-pools", "hard-rl", "pools by the run's own pass rates, without a warm start"),
    Comparison("hard-warm-pools", "hard-warm", "pools by the run's own pass rates, after a warm start"),
    Comparison("hard-warm-std", "hard-warm", "advantages divided by their deviation"),
    Comparison("hard-replaced", "hard-rl", "another problem for each group of equal rewards (more rollouts)"),
    Comparison("hard-groups-3", "hard-rl", "groups of 3 in place of 6"),
    Comparison("hard-groups-12", "hard-rl", "groups of 12 in place of 6"),
    Comparison("hard-mixed", "hard-rl", "problems of both tiers, shuffled"),
    Comparison("hard-mixed-easy-first", "hard-rl", "problems of both tiers, easy ones first"),
    Comparison("hard-turns", "hard-rl", "a second turn, judged single-shot (more rollouts)"),
    Comparison("hard-turns", "hard-rl", "the second turn itself, against two tries", by="turn 2", to="pass@2"),
    *(
        Comparison(f"hard-{short}-{staleness}", "hard-rl", f"loss {short}, staleness {staleness}")
        for short in ("is", "ppo", "cispo")
        for staleness in (0, 1, 4)
        if (short, staleness) != ("is", 0)
    ),
    Comparison("demo", "demo-rl", "starter tier: the teacher at λ = 0.3 on failed answers, in the demo"),
    Comparison("demo", "demo-shuffled", "starter tier: easy problems first, in the demo"),
    Comparison("demo", "demo-raw", "starter tier: advantages divided by their deviation, in the demo"),
    Comparison("demo", "demo-imitate-rl-2e-3", "starter tier: the demo over RL alone at a rate of 2e-3 (100 steps)"),
    Comparison("demo-imitate", "demo", "starter tier: supervised steps first, and more of all"),
    Comparison("demo-pools", "demo-imitate-rl", "starter tier: supervised steps, teacher and pools, over RL alone"),
    Comparison("demo-pools", "demo-imitate-rl-2e-3", "starter tier: the same, over RL alone at a rate of 2e-3"),
    Comparison("demo-pools", "demo-imitate", "starter tier: pools by the run's own pass rates"),
    Comparison("demo-imitate", "demo-imitate-10", "starter tier: 26 supervised steps in place of 10"),
    Comparison("distillation", "rl", "starter tier: distillation in place of the reward"),
    Comparison("both", "rl", "starter tier: the teacher at λ = 0.1"),
    Comparison("led", "rl", "starter tier: the teacher, led"),
    Comparison("rl", "imitation", "starter tier: RL alone, over supervised steps alone"),
)
"""In the order of the report."""
