"""`rtl-distill episode`: one problem with the tools that a model has in an episode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rtl_core.errors import ConfigError
from rtl_distill.cli.arguments import ConfigOption, SourceOption

if TYPE_CHECKING:
    from rtl_core.episodes.endpoint import Endpoint

EndpointOption = Annotated[
    str | None, typer.Option(metavar="URL", help="An OpenAI-compatible endpoint whose --model plays the episode.")
]


def episode(
    problem_id: Annotated[str, typer.Argument(metavar="PROBLEM", help="Its id, as `problems list` shows it.")],
    by_hand: Annotated[
        bool, typer.Option("--by-hand", help="You call the tools, from this terminal or a pipe.")
    ] = False,
    endpoint: EndpointOption = None,
    model: Annotated[str | None, typer.Option(help="The model's name at the endpoint.")] = None,
    source: SourceOption = None,
    config: ConfigOption = "demo",
    executor: Annotated[
        Literal["bubblewrap", "docker"], typer.Option(help="Where programs and the harness run.")
    ] = "bubblewrap",
    turns: Annotated[int, typer.Option(min=1, max=1000, help="The most turns.")] = 30,
) -> None:
    """Play one episode: work on a problem with tools in a sandbox, submit, and see the verdict. Nothing is recorded.

    With --by-hand you see what a model would see and have the same tools and bounds; `help` explains them.

    Exit code 0 when the files pass, 1 when they do not.

    Examples:

        rtl-distill episode cvdp_agentic_fixed_arbiter_0001 --source cvdp=data/cvdp --by-hand

        printf 'write rtl/a.sv @a.sv\\ncompile\\nsubmit\\n' | rtl-distill episode ID --source cvdp=data/cvdp --by-hand

        rtl-distill episode ID --source cvdp=data/cvdp --endpoint http://localhost:8000/v1 --model qwen
    """
    if by_hand == (endpoint is not None):
        raise ConfigError("who plays the episode?", "give --by-hand, or --endpoint URL with --model NAME")
    from contextlib import closing

    from rich.console import Console

    from rtl_core.config.episode import Bounds
    from rtl_core.episodes.by_hand import ByHand
    from rtl_core.episodes.episode import Episode
    from rtl_core.grading.executors import make_executor
    from rtl_core.grading.grader import Grader
    from rtl_core.reporting.rollout import verdict_view
    from rtl_core.rollouts.playing import shown
    from rtl_distill.cli.problems import load, named

    policy = ByHand() if endpoint is None else _model_at(endpoint, model)
    problem = named(load(config, source), problem_id)
    console = Console()
    with closing(make_executor(executor)) as sandbox:
        played = Episode(problem, sandbox, Bounds(turns=turns))
        answer = played.play(policy)
    if endpoint is not None:
        console.print(shown(played))
    console.print(f"ended: {played.ended}")
    # Another sandbox than the one in which programs of the episode ran.
    with closing(make_executor(executor)) as sandbox, closing(Grader(sandbox)) as grader:
        verdict = grader.grade(problem, answer)
    console.print(verdict_view(verdict))
    raise typer.Exit(0 if verdict.passed else 1)


def _model_at(endpoint: str, model: str | None) -> Endpoint:
    """The model at an endpoint that answers."""
    from rtl_core.episodes.endpoint import Endpoint, check_reachable

    if model is None:
        raise ConfigError("--endpoint: which model?", "add --model NAME")
    check_reachable(endpoint)
    return Endpoint(endpoint, model)
