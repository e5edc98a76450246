"""`rtl-distill estimate`: what a run will use and cost, before it is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rtl_core.config import RunConfig
    from rtl_core.policy.cost import Prices
    from rtl_core.policy.estimate import Estimate, Pace

CHARS_PER_TOKEN = 3.2
"""Of English mixed with Verilog, where no tokenizer is at hand."""
PUBLIC_SETS = {"cvdp": (302, 1500.0), "verilog-eval": (156, 350.0), "rtllm": (50, 700.0)}
"""Kind of a source -> problems of the public set that open tools can grade, and assumed mean tokens of a prompt."""
SHARE_OF_LIMIT = 0.35
"""Mean length of an answer as a share of `sampling.max_tokens`, where nothing was measured."""


def estimate(
    config: Annotated[str, typer.Argument(help="A TOML file, or a shipped configuration: demo, cvdp.")] = "cvdp",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one key; may be repeated.")
    ] = None,
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
    """Print tokens by kind, dollars and hours of a run, with every assumption.

    Lengths and speeds are measured where the history holds rollouts of the same student, and assumed where not.
    `at most` is the bill if every answer were as long as `sampling.max_tokens` allows.

    Examples:

        rtl-distill estimate cvdp

        rtl-distill estimate cvdp --set run.epochs=1 --set sampling.group_size=8 --completion-tokens 2500
    """
    from dataclasses import replace

    from rich.console import Console

    from rtl_core.config import load_config
    from rtl_core.policy.cost import load_prices
    from rtl_core.policy.estimate import Workload, estimate_run

    # A data set that is not on this machine is no reason not to know what it would cost.
    settings = load_config(config, set_ or [], check_files=False)
    assumptions: list[str] = []
    sizes = _prompts(settings, problems, download, assumptions)
    measured = _measured(settings)
    if completion is not None:
        assumptions.append(f"answers: {completion:,.0f} tokens on average, as you said")
    elif measured is not None:
        completion = measured[0]
        assumptions.append(f"answers: {completion:,.0f} tokens on average, measured in {settings.run.history}")
    else:
        completion = SHARE_OF_LIMIT * settings.sampling.max_tokens
        assumptions.append(
            f"answers: {completion:,.0f} tokens on average, assumed as {SHARE_OF_LIMIT:.0%} of sampling.max_tokens;"
            " after a first run they are measured, or say --completion-tokens"
        )
    work = Workload(**sizes, completion=completion)
    pace = _pace(settings, assumptions)
    step_s = None
    if measured is not None and measured[1] is not None:
        step_s = measured[1] * settings.sampling.group_size * settings.curriculum.problems_per_step
        assumptions.append(f"a step takes {step_s:,.0f} s: {measured[1]:.2f} s a rollout, measured in the same history")
    expected = estimate_run(settings, work, pace, step_s)
    ceiling = estimate_run(settings, replace(work, completion=float(settings.sampling.max_tokens)), pace, step_s)
    price_list = load_prices(prices or settings.cost.prices)
    assumptions += [
        f"prices of {price_list.as_of:%Y-%m-%d} ({price_list.source})",
        "within a group the prompt is read once and then cached; every rollout is trained on",
        "not counted: repeats after a crash, storage of checkpoints, your own machine",
    ]
    _show(Console(), settings, expected, ceiling, price_list, assumptions)


def _prompts(config: RunConfig, problems: int | None, download: bool, notes: list[str]) -> dict[str, Any]:
    """Problems by split and mean prompt tokens; adds to `notes` how each was found."""
    from statistics import fmean

    from rtl_core.config.models import StarterSource
    from rtl_core.problems.load import LOADERS, LoadedProblems

    count = _token_counter(config, download, notes)
    lengths: dict[str, list[tuple[int, float]]] = {"train": [], "heldout": []}
    for source in config.problems.sources:
        if not isinstance(source, StarterSource) and not source.path.exists():
            public, tokens = PUBLIC_SETS[source.kind]
            total = problems or public
            held = round(total * source.heldout_fraction)
            mean = min(tokens, float(config.prompting.max_prompt_tokens))
            lengths["train"].append((total - held, mean))
            lengths["heldout"].append((held, mean))
            size = "as you said" if problems else "the size of the public set: the file is not here (say --problems N)"
            notes.append(f"{source.path}: {total} problems, {size}; prompts of {mean:,.0f} tokens on average, assumed")
            continue
        loaded = LoadedProblems()
        LOADERS[type(source)](source, config.run.seed, loaded)
        for split, found in (("train", loaded.train), ("heldout", loaded.heldout)):
            if found:
                lengths[split].append((len(found), fmean(count(problem) for problem in found)))
        notes.append(f"{source.kind}: {len(loaded.train)} training and {len(loaded.heldout)} held-out problems, read")

    def mean_of(split: str) -> float:
        total = sum(n for n, _ in lengths[split])
        return sum(n * mean for n, mean in lengths[split]) / total if total else 0.0

    return {
        "train_problems": sum(n for n, _ in lengths["train"]),
        "heldout_problems": sum(n for n, _ in lengths["heldout"]),
        "train_prompt": mean_of("train"),
        "heldout_prompt": mean_of("heldout"),
    }


def _token_counter(config: RunConfig, download: bool, notes: list[str]) -> Any:
    """A function problem -> prompt tokens: by the student's tokenizer, or by characters where it cannot be had."""
    import os

    from rtl_core.errors import PolicyError
    from rtl_core.prompting.messages import build_messages

    budget = config.prompting.max_prompt_tokens
    if not download:
        os.environ["HF_HUB_OFFLINE"] = "1"  # the hub's client would try for a minute on a machine without network
    try:
        from rtl_core.policy.connect import load_tokenizer
        from rtl_core.prompting.budget import encode_messages

        tokenizer = load_tokenizer(config.tinker.student, config)
        notes.append(f"prompt lengths: counted with the tokenizer of {config.tinker.student}")

        def by_tokenizer(problem: Any) -> float:
            messages = build_messages(problem, config.prompting.template, dict(problem.context))
            return float(min(len(encode_messages(tokenizer, messages)), budget))

        return by_tokenizer
    except PolicyError:
        notes.append(
            f"prompt lengths: {CHARS_PER_TOKEN} characters a token, assumed: the student's tokenizer is not on this machine (--download)"
        )

    def by_characters(problem: Any) -> float:
        messages = build_messages(problem, config.prompting.template, dict(problem.context))
        return min(sum(len(m["content"]) for m in messages) / CHARS_PER_TOKEN, float(budget))

    return by_characters


def _measured(config: RunConfig) -> tuple[float, float | None] | None:
    """(mean tokens of an answer, mean seconds of a step per rollout or None) of the same student in the history."""
    from rtl_core.history.store import History

    if not config.run.history.is_file():
        return None
    history = History(config.run.history, read_only=True)
    mine = [run.name for run in history.runs() if run.student == config.tinker.student]
    if not mine:
        return None
    names = ", ".join(["?"] * len(mine))
    where = f"WHERE purpose = 'train' AND run IN ({names})"
    tokens = history.query(f"SELECT avg(n_tokens) AS mean FROM rollouts {where}", mine).to_pylist()[0]["mean"]
    pace = history.query(
        f"""SELECT sum(t.seconds) / sum(n.rollouts) AS mean FROM step_times t
            JOIN (SELECT run, step, count(*) AS rollouts FROM rollouts {where} GROUP BY run, step) n USING (run, step)
            WHERE t.stage = 'total'""",
        mine,
    ).to_pylist()[0]["mean"]
    return None if tokens is None else (float(tokens), None if pace is None else float(pace))


def _pace(config: RunConfig, notes: list[str]) -> Pace:
    import os

    from rtl_core.policy.estimate import Pace

    workers = config.grading.workers
    graders = workers if isinstance(workers, int) and workers else os.cpu_count() or 1
    if config.tinker.is_local:
        notes.append(
            "embedded service with its tiny models: 4,000 sampled, 12,000 scored, 3,600 trained tokens a second"
        )
        notes.append(f"grading: 0.2 s a grade on {graders} cores")
        return Pace(4000.0, 1.0, 0.2, graders, 12_000.0, 3_600.0, 0.5)
    notes.append(
        "time on the service, assumed: 60 tokens a second and answer, all answers of a step at once (256 at most);"
        " 20,000 scored and trained tokens a second; 60 s a step for queues, saving and a new sampler"
    )
    notes.append(f"grading: 3 s a grade on {graders} cores")
    return Pace(60.0, 256.0, 3.0, graders, 20_000.0, 20_000.0, 60.0)


def _show(
    console: Any, config: RunConfig, expected: Estimate, ceiling: Estimate, prices: Prices, notes: list[str]
) -> None:
    from rich import box
    from rich.table import Table

    from rtl_core.errors import ConfigError
    from rtl_core.policy.cost import ModelPrice, dollars, total_dollars, unpriced

    table = Table(
        title=f"run {config.run.name!r}: {expected.steps} steps, {expected.rollouts:,} rollouts", box=box.SIMPLE_HEAD
    )
    for column in ("model", "kind", "tokens", "USD/M", "USD", "at most"):
        table.add_column(column, justify="left" if column in ("model", "kind") else "right", no_wrap=True)
    for model, tokens in expected.usage.items():
        price = prices.models.get(model, ModelPrice())
        costs, most = dollars(tokens, price), dollars(ceiling.usage[model], price)
        used = [(kind, count) for kind, count in tokens.by_kind().items() if count]
        for i, (kind, count) in enumerate(used):
            rate = getattr(price, kind)
            table.add_row(
                model if i == 0 else "", kind, f"{count:,.0f}",
                *("-" if value is None else f"{value:,.{digits}f}" for value, digits in ((rate, 3), (costs[kind], 2), (most[kind], 2))),
                end_section=i == len(used) - 1,
            )  # fmt: skip
    totals = [total_dollars(one.usage, prices) for one in (expected, ceiling)]
    table.add_row("total", "", "", "", *("-" if total is None else f"{total:,.2f}" for total in totals))
    console.print(table)
    training, evaluating = (total_dollars(u, prices) for u in (expected.training, expected.evaluating))
    if training is not None and evaluating is not None:
        each = training / expected.steps
        console.print(
            f"training ${training:,.2f} (${each:,.3f} a step), {expected.evaluations} student and "
            f"{expected.teacher_evaluations} teacher evaluations ${evaluating:,.2f}",
            highlight=False,
        )
    console.print(
        f"time: about {expected.hours:,.1f} hours ({expected.step_s:,.0f} s a step); at most {ceiling.hours:,.1f}",
        highlight=False,
    )
    console.print("\nassumptions", style="bold")
    for note in notes:
        console.print(f"  - {note}", highlight=False, markup=False)
    missing = unpriced(expected.usage, prices)
    if missing and not config.tinker.is_local:
        raise ConfigError(
            f"the price list of {prices.as_of} has no price for {', '.join(missing)}",
            "copy rtl_core/policy/prices.toml, add the model, and name the copy with --prices",
        )
