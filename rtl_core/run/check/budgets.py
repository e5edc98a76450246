"""Whether prompts and answers fit the models, and whether sizes and settings fit each other."""

from __future__ import annotations

from collections.abc import Iterator

from rtl_core.backend.base import Readiness, wanted_models
from rtl_core.config import RunConfig
from rtl_core.run.check.known import Known
from rtl_core.types.finding import Finding

THINKING_TOKENS = 24_576
"""Room for an answer with its thoughts: below it models of this size are cut in the middle of a thought."""
PLAIN_TOKENS = 8_192
"""Room for an answer without thoughts."""
CUT_SHARE = 0.25
"""Share of cut answers that a thinking model reaches on hard problems although nothing is wrong."""
NAMED = 5
"""How many problems are named."""


def context(known: Known) -> Iterator[Finding]:
    """Prompt and answer within the longest sequence that each model takes.

    Wrong is what the run would come to send: a problem's prompt and an answer. Budgets that no prompt uses up are a warning, since a prompt
    of a further turn is not sent where it leaves no room (`prompt_limit`).
    """
    config = known.config
    budget, answer = config.prompting.max_prompt_tokens, config.longest_answer
    for key, name in wanted_models(config).items():
        limit = known.readiness.context.get(name)
        if limit is None or not known.prompts:
            continue
        longest = max(len(prompt.tokens_P) for prompt in known.prompts.values())
        over = sorted(id for id, prompt in known.prompts.items() if len(prompt.tokens_P) + answer > limit)
        room = limit - (longest if over else budget)
        if room > 0:
            lower = f"lower sampling.max_tokens to {room:,}"
            lower += f", or prompting.max_prompt_tokens to {limit - answer:,}" if limit > answer else ""
        else:
            lower = "lower prompting.max_prompt_tokens and sampling.max_tokens, or choose a model with a longer context"
        sum_of = (
            f"prompting.max_prompt_tokens = {budget:,} and sampling.max_tokens = {answer:,} make {budget + answer:,},"
            f" and {name} takes {limit:,} tokens"
        )
        if over:
            names = ", ".join(over[:NAMED]) + (f" and {len(over) - NAMED} more" if len(over) > NAMED else "")
            text = f"{sum_of}; too long with an answer: {names} (the longest prompt has {longest:,})"
            yield Finding("context", "wrong", f"{key}: {text}", lower)
        elif budget + answer > limit:
            text = f"{key}: {sum_of}; the longest prompt has {longest:,}, so that this run fits"
            yield Finding("context", "warning", text, lower)
        else:
            text = f"{key}: prompts of up to {longest:,} and answers of up to {answer:,} of {limit:,} tokens"
            yield Finding("context", "ok", text)


def prompt_limit(config: RunConfig, readiness: Readiness) -> int:
    """Tokens of the longest prompt that the run may send: its budget, and no more than leaves room for an answer in every model."""
    limits = [readiness.context[name] for name in wanted_models(config).values() if name in readiness.context]
    return min([config.prompting.max_prompt_tokens, *(limit - config.longest_answer for limit in limits)])


def sizes(known: Known) -> Iterator[Finding]:
    """Whether answers have room for what the model is told to do, and what happens to those that have not."""
    config = known.config
    thinking = config.prompting.thinking  # None: the habit of the template, which is told apart (`template`)
    answer, cut = config.sampling.max_tokens, config.health.ranges.get("env/all/truncated")
    if thinking:
        if answer < THINKING_TOKENS:
            yield Finding(
                "sizes",
                "warning",
                f"with prompting.thinking an answer of sampling.max_tokens = {answer:,} often ends within its thoughts",
                f'set sampling.max_tokens = {THINKING_TOKENS} and learning.truncated = "mask", or prompting.thinking = false',
            )
        if config.learning.truncated != "mask":
            yield Finding(
                "sizes",
                "warning",
                f'with prompting.thinking and learning.truncated = "{config.learning.truncated}" answers learn from where they were cut',
                'set learning.truncated = "mask"',
            )
        if cut is not None and cut.max is not None and cut.max < CUT_SHARE:
            yield Finding(
                "sizes",
                "warning",
                f"health.ranges stops the run when {cut.max:.0%} of the answers are cut, which prompting.thinking reaches on hard problems",
                f'raise the maximum of "env/all/truncated" to {CUT_SHARE} or more',
            )
    elif thinking is False and answer > 2 * PLAIN_TOKENS:
        yield Finding(
            "sizes",
            "warning",
            f"without thinking an answer needs no sampling.max_tokens = {answer:,}; one that never ends is paid to its limit",
            f"set sampling.max_tokens = {PLAIN_TOKENS}",
        )
