"""`rtl-distill evaluate`: evaluate a run that was trained before, or any model by a published protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rtl_core.errors import ConfigError

_RUN = "Of a run"
_MODEL = "Of a model, without a run"


def evaluate(
    run: Annotated[str | None, typer.Argument(help="Name of a trained run; left out with --model.")] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Answers per problem [default: 8, or the protocol's].")
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            help="Another prompt template than the run's or the protocol's; `rtl-distill config --show` explains all."
        ),
    ] = None,
    temperature: Annotated[float | None, typer.Option(min=0.01, help="Another sampling temperature.")] = None,
    top_p: Annotated[
        float | None, typer.Option(min=0.01, max=1.0, help="Draw tokens from the likeliest that sum to this.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Another limit of an answer's tokens.")] = None,
    db: Annotated[Path, typer.Option("--db", "--history", envvar="RTL_DISTILL_DB", help="The history file.")] = Path(
        "runs/history.duckdb"
    ),
    split: Annotated[
        Literal["heldout", "test"] | None,
        typer.Option(
            help="heldout (default), or test: the specifications kept apart while tuning.", rich_help_panel=_RUN
        ),
    ] = None,
    policy: Annotated[
        Literal["student", "teacher"] | None, typer.Option(help="student (default) or teacher.", rich_help_panel=_RUN)
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(min=0, help="Train steps of the student's weights; the newest by default.", rich_help_panel=_RUN),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A model as the service names it (`student`, `teacher` with --base-url local), or saved weights: tinker://PATH.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    problems: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[KIND=]PATH",
            help="A file or folder of problems, CVDP's format unless a kind is named; may be repeated.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="How figures are made: cvdp (default: 5 answers, T 0.2, top_p 0.7, 4,096 tokens, the public prompt), or a TOML"
            " file of your own.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            help="`local`: the embedded service. A URL: that service. Left out: the cloud.", rich_help_panel=_MODEL
        ),
    ] = None,
    executor: Annotated[
        Literal["bubblewrap", "docker"] | None,
        typer.Option(help="Where simulators run: bubblewrap (default) or docker.", rich_help_panel=_MODEL),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="Name under which the evaluation is recorded; by default made of protocol, model and settings.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="SECTION.KEY=VALUE", help="Override one key; may be repeated.", rich_help_panel=_MODEL
        ),
    ] = None,
) -> None:
    """Evaluate a trained run, or any model by a published protocol.

    Of a run: more samples, another split, an earlier step, other conditions of sampling, or the teacher. Shows pass@k with 95 %
    intervals by difficulty, category and family, and the paired difference to the run's other evaluations of the same problems.

    Of a model: no training run is needed. Shows pass@1 and pass@5 with 95 % intervals by category and difficulty, and is recorded as a
    run of its own, which `query`, `show`, `report` and `compare` read. The same command goes on where it was stopped.

    Examples:

        rtl-distill evaluate demo --split heldout --samples 8

        rtl-distill evaluate demo --split test --step 0

        rtl-distill evaluate my-run --template full

        rtl-distill evaluate demo --split test --temperature 0.5 --top-p 0.9

        rtl-distill evaluate --model Qwen/Qwen3.6-35B-A3B --problems data/cvdp --protocol cvdp --executor docker

        rtl-distill evaluate --model student --base-url local --problems data/cvdp --samples 1

        rtl-distill evaluate --model tinker://RUN/sampler_weights/NAME --problems verilog-eval=../verilog-eval --name tuned
    """
    of_run = {"RUN": run, "--split": split, "--policy": policy, "--step": step}
    of_model = {
        "--model": model, "--problems": problems, "--protocol": protocol, "--base-url": base_url, "--executor": executor,
        "--name": name, "--set": set_,
    }  # fmt: skip
    if run is None and model is None:
        raise ConfigError("what is to be evaluated?", "name a trained RUN, or a --model with --problems")
    _refuse_others(of_run if model is not None else of_model, "with a RUN" if model is not None else "with --model")
    sampling = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens}
    if template is not None:
        from rtl_core.prompting.templates import TEMPLATES

        TEMPLATES.find(template)  # a mistake is told at once and without a server
    if model is None:
        assert run is not None
        _run(run, db, samples, template, sampling, policy or "student", split or "heldout", step)
    else:
        if not problems:
            raise ConfigError("--model: on which problems?", "add --problems PATH, for example a file of CVDP")
        overrides = [f"evaluation.{key}={value}" for key, value in sampling.items() if value is not None]
        given = {"prompting.template": template, "tinker.base_url": base_url, "grading.executor": executor}
        overrides += [f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None]
        overrides += [
            f"run.history={json.dumps(str(db))}",
            f"run.directory={json.dumps(str(db.parent))}",
            *(set_ or []),
        ]
        _model(model, problems, protocol or "cvdp", samples, name, overrides)


def _refuse_others(options: Mapping[str, Any], belongs: str) -> None:
    """What belongs to the other way to evaluate is a mistake."""
    if given := [option for option, value in options.items() if value not in (None, [])]:
        other = "--model" if belongs == "with a RUN" else "a RUN"
        raise ConfigError(
            f"{', '.join(given)} cannot stand with {other}",
            "`rtl-distill evaluate --help` tells which options belong together",
        )


def _run(
    run: str, db: Path, samples: int | None, template: str | None, sampling: Mapping[str, Any], policy: Any, split: Any, step: int | None
) -> None:  # fmt: skip
    from rtl_distill.cli.flow import run_flow

    asked = (run, str(db), policy, split, samples or 8, step, {"template": template, **sampling})
    run_flow("rtl_distill.flows.evaluate:evaluate", *asked, title=f"evaluate {run}")


def _model(
    model: str, problems: list[str], protocol: str, samples: int | None, name: str | None, overrides: list[str]
) -> None:
    from rtl_core.config import load_config
    from rtl_core.config.protocol import evaluation_overrides, problems_override, protocol_file
    from rtl_distill.cli.flow import run_flow

    file = protocol_file(protocol)
    overrides = [problems_override(problems), f"tinker.student={json.dumps(model)}", *overrides]
    if model.startswith("tinker://"):
        from rtl_core.backend.tinker import base_model_of

        base = asyncio.run(base_model_of(load_config(file, overrides), model))
        overrides += [f"tinker.student={json.dumps(base)}", f"evaluation.weights={json.dumps(model)}"]
    overrides = evaluation_overrides(file, overrides, samples, name)

    run_flow("rtl_distill.flows.evaluate:evaluate_model", file, overrides, title=f"evaluate {model}")
