"""The group `problems`: list, show, validate, ..."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rtl_core.errors import ConfigError
from rtl_distill.cli.arguments import (
    ConfigArgument,
    ConfigOption,
    SetOption,
    SourceOption,
    VerboseOption,
    announce,
)
from rtl_grader.cli.problems import (
    CountOption,
    FolderArgument,
    FormatOption,
    GoldenOption,
    HarnessOption,
    HeldoutOption,
    ProblemArgument,
    export_to,
    print_problem,
    print_problems,
    print_statistics,
)
from rtl_grader.words import did_you_mean

if TYPE_CHECKING:
    from rtl_grader.problems.problem_set import LoadedProblems, SplitBy
    from rtl_grader.problems.sources import ProblemSource


def list_(config: ConfigOption = "demo", source: SourceOption = None) -> None:
    """List problems and where their interfaces come from, and report what could not be read or used.

    Examples:

        rtl-distill problems list

        rtl-distill problems list --source cvdp=data/cvdp
    """
    print_problems(load(config, source), bool(source))


def show(
    problem_id: ProblemArgument,
    config: ConfigOption = "demo",
    source: SourceOption = None,
    golden: GoldenOption = False,
    harness: HarnessOption = False,
) -> None:
    """Show one problem: its prompt, the files to write, and the required interface.

    Example:

        rtl-distill problems show cvdp_copilot_lfsr_0001 --source cvdp=data/cvdp --golden
    """
    print_problem(load(config, source), problem_id, golden, harness)


def stats(
    config: ConfigOption = "demo",
    source: SourceOption = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write a page with figures.")
    ] = None,
) -> None:
    """Count the problems by source, task, difficulty, size, judge and licence, and what was left out and why.

    Examples:

        rtl-distill problems stats --source rtllm=../RTLLM

        rtl-distill problems stats --config cvdp --html problems.html
    """
    from rtl_core.reporting.problem_statistics import write_page
    from rtl_grader.problems.statistics import statistics

    counts = statistics(load(config, source))
    print_statistics(counts)
    if html is not None:
        write_page(html, counts, ", ".join(source or [config]))
        typer.echo(f"written: {html}")


def export(
    folder: FolderArgument,
    as_: FormatOption,
    config: ConfigOption = "demo",
    source: SourceOption = None,
    heldout: HeldoutOption = False,
    count: CountOption = None,
) -> None:
    """Export problems as environments for another training loop, with rewards from this project's grader.

    Inspect and verifiers grade in the client, which needs this package and its tools (`rtl-distill check`).
    Harbor and NeMo Gym call `rtl-distill serve grader`. Licence files next to the data are copied. A
    problem without one is only referenced by name, and the client reads it from RTL_DISTILL_SOURCES. The
    folder holds harnesses and known-good answers: keep it away from the policy.

    Examples:

        rtl-distill problems export --as inspect --source starter --count 10 build/inspect

        rtl-distill problems export --as verifiers --source cvdp=data/cvdp build/verifiers

        rtl-distill problems export --as harbor --source starter build/harbor
    """
    sources, seed, split, exclude = sources_of(config, source)
    export_to(folder, as_, sources, seed, split, exclude, heldout, count)


def sources_of(
    config: str, source: list[str] | None
) -> tuple[tuple[ProblemSource, ...], int, SplitBy, tuple[ProblemSource, ...]]:
    """Return the sources given by `--source` or else by the configuration, the seed for generated problems,
    how to split, and the sets whose near-duplicates are left out."""
    from rtl_core.config import load_config
    from rtl_grader.problems.sources import source_of

    if source:
        return tuple(map(source_of, source)), 0, "design", ()
    settings = load_config(config)
    problems = settings.problems
    return problems.sources, settings.run.seed, problems.split, problems.exclude


def load(config: str, source: list[str] | None) -> LoadedProblems:
    """Load the problems given by `--source`, or else by the configuration."""
    announce("reading problems")
    from rtl_grader.problems.sources import load_problems

    sources, seed, split, exclude = sources_of(config, source)
    return load_problems(sources, seed, split, exclude=exclude)


def synthesize(
    output: Annotated[Path, typer.Option("--output", help="CVDP file to write (JSON Lines).")],
    config: ConfigOption = "demo",
    source: SourceOption = None,
    count: Annotated[int, typer.Option(min=1, help="Number of candidates to make.")] = 100,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            help="rename, polarity, bit-order, repair, family (default: all). May be repeated.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed for parents, names and places.")
    ] = 0,
    mutants: Annotated[
        int, typer.Option(min=1, help="Mutants of each golden answer that must fail.")
    ] = 3,
) -> None:
    """Make new problems: variants of training problems (renamed, opposite reset polarity, reversed bus),
    repairs of near misses, and fresh specifications of the first generated source or else of the starter
    families. A problem is kept if its golden answer passes, its mutants fail, and it is no near-duplicate
    of a held-out or test problem.

    Examples:

        rtl-distill problems synthesize --output data/synthetic.jsonl --count 200

        rtl-distill problems synthesize --source cvdp=data/cvdp --kind rename --kind repair --output data/more.jsonl
    """
    from rtl_core.synthesis.keeping import synthesise, write
    from rtl_core.synthesis.variants import KINDS, Kind
    from rtl_grader.problems.sources import load_problems

    names: dict[str, Kind | Literal["family"]] = {
        **{k.replace(" ", "-"): k for k in KINDS},
        "family": "family",
    }
    chosen = list(dict.fromkeys(kind or names))
    if unknown := [name for name in chosen if name not in names]:
        raise ConfigError(
            f"--kind {unknown[0]}: there is no such kind",
            did_you_mean(unknown[0], names, f"choose from {', '.join(names)}"),
        )
    if output.exists() and output.stat().st_size:
        raise ConfigError(f"--output {output}: the file exists", "name a new one")
    sources, run_seed, split, exclude = sources_of(config, source)
    loaded = load_problems(sources, run_seed, split, exclude=exclude)
    # Fail before the work if the file cannot be written.
    output.parent.mkdir(parents=True, exist_ok=True)
    output.touch()
    kinds = [names[name] for name in chosen]
    selection = synthesise(
        sources, loaded, kinds, count, seed=seed, run_seed=run_seed, mutants=mutants
    )
    write(selection.problems, output)
    by_kind = ", ".join(f"{number} {kind}" for kind, number in selection.kinds.most_common())
    typer.echo(f"kept {len(selection.problems)} of {count}: {by_kind or 'none'}")
    for reason, times in selection.dropped.most_common():
        typer.echo(f"  left out {times}: {reason}")
    typer.echo(f'written: {output}; train on them with kind = "cvdp", heldout_fraction = 0.0')


def validate(
    config: ConfigArgument = "demo",
    source: SourceOption = None,
    set_: SetOption = None,
    level: Annotated[
        Literal["full", "quick"],
        typer.Option(help="full: every check; quick: the checks of a training run."),
    ] = "full",
    mutants: Annotated[
        int, typer.Option(help="Mutants of each golden answer (full level).", min=0)
    ] = 20,
    seeds: Annotated[
        int, typer.Option(help="Different seeds for each golden answer (full level).", min=1)
    ] = 3,
    audit: Annotated[
        Path | None,
        typer.Option(
            help="Also write the findings of each problem as a document: OUT.html or OUT.jsonl."
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 when a problem is not fit.")
    ] = False,
    verbose: VerboseOption = False,
) -> None:
    """Validate problems: golden answers must pass, wrong ones must fail, and verdicts must not flip.

    Prints a table by source, and each problem that is not fit with its reason. Results of an earlier
    validation with the same tools are taken from the history (`run.history`).

    Examples:

        rtl-distill problems validate                                # the problems of the demo

        rtl-distill problems validate --source starter --source verilog-eval=../verilog-eval --source rtllm=../RTLLM

        rtl-distill problems validate my-run.toml --set grading.executor=docker

        rtl-distill problems validate --source rtllm=../RTLLM --audit rtllm.jsonl    # to cite, or for `diff`
    """
    announce("reading the configuration")
    from rtl_core.config import load_config
    from rtl_core.reporting.problem_audit import check_form
    from rtl_distill.cli.flow import run_flow
    from rtl_grader.problems.sources import override_of

    overrides = list(set_ or [])
    if source:
        overrides = ["run.name=sets", override_of(source), *overrides]
    # Checked here too, so that a mistake is reported at once and without a server.
    load_config(config, overrides)
    if audit is not None:
        check_form(audit)
    arguments = (config, overrides, level, mutants, seeds, audit and str(audit))
    flow = "rtl_distill.flows.validate:validate"
    counts: dict[str, int] = run_flow(
        flow, *arguments, title=f"validate {', '.join(source or [config])}", verbose=verbose
    )
    if strict and set(counts) - {"fit", "fit_without_golden", "known"}:
        raise typer.Exit(1)
