"""`rtl-distill estimate`: predict the tokens, time and cost of a run before it starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from rtl_distill.cli.arguments import ConfigArgument, SetOption

if TYPE_CHECKING:
    from rtl_core.config import RunConfig
    from rtl_core.cost.estimate import Prompts
    from rtl_core.run.forecast import Forecast
    from rtl_grader.prompts import Message
    from rtl_grader.types.problem import Problem

CHARS_PER_TOKEN = 3.2
"""Average of English mixed with Verilog, used when no tokenizer is available."""


def estimate(
    config: ConfigArgument = "cvdp",
    set_: SetOption = None,
    problems: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Size of a data set that is not on this machine (default: size of the public set).",
        ),
    ] = None,
    completion: Annotated[
        float | None, typer.Option("--completion-tokens", min=1, help="Mean tokens per answer.")
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(help="Price list (default: the configuration's, else the shipped one)."),
    ] = None,
    download: Annotated[
        bool,
        typer.Option(
            "--download", help="Download the student's tokenizer if it is not on this machine."
        ),
    ] = False,
) -> None:
    """Print the maximum and the likely cost of a run, with every assumption: tokens by kind, dollars, hours.

    `at most` is the bill that the run cannot exceed: every answer reaches its token limit and is trained
    on, every group is replaced as often as the configuration allows, and no prompt is cached. `likely` uses
    measured lengths, shares and speeds if the history has rollouts of the same student, and assumed ones
    otherwise.

    Examples:

        rtl-distill estimate cvdp

        rtl-distill estimate cvdp --set run.epochs=1 --set sampling.group_size=4 --completion-tokens 2500
    """
    from rtl_core.config import load_config
    from rtl_core.cost.tokens import load_prices
    from rtl_core.run.forecast import forecast

    settings = load_config(
        config, set_ or [], check_files=False
    )  # the data set need not be on this machine
    notes: list[str] = []
    train, heldout = _prompts(settings, problems, download, notes)
    price_list = load_prices(prices or settings.cost.prices)
    _show(
        settings,
        forecast(settings, train, heldout, notes, completion=completion, prices=price_list),
    )


def _prompts(
    config: RunConfig, problems: int | None, download: bool, notes: list[str]
) -> tuple[Prompts, Prompts]:
    """Return the prompts of both splits, training first; append to `notes` where they come from."""
    from rtl_core.cost.estimate import Prompts
    from rtl_core.errors import ConfigError
    from rtl_grader.problems.problem_set import LoadedProblems
    from rtl_grader.problems.sources import FileSource

    count, exact = _token_counter(config, download, notes)
    limit = float(config.prompting.max_prompt_tokens)
    # For each prompt: likely tokens, maximum tokens, source.
    train: list[tuple[float, float, str]] = []
    heldout: list[tuple[float, float, str]] = []
    for source in config.problems.sources:
        if isinstance(source, FileSource) and not source.path.exists():
            if source.published is None:
                message = f"there is no {source.path}, and {source.kind} has no public set to estimate from"
                raise ConfigError(message, source.how_to_get(source.path))
            public, tokens = source.published
            total = problems or public
            held = round(total * source.heldout_fraction)
            mean = min(tokens, limit)
            train += [(mean, limit, source.kind)] * (total - held)
            heldout += [(mean, limit, source.kind)] * held
            size = (
                "as given" if problems else "the size of the public set (--problems N sets another)"
            )
            absent = f"there is no {source.path} ({source.how_to_get(source.path)})"
            notes.append(
                f"{absent}: {total} problems, {size}; prompts of {mean:,.0f} tokens on average, assumed"
            )
            continue
        loaded = LoadedProblems(split=config.problems.split)
        source.add_to(loaded, config.run.seed)
        for split, read in ((train, loaded.train), (heldout, loaded.heldout)):
            counted = [(count(problem), problem.source) for problem in read]
            split += [(tokens, tokens if exact else limit, kind) for tokens, kind in counted]
        notes.append(
            f"{source.kind}: {len(loaded.train)} training and {len(loaded.heldout)} held-out problems, read"
        )
    return Prompts.of(train), Prompts.of(heldout)


def _token_counter(
    config: RunConfig, download: bool, notes: list[str]
) -> tuple[Callable[[Problem], float], bool]:
    """Return a function from a problem to its prompt tokens, and whether it is exact (the tokenizer) or
    assumed (characters)."""
    import os

    from rtl_core.errors import PolicyError
    from rtl_grader.prompts import build_messages

    budget = float(config.prompting.max_prompt_tokens)

    def messages_of(problem: Problem) -> list[Message]:
        return build_messages(problem, config.prompting.template)

    if not download:
        os.environ["HF_HUB_OFFLINE"] = (
            "1"  # without network, the hub's client would retry for a minute
        )
    try:
        from rtl_core.backend.registry import backend_of

        tokenizer = backend_of(config).tokenizer(config, config.tinker.student)
        chat = config.prompting.chat(tokenizer, config.tinker.student)
        notes.append(f"prompt lengths: counted with the tokenizer of {config.tinker.student}")
        return lambda problem: min(float(len(chat.encode(messages_of(problem)))), budget), True
    except PolicyError:
        assumed = f"{CHARS_PER_TOKEN} characters per token, assumed"
        notes.append(
            f"prompt lengths: {assumed}, because the student's tokenizer is not on this machine (--download)"
        )
    return lambda problem: min(
        sum(len(m["content"]) for m in messages_of(problem)) / CHARS_PER_TOKEN, budget
    ), False


def _show(config: RunConfig, found: Forecast) -> None:
    from rtl_core.cost.estimate import duration
    from rtl_core.cost.tokens import total_dollars, unpriced
    from rtl_core.errors import ConfigError
    from rtl_grader.words import counted

    console = Console()

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, highlight=False, markup=False)

    here = config.tinker.all_local  # no dollars: only tokens and hours
    most, likely, prices = found.most, found.likely, found.prices
    highest, total = (total_dollars(one.usage, prices) for one in (most, likely))

    def sum_of(value: float | None) -> str:
        return f"${value:,.2f}" if value is not None else "no dollars" if here else "no price"

    say(f"run {config.run.name!r}: {counted(likely.steps, 'step')}", "bold")
    say(
        f"at most {sum_of(highest)}: {most.rollouts:,} answers of {config.trained_limit:,} tokens each"
        f" ({config.limit_key}), every training answer trained on{_replaced(config, most.steps)}; no prompt cached"
    )
    say(f"likely  {sum_of(total)}: {likely.rollouts:,} answers, under the assumptions below")
    budget = config.cost.budget_usd
    if budget is not None and highest is not None:
        covers = "covers" if highest <= budget else "does not cover"
        then = "" if highest <= budget else ": the run stops before a step that does not fit"
        say(f"budget  {sum_of(budget)} (cost.budget_usd) {covers} the most{then}")
    console.print(_table(found, here))
    for name, one in (("at most", most), ("likely ", likely)):
        training, evaluating = (
            total_dollars(one.training, prices),
            total_dollars(one.evaluating, prices),
        )
        if training is not None and evaluating is not None:
            say(
                f"{name} training ${training:,.2f} (${training / max(one.steps, 1):,.3f} per step), {one.evaluations}"
                f" student and {one.teacher_evaluations} teacher evaluations ${evaluating:,.2f}"
            )
    hours, most_hours = found.hours()
    step_s = 3600 * hours / max(likely.steps, 1)
    say(
        f"time: likely {duration(hours)} ({step_s:,.0f} s per step with its share of the "
        f"evaluations); about {duration(most_hours)} for the maximum"
    )
    common = (
        f"prices of {prices.as_of:%Y-%m-%d} ({prices.source})",
        "not included: repeated work after a crash, storage of checkpoints, your own machine",
    )
    for title, notes in (
        ("assumptions of the likely estimate", found.assumptions),
        ("both estimates", common),
    ):
        say(f"\n{title}", "bold")
        for note in notes:
            say(f"  - {note}")
    missing = unpriced({**likely.usage, **most.usage}, prices)
    if missing and not here:
        raise ConfigError(
            f"the price list of {prices.as_of} has no price for {', '.join(missing)}",
            "copy rtl_core/cost/prices.toml, add the model, and name the copy with --prices",
        )


def _table(found: Forecast, here: bool) -> Table:
    """Table of tokens and dollars by model and kind; without dollars if everything runs on this machine (`here`)."""
    from rtl_core.cost.tokens import ModelPrice, Tokens, dollars, total_dollars

    def usd(value: float | None, digits: int = 2) -> str:
        return "-" if value is None else f"{value:,.{digits}f}"

    most, likely, prices = found.most, found.likely, found.prices
    columns = (
        "model",
        "kind",
        "USD/M",
        "tokens\nat most",
        "USD\nat most",
        "tokens\nlikely",
        "USD\nlikely",
    )
    shown = [i for i, column in enumerate(columns) if not (here and column.startswith("USD"))]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for i in shown:  # in a narrow terminal the model's name is folded, and no number is cut
        table.add_column(
            columns[i], justify="left" if i < 2 else "right", no_wrap=i > 0, overflow="fold"
        )

    def add(cells: tuple[str, ...]) -> None:
        table.add_row(*(cells[i] for i in shown))

    for model in dict.fromkeys([*most.usage, *likely.usage]):
        price = prices.models.get(model, ModelPrice())
        bound, tokens = (one.usage.get(model, Tokens()) for one in (most, likely))
        bounds, costs, counts = dollars(bound, price), dollars(tokens, price), tokens.by_kind()
        name = model
        for kind, at_most in bound.by_kind().items():
            if at_most or counts[kind]:
                rate = usd(getattr(price, kind), 3)
                add(
                    (
                        name,
                        kind,
                        rate,
                        f"{at_most:,.0f}",
                        usd(bounds[kind]),
                        f"{counts[kind]:,.0f}",
                        usd(costs[kind]),
                    )
                )
                name = ""
        table.add_section()
    if not here:
        highest, total = (total_dollars(one.usage, prices) for one in (most, likely))
        add(("total", "", "", "", usd(highest), "", usd(total)))
    return table


def _replaced(config: RunConfig, steps: int) -> str:
    """Note for `at most` on how often groups are replaced in a run of `steps`; empty if none may be replaced."""
    learning, count = config.learning, config.learning.replacements
    if not count or not any(learning.replaces_equal_at(step, steps) for step in range(steps)):
        return ""
    return (
        f", every group that may be replaced replaced {'once' if count == 1 else f'{count} times'}"
    )
