"""What it may cost to ask models about problems, and the verdicts on descriptions that they wrote."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from rtl_core.config import RunConfig
from rtl_core.cost.prompts import CHARS_PER_TOKEN
from rtl_core.cost.tokens import load_prices, sampled, total_dollars
from rtl_core.errors import ConfigError
from rtl_core.rollouts.batch import Batch, reward_of
from rtl_core.run.session import Session
from rtl_core.synthesis.descriptions import Description
from rtl_grader.prompts import build_messages
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome, Stage, StageResult, StageStatus, Verdict
from rtl_grader.words import counted


def most_dollars(
    config: RunConfig,
    problems: Sequence[Problem],
    model: str,
    answers: int,
    further: float = 0.0,
) -> list[float]:
    """The most that a model's answers to each problem cost, by the price list; infinity without a price.
    Every answer reaches its limit, and the prompts, counted by characters, have `further` tokens."""
    prices, template = load_prices(config.cost.prices), config.prompting.template
    limits, costs = [config.evaluated_limit] * answers, []
    for problem in problems:
        texts = (message["content"] for message in build_messages(problem, template))
        prompt = sum(map(len, texts)) / CHARS_PER_TOKEN + further
        cost = total_dollars({model: sampled(prompt, limits)}, prices)
        costs.append(math.inf if cost is None else cost)
    return costs


def affordable(costs: Sequence[float], budget: float | None) -> tuple[int, str]:
    """How many of the first problems, each with its largest cost, a budget in dollars surely covers (all
    without one), and their cost in words. Raises ConfigError if it covers none."""
    sums = list(accumulate(costs))
    number = len(sums) if budget is None else sum(cost <= budget for cost in sums)
    if not number:
        raise ConfigError(
            f"--budget: ${budget:,.2f} does not surely cover one problem ({_usd(sums[0])})",
            "raise it or lower --answers; --set cost.prices=FILE names a price list that has the models",
        )
    return number, f"{number:,} of {counted(len(costs), 'problem')}: {_usd(sums[number - 1])}"


def _usd(most: float) -> str:
    return "no price is known" if math.isinf(most) else f"at most ${most:,.2f}"


def judge_descriptions(session: Session, batch: Batch, problem_id: str) -> Description:
    """Record a verdict on the description of a problem: rejected with the reason, or not tested, since
    nothing may take it for a design that passed. Returns the description."""
    (stored,) = batch.group(problem_id)
    problem = session.problems[problem_id]
    description = Description.of(problem, stored.rollout.text)
    if stored.verdict is None:
        refusal = description.refusal
        reasons = (f"the description is refused: {refusal}",) if refusal else ()
        status: StageStatus = "failed" if refusal else "passed"
        stage = StageResult(stage=Stage.FORMAT, status=status, reasons=reasons)
        outcome = Outcome.REJECTED if refusal else Outcome.NOT_TESTED
        verdict = Verdict(
            outcome=outcome, stages=(stage,), reasons=reasons, executor="description"
        )
        reward = reward_of(session.config, session.graders, problem, stored.rollout, verdict)
        batch.update(stored, verdict=verdict, reward=reward)
        session.recorder.put("record_verdicts", [(stored.rollout.key, verdict, reward)])
    return description
