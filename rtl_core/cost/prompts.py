"""The prompts of a run before it starts: their number and their tokens, counted or assumed."""

from __future__ import annotations

from collections.abc import Callable

from rtl_core.config import RunConfig
from rtl_core.cost.estimate import Prompts
from rtl_core.errors import ConfigError
from rtl_core.types.tokenizer import Tokenizer
from rtl_grader.problems.problem_set import LoadedProblems
from rtl_grader.problems.sources import FileSource, ProblemSource
from rtl_grader.prompts import Message, build_messages
from rtl_grader.types.problem import Problem

CHARS_PER_TOKEN = 3.2
"""Average of English mixed with Verilog, used when no tokenizer is available."""

Length = tuple[float, float, str]
"""Likely tokens of a prompt, its maximum tokens, and the source of the problem."""


def prompts_of(
    config: RunConfig, tokenizer: Tokenizer | None, problems: int | None, notes: list[str]
) -> tuple[Prompts, Prompts]:
    """Return the prompts of both splits, training first; append to `notes` where they come from.

    Args:
        config: of the run; its data sets need not be on this machine.
        tokenizer: the student's; None: lengths are assumed from the number of characters.
        problems: size of a data set that is not on this machine; None: that of the public set.

    Raises:
        ConfigError: a data set is not on this machine, and its kind has no public set.
    """
    train: list[Length] = []
    heldout: list[Length] = []
    count = _counter(config, tokenizer, notes)
    limit = float(config.prompting.max_prompt_tokens)
    for source in config.problems.sources:
        if isinstance(source, FileSource) and not source.is_there(source.path):
            of_train, of_heldout = _assumed(source, problems, limit, notes)
            train += of_train
            heldout += of_heldout
            continue
        loaded = LoadedProblems(split=config.problems.split)
        source.add_to(loaded, config.run.seed)
        for lengths, split in ((train, loaded.train), (heldout, loaded.heldout)):
            for problem in split:
                tokens = min(count(problem), limit)
                most = limit if tokenizer is None else tokens
                lengths.append((tokens, most, problem.source))
        notes.append(_numbers(source, loaded))
    return Prompts.of(train), Prompts.of(heldout)


def _numbers(source: ProblemSource, loaded: LoadedProblems) -> str:
    train, heldout = len(loaded.train), len(loaded.heldout)
    return f"{source.kind}: {train} training and {heldout} held-out problems, read"


def _assumed(
    source: FileSource, problems: int | None, limit: float, notes: list[str]
) -> tuple[list[Length], list[Length]]:
    """Return the lengths of both splits of a set that is not on this machine."""
    if source.assumed is None:
        raise ConfigError(
            f"there is no {source.path}, and {source.kind} has no public set to estimate from",
            source.how_to_get(source.path),
        )
    public, tokens = source.assumed
    total = problems or public
    mean = min(tokens, limit)
    size = "as given" if problems else "the size of the public set (--problems N sets another)"
    notes.append(
        f"there is no {source.path} ({source.how_to_get(source.path)}): {total} problems, {size}; "
        f"prompts of {mean:,.0f} tokens on average, assumed"
    )
    heldout = round(total * source.heldout_fraction)
    length = (mean, limit, source.kind)
    train = min(total - heldout, source.train_problems or total)
    return [length] * train, [length] * heldout


def _counter(
    config: RunConfig, tokenizer: Tokenizer | None, notes: list[str]
) -> Callable[[Problem], float]:
    """Return a function from a problem to its prompt tokens; append to `notes` how it counts."""
    student = config.tinker.student

    def messages_of(problem: Problem) -> list[Message]:
        return build_messages(problem, config.prompting.template)

    if tokenizer is None:
        notes.append(
            f"prompt lengths: {CHARS_PER_TOKEN} characters per token, assumed, because the student's "
            "tokenizer is not on this machine (--download)"
        )
        return lambda problem: (
            sum(len(message["content"]) for message in messages_of(problem)) / CHARS_PER_TOKEN
        )
    chat = config.prompting.chat(tokenizer, student)
    notes.append(f"prompt lengths: counted with the tokenizer of {student}")
    return lambda problem: float(len(chat.encode(messages_of(problem))))
