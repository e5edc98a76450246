"""`rtl-distill evaluate` a trained run or any model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rtl_core.errors import ConfigError
from rtl_distill.cli.arguments import (
    HISTORY,
    DbOption,
    ExecutorName,
    announce,
    open_history,
)

if TYPE_CHECKING:
    from rtl_core.config import RunConfig

_of_run = partial(typer.Option, rich_help_panel="For a run")
_of_model = partial(typer.Option, rich_help_panel="For a model, without a run")

RunOption = Annotated[
    str | None, typer.Argument(help="Name of a trained run. Omit it with --model.")
]
SamplesOption = Annotated[
    int | None, typer.Option(min=1, help="Answers per problem [default: 8, or the protocol's].")
]
TemplateOption = Annotated[
    str | None,
    typer.Option(
        help="Override the prompt template of the run or protocol; `rtl-distill check --show` lists all."
    ),
]
TemperatureOption = Annotated[
    float | None,
    typer.Option(min=0.0, help="Override the sampling temperature; 0: the likeliest answer."),
]
TopPOption = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        max=1.0,
        help="Sample from the most likely tokens with this total probability.",
    ),
]
MaxTokensOption = Annotated[
    int | None, typer.Option(min=1, help="Override the maximum tokens of an answer.")
]
SplitOption = Annotated[
    Literal["heldout", "test"] | None,
    _of_run(help="heldout (default), or test: problems that are not used for tuning."),
]
PolicyOption = Annotated[
    Literal["student", "teacher"] | None, _of_run(help="student (default) or teacher.")
]
StepOption = Annotated[
    int | None,
    _of_run(min=0, help="Student weights after this many train steps (default: newest)."),
]
ModelOption = Annotated[
    str | None,
    _of_model(
        help="Model name at the service (`student`, `teacher` with --base-url local), or saved weights: tinker://PATH."
    ),
]
ProblemsOption = Annotated[
    list[str] | None,
    _of_model(
        metavar="[KIND=]PATH",
        help="File or folder of the protocol's problems, or of another KIND. May be repeated.",
    ),
]
ProtocolOption = Annotated[
    str | None,
    _of_model(
        help="Evaluation protocol: cvdp (default), cvdp-cid003, verilog-eval, rtllm, ... (docs/protocols.md), or "
        "a TOML file of your own."
    ),
]
BaseUrlOption = Annotated[
    str | None,
    _of_model(help="`local` for the embedded service, or a service URL (default: the cloud)."),
]
EndpointOption = Annotated[
    str | None,
    _of_model(
        metavar="URL",
        help="OpenAI-compatible endpoint that serves --model (http://localhost:8000/v1); its key is $OPENAI_API_KEY.",
    ),
]
AgenticOption = Annotated[
    bool,
    _of_model(
        "--agentic", help="Also run episodes, in which the model works with tools in a sandbox."
    ),
]
ExecutorOption = Annotated[
    ExecutorName | None,
    _of_model(help="Where simulators run: bubblewrap (default) or docker."),
]
NameOption = Annotated[
    str | None,
    _of_model(
        help="Name to record the evaluation under (default: from protocol, model and settings)."
    ),
]
CardOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json|.md|.html",
        help="Write the figure with all that it depends on as a file to cite, and its verdict records beside it.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    _of_model("--set", metavar="SECTION.KEY=VALUE", help="Override one key; may be repeated."),
]


_OF_RUN = {"run": "RUN", "split": "--split", "policy": "--policy", "step": "--step"}
_OF_MODEL = {
    "model": "--model",
    "problems": "--problems",
    "protocol": "--protocol",
    "base_url": "--base-url",
    "executor": "--executor",
    "name": "--name",
    "set_": "--set",
    "endpoint": "--endpoint",
    "agentic": "--agentic",
}
"""Parameter of `evaluate` -> its option, for options that belong to a run or to a model."""


def evaluate(
    run: RunOption = None,
    samples: SamplesOption = None,
    template: TemplateOption = None,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    max_tokens: MaxTokensOption = None,
    db: DbOption = HISTORY,
    split: SplitOption = None,
    policy: PolicyOption = None,
    step: StepOption = None,
    model: ModelOption = None,
    problems: ProblemsOption = None,
    protocol: ProtocolOption = None,
    base_url: BaseUrlOption = None,
    endpoint: EndpointOption = None,
    agentic: AgenticOption = False,
    executor: ExecutorOption = None,
    name: NameOption = None,
    set_: SetOption = None,
    card: CardOption = None,
) -> None:
    r"""Evaluate a trained run, or any model by a published protocol.

    For a run, choose more samples, another split, an earlier step, other sampling parameters, or the teacher.
    Prints pass@k with 95 % intervals by difficulty, category and family, and the paired difference to the
    run's other evaluations of the same problems.

    For a model, no training run is needed. Prints pass@1 and pass@5 with 95 % intervals by category and
    difficulty, and records the evaluation as a run for `query`, `show`, `report` and `compare`. After an
    interruption, repeat the command to continue.

    With --card a finished evaluation is not sampled again: only the card is written. `reproduce` checks it,
    `compare` tests two.

    Examples:

        rtl-distill evaluate demo --split heldout --samples 8

        rtl-distill evaluate demo --split test --step 0

        rtl-distill evaluate demo --split test --temperature 0.5 --top-p 0.9

        rtl-distill evaluate --model Qwen/Qwen3.6-35B-A3B --problems data/cvdp --protocol cvdp --executor docker

        rtl-distill evaluate --model student --base-url local --problems data/cvdp --samples 1

        rtl-distill evaluate --model tinker://RUN/sampler_weights/NAME \
            --problems verilog-eval=../verilog-eval --name tuned

        rtl-distill evaluate --model qwen --endpoint http://localhost:8000/v1 --agentic \
            --problems data/cvdp --set episode.turns=20
    """
    _evaluate(locals())


def _evaluate(options: dict[str, Any]) -> None:
    """Evaluate with the values of the parameters of `evaluate`."""
    announce("reading the configuration")
    options["agentic"] = options["agentic"] or None
    _refuse_mistakes(options)
    from rtl_distill.cli.flow import run_flow

    run, model, db, card = (options[key] for key in ("run", "model", "db", "card"))
    sampling = {key: options[key] for key in ("temperature", "top_p", "max_tokens")}
    if model is None:
        from rtl_core.history.records import Conditions
        from rtl_core.rollouts.evaluation import config_for

        split: Literal["heldout", "test"] = options["split"] or "heldout"
        step = options["step"]
        other = Conditions(template=options["template"], **sampling)
        config_for(db, run, split, other, step)  # what it refuses, before anything is opened
        policy, samples = options["policy"] or "student", options["samples"] or 8
        arguments = (run, str(db), policy, split, samples, step, other)
        key = run_flow(
            "rtl_distill.flows.evaluate:evaluate", *arguments, title=f"evaluate {run}"
        )
        _write_cards(card, db, key)
        return
    from rtl_core.config import load_config
    from rtl_core.rollouts.protocols import model_evaluation

    keys = {
        **{f"evaluation.{key}": value for key, value in sampling.items()},
        "prompting.template": options["template"],
        "tinker.base_url": options["base_url"],
        "evaluation.endpoint": options["endpoint"],
        "evaluation.agentic": options["agentic"],
        "grading.executor": options["executor"],
    }
    file, overrides = model_evaluation(
        model,
        options["problems"],
        protocol=options["protocol"] or "cvdp",
        samples=options["samples"],
        history=db,
        name=options["name"],
        settings=keys,
        overrides=options["set_"] or [],
    )
    settings = load_config(file, overrides)
    if card is None or not _is_finished(db, card, settings):
        flow, title = "rtl_distill.flows.evaluate:evaluate_model", f"evaluate {model}"
        run_flow(flow, file, overrides, title=title)
    _write_cards(card, db, settings.run.name, Path(file))


def _is_finished(db: Path, card: Path, settings: RunConfig) -> bool:
    """Whether the history has this evaluation of a model. ConfigError if the card's file is another one's."""
    from rtl_core.cards.making import check_path

    check_path(card, settings.run.name)
    record = open_history(db).run(settings.run.name) if db.exists() else None
    asked = settings.model_dump(mode="json")
    return record is not None and (record.status, record.config) == ("finished", asked)


def _write_cards(card: Path | None, db: Path, which: str, protocol: Path | None = None) -> None:
    """Write the cards of an evaluation, or of all that belong to the evaluation of a model, by run."""
    if card is None:
        return
    from rtl_core.cards.making import write_cards

    for file in write_cards(open_history(db), which, card, protocol):
        typer.echo(f"wrote {file}")


def _refuse_mistakes(options: Mapping[str, Any]) -> None:
    """Report missing and contradictory options and unknown templates before a server is started."""
    has_model = options["model"] is not None
    if options["run"] is None and not has_model:
        raise ConfigError(
            "what is to be evaluated?", "name a trained RUN, or a --model with --problems"
        )
    others, other = (_OF_RUN, "--model") if has_model else (_OF_MODEL, "a RUN")
    conflicts = [option for name, option in others.items() if options[name] not in (None, [])]
    if conflicts:
        raise ConfigError(
            f"{', '.join(conflicts)} cannot be combined with {other}",
            "`rtl-distill evaluate --help` shows which options belong together",
        )
    if options["policy"] == "teacher" and options["step"] is not None:
        raise ConfigError(
            "--step cannot be combined with --policy teacher",
            "a step is one of the student's: omit one of them",
        )
    if options["endpoint"] is not None and options["base_url"] is not None:
        raise ConfigError(
            "--endpoint cannot be combined with --base-url",
            "give only the one that serves the model",
        )
    if options["card"] is not None:
        from rtl_core.cards.making import check_path

        check_path(options["card"], *filter(None, [options["run"]]))
    if options["template"] is not None:
        from rtl_grader.prompts import TEMPLATES

        TEMPLATES.find(options["template"])
    if has_model and not options["problems"]:
        raise ConfigError(
            "--model: on which problems?", "add --problems PATH, for example a CVDP file"
        )
