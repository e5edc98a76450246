"""What the matrix runs: every setting by name. Which of them it compares: comparisons.py."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rtl_core.config import RunConfig, load_config
from rtl_core.problems.starter.spec import Tier
from rtl_core.tinymodels import ModelName

BASE = Path(__file__).with_name("base.toml")
STEPS = 64
FIVE_SEEDS = (0, 1, 2, 3, 4)
PROBLEMS_PER_STEP = 8
TEST_PROBLEMS: dict[Tier, int] = {"starter": 72, "hard": 70}
"""A multiple of the tier's families: 18 and 7."""
MODELS: dict[Tier, tuple[ModelName, ModelName]] = {
    "starter": ("student", "teacher"),
    "hard": ("hard-student", "hard-teacher"),
}
"""Student and teacher of each tier."""


@dataclass(frozen=True)
class Setting:
    """One way to train: the configuration `base`, the tier's models and problems, and these keys."""

    name: str
    tier: Tier
    about: str
    overrides: tuple[str, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    base: str = str(BASE)
    """A configuration file, or the name of a shipped one, whose steps and sizes are then its own."""

    @property
    def is_shipped(self) -> bool:
        return self.base != str(BASE)


_DISTIL = ("learning.reward_weight=0.0", "learning.kl_weight=1.0")
_LED = ("learning.kl_weight=0.5", 'learning.kl_schedule="linear"', "learning.kl_schedule_part=0.5")
_WARM = ("learning.warm_start_steps=40", 'learning.warm_start_source="golden"')
_WARM_88 = ("run.epochs=2", "learning.warm_start_steps=88", _WARM[1])
"""128 steps in all, with fewer rollouts than RL alone has in 64: a supervised step has 8 answers, which nobody samples."""
_WARM_128 = ("run.epochs=3", "learning.warm_start_steps=128", _WARM[1])
"""192 steps in all, of which RL has as many as RL alone."""
_FALLING = ("learning.kl_weight=1.0", 'learning.kl_schedule="linear"')
"""λ after a warm start: 0.375 at its end, 0 at the run's."""
_PASS_ONLY = ("reward.weights={tests = 1.6}",)
_STAGES_AND_TESTS = ("reward.weights={format = 0.1, interface = 0.2, syntax = 0.3, tests = 0.5, tests_fraction = 0.5}",)
_TESTS = ("reward.weights={tests = 0.8, tests_fraction = 0.8}",)
_EXPERIMENTS = "benchmarks.learning.experiments"
_SIGNALS = (f'reward.plugins=["{_EXPERIMENTS}"]', "reward.weights={tests = 0.8, signals = 0.8}")
_MIXED = (
    "problems.sources=["
    f'{{kind = "starter", tier = "hard", train = 256, heldout = {TEST_PROBLEMS["hard"]}, heldout_split = "test"}},'
    '{kind = "starter", tier = "starter", train = 256, heldout = 0}]',
)
_FEW = (
    "problems.sources=["
    f'{{kind = "{_EXPERIMENTS}:FewKnownGood", tier = "hard", train = 512, known_good = 24, heldout = {TEST_PROBLEMS["hard"]}, heldout_split = "test"}}]',
    "problems.require_golden=false",
    _WARM[1],
)
"""Known-good answers for 24 of 512 training problems: 64 supervised steps read each of them 21 times."""
_SHUFFLED = 'curriculum.order="shuffled"'
_PERMUTED = "learning.permute_advantages=true"
_RAW = "learning.normalise_std=false"
_RL_100 = ("run.epochs=1", "learning.kl_weight=0.0", "learning.warm_start_steps=0")
"""One epoch, of 100 steps."""
_TWO_TURNS = ("refinement.turns=2", 'refinement.style="terse"', "prompting.max_prompt_tokens=512")


def _kl(weight: float) -> tuple[str, ...]:
    return (f"learning.kl_weight={weight}",)


def _groups(problems: int, answers: int) -> tuple[str, ...]:
    return (
        f"problems.sources.0.train={STEPS * problems}",
        f"curriculum.problems_per_step={problems}",
        f"sampling.group_size={answers}",
    )


def _order(name: str) -> tuple[str, ...]:
    return (f'curriculum.order="{name}"',)


def _hard(rows: Iterable[tuple[str, str, tuple[str, ...]]], seeds: tuple[int, ...] = (0, 1, 2)) -> list[Setting]:
    return [Setting(f"hard-{name}", "hard", about, overrides, seeds) for name, about, overrides in rows]


def _losses() -> Iterable[tuple[str, str, tuple[str, ...]]]:
    for loss, short in (("importance_sampling", "is"), ("ppo", "ppo"), ("cispo", "cispo")):
        for staleness in (0, 1, 4):
            if (loss, staleness) != ("importance_sampling", 0):  # that is `rl`
                keys = (f'learning.loss="{loss}"', f"learning.staleness={staleness}")
                yield f"{short}-{staleness}", f"RL alone: loss {loss}, staleness {staleness}", keys


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        *_hard(
            (
                ("rl", "RL alone", ()),
                ("warm", "40 supervised steps on known-good answers, then RL alone", _WARM),
                (
                    "warm-falling",
                    "40 supervised steps, then RL with the teacher, λ falling from 0.375 to 0",
                    (*_WARM, *_FALLING),
                ),
                (
                    "warm-88",
                    "88 supervised steps on known-good answers (two epochs), then 40 steps of RL alone",
                    _WARM_88,
                ),
                (
                    "warm-88-falling",
                    "88 supervised steps, then 40 of RL with the teacher, λ falling from 0.31 to 0",
                    (*_WARM_88, *_FALLING),
                ),
                (
                    "imitation",
                    "supervised steps on known-good answers alone",
                    ("learning.warm_start_steps=64", _WARM[1]),
                ),
                (
                    "imitation-128",
                    "128 supervised steps on known-good answers alone (two epochs)",
                    ("run.epochs=2", "learning.warm_start_steps=128", _WARM[1]),
                ),
                (
                    "imitation-192",
                    "192 supervised steps on known-good answers alone (three epochs)",
                    ("run.epochs=3", "learning.warm_start_steps=192", _WARM[1]),
                ),
                (
                    "warm-128",
                    "128 supervised steps on known-good answers (two epochs), then 64 steps of RL alone",
                    _WARM_128,
                ),
                (
                    "warm-128-falling",
                    "128 supervised steps, then 64 of RL with the teacher, λ falling from 0.33 to 0",
                    (*_WARM_128, *_FALLING),
                ),
                (
                    "imitation-256",
                    "256 supervised steps on known-good answers alone (four epochs)",
                    ("run.epochs=4", "learning.warm_start_steps=256", _WARM[1]),
                ),
                (
                    "warm-192",
                    "192 supervised steps on known-good answers (three epochs), then 64 steps of RL alone",
                    ("run.epochs=4", "learning.warm_start_steps=192", _WARM[1]),
                ),
                ("distillation", "distillation alone (λ = 1)", _DISTIL),
                ("led", "RL with the teacher, λ from 0.5 to 0 over half the run", _LED),
                (
                    "control-teacher",
                    "control: distillation with the teacher's scores of another answer",
                    (*_DISTIL, "learning.permute_teacher=true"),
                ),
                ("control", "control: RL with permuted advantages", (_PERMUTED,)),
                ("warm-distillation", "warm start, then distillation alone (λ = 1)", (*_WARM, *_DISTIL)),
                ("pass-only", "RL alone, reward for passing only", _PASS_ONLY),
                ("warm-pass-only", "warm start, then RL, reward for passing only", (*_WARM, *_PASS_ONLY)),
                ("warm-both-0.5", "warm start, then RL with the teacher, λ = 0.5", (*_WARM, *_kl(0.5))),
                (
                    "warm-teacher",
                    "40 supervised steps on the teacher's passing answers, one a problem, then RL alone",
                    ("learning.warm_start_steps=40", "learning.warm_start_answers=1"),
                ),
                (
                    "warm-16",
                    "16 supervised steps on known-good answers, then RL alone",
                    ("learning.warm_start_steps=16", _WARM[1]),
                ),
                ("warm-easy-first", "warm start, then RL, easy problems first", (*_WARM, *_order("easy_to_hard"))),
                ("warm-pools", "warm start, then RL, pools by the run's own pass rates", (*_WARM, *_order("pools"))),
                ("warm-partial", "warm start, then RL, credit by stages and tests", (*_WARM, *_STAGES_AND_TESTS)),
                (
                    "warm-std",
                    "warm start, then RL, advantages divided by their deviation",
                    (*_WARM, "learning.normalise_std=true"),
                ),
                (
                    "warm-signals",
                    "warm start, then RL, credit by the share of right ports (an experiment)",
                    (*_WARM, *_SIGNALS),
                ),
                (
                    "warm-least-sure",
                    "warm start, then RL on the fifth of the tokens that the student was least sure of (an experiment)",
                    (*_WARM, f'learning.algorithm="{_EXPERIMENTS}:LeastSure"'),
                ),
                ("both", "RL with the teacher, λ = 0.1", _kl(0.1)),
                ("both-0.5", "RL with the teacher, λ = 0.5", _kl(0.5)),
                ("both-1", "RL with the teacher, λ = 1", _kl(1.0)),
                (
                    "target",
                    "RL with the teacher, λ held to a KL of 0.05",
                    (*_kl(0.5), 'learning.kl_schedule="target"', "learning.kl_target=0.05"),
                ),
                (
                    "failed",
                    "RL with the teacher on failed answers only, λ = 0.5",
                    (*_kl(0.5), 'learning.kl_on="failed"'),
                ),
                ("warm-both", "warm start, then RL with the teacher, λ = 0.1", (*_WARM, *_kl(0.1))),
                ("warm-tests", "warm start, then RL, credit by tests alone", (*_WARM, *_TESTS)),
                ("partial", "RL alone, credit by stages and tests", _STAGES_AND_TESTS),
                ("easy-first", "RL alone, easy problems first", _order("easy_to_hard")),
                ("pools", "RL alone, pools by the run's own pass rates", _order("pools")),
                ("replaced", "RL alone, groups of equal rewards replaced up to twice", ("learning.replacements=2",)),
                ("groups-3", "RL alone, groups of 3 (16 problems)", _groups(16, 3)),
                ("groups-12", "RL alone, groups of 12 (4 problems)", _groups(4, 12)),
                ("turns", "RL alone, a second turn", _TWO_TURNS),
                ("mixed", "RL alone, half of the training problems from the starter tier", _MIXED),
                ("mixed-easy-first", "the same, easy problems first", (*_MIXED, *_order("easy_to_hard"))),
                (
                    "warm-self",
                    "warm start, then RL with the student as its own teacher, λ = 0.5",
                    (
                        *_WARM,
                        *_kl(0.5),
                        'learning.algorithm="self_distillation"',
                        "prompting.max_prompt_tokens=768",
                        "learning.kl_clamp=5.0",
                    ),
                ),
                (
                    "imitation-teacher",
                    "192 supervised steps on the teacher's passing answers alone, one a problem (three epochs)",
                    ("run.epochs=3", "learning.warm_start_steps=192", "learning.warm_start_answers=1"),
                ),
                *_losses(),
            )
        ),
        *_hard(
            (
                (
                    "few-imitation-64",
                    "known-good answers for 24 of 512 problems: 64 supervised steps on them alone",
                    (*_FEW, "learning.warm_start_steps=64"),
                ),
                (
                    "few-imitation-128",
                    "known-good answers for 24 of 512 problems: 128 supervised steps on them alone",
                    (*_FEW, "run.epochs=2", "learning.warm_start_steps=128"),
                ),
                (
                    "few-warm-64",
                    "known-good answers for 24 of 512 problems: 64 supervised steps on them, then 64 of RL alone on all problems",
                    (*_FEW, "run.epochs=2", "learning.warm_start_steps=64"),
                ),
                (
                    "few-warm-64-falling",
                    "the same, RL with the teacher, λ falling from 0.5 to 0",
                    (*_FEW, "run.epochs=2", "learning.warm_start_steps=64", *_FALLING),
                ),
                (
                    "few-warm-64-distillation",
                    "the same, distillation alone (λ = 1) in place of RL",
                    (*_FEW, "run.epochs=2", "learning.warm_start_steps=64", *_DISTIL),
                ),
            ),
            FIVE_SEEDS,
        ),
        *(
            Setting(name, "starter", about, overrides, seeds, base)
            for base, name, seeds, about, overrides in (
                (
                    "demo",
                    "demo",
                    (0, 1, 2),
                    "the demo as it is shipped: no supervised steps, problems from easy to hard",
                    (),
                ),
                ("demo", "demo-control", (0, 1, 2), "control: the demo with permuted advantages", (_PERMUTED,)),
                ("demo", "demo-rl", (0, 1, 2), "the demo without the teacher", _kl(0.0)),
                ("demo", "demo-shuffled", (0, 1, 2), "the demo, its problems in no order", (_SHUFFLED,)),
                ("demo", "demo-raw", (0, 1, 2), "the demo, advantages not divided by their deviation", (_RAW,)),
                (
                    "demo-pools",
                    "demo-pools",
                    FIVE_SEEDS,
                    "supervised steps on the teacher's answers, then RL from pools, the teacher leading at first",
                    (),
                ),
                ("demo-imitate", "demo-imitate", FIVE_SEEDS, "`demo-pools`, its problems in no order", ()),
                (
                    "demo-imitate",
                    "demo-imitate-10",
                    FIVE_SEEDS,
                    "`demo-imitate` with 10 supervised steps and 40 of RL",
                    ("run.epochs=1", "learning.warm_start_steps=10"),
                ),
                ("demo-imitate", "demo-imitate-rl", (0, 1, 2), "`demo-imitate`, RL alone", _RL_100),
                (
                    "demo-imitate",
                    "demo-imitate-rl-2e-3",
                    (0, 1, 2),
                    "`demo-imitate`, RL alone at a learning rate of 2e-3",
                    (*_RL_100, "learning.learning_rate=2e-3"),
                ),
            )
        ),
        Setting("rl", "starter", "RL alone", ()),
        Setting("distillation", "starter", "distillation alone (λ = 1)", _DISTIL),
        Setting("both", "starter", "RL with the teacher, λ = 0.1", _kl(0.1)),
        Setting("led", "starter", "RL with the teacher, λ from 0.5 to 0 over half the run", _LED),
        Setting(
            "imitation",
            "starter",
            "supervised steps on known-good answers alone",
            ("learning.warm_start_steps=64", _WARM[1]),
        ),
        Setting("control", "starter", "control: RL with permuted advantages", (_PERMUTED,)),
    )
}
"""Every setting by name, the first to be run first. A new one is an entry here; what it is compared with is a line in comparisons.py."""


def config_of(setting: Setting, seed: int, folder: Path, extra: tuple[str, ...] = ()) -> RunConfig:
    """The configuration of one cell, which keeps its files in `folder`; judged on the test split."""
    name = f"{setting.name}-{seed}"
    student, teacher = MODELS[setting.tier]
    return load_config(
        setting.base,
        (
            f'run.name="{name}"',
            f"run.seed={seed}",
            f'run.directory="{folder}"',
            f'run.history="{folder}/{name}/history.duckdb"',
            f'tinker.student="{student}"',
            f'tinker.teacher="{teacher}"',
            f'problems.sources.0.tier="{setting.tier}"',
            f"problems.sources.0.heldout={TEST_PROBLEMS[setting.tier]}",
            'problems.sources.0.heldout_split="test"',
            "problems.validation_mutants=0",
            "evaluation.teacher=false",
            "evaluation.samples=4",
            f"evaluation.every={5 if setting.is_shipped else 0}",
            "checkpoints.keep_last=6",
            *setting.overrides,
            *extra,
        ),
        environment={},
    )
