"""What a run has used so far, from what the history holds; and what one batch used."""

from __future__ import annotations

from collections.abc import Mapping

from rtl_core.config import RunConfig
from rtl_core.history.store import History
from rtl_core.pipeline.batch import Batch
from rtl_core.policy.cost import Prices, Tokens, Usage, sampled, scored, together, total_dollars, trained

# Groups as they were paid: one row per problem of a step or evaluation. Whose an evaluation is stands in its key, which is
# there before its figures are.
_GROUPS = """
SELECT r.purpose, contains(coalesce(r.evaluation, ''), '/teacher/') AS by_teacher, any_value(r.n_prompt) AS prompt, list(r.n_tokens) AS completions,
       list(r.n_tokens) FILTER (WHERE t.rollout IS NOT NULL) AS scored,
       list(r.n_tokens) FILTER (WHERE (r.purpose IN ('train', 'warm_start') OR r.evaluation LIKE 'step %/turn-%')
                                AND s.status = 'trained') AS trained
FROM rollouts r
LEFT JOIN teacher_scores t ON t.rollout = r.rollout
LEFT JOIN steps s ON s.run = r.run AND s.step = r.step
WHERE r.run = ?
GROUP BY r.purpose, r.evaluation, r.step, r.problem_id, r.prompt, s.status
"""


def spent(history: History, run: str, config: RunConfig) -> dict[str, Tokens]:
    """Tokens of a run by model, evaluations included.

    Not in it: samples that a crash took before they were recorded, train steps that were repeated, and a warm start on known-good
    answers, which nobody samples.
    """
    student, teacher = config.tinker.student, config.tinker.teacher
    usages: list[Usage] = []
    for row in history.query(_GROUPS, [run]).to_pylist():
        sampler = teacher if row["by_teacher"] and teacher else student
        usages.append({sampler: sampled(row["prompt"], row["completions"])})
        if row["trained"]:
            usages.append({student: trained(row["prompt"], row["trained"])})
        if row["scored"] and teacher:
            usages.append({teacher: scored(row["prompt"], row["scored"])})
    return together(usages)


def step_costs(history: History, run: str) -> list[float]:
    """USD of each trained step, in order."""
    rows = history.query(
        "SELECT value FROM step_metrics WHERE run = ? AND name = 'cost/usd' ORDER BY step", [run]
    ).to_pylist()
    return [row["value"] for row in rows]


def batch_usage(batch: Batch, config: RunConfig) -> dict[str, Tokens]:
    """Tokens of one training batch: sampled, scored where scores are there, trained."""
    student, teacher = config.tinker.student, config.tinker.teacher
    usages: list[Usage] = []
    for problem_id in batch.problem_ids:
        group = batch.group(problem_id)
        if not group:
            continue
        prompt = len(group[0].rollout.prompt_P)
        lengths = [len(stored.rollout.tokens_T) for stored in group]
        sampler = teacher if batch.sampler == "teacher" and teacher else student
        usages += [{sampler: sampled(prompt, lengths)}, {student: trained(prompt, lengths)}]
        if teacher and (done := [len(s.rollout.tokens_T) for s in group if s.teacher is not None]):
            usages.append({teacher: scored(prompt, done)})
    for later in batch.later.values():
        for stored in later.rollouts.values():  # each with a prompt of its own
            prompt, length = len(stored.rollout.prompt_P), len(stored.rollout.tokens_T)
            usages.append({student: sampled(prompt, [length]) + trained(prompt, [length])})
            if teacher and stored.teacher is not None:
                usages.append({teacher: scored(prompt, [length])})
    return together(usages)


def cost_metrics(usage: Mapping[str, Tokens], config: RunConfig, prices: Prices) -> dict[str, float]:
    """Metrics of a step: `tokens/student/sample` and so on, and `cost/usd` where everything has a price."""
    roles = {config.tinker.student: "student", **({config.tinker.teacher: "teacher"} if config.tinker.teacher else {})}
    metrics = {
        f"tokens/{roles.get(model, model)}/{kind}": float(count)
        for model, tokens in usage.items()
        for kind, count in tokens.by_kind().items()
        if count
    }
    usd = total_dollars(usage, prices)
    return metrics if usd is None else {**metrics, "cost/usd": usd}
