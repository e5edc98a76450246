"""`rtl-distill estimate`: what a run will use and cost, before it is started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtl_distill.cli.arguments import ConfigArgument, SetOption

if TYPE_CHECKING:
    from rich.console import Console

    from rtl_core.config import RunConfig
    from rtl_core.run.forecast import Forecast

CHARS_PER_TOKEN = 3.2
"""Of English mixed with Verilog, where no tokenizer is at hand."""


def estimate(
    config: ConfigArgument = "cvdp",
    set_: SetOption = None,
    problems: Annotated[
        int | None,
        typer.Option(min=1, help="Size of a data set that is not on this machine; default: that of the public one."),
    ] = None,
    completion: Annotated[
        float | None, typer.Option("--completion-tokens", min=1, help="Mean tokens of an answer.")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="A price list; default: the configuration's or the shipped one.")
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch the student's tokenizer when it is not on this machine.")
    ] = False,
) -> None:
    """Print what a run can cost at most, then what it will likely cost, with every assumption: tokens by kind, dollars, hours.

    `at most` is the bill that the run cannot exceed: every answer as long as `sampling.max_tokens` allows and trained on, every group
    replaced and every answer followed up as often as the configuration lets them be, no prompt cached. `likely` goes by lengths,
    shares and speeds that are measured where the history holds rollouts of the same student, and assumed where not.

    Examples:

        rtl-distill estimate cvdp

        rtl-distill estimate cvdp --set run.epochs=1 --set sampling.group_size=4 --completion-tokens 2500
    """
    from rich.console import Console

    from rtl_core.config import load_config
    from rtl_core.run.forecast import forecast

    # A data set that is not on this machine is no reason not to know what it would cost.
    settings = load_config(config, set_ or [], check_files=False)
    assumptions: list[str] = []
    sizes = _prompts(settings, problems, download, assumptions)
    found = forecast(settings, sizes, assumptions, completion=completion, prices=prices)
    common = [
        f"prices of {found.prices.as_of:%Y-%m-%d} ({found.prices.source})",
        "not counted: repeats after a crash, storage of checkpoints, your own machine",
    ]
    _show(Console(), settings, found, common)


def _prompts(config: RunConfig, problems: int | None, download: bool, notes: list[str]) -> dict[str, Any]:
    """Problems by split, tokens of their prompts (means, and what bounds them); adds to `notes` how each was found."""
    from rtl_core.errors import ConfigError
    from rtl_core.problems.problem_set import LoadedProblems
    from rtl_core.problems.sources import FileSource
    from rtl_core.run.forecast import sizes_of

    count, exact = _token_counter(config, download, notes)
    limit = float(config.prompting.max_prompt_tokens)
    lengths: dict[str, list[float]] = {"train": [], "heldout": []}
    most: dict[str, list[float]] = {"train": [], "heldout": []}
    sources: dict[str, list[str]] = {"train": [], "heldout": []}
    for source in config.problems.sources:
        if isinstance(source, FileSource) and not source.path.exists():
            if source.published is None:
                raise ConfigError(
                    f"there is no {source.path}, and {source.kind} has no public set to go by",
                    source.how_to_get(source.path),
                )
            public, tokens = source.published
            total = problems or public
            held = round(total * source.heldout_fraction)
            mean = min(tokens, limit)
            for split, n in (("train", total - held), ("heldout", held)):
                lengths[split] += [mean] * n
                most[split] += [limit] * n
                sources[split] += [source.kind] * n
            size = "as you said" if problems else "the size of the public set (say --problems N)"
            notes.append(
                f"there is no {source.path} ({source.how_to_get(source.path)}): {total} problems, {size}; prompts of"
                f" {mean:,.0f} tokens on average, assumed"
            )
            continue
        loaded = LoadedProblems(split=config.problems.split)
        source.add_to(loaded, config.run.seed)
        for split, found in (("train", loaded.train), ("heldout", loaded.heldout)):
            counted = [count(problem) for problem in found]
            lengths[split] += counted
            most[split] += counted if exact else [limit] * len(found)
            sources[split] += [problem.source for problem in found]
        notes.append(f"{source.kind}: {len(loaded.train)} training and {len(loaded.heldout)} held-out problems, read")

    return sizes_of(lengths, most, sources)


def _token_counter(config: RunConfig, download: bool, notes: list[str]) -> tuple[Callable[[Any], float], bool]:
    """A function problem -> prompt tokens, and whether it is exact: by the student's tokenizer, or by characters without it."""
    import os

    from rtl_core.errors import PolicyError
    from rtl_core.prompting.messages import build_messages

    budget = config.prompting.max_prompt_tokens
    if not download:
        os.environ["HF_HUB_OFFLINE"] = "1"  # the hub's client would try for a minute on a machine without network
    try:
        from rtl_core.backend.registry import backend_of

        tokenizer = backend_of(config).tokenizer(config, config.tinker.student)
        chat = config.prompting.chat(tokenizer, config.tinker.student)
        notes.append(f"prompt lengths: counted with the tokenizer of {config.tinker.student}")

        def by_tokenizer(problem: Any) -> float:
            messages = build_messages(problem, config.prompting.template, dict(problem.context))
            return float(min(len(chat.encode(messages)), budget))

        return by_tokenizer, True
    except PolicyError:
        notes.append(
            f"prompt lengths: {CHARS_PER_TOKEN} characters a token, assumed: the student's tokenizer is not on this machine (--download)"
        )

    def by_characters(problem: Any) -> float:
        messages = build_messages(problem, config.prompting.template, dict(problem.context))
        return min(sum(len(m["content"]) for m in messages) / CHARS_PER_TOKEN, float(budget))

    return by_characters, False


def _show(
    console: Console,
    config: RunConfig,
    found: Forecast,
    common: list[str],
) -> None:
    """Print both estimates; `common` are the notes on both."""
    from rich import box
    from rich.table import Table

    from rtl_core.cost.estimate import duration
    from rtl_core.cost.tokens import ModelPrice, Tokens, dollars, total_dollars, unpriced
    from rtl_core.errors import ConfigError

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, highlight=False, markup=False)

    def usd(value: float | None, digits: int = 2) -> str:
        return "-" if value is None else f"{value:,.{digits}f}"

    here = config.tinker.all_local  # tokens and hours are what it takes

    def sum_of(value: float | None) -> str:
        return f"${value:,.2f}" if value is not None else "no dollars" if here else "no price"

    most, expected, prices = found.most, found.likely, found.prices
    highest, total = (total_dollars(one.usage, prices) for one in (most, expected))
    budget = config.cost.budget_usd
    say(f"run {config.run.name!r}: {expected.steps} steps", "bold")
    say(
        f"at most {sum_of(highest)}: {most.rollouts:,} answers of {config.sampling.max_tokens:,} tokens each"
        f" (sampling.max_tokens), those of training all trained on{_extras(config, most.steps)}; no prompt cached"
    )
    say(f"likely  {sum_of(total)}: {expected.rollouts:,} answers, under the assumptions below")
    if budget is not None and highest is not None:
        then = (
            "covers the most"
            if highest <= budget
            else "does not cover the most: the run stops before a step that does not fit"
        )
        say(f"budget  {sum_of(budget)} (cost.budget_usd) {then}")
    table = Table(box=box.SIMPLE_HEAD)
    paid = () if here else ("USD/M", "USD at most", "USD likely")
    columns = ("model", "kind", "USD/M", "tokens at most", "USD at most", "tokens likely", "USD likely")
    shown = [column for column in columns if column in paid or not column.startswith("USD")]
    for column in shown:
        table.add_column(column, justify="left" if column in ("model", "kind") else "right", no_wrap=True)
    for model in dict.fromkeys([*most.usage, *expected.usage]):
        price = prices.models.get(model, ModelPrice())
        bound, tokens = (one.usage.get(model, Tokens()) for one in (most, expected))
        bounds, costs = dollars(bound, price), dollars(tokens, price)
        likely_tokens = tokens.by_kind()
        used = [kind for kind, count in bound.by_kind().items() if count or likely_tokens[kind]]
        for i, kind in enumerate(used):
            cells = (
                model if i == 0 else "", kind, usd(getattr(price, kind), 3),
                f"{getattr(bound, kind):,.0f}", usd(bounds[kind]), f"{likely_tokens[kind]:,.0f}", usd(costs[kind]),
            )  # fmt: skip
            row = [cell for column, cell in zip(columns, cells, strict=True) if column in shown]
            table.add_row(*row, end_section=i == len(used) - 1)
    if not here:
        table.add_row("total", "", "", "", usd(highest), "", usd(total))
    console.print(table)
    parts = [(total_dollars(one.training, prices), total_dollars(one.evaluating, prices)) for one in (most, expected)]
    for name, (training, evaluating) in zip(("at most", "likely "), parts, strict=True):
        if training is not None and evaluating is not None:
            say(
                f"{name} training ${usd(training)} (${training / max(expected.steps, 1):,.3f} a step), {expected.evaluations}"
                f" student and {expected.teacher_evaluations} teacher evaluations ${usd(evaluating)}"
            )
    say(
        f"time: likely {duration(expected.hours)} ({expected.step_s:,.0f} s a step); about {duration(most.hours)} if it uses the most"
    )
    for title, notes in (("assumptions of what is likely", found.assumptions), ("of both", common)):
        say(f"\n{title}", "bold")
        for note in notes:
            say(f"  - {note}")
    missing = unpriced({**expected.usage, **most.usage}, prices)
    if missing and not config.tinker.all_local:
        raise ConfigError(
            f"the price list of {prices.as_of} has no price for {', '.join(missing)}",
            "copy rtl_core/cost/prices.toml, add the model, and name the copy with --prices",
        )


def _extras(config: RunConfig, steps: int) -> str:
    """What else the most counts of a run of `steps`, in words; nothing where the configuration has none of it."""
    learning, words = config.learning, ""
    if learning.replacements and any(learning.replaces_equal_at(step, steps) for step in range(steps)):
        words += f", every group that may be replaced replaced {_times(learning.replacements)}"
    if config.refinement.turns > 1:
        words += f", every answer followed up {_times(config.refinement.turns - 1)}"
    return words


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
