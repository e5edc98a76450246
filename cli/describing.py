"""`problems describe` and `problems doubt`: what models make of golden answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtl_distill.cli.arguments import HISTORY, DbOption, SourceOption
from rtl_distill.cli.evaluating import BaseUrlOption, EndpointOption, SetOption

if TYPE_CHECKING:
    from rtl_core.config import RunConfig
    from rtl_grader.types.problem import Problem

AnswersOption = Annotated[
    int, typer.Option("--answers", min=1, max=256, help="Independent answers to each problem.")
]
BudgetOption = Annotated[
    float | None,
    typer.Option(help="Dollars: ask only about the first problems that this surely covers."),
]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Do not ask before tokens are paid for.")
]


def describe(
    writer: Annotated[str, typer.Option(help="Model that writes the specifications.")],
    solver: Annotated[str, typer.Option(help="Model that answers them.")],
    output: Annotated[Path, typer.Option("--output", help="Pairs file (JSON Lines).")],
    source: SourceOption = None,
    answers: AnswersOption = 4,
    endpoint: EndpointOption = None,
    base_url: BaseUrlOption = None,
    budget: BudgetOption = None,
    yes: YesOption = False,
    db: DbOption = HISTORY,
    set_: SetOption = None,
) -> None:
    r"""Let a model write specifications of golden answers, and keep those from which another one finds the
    way back.

    A description that uses names from inside the code is refused and asked for once more. The solver
    reads the description alone. A pair is kept if at least one of its answers is equivalent; their share is
    the pair's solve rate and decides its difficulty. The other problems are in a file beside the output,
    with the reason. What is in either file is skipped; after an interruption, repeat the command.

    Example:

        rtl-distill problems describe --source rtllm=../RTLLM --writer qwen --solver qwen \
            --endpoint http://localhost:8000/v1 --output data/described.jsonl
    """
    options = locals()
    from rtl_core.config import load_config
    from rtl_core.synthesis import descriptions as described
    from rtl_core.synthesis.asking import most_dollars
    from rtl_distill.cli.flow import run_flow
    from rtl_grader.digest import sha256_of

    trips = described.RoundTrips(output)
    problems = list(described.waiting(_problems(source), output, trips.others))
    begun = trips.begun()
    rest = [problem for problem in problems if problem.id in begun]
    problems = rest or problems
    first, again = (_evaluation(options, writer, 1, name) for name in described.TEMPLATES)
    config = load_config(*first)
    written = most_dollars(config, problems, writer, 2)  # it is asked at most twice
    read = most_dollars(config, problems, solver, answers, further=config.evaluated_limit)
    costs = list(map(sum, zip(written, read, strict=True)))
    chosen = problems[: _agreed(config, costs, budget, yes)]
    if not chosen:
        typer.echo(f"nothing to do: {output} and {trips.others} have all problems")
        return
    # The same problems have the same file, so that the solver's run resumes.
    ids = begun if len(chosen) == len(rest) else [problem.id for problem in chosen]
    trips.begin(ids)
    digest = sha256_of(ids)[:12]
    path = db.parent / f"described-{digest}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    solve = _evaluation({**options, "source": [f"pairs={path}"]}, solver, answers)
    flow = "rtl_distill.flows.describe:describe"
    texts = run_flow(flow, [first, again], solve, ids, str(path), str(output), title="describe")
    results = described.results_of(load_config(*solve))
    for name, text in texts.items():
        trips.end(text, *results.get(name, (0, 0)))
    trips.finish()
    reasons = trips.reasons(ids)
    typer.echo(f"kept {len(texts) - reasons.total()} of {len(ids)}: {output}")
    _echo_counts("left out", reasons)
    if waiting := len(problems) - len(chosen):
        typer.echo(f"{waiting} wait: the same command continues with them")


def doubt(
    model: Annotated[str, typer.Option(help="A strong model that answers the problems.")],
    source: SourceOption = None,
    answers: AnswersOption = 8,
    output: Annotated[
        Path | None, typer.Option("--output", help="File for one JSON object per problem.")
    ] = None,
    endpoint: EndpointOption = None,
    base_url: BaseUrlOption = None,
    budget: BudgetOption = None,
    yes: YesOption = False,
    db: DbOption = HISTORY,
    set_: SetOption = None,
) -> None:
    """Doubt golden answers: which behave unlike what most answers of a strong model agree on?

    Prints each of them with the inputs that tell it apart. Independent answers may share a mistake, and a
    specification may allow both, so a person must decide. The answers are recorded as an evaluation; after
    an interruption, repeat the command.

    Example:

        rtl-distill problems doubt --source rtllm=../RTLLM --model qwen --endpoint http://localhost:8000/v1
    """
    options = locals()
    from rich.console import Console

    from rtl_core.config import load_config
    from rtl_core.reporting.console import rich_table
    from rtl_core.synthesis.asking import most_dollars
    from rtl_core.synthesis.descriptions import add_rows
    from rtl_core.synthesis.doubting import doubts_of_run, table
    from rtl_distill.cli.flow import run_flow

    problems = _problems(source)
    evaluation = _evaluation(options, model, answers)
    config = load_config(*evaluation)
    costs = most_dollars(config, problems, model, answers)
    _agreed(config, [sum(costs)], budget, yes)  # all or none
    flow = "rtl_distill.flows.evaluate:evaluate_model"
    run_flow(flow, *evaluation, title=f"answers of {model}")
    rows = doubts_of_run(config)
    Console().print(rich_table(table(rows)))
    _echo_counts("golden answer", Counter(row["verdict"] for row in rows))
    if output is not None:
        output.unlink(missing_ok=True)
        add_rows(output, rows)


def _problems(source: list[str] | None) -> list[Problem]:
    from rtl_grader.cli.problems import load

    return load(source).every


def _evaluation(
    options: Mapping[str, Any], model: str, answers: int, template: str | None = None
) -> tuple[str, list[str]]:
    """Configuration of the evaluation in which a model answers, from the options of a command."""
    from rtl_core.rollouts.protocols import model_evaluation

    settings = {
        "prompting.template": template,
        "evaluation.endpoint": options["endpoint"],
        "tinker.base_url": options["base_url"],
    }
    return model_evaluation(
        model,
        options["source"],
        protocol="round-trip",
        samples=answers,
        history=options["db"],
        name=None,
        settings=settings,
        overrides=options["set_"] or [],
    )


def _agreed(config: RunConfig, costs: Sequence[float], budget: float | None, yes: bool) -> int:
    """Number of the first problems to ask about, after their cost was printed; asks whether to go on unless
    the models run on this machine."""
    from rtl_core.synthesis.asking import affordable

    is_paid = config.evaluation.endpoint is not None or not config.tinker.all_local
    if not is_paid or not costs:
        return len(costs)
    number, cost = affordable(costs, budget)
    typer.echo(cost)
    if not yes:
        typer.confirm("Ask the models?", abort=True)
    return number


def _echo_counts(what: str, counts: Counter[str]) -> None:
    for reason, times in counts.most_common():
        typer.echo(f"  {what}: {times} {reason}")
