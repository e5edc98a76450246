"""What the learning report runs: every setting by name, and which pairs of settings it compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rtl_core.config import RunConfig, load_config
from rtl_core.problems.starter.spec import Tier

PROBLEMS_PER_STEP = 8
EPOCHS = 2


@dataclass(frozen=True)
class Size:
    """How large each run is. The starter tier has 18 families and the hard one 7: test problems are a multiple of each."""

    steps: int = 64
    per_family: int = 4
    """Test problems of each starter family; a hard one has two and a half times as many."""
    samples: int = 4
    """Answers to each test problem."""
    split: Literal["test", "heldout"] = "test"
    """What runs are judged on. Choices of settings are made on `heldout`."""

    def test_problems(self, tier: Tier) -> int:
        return 18 * self.per_family if tier == "starter" else 7 * round(2.5 * self.per_family)

    @property
    def train_problems(self) -> int:
        return max(PROBLEMS_PER_STEP, self.steps * PROBLEMS_PER_STEP // EPOCHS)


@dataclass(frozen=True)
class Setting:
    """One way to train: the demo's models and problems, `_BASE`, and these keys."""

    name: str
    tier: Tier
    about: str
    overrides: tuple[str, ...]
    mixed: bool = False
    """Half of the training problems come from the starter tier."""


_BASE = (
    "learning.kl_weight=0.1",
    'learning.kl_schedule="constant"',
    "learning.kl_schedule_part=1.0",
    "learning.replacements=1",
    "learning.replace_with_kl=false",
    'curriculum.order="easy_to_hard"',
)
"""What the demo does otherwise, or may one day."""
RL = ("learning.kl_weight=0.0",)
_LED = ("learning.kl_weight=0.2", 'learning.kl_schedule="linear"', "learning.kl_schedule_part=0.5")
_SHUFFLED = ('curriculum.order="shuffled"',)
_FULL = ("learning.replacements=2", *_SHUFFLED)
_EASY_FIRST = ('curriculum.order="easy_to_hard"',)
_HARD = ("sampling.max_tokens=256",)

SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("rl", "starter", "RL alone (λ = 0)", (*RL, *_EASY_FIRST)),
        Setting(
            "distillation",
            "starter",
            "distillation alone",
            ("learning.reward_weight=0.0", "learning.kl_weight=1.0", *_EASY_FIRST),
        ),
        Setting("both", "starter", "both, λ = 0.1", ("learning.kl_weight=0.1", *_EASY_FIRST)),
        Setting("both-0.5", "starter", "both, λ = 0.5", ("learning.kl_weight=0.5", *_EASY_FIRST)),
        Setting("both-1", "starter", "both, λ = 1", ("learning.kl_weight=1.0", *_EASY_FIRST)),
        Setting(
            "both-led",
            "starter",
            "both, the teacher first: λ from 0.2 to 0 over half the run, two replacements, no curriculum",
            (*_LED, *_FULL),
        ),
        Setting("rl-full", "starter", "RL alone, two replacements, no curriculum", (*RL, *_FULL)),
        Setting("shuffled", "starter", "both, λ = 0.1, no curriculum", ("learning.kl_weight=0.1", *_SHUFFLED)),
        Setting(
            "control",
            "starter",
            "control: RL with permuted advantages",
            (*RL, "learning.permute_advantages=true", *_EASY_FIRST),
        ),
        Setting("hard-rl", "hard", "RL alone", (*RL, *_SHUFFLED, *_HARD)),
        Setting(
            "hard-pass-only",
            "hard",
            "RL alone, reward for passing only",
            (*RL, *_SHUFFLED, *_HARD, "reward.weights={tests = 1.6}"),
        ),
        Setting(
            "hard-partial",
            "hard",
            "RL + credit for each test",
            (
                *RL,
                *_SHUFFLED,
                *_HARD,
                "reward.weights={format = 0.1, interface = 0.2, syntax = 0.3, tests = 0.5, tests_fraction = 0.5}",
            ),
        ),
        Setting("hard-teacher", "hard", "RL + teacher, λ = 0.1", ("learning.kl_weight=0.1", *_SHUFFLED, *_HARD)),
        Setting(
            "hard-distillation",
            "hard",
            "distillation alone",
            ("learning.reward_weight=0.0", "learning.kl_weight=1.0", *_SHUFFLED, *_HARD),
        ),
        Setting("hard-curriculum", "hard", "RL, easy problems first", (*RL, *_EASY_FIRST, *_HARD)),
        Setting("hard-pools", "hard", "RL, pools by measured pass rate", (*RL, 'curriculum.order="pools"', *_HARD)),
        Setting(
            "hard-warm",
            "hard",
            "RL after 8 steps on the teacher's passing answers",
            (*RL, *_SHUFFLED, *_HARD, "learning.warm_start_steps=8"),
        ),
        Setting(
            "hard-refinement",
            "hard",
            "RL, a second turn",
            (
                *RL,
                *_SHUFFLED,
                *_HARD,
                "refinement.turns=2",
                'refinement.style="terse"',
                "prompting.max_prompt_tokens=512",
            ),
        ),
        Setting(
            "hard-mixed",
            "hard",
            "RL, starter tier first, then hard",
            (*RL, *_EASY_FIRST, *_HARD),
            mixed=True,
        ),
    )
}
"""Every setting by name. A new one is an entry here; what it is compared with is a line below."""


@dataclass(frozen=True)
class Comparison:
    """What one setting is asked to add to another."""

    setting: str
    against: str
    about: str
    by: str = "pass@1"
    """Figure of `setting`: `pass@1`, or `turn 2` (passed by the end of the second turn)."""
    to: str = "pass@1"
    """Figure of `against`: `pass@1`, or `pass@2` (of two answers at least one passes: a second turn has had two tries)."""


COMPARISONS = (
    Comparison("both", "rl", "the teacher (λ = 0.1), over RL alone"),
    Comparison("both-led", "both", "the teacher first, two replacements and no curriculum, over λ = 0.1 throughout"),
    Comparison("both-led", "rl", "the same, over RL alone"),
    Comparison("both-led", "distillation", "the same, over distillation alone"),
    Comparison("both-led", "rl-full", "the teacher first, over RL alone with as many replacements and no curriculum"),
    Comparison("both-0.5", "both", "λ = 0.5 instead of 0.1"),
    Comparison("both-1", "both", "λ = 1 instead of 0.1"),
    Comparison("both", "distillation", "the reward, over distillation alone"),
    Comparison("both", "shuffled", "the curriculum"),
    Comparison("hard-teacher", "hard-rl", "hard tier: the teacher (λ = 0.1), over RL alone"),
    Comparison("hard-distillation", "hard-rl", "hard tier: distillation instead of RL"),
    Comparison("hard-warm", "hard-rl", "hard tier: a warm start on the teacher's answers"),
    Comparison("hard-rl", "hard-pass-only", "hard tier: partial credit by stages, over a reward for passing only"),
    Comparison("hard-partial", "hard-rl", "hard tier: partial credit by tests, over stages alone"),
    Comparison("hard-curriculum", "hard-rl", "hard tier: easy problems first"),
    Comparison("hard-pools", "hard-rl", "hard tier: pools by measured pass rate"),
    Comparison("hard-mixed", "hard-rl", "hard tier: half of the problems from the starter tier, those first"),
    Comparison("hard-refinement", "hard-rl", "hard tier: refinement, judged single-shot"),
    Comparison(
        "hard-refinement", "hard-rl", "hard tier: the second turn itself, against two tries", by="turn 2", to="pass@2"
    ),
)
"""In the order of the report."""


def config_of(setting: Setting, seed: int, size: Size, folder: str, extra: tuple[str, ...] = ()) -> RunConfig:
    """The configuration of one run of a setting, judged on the split of its size."""
    name = f"{setting.name}-{seed}"
    rows = [(setting.tier, size.train_problems, size.test_problems(setting.tier))]
    if setting.mixed:
        half = size.train_problems // 2
        # A source must hold something out; the one starter problem is left out of the figures.
        rows = [("starter", half, 1), (setting.tier, size.train_problems - half, size.test_problems(setting.tier))]
    sources = ", ".join(
        f'{{kind = "starter", tier = "{tier}", train = {train}, heldout = {held}, heldout_split = "{size.split}"}}'
        for tier, train, held in rows
    )
    return load_config(
        "demo",
        (
            f'run.name="{name}"',
            f"run.seed={seed}",
            f"run.epochs={EPOCHS}",
            f'run.directory="{folder}"',
            f'run.history="{folder}/{name}/history.duckdb"',
            f"problems.sources=[{sources}]",
            f"curriculum.problems_per_step={PROBLEMS_PER_STEP}",
            f"evaluation.samples={size.samples}",
            f"evaluation.k=[1, {size.samples}]" if size.samples > 1 else "evaluation.k=[1]",
            "evaluation.teacher=false",
            "checkpoints.keep_last=1",
            "grading.workers=2",
            "tinker.local_threads=1",
            *_BASE,
            *setting.overrides,
            *extra,
        ),
        environment={},
    )
