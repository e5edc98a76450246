"""Combinations of keys that a configuration must not have (`RunConfig`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtl_core.config.learning import (
    DISTRIBUTIONS,
    GDPO,
    MAX_RL,
    SELF_DISTILLATION,
    SELF_DISTRIBUTIONS,
)

if TYPE_CHECKING:
    from rtl_core.config.models import RunConfig

Rule = tuple[str, bool, str]
"""The key to change, whether the rule is broken, and why it is one."""


def rules_of(config: RunConfig) -> list[Rule]:
    """Return the rules for a configuration, in the order in which they are checked."""
    rules = [
        *_service_rules(config),
        *_learning_rules(config),
        *_algorithm_rules(config),
        *_loss_rules(config),
    ]
    if config.learning.asked_choices:
        rules += _distribution_rules(config)
    if config.learning.episodes:
        rules += _episode_rules(config)
    rules += _evaluation_rules(config)
    if config.grading.until != "tests":
        rules += _early_stage_rules(config)
    return rules


def _learning_rules(config: RunConfig) -> list[Rule]:
    learning, tinker = config.learning, config.tinker
    return [
        (
            "learning.kl_weight",
            (learning.self_taught or learning.asked_choices > 0) and not learning.uses_kl,
            f"{learning.algorithm} without a KL is grpo; raise the weight or change learning.algorithm",
        ),
        (
            "tinker.teacher",
            learning.uses_kl and not learning.self_taught and tinker.teacher is None,
            "a KL weight above 0 needs a teacher; name one, set learning.algorithm = "
            '"self_distillation", or set learning.kl_weight = 0 and, with a schedule, '
            "learning.final_kl_weight = 0",
        ),
        (
            "tinker.teacher",
            bool(tinker.teachers) and tinker.teacher is None,
            "name a teacher for the problems whose source is not in tinker.teachers",
        ),
        (
            "learning.kl_weight",
            not learning.uses_kl and learning.reward_weight == 0,
            "both weights are 0, so nothing would be learnt; raise one of them",
        ),
        (
            "sampling.group_size",
            not learning.uses_kl and config.sampling.group_size == 1,
            "without a KL a group of one rollout has no advantage; use at least 2",
        ),
        (
            "sampling.temperature",
            learning.uses_kl and config.sampling.temperature != 1.0,
            "the KL to the teacher is correct only at temperature 1",
        ),
        (
            "tinker.teacher",
            learning.imitates_teacher and tinker.teacher is None,
            "a warm start on the teacher's answers needs a teacher; name one, or use golden or endpoint",
        ),
        (
            "learning.warm_start_endpoint",
            learning.imitates_endpoint
            and not (learning.warm_start_endpoint and learning.warm_start_model),
            "a warm start on an endpoint's answers needs its address and "
            "learning.warm_start_model, the name of the model there",
        ),
        (
            "learning.permute_results",
            learning.permute_results and not learning.episodes,
            "needs episodes; set learning.episodes = true",
        ),
    ]


def _service_rules(config: RunConfig) -> list[Rule]:
    tinker = config.tinker
    rank, below = tinker.lora_rank, 1 << (tinker.lora_rank.bit_length() - 1)
    in_cloud = config.backend.name == "tinker" and tinker.base_url is None
    return [
        (
            "tinker.lora_rank",
            in_cloud and rank != below,
            f"Tinker's service trains only ranks that are powers of two, not {rank}; take {below} or {2 * below}",
        ),
        (
            "tinker.engine",
            tinker.engine == "skyrl" and tinker.is_local,
            'skyrl is a server of your own and "local" is the embedded service; set tinker.base_url to its URL',
        ),
    ]


def _algorithm_rules(config: RunConfig) -> list[Rule]:
    learning = config.learning
    names = set(learning.named_algorithms.values())
    special = {DISTRIBUTIONS, SELF_DISTILLATION, SELF_DISTRIBUTIONS}
    asks = ", ".join(sorted(names & special))
    return [
        (
            "learning.by_source",
            bool(learning.by_source and asks),
            f"not with {asks}, which asks the teacher in another way than the other algorithms and so is for all "
            "problems of a run; set learning.algorithm and remove by_source",
        ),
        (
            "learning.normalise_std",
            learning.normalise_std and names <= {GDPO, MAX_RL},
            f"has no effect with {' and '.join(sorted(names))}; set false",
        ),
        (
            "problems.weak_ceiling",
            GDPO in names and config.problems.weak_ceiling > 0,
            f"not with {GDPO}: it weighs each term of the reward, and the ceiling is one of their sum; set 0",
        ),
    ]


def _loss_rules(config: RunConfig) -> list[Rule]:
    learning = config.learning
    lowest, highest = learning.kl_weight_bounds
    unknown = ", ".join(sorted(set(learning.loss_parameters) - set(learning.loss_settings)))
    parameters = ", ".join(learning.loss_settings) or "none"
    return [
        (
            "learning.kl_target",
            learning.kl_schedule == "target"
            and (learning.kl_target is None or learning.kl_weight == 0),
            "the target schedule needs a kl_target and an initial kl_weight above 0",
        ),
        ("learning.kl_weight_bounds", not 0 < lowest <= highest, "needs 0 < lowest <= highest"),
        (
            "learning.loss_parameters",
            bool(unknown),
            f"{learning.loss} has no parameter {unknown} (has: {parameters})",
        ),
        (
            "learning.overlong_buffer",
            learning.overlong_buffer > config.trained_limit,
            f"must not exceed {config.limit_key}",
        ),
    ]


def _distribution_rules(config: RunConfig) -> list[Rule]:
    """Settings that are meaningful only for the sampled token."""
    learning, no = config.learning, f"not with {config.learning.algorithm}:"
    return [
        (
            "learning.loss",
            learning.loss != "importance_sampling",
            f"{no} it trains with cross entropy; set importance_sampling",
        ),
        (
            "learning.kl_discount",
            learning.kl_discount > 0,
            f"{no} each position uses only its own divergence; set 0",
        ),
        (
            "learning.kl_clamp",
            learning.kl_clamp is not None and learning.divergence != "reverse",
            f"{no} only the reverse KL supports it",
        ),
        (
            "learning.permute_advantages",
            learning.permute_advantages,
            f"{no} use permute_teacher",
        ),
        (
            "learning.permute_teacher",
            learning.permute_teacher and learning.choices_of == "student",
            f'{no} the student\'s choices belong to its own answer; set learning.choices_of = "teacher"',
        ),
    ]


def _episode_rules(config: RunConfig) -> list[Rule]:
    """Settings that are meaningful only for single-turn answers."""
    learning, no = config.learning, "not with episodes:"
    without_tools = config.episode.whole_answers
    return [
        (
            "learning.episodes",
            config.run.purpose == "evaluation",
            f"{no} nothing is trained; set evaluation.agentic",
        ),
        (
            "episode.tools",
            without_tools and config.episode.attempts == 1,
            f"{no} without tools and further attempts an answer is single-shot; set learning.episodes = false",
        ),
        (
            "learning.permute_results",
            without_tools and learning.permute_results,
            f"{no} without tools there are no results",
        ),
        (
            "learning.warm_start_steps",
            learning.warm_start_steps > 0,
            f"{no} known-good answers are not conversations; set 0",
        ),
        (
            "learning.algorithm",
            learning.self_taught,
            f"{no} its hints are in the prompt of a single turn; use grpo",
        ),
        (
            "learning.kl_after_error",
            learning.kl_after_error,
            f"{no} it compares single-turn answers; set false",
        ),
        (
            "learning.choices_of",
            learning.sampled_choices > 0,
            f"{no} the student's choices come with a single turn; set teacher",
        ),
        (
            "learning.permute_teacher",
            learning.permute_teacher,
            f"{no} use permute_advantages or permute_results",
        ),
    ]


def _evaluation_rules(config: RunConfig) -> list[Rule]:
    evaluation, trains = config.evaluation, config.run.purpose == "train"
    budget = config.cost.budget_usd is not None or config.cost.budget_hours is not None
    return [
        (
            "cost.budget_usd",
            budget and not trains,
            "a budget stops a run between its train steps, and an evaluation has none; remove "
            "it, or evaluate fewer problems or samples",
        ),
        (
            "evaluation.endpoint",
            trains and evaluation.endpoint is not None,
            "a training run evaluates on its own service; remove it",
        ),
        (
            "evaluation.agentic",
            trains and evaluation.agentic,
            "a training run evaluates what it trains; for episodes set learning.episodes",
        ),
        (
            "evaluation.weights",
            trains and evaluation.weights is not None,
            "a training run evaluates the weights that it trains; remove it",
        ),
        (
            "evaluation.teacher",
            evaluation.teacher and config.tinker.teacher is None,
            "there is no teacher to evaluate; set tinker.teacher, or set this to false",
        ),
        (
            "evaluation.k",
            min(evaluation.k) < 1 or max(evaluation.k) > evaluation.samples,
            "pass@k needs 1 <= k <= evaluation.samples",
        ),
        (
            "checkpoints.keep_last",
            config.checkpoints.keep_last <= config.learning.staleness,
            "must exceed learning.staleness, because these weights are still sampled from",
        ),
        (
            "curriculum.hard_below",
            config.curriculum.hard_below > config.curriculum.easy_from,
            "must not exceed easy_from",
        ),
    ]


def _early_stage_rules(config: RunConfig) -> list[Rule]:
    """Settings that need the tests, for training that does not run them."""
    stages = ("format", "interface", "syntax", "tests")
    graded = stages[: stages.index(config.grading.until) + 1]
    unrewarded = config.learning.reward_weight > 0 and not any(
        config.reward.weights.get(stage) for stage in graded
    )
    return [
        (
            "grading.until",
            unrewarded,
            f"none of the graded stages has a reward weight: {', '.join(graded)}",
        ),
        (
            "grading.until",
            config.curriculum.order == "pools",
            'pools use pass rates, which need "tests"; choose another curriculum.order',
        ),
        (
            "grading.until",
            config.episode.attempts > 1,
            'further attempts (episode.attempts) need "tests"',
        ),
    ]
