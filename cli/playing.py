"""`rtl-distill problems play`: a single episode, by hand or by a model at an endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rtl_core.errors import ConfigError
from rtl_distill.cli.arguments import ConfigOption, ExecutorName, SourceOption

if TYPE_CHECKING:
    from rtl_core.config.episode import Bounds
    from rtl_core.episodes.endpoint import Endpoint
    from rtl_core.episodes.episode import Policy
    from rtl_grader.types.problem import Problem
    from rtl_grader.types.verdict import Verdict


def play(
    problem_id: Annotated[
        str, typer.Argument(metavar="PROBLEM", help="Problem id, as `problems list` shows it.")
    ],
    by_hand: Annotated[
        bool,
        typer.Option(
            "--by-hand", help="Call the tools yourself, from this terminal or a pipe."
        ),
    ] = False,
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="OpenAI-compatible endpoint whose --model plays the episode."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model's name at the endpoint.")] = None,
    source: SourceOption = None,
    config: ConfigOption = "demo",
    executor: Annotated[
        ExecutorName, typer.Option(help="Where programs and the harness run.")
    ] = "bubblewrap",
    turns: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of turns.")] = 30,
) -> None:
    """Play one episode: work on a problem with tools in a sandbox, submit, and see the verdict. Nothing is recorded.

    With --by-hand you see what a model would see and have the same tools and limits; type `help` to list them.

    Exit code 0 when the files pass, 1 when they do not.

    Examples:

        rtl-distill problems play cvdp_agentic_fixed_arbiter_0001 --source cvdp=data/cvdp --by-hand

        printf 'write rtl/a.sv @a.sv\\ncompile\\nsubmit\\n' | rtl-distill problems play ID --source starter --by-hand

        rtl-distill problems play ID --source cvdp=data/cvdp --endpoint http://localhost:8000/v1 --model qwen
    """
    if by_hand == (endpoint is not None):
        raise ConfigError(
            "who plays the episode?",
            "give either --by-hand, or --endpoint URL with --model NAME",
        )
    from rtl_core.config.episode import Bounds
    from rtl_core.episodes.by_hand import ByHand
    from rtl_distill.cli.problems import load
    from rtl_grader.cli.problems import named

    policy = ByHand() if endpoint is None else _model_at(endpoint, model)
    problem = named(load(config, source), problem_id)
    verdict = _play(problem, policy, executor, Bounds(turns=turns), show=not by_hand)
    raise typer.Exit(0 if verdict.passed else 1)


def _play(
    problem: Problem, policy: Policy, executor: ExecutorName, bounds: Bounds, *, show: bool
) -> Verdict:
    """Play an episode and grade its files; print how it ended, the verdict and, with `show`, its turns."""
    from contextlib import closing

    from rich.console import Console

    from rtl_core.episodes.episode import Episode, to_records
    from rtl_core.reporting.rollout import verdict_view
    from rtl_core.reporting.transcript import transcript_view
    from rtl_grader.grading.executors import make_executor
    from rtl_grader.grading.grader import Grader

    console = Console()
    with closing(make_executor(executor)) as sandbox:
        game = Episode(problem, sandbox, bounds)
        answer = game.play(policy)
    if show:
        console.print(transcript_view(to_records(game.turns)))
    console.print(f"ended: {game.ended}")
    # Grade in a new sandbox, not in the one where the episode's programs ran.
    with closing(make_executor(executor)) as sandbox, closing(Grader(sandbox)) as grader:
        verdict = grader.grade(problem, answer)
    console.print(verdict_view(verdict))
    return verdict


def _model_at(endpoint: str, model: str | None) -> Endpoint:
    from rtl_core.episodes.endpoint import Endpoint, check_reachable

    if model is None:
        raise ConfigError("--endpoint: which model?", "add --model NAME")
    check_reachable(endpoint)
    return Endpoint(endpoint, model)
