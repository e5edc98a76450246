"""`rtl-distill regrade`: grade stored rollouts again, with other tools or another seed."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from rtl_distill.cli.arguments import DbOption, NewestRunArgument, PurposeOption, database_path, open_history, pick_run


def regrade(
    run: NewestRunArgument = None,
    executor: Annotated[
        Literal["bubblewrap", "docker"] | None, typer.Option(help="Where the harness runs (default: as in the run).")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Simulation image of the Docker executor.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed of the harnesses (default: as in the run).")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Name of the regrading (default: executor, tools, seed).")] = None,
    purpose: PurposeOption = "all",
    first_step: Annotated[int, typer.Option("--from", min=0, help="First step.")] = 0,
    last_step: Annotated[int, typer.Option("--to", min=0, help="Last step.")] = 2**31 - 1,
    most: Annotated[int, typer.Option("--most", min=1, help="How many rollouts at most.")] = 2**31 - 1,
    db: DbOption = None,
) -> None:
    """Grade what a run sampled again and tell which verdicts changed; what training saw stays as it is.

    Verdicts are kept under a label; the same command goes on where it stopped. `rtl-distill query regrades` lists the labels and
    `rtl-distill query changed-verdicts` every rollout that changed.

    Examples:

        rtl-distill regrade demo --seed 7                       # do verdicts depend on the harness' seed?

        rtl-distill regrade demo --executor docker --image cvdp-sim:next --purpose evaluation
    """
    from rtl_distill.cli.flow import run_flow

    name = pick_run(open_history(db), run)
    choice = {"purpose": purpose, "first_step": first_step, "last_step": last_step, "most": most}
    asked = (name, str(database_path(db)), label, executor, image, seed, choice)
    run_flow("rtl_distill.flows.regrade:regrade", *asked, title=f"regrade {name}")
