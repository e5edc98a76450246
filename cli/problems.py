"""Commands about problem sets: `problems` (sources, list, show, fetch, export, synthesize) and `validate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from rtl_core.errors import ConfigError, ProblemError
from rtl_distill.cli.arguments import ConfigArgument, ConfigOption, SetOption, SourceOption, VerboseOption

if TYPE_CHECKING:
    from rtl_core.problems.problem_set import LoadedProblems, SplitBy
    from rtl_core.problems.sources import ProblemSource
    from rtl_core.types.problem import Problem

problems = typer.Typer(
    help="List, show, export and synthesize problems, or fetch a set from the Hugging Face hub.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Format = Literal["inspect", "verifiers", "harbor", "nemo-gym"]


@problems.command()
def sources() -> None:
    """List the kinds of problem sources: their form in `--source`, and their keys in `[[problems.sources]]`.

    Use `module:Class` for a source class of your own; docs/architecture.md shows one.
    """
    from rtl_core.problems.sources import SOURCES

    for kind, source in SOURCES.entries.items():
        keys = ", ".join(key for key in source.model_fields if key != "kind")
        typer.echo(f"{kind}{source.form}\n    {source.__doc__}\n    keys: {keys}")


@problems.command("list")
def list_(config: ConfigOption = "demo", source: SourceOption = None) -> None:
    """List problems and where their interfaces come from, and report what could not be read or used.

    Examples:

        rtl-distill problems list

        rtl-distill problems list --source cvdp=data/cvdp
    """
    from rtl_core.problems.interface import describe_interface

    loaded = load(config, source)
    table = Table(box=None, pad_edge=False)
    table.add_column("problem", no_wrap=True)
    for name in ("source", "split", "category", "difficulty", "golden", "interface"):
        table.add_column(name, overflow="fold")
    for split, found in (("train", loaded.train), ("held out", loaded.heldout)):
        for p in found:
            expected = describe_interface(p)
            interface = f"{expected['module']} from {expected['source']} ({expected['confidence']})"
            known, golden = interface if expected["module"] else "nothing known", "yes" if p.golden else "no"
            table.add_row(p.id, p.source, split, p.category, p.difficulty, golden, known)
    Console(width=10_000).print(table)  # one line per problem; the terminal folds it
    typer.echo(f"{len(loaded.train)} to train on, {len(loaded.heldout)} held out")
    for kind in sorted({problem.source for problem in loaded.every}):
        train, held = (sum(p.source == kind for p in found) for found in (loaded.train, loaded.heldout))
        typer.echo(f"  {kind}: {train} to train on, {held} held out ({held / (train + held):.1%})")
    for moved in loaded.moved:
        typer.echo(f"moved: {moved}")
    for broken in loaded.broken:
        typer.echo(f"broken: {broken}")
    for entry in loaded.left_out:
        typer.echo(f"left out: {entry.id}: {entry.reason}")


@problems.command()
def show(
    problem_id: Annotated[str, typer.Argument(help="Problem id, as `problems list` shows it.")],
    config: ConfigOption = "demo",
    source: SourceOption = None,
    golden: Annotated[bool, typer.Option("--golden", help="Print the golden answer too.")] = False,
    harness: Annotated[bool, typer.Option("--harness", help="Print the harness files too.")] = False,
) -> None:
    """Show one problem: its prompt, the files to write, and the required interface.

    Example:

        rtl-distill problems show cvdp_copilot_lfsr_0001 --source cvdp=data/cvdp --golden
    """
    from rtl_core.problems.interface import describe_interface

    loaded = load(config, source)
    problem = named(loaded, problem_id)
    split = "train" if problem in loaded.train else "held out"
    expected = describe_interface(problem)
    lines = [
        f"{problem.id}  ({problem.source}, {problem.category}, {problem.difficulty}, {split})",
        f"fingerprint {problem.fingerprint}",
        f"answer      {', '.join(problem.targets)}",
        f"context     {', '.join(problem.context) or 'none'}",
        f"harness     {', '.join(problem.harness)}",
        f"interface   {expected['module'] or 'unknown'}, from {expected['source'] or 'nothing'} "
        f"(confidence: {expected['confidence']})",
    ]
    if problem.interface:
        lines += [f"  {p.direction or '?':<6} {p.width or '?':>4}  {p.name}" for p in problem.interface.ports]
        lines += [f"  parameter    {p.name} = {p.default}" for p in problem.interface.parameters]
    if problem.system:
        lines += ["", "--- system", problem.system]
    lines += ["", "--- prompt", problem.prompt]
    for path, text in ((problem.golden or {}) if golden else {}).items():
        lines += [f"--- golden: {path}", text]
    for path, text in (problem.harness if harness else {}).items():
        lines += [f"--- harness: {path}", text]
    if golden and problem.golden is None:
        lines.append("--- there is no golden answer")
    typer.echo("\n".join(lines))


@problems.command()
def fetch(
    what: Annotated[
        str,
        typer.Argument(
            metavar="NAME|OWNER/REPOSITORY", help="A known set (cvdp), or a data set repository on the hub."
        ),
    ] = "cvdp",
    folder: Annotated[
        Path | None,
        typer.Option(
            "--into", help="Output folder (default: where configurations expect the set, else data/REPOSITORY)."
        ),
    ] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option("--pattern", help="Files to fetch (default: the known set's, else *.jsonl). May be repeated."),
    ] = None,
    revision: Annotated[str, typer.Option(help="Branch, tag or commit.")] = "main",
) -> None:
    """Download a problem set from the Hugging Face hub, and record licence, size and SHA-256 of each file in `fetched.json`.

    A file that already has the size and hash listed by the hub is not downloaded again.

    Examples:

        rtl-distill problems fetch cvdp

        rtl-distill problems fetch nvidia/cvdp-benchmark-dataset --into data/all --pattern "*no_commercial*.jsonl"
    """
    from rtl_core.problems.fetch import KNOWN_SETS
    from rtl_core.problems.fetch import fetch as fetch_files

    known = KNOWN_SETS.get(what)
    if known is None and "/" not in what:
        raise ProblemError(f"no set is known as {what!r}", f"known: {', '.join(KNOWN_SETS)}; or write OWNER/REPOSITORY")
    same_repository = known or next((entry for entry in KNOWN_SETS.values() if entry.repository == what), None)
    into = folder or (same_repository.folder if same_repository else Path("data") / what.rsplit("/", 1)[-1])
    fetched, downloaded = fetch_files(
        known.repository if known else what,
        into,
        patterns=pattern or (known.files if known else ["*.jsonl"]),
        revision=revision,
        licence=same_repository.licence if same_repository else None,
    )
    for file in fetched.files:
        typer.echo(f"{file.sha256}  {file.bytes:>10}  {into / file.path}")
    typer.echo(f"{len(fetched.files)} files of {fetched.repository} at {fetched.revision}")
    typer.echo(f"licence: {fetched.licence or 'the repository names none'}")
    typer.echo(f"downloaded: {', '.join(downloaded)}" if downloaded else "unchanged: nothing was downloaded")


@problems.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    as_: Annotated[Format, typer.Option("--as", help="Client to write the format of.")],
    config: ConfigOption = "demo",
    source: SourceOption = None,
    heldout: Annotated[
        bool, typer.Option("--heldout", help="Export the held-out problems instead of the training problems.")
    ] = False,
    count: Annotated[
        int | None, typer.Option(min=1, help="Export only the first N problems of each source (default: all).")
    ] = None,
) -> None:
    """Export problems as environments for another training loop, with rewards from this project's grader.

    Inspect and verifiers grade in the client, which needs this package and its tools (`rtl-distill check`). Harbor and NeMo Gym call
    `rtl-distill serve-grader`. Licence files next to the data are copied. A problem without one is only referenced by name, and the
    client reads it from RTL_DISTILL_SOURCES. The folder holds harnesses and known-good answers: keep it away from the policy.

    Examples:

        rtl-distill problems export --as inspect --source starter --count 10 build/inspect

        rtl-distill problems export --as verifiers --source cvdp=data/cvdp build/verifiers

        rtl-distill problems export --as harbor --source starter build/harbor
    """
    from rtl_core.interop.exported import export_tasks
    from rtl_core.interop.writers import WRITERS

    sources, seed, split = sources_of(config, source)
    tasks = export_tasks(sources, seed, split, folder, heldout=heldout, count=count)
    command = WRITERS[as_](folder)
    typer.echo(f"{len(tasks)} problems written to {folder}")
    if unlicensed := sum(task.problem is None for task in tasks):
        typer.echo(
            f"{unlicensed} of them by name only, because they have no licence file: set RTL_DISTILL_SOURCES at the client"
        )
    typer.echo(f"next: {command}")


def sources_of(config: str, source: list[str] | None) -> tuple[tuple[ProblemSource, ...], int, SplitBy]:
    """Return the sources given by `--source` or else by the configuration, the seed for generated problems, and how to split."""
    from rtl_core.config import load_config
    from rtl_core.problems.sources import source_of

    if source:
        return tuple(map(source_of, source)), 0, "design"
    settings = load_config(config)
    return settings.problems.sources, settings.run.seed, settings.problems.split


def named(loaded: LoadedProblems, problem_id: str) -> Problem:
    """Return the problem with this id. Raises ProblemError with similar ids when there is none."""
    every = {p.id: p for p in loaded.every}
    if problem_id not in every:
        close = [name for name in every if problem_id in name][:5]
        raise ProblemError(
            f"there is no problem {problem_id!r}",
            f"perhaps {', '.join(close)}" if close else "`rtl-distill problems list` shows all ids",
        )
    return every[problem_id]


def load(config: str, source: list[str] | None) -> LoadedProblems:
    """Load the problems given by `--source`, or else by the configuration."""
    from rtl_core.problems.sources import load_problems

    return load_problems(*sources_of(config, source))


@problems.command()
def synthesize(
    output: Annotated[Path, typer.Option("--output", help="CVDP file to write (JSON Lines).")],
    config: ConfigOption = "demo",
    source: SourceOption = None,
    count: Annotated[int, typer.Option(min=1, help="Number of candidates to make.")] = 100,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="rename, polarity, bit-order, repair, family (default: all). May be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for parents, names and places.")] = 0,
    mutants: Annotated[int, typer.Option(min=1, help="Mutants of each golden answer that must fail.")] = 3,
) -> None:
    """Make new problems: variants of training problems (renamed, opposite reset polarity, reversed bus), repairs of near misses, and
    fresh specifications of the first generated source or else of the starter families. A problem is kept if its golden answer passes,
    its mutants fail, and it is no near-duplicate of a held-out or test problem.

    Examples:

        rtl-distill problems synthesize --output data/synthetic.jsonl --count 200

        rtl-distill problems synthesize --source cvdp=data/cvdp --kind rename --kind repair --output data/more.jsonl
    """
    from rtl_core.problems.sources import load_problems
    from rtl_core.synthesis.keeping import synthesise, write
    from rtl_core.synthesis.variants import KINDS, Kind

    names: dict[str, Kind | Literal["family"]] = {**{k.replace(" ", "-"): k for k in KINDS}, "family": "family"}
    chosen = list(dict.fromkeys(kind or names))
    if unknown := [name for name in chosen if name not in names]:
        raise ConfigError(f"--kind {unknown[0]}: there is no such kind", f"choose from {', '.join(names)}")
    if output.exists() and output.stat().st_size:
        raise ConfigError(f"--output {output}: the file exists", "name a new one")
    sources, run_seed, split = sources_of(config, source)
    loaded = load_problems(sources, run_seed, split)
    # Fail before the work if the file cannot be written.
    output.parent.mkdir(parents=True, exist_ok=True)
    output.touch()
    kinds = [names[name] for name in chosen]
    found = synthesise(sources, loaded, kinds, count, seed=seed, run_seed=run_seed, mutants=mutants)
    write(found.kept, output)
    kept = ", ".join(f"{n} {k}" for k, n in found.kinds.most_common())
    typer.echo(f"kept {len(found.kept)} of {count}: {kept or 'none'}")
    for reason, times in found.dropped.most_common():
        typer.echo(f"  left out {times}: {reason}")
    typer.echo(f'written: {output}; train on them with kind = "cvdp", heldout_fraction = 0.0')


def validate(
    config: ConfigArgument = "demo",
    source: SourceOption = None,
    set_: SetOption = None,
    level: Annotated[
        Literal["full", "quick"], typer.Option(help="full: every check; quick: the checks of a training run.")
    ] = "full",
    mutants: Annotated[int, typer.Option(help="Mutants of each golden answer (full level).", min=0)] = 20,
    seeds: Annotated[int, typer.Option(help="Different seeds for each golden answer (full level).", min=1)] = 3,
    audit: Annotated[
        Path | None, typer.Option(help="Also write the findings of each problem as a document: OUT.html or OUT.jsonl.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 when a problem is not fit.")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Validate problems: golden answers must pass, wrong ones must fail, and verdicts must not flip.

    Prints a table by source, and each problem that is not fit with its reason. Results of an earlier validation with the same tools are
    taken from the history (`run.history`).

    Examples:

        rtl-distill validate                                # the problems of the demo

        rtl-distill validate --source starter --source verilog-eval=../verilog-eval --source rtllm=../RTLLM

        rtl-distill validate my-run.toml --set grading.executor=docker

        rtl-distill validate --source rtllm=../RTLLM --audit rtllm.jsonl    # to cite, and to compare with `diff`
    """
    from rtl_core.config import load_config
    from rtl_core.problems.sources import override_of
    from rtl_core.validation.document import check_form
    from rtl_distill.cli.flow import run_flow

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
