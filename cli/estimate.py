"""The estimate that `rtl-distill check` prints: tokens, time and cost of a run before it starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rtl_core.config import RunConfig
    from rtl_core.prompting.reading import Agreement
    from rtl_core.run.forecast import Forecast
    from rtl_core.types.tokenizer import Tokenizer


def print_estimate(
    settings: RunConfig,
    problems: int | None,
    completion: float | None,
    download: bool,
) -> None:
    """Print the maximum and the likely cost of a run. Raises ConfigError if it cannot be estimated.

    Args:
        settings: the configuration.
        problems: size of a data set that is not on this machine; None: of the public set.
        completion: mean tokens per answer; None: measured or assumed.
        download: whether tokenizers may be downloaded.
    """
    from rtl_core.cost.prompts import prompts_of
    from rtl_core.run.forecast import forecast

    notes: list[str] = []
    tokenizer = _tokenizer(settings, settings.tinker.student, download)
    train, heldout = prompts_of(settings, tokenizer, problems, notes)
    agreements = _agreements(settings, tokenizer, download, notes)
    result = forecast(
        settings,
        train,
        heldout,
        notes,
        completion=completion,
        agreements=agreements,
    )
    _show(settings, result)


def _agreements(
    config: RunConfig, student: Tokenizer | None, download: bool, notes: list[str]
) -> dict[str, Agreement]:
    """Return how the tokens of teachers agree with the student's, by the teacher's name, if they differ."""
    from rtl_core.backend.base import SAVED, Readiness
    from rtl_core.backend.start import different_tokens
    from rtl_core.errors import UserError
    from rtl_core.run.check.machine import problems_of
    from rtl_core.run.check.prompts import prepare

    def assume(names: Iterable[str], why: str) -> None:
        for name in names:
            notes.append(f"{name} reads as many tokens as the student, assumed: {why}")

    chat = None
    if student is not None:
        chat = config.prompting.chat(student, config.tinker.student)
    teachers: dict[str, Tokenizer] = {}
    for name in sorted(set(config.tinker.named_teachers.values()) - {config.tinker.student}):
        if name.startswith(SAVED):
            continue
        teacher = None if chat is None else _tokenizer(config, name, download)
        if chat is None or teacher is None:
            assume([name], "a tokenizer is not on this machine (--download)")
            continue
        if different_tokens(chat, config.prompting.chat_of_teacher(teacher, name), []):
            teachers[name] = teacher
    if not teachers or chat is None:
        return {}
    try:
        return prepare(config, problems_of(config), chat, teachers, Readiness()).agreements
    except UserError as error:
        assume(teachers, error.message)
        return {}


def _tokenizer(config: RunConfig, model: str, download: bool) -> Tokenizer | None:
    """Return a model's tokenizer; None if it is not on this machine and may not be downloaded.

    Raises PolicyError for a model that the embedded service lacks.
    """
    import huggingface_hub.constants

    from rtl_core.backend.registry import backend_of
    from rtl_core.errors import PolicyError
    from rtl_core.pretrained import MODELS

    if not download:
        # Without network, the hub's client would retry for a minute. It reads the variable when it is imported.
        os.environ["HF_HUB_OFFLINE"] = "1"
        huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        tokenizer = backend_of(config).tokenizer(config, model)
        config.prompting.chat_of_teacher(tokenizer, model)
    except PolicyError:
        if config.tinker.is_embedded(model) and model not in MODELS:  # else it may be fetched
            raise
        return None
    return tokenizer


def _show(config: RunConfig, result: Forecast) -> None:
    from rtl_core.cost.estimate import duration
    from rtl_core.cost.tokens import no_price, total_dollars
    from rtl_core.run.forecast import prices_of

    most, likely, prices = result.most, result.likely, result.prices
    here = config.is_free  # no dollars: only tokens and hours
    _show_sums(config, result)
    console = Console()
    console.print(_table(result, here))
    for name, one in (("at most", most), ("likely ", likely)):
        training = total_dollars(one.training, prices)
        evaluating = total_dollars(one.evaluating, prices)
        if training is not None and evaluating is not None:
            per_step = training / max(one.steps, 1)
            _say(
                f"{name} training ${training:,.2f} (${per_step:,.3f} per step), {one.evaluations}"
                f" student and {one.teacher_evaluations} teacher evaluations ${evaluating:,.2f}"
            )
    hours, most_hours = result.hours()
    step_s = 3600 * hours / max(likely.steps, 1)
    _say(
        f"time: likely {duration(hours)} ({step_s:,.0f} s per step with its share of the "
        f"evaluations); about {duration(most_hours)} for the maximum"
    )
    common = (
        f"prices of {prices.as_of:%Y-%m-%d} ({prices.source})",
        "not included: repeated work after a crash, storage of checkpoints, your own machine",
    )
    for title, notes in (
        ("assumptions of the likely estimate", result.assumptions),
        ("both estimates", common),
    ):
        _say(f"\n{title}", "bold")
        for note in notes:
            _say(f"  - {note}")
    if None in result.usd and not here:
        prices_of(config)  # raises if there is a budget
        raise no_price(result.usage, prices, "the estimate has no dollars")


def _say(text: str, style: str | None = None) -> None:
    Console().print(text, style=style, highlight=False, markup=False)


def _show_sums(config: RunConfig, result: Forecast) -> None:
    """Print what the run costs at most and likely, and whether its budget covers it."""
    from rtl_grader.words import counted

    most, likely = result.most, result.likely
    total, highest = result.usd

    def sum_of(value: float | None) -> str:
        if value is None:
            return "no dollars" if config.is_free else "no price"
        return f"${value:,.2f}"

    _say(f"run {config.run.name!r}: {counted(likely.steps, 'step')}", "bold")
    limit = f"{config.trained_limit:,} tokens each ({config.limit_key})"
    replaced = _replaced(config, most.steps)
    _say(
        f"at most {sum_of(highest)}: {most.rollouts:,} answers of {limit}, every training answer "
        f"trained on{replaced}; no prompt cached"
    )
    _say(f"likely  {sum_of(total)}: {likely.rollouts:,} answers, under the assumptions below")
    budget = config.cost.budget_usd
    if budget is not None and highest is not None:
        verdict = "covers the most"
        if highest > budget:
            verdict = "does not cover the most: the run stops before a step that does not fit"
        _say(f"budget  {sum_of(budget)} (cost.budget_usd) {verdict}")


def _table(result: Forecast, here: bool) -> Table:
    """Table of tokens and dollars by model and kind; without dollars if everything runs on this machine (`here`)."""
    from rtl_core.cost.tokens import ModelPrice, Tokens, dollars

    most, likely, prices = result.most, result.likely, result.prices
    titles = ("USD/M", "tokens\nat most", "USD\nat most", "tokens\nlikely", "USD\nlikely")
    kept = slice(1, None, 2) if here else slice(None)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    # In a narrow terminal the model's name is folded, and no number is cut.
    table.add_column("model", overflow="fold")
    table.add_column("kind", no_wrap=True)
    for title in titles[kept]:
        table.add_column(title, justify="right", no_wrap=True)

    def add(model: str, kind: str, *numbers: str) -> None:
        table.add_row(model, kind, *numbers[kept])

    for model in dict.fromkeys([*most.usage, *likely.usage]):
        price = prices.models.get(model, ModelPrice())
        sums = []
        for tokens in (one.usage.get(model, Tokens()) for one in (most, likely)):
            sums.append((tokens.by_kind(), dollars(tokens, price)))
        name = model
        for kind in Tokens().by_kind():
            if any(counts[kind] for counts, _ in sums):
                numbers = [_usd(getattr(price, kind), 3)]
                for counts, usd in sums:
                    numbers += [f"{counts[kind]:,.0f}", _usd(usd[kind])]
                add(name, kind, *numbers)
                name = ""
        table.add_section()
    if not here:
        total, highest = map(_usd, result.usd)
        add("total", "", "", "", highest, "", total)
    return table


def _usd(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _replaced(config: RunConfig, steps: int) -> str:
    """Note for `at most` on how often groups are replaced in a run of `steps`; empty if none may be replaced."""
    learning, count = config.learning, config.learning.replacements
    if not count or not any(learning.replaces_equal_at(step, steps) for step in range(steps)):
        return ""
    times = "once" if count == 1 else f"{count} times"
    return f", every group that may be replaced replaced {times}"
