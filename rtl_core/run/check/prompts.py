"""The prompts of a run, and checks of whether sizes and settings fit the models before anything is sampled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rtl_core.backend.base import Readiness, check_same_tokens, wanted_models
from rtl_core.config import RunConfig
from rtl_core.cost.tokens import Prices
from rtl_core.errors import ProblemError
from rtl_core.history.store import History
from rtl_core.prompting.budget import Prompt, build_prompt
from rtl_core.prompting.chat import Chat
from rtl_core.types.finding import Finding
from rtl_core.types.tokenizer import Tokenizer
from rtl_grader.problems.problem_set import LoadedProblems
from rtl_grader.prompts import Message
from rtl_grader.types.problem import Problem

COMPARED = 16
"""Number of prompts that are also rendered with every teacher's chat template."""
THINKING_TOKENS = 24_576
"""Tokens for an answer with thoughts: with fewer, models of this size are often cut in the middle of a thought."""
PLAIN_TOKENS = 8_192
"""Tokens for an answer without thoughts."""
CUT_SHARE = 0.25
"""Share of truncated answers that is normal for a thinking model on hard problems."""
NAMED = 5
"""Maximum number of problems named in a finding."""


@dataclass(frozen=True)
class Prepared:
    """The prompts of a run."""

    chat: Chat
    rendering: str
    """The chat format in words."""
    prompts: dict[str, Prompt] = field(default_factory=dict)
    """Mapping of problem id to prompt."""
    unfit: dict[str, str] = field(default_factory=dict)
    """Mapping of problem id to the reason for having no prompt."""

    @property
    def samples(self) -> list[list[Message]]:
        """Messages that are compared between models."""
        return [prompt.messages for prompt in list(self.prompts.values())[:COMPARED]]


def prepare(
    config: RunConfig,
    problems: Iterable[Problem],
    student: Tokenizer,
    teachers: Mapping[str, Tokenizer] | None = None,
) -> Prepared:
    """Check the chat templates against the settings, build every prompt, and compare with the teachers'
    tokenizers (by name).

    Raises:
        ConfigError: a chat template does not support a setting of `prompting`.
        PolicyError: a tokenizer has no chat template or no end-of-turn token, or a teacher's tokens differ
            from the student's.
    """
    section = config.prompting
    chat = section.chat(student, config.tinker.student)
    found = Prepared(chat, chat.in_words())
    for problem in problems:
        try:
            found.prompts[problem.id] = build_prompt(
                problem, chat, section.template, section.max_prompt_tokens
            )
        except ProblemError as error:
            found.unfit[problem.id] = error.message
    for name, tokenizer in (teachers or {}).items():
        check_same_tokens(chat, section.chat(tokenizer, name), found.samples)
    return found


@dataclass(frozen=True)
class Known:
    """Everything known about a run before anything is sampled."""

    config: RunConfig
    readiness: Readiness
    prompts: Mapping[str, Prompt]
    """Mapping of problem id to prompt."""
    loaded: LoadedProblems = field(default_factory=LoadedProblems)
    history: History | None = None
    """The run's history if it is open; None: opened at its configured path."""
    prices: Prices | None = None
    """The run's prices if they are known; None: the configured list."""
    unfit: Mapping[str, str] = field(default_factory=dict)
    """Mapping of problem id to the reason for having no prompt."""


def context(known: Known) -> Iterator[Finding]:
    """Whether prompt and answer fit the context of each model.

    An error if an actual prompt with its answer does not fit. Only a warning if just the configured limits
    exceed the context: no prompt of this run is that long.
    """
    config = known.config
    budget, answer = config.prompting.max_prompt_tokens, config.longest_answer
    for key, name in wanted_models(config).items():
        limit = known.readiness.context.get(name)
        if limit is None or not known.prompts:
            continue
        longest = max(len(prompt.tokens_P) for prompt in known.prompts.values())
        over = sorted(
            id for id, prompt in known.prompts.items() if len(prompt.tokens_P) + answer > limit
        )
        room = limit - (longest if over else budget)
        if room > 0:
            lower = f"lower sampling.max_tokens to {room:,}"
            lower += (
                f", or prompting.max_prompt_tokens to {limit - answer:,}" if limit > answer else ""
            )
        else:
            lower = "lower prompting.max_prompt_tokens and sampling.max_tokens, or choose a model with a longer context"
        sum_of = (
            f"prompting.max_prompt_tokens = {budget:,} and sampling.max_tokens = {answer:,} make {budget + answer:,},"
            f" and {name} takes {limit:,} tokens"
        )
        if over:
            names = ", ".join(over[:NAMED]) + (
                f" and {len(over) - NAMED} more" if len(over) > NAMED else ""
            )
            text = (
                f"{sum_of}; too long with an answer: {names} (the longest prompt has {longest:,})"
            )
            yield Finding("context", "wrong", f"{key}: {text}", lower)
        elif budget + answer > limit:
            text = f"{key}: {sum_of}; the longest prompt has {longest:,}, so this run fits"
            yield Finding("context", "warning", text, lower)
        else:
            text = f"{key}: prompts of up to {longest:,} and answers of up to {answer:,} of {limit:,} tokens"
            yield Finding("context", "ok", text)


def sizes(known: Known) -> Iterator[Finding]:
    """Whether `sampling.max_tokens` suits the thinking mode, and what happens to truncated answers."""
    config = known.config
    thinking = (
        config.prompting.thinking
    )  # None: the template's default, reported by another finding (`template`)
    answer, cut = config.sampling.max_tokens, config.health.ranges.get("env/all/truncated")
    warnings: list[tuple[str, str]] = []
    if thinking:
        if answer < THINKING_TOKENS:
            text = f"with prompting.thinking, answers limited to sampling.max_tokens = {answer:,} often end within their thoughts"
            remedy = f'set sampling.max_tokens = {THINKING_TOKENS} and learning.truncated = "mask", or prompting.thinking = false'
            warnings.append((text, remedy))
        if config.learning.truncated != "mask":
            text = f'with prompting.thinking and learning.truncated = "{config.learning.truncated}", truncated answers are trained on'
            warnings.append((text, 'set learning.truncated = "mask"'))
        if cut is not None and cut.max is not None and cut.max < CUT_SHARE:
            text = f"health.ranges stops the run when {cut.max:.0%} of the answers are truncated, which is normal with prompting.thinking on hard problems"
            warnings.append(
                (text, f'raise the maximum of "env/all/truncated" to {CUT_SHARE} or more')
            )
    elif thinking is False and answer > 2 * PLAIN_TOKENS:
        text = f"without thinking, sampling.max_tokens = {answer:,} is not needed; an answer that never ends costs the full limit"
        warnings.append((text, f"set sampling.max_tokens = {PLAIN_TOKENS}"))
    for text, remedy in warnings:
        yield Finding("sizes", "warning", text, remedy)


def known_good(known: Known) -> Iterator[Finding]:
    """Whether there are golden answers to imitate, or to show to a self-teacher."""
    learning, train = known.config.learning, known.loaded.train
    without = sum(not problem.has_whole_golden for problem in train)
    shows = learning.self_taught and learning.self_hint == "golden"
    imitates, source = learning.imitates_golden, "learning.warm_start_source"
    for needed, key, other, consequence in (
        (shows, "learning.self_hint", "verdict", "their answers learn from rewards alone"),
        (imitates, source, "teacher", "supervised steps repeat the others"),
    ):
        if not needed or not without:
            continue
        if without == len(train):
            words = (
                f"none of the training problems has a known-good answer, which {key} = golden needs"
            )
            yield Finding(key, "wrong", words, f'set {key} = "{other}"')
        elif not known.config.problems.require_golden:  # with it, the run leaves these problems out
            words = f"{without} of {len(train)} training problems have no known-good answer: {consequence}"
            yield Finding(key, "warning", words)
