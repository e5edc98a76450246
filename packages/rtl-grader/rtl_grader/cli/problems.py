"""Commands about problem sets: `problems` (sources, list, show, new, check, fetch, repair, export)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rtl_grader.cli.folders import check, new
from rtl_grader.cli.options import SourceOption
from rtl_grader.cli.repair import repair
from rtl_grader.errors import ConfigError, ProblemError
from rtl_grader.words import counted, did_you_mean, visible

if TYPE_CHECKING:
    from rtl_grader.problems.problem_set import LoadedProblems, SplitBy
    from rtl_grader.problems.sources import ProblemSource
    from rtl_grader.types.problem import Problem

problems = typer.Typer(
    help="List, show and export problems, or fetch a set from the Hugging Face hub.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Format = Literal["inspect", "verifiers", "harbor", "nemo-gym"]
ProblemArgument = Annotated[
    str, typer.Argument(help="Problem id, as `problems list` shows it.")
]
GoldenOption = Annotated[bool, typer.Option("--golden", help="Print the golden answer too.")]
HarnessOption = Annotated[bool, typer.Option("--harness", help="Print the harness files too.")]
FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")]
FormatOption = Annotated[Format, typer.Option("--as", help="Client to write the format of.")]
HeldoutOption = Annotated[
    bool,
    typer.Option(
        "--heldout", help="Export the held-out problems instead of the training problems."
    ),
]
CountOption = Annotated[
    int | None,
    typer.Option(min=1, help="Export only the first N problems of each source (default: all)."),
]


problems.command()(new)
problems.command()(check)


@problems.command()
def sources() -> None:
    """List the kinds of problem sources: their form in `--source`, and their keys in `[[problems.sources]]`.

    `folder` reads your own designs; `module:Class` is a source class of your own, see docs/architecture.md.

    Example:

        rtl-grader problems sources
    """
    from rtl_grader.problems.sources import SOURCES

    for kind, source in SOURCES.entries.items():
        keys = ", ".join(key for key in source.model_fields if key != "kind")
        typer.echo(f"{kind}{source.form}\n    {source.__doc__}\n    keys: {keys}")


@problems.command("list")
def list_(source: SourceOption = None) -> None:
    """List problems and where their interfaces come from, and report what could not be read or used.

    Example:

        rtl-grader problems list --source cvdp=data/cvdp
    """
    print_problems(load(source), by_option=True)


def print_problems(loaded: LoadedProblems, by_option: bool) -> None:
    """Print a line for each problem, counts by source, and what was moved, broken or left out.

    `by_option`: the sources were named with `--source`, which holds out nothing of files.
    """
    from rtl_grader.problems.problem_set import MEND, by_reason

    table = Table(box=None, pad_edge=False)
    table.add_column("problem", no_wrap=True)
    for name in ("source", "split", "category", "difficulty", "golden", "interface"):
        table.add_column(name, overflow="fold")
    for split, members in (("train", loaded.train), ("held out", loaded.heldout)):
        for p in members:
            golden = "yes" if p.golden else "no"
            table.add_row(
                p.id, p.source, split, p.category, p.difficulty, golden, _interface(p)
            )
    Console(width=10_000).print(table)  # one line per problem; the terminal folds it
    is_split = bool(loaded.heldout) or not by_option
    if is_split:
        typer.echo(f"{len(loaded.train)} to train on, {len(loaded.heldout)} held out")
    else:
        text = "--source holds none out, heldout_fraction of a configuration does"
        typer.echo(f"{counted(len(loaded.train), 'problem')}; {text}")
    train = Counter(problem.source for problem in loaded.train)
    heldout = Counter(problem.source for problem in loaded.heldout)
    for kind in sorted(train.keys() | heldout.keys()):
        share = heldout[kind] / (train[kind] + heldout[kind])
        counts = f"{train[kind]} to train on, {heldout[kind]} held out ({share:.1%})"
        typer.echo(f"  {kind}: {counts if is_split else train[kind]}")
    for moved in loaded.moved_in_words:
        typer.echo(f"moved: {moved}")
    for broken in loaded.broken_in_words:
        typer.echo(f"broken: {broken}")
    if loaded.broken:
        typer.echo(MEND)
    for entry in by_reason(loaded.left_out, len(loaded.left_out)):
        typer.echo(f"left out: {entry.id}: {entry.reason}")


def _interface(problem: Problem) -> str:
    """The required module, and where its interface comes from."""
    from rtl_grader.problems.interface import describe_interface

    expected = describe_interface(problem)
    if not expected["module"]:
        return "nothing known"
    return f"{expected['module']} from {expected['source']} ({expected['confidence']})"


@problems.command()
def show(
    problem_id: ProblemArgument,
    source: SourceOption = None,
    golden: GoldenOption = False,
    harness: HarnessOption = False,
) -> None:
    """Show one problem: its prompt, the files to write, and the required interface.

    Example:

        rtl-grader problems show cvdp_copilot_lfsr_0001 --source cvdp=data/cvdp --golden
    """
    print_problem(load(source), problem_id, golden, harness)


def print_problem(loaded: LoadedProblems, problem_id: str, golden: bool, harness: bool) -> None:
    """Print a problem, on demand with its golden answer and its harness. Raises ProblemError if there is
    none with this id."""
    from rtl_grader.problems.interface import describe_interface

    problem = named(loaded, problem_id)
    split = "train" if problem in loaded.train else "held out"
    about = ", ".join((problem.source, problem.category, problem.difficulty, split))
    expected = describe_interface(problem)
    module, source = expected["module"] or "unknown", expected["source"] or "nothing"
    lines = [
        f"{problem.id}  ({about})",
        f"fingerprint {problem.fingerprint}",
        f"answer      {', '.join(problem.targets)}",
        f"context     {', '.join(problem.context) or 'none'}",
        f"harness     {', '.join(problem.harness)}",
        f"interface   {module}, from {source} (confidence: {expected['confidence']})",
    ]
    if problem.interface:
        for port in problem.interface.ports:
            direction, width = port.direction or "?", port.width or "?"
            lines.append(f"  {direction:<6} {width:>4}  {port.name}")
        for parameter in problem.interface.parameters:
            lines.append(f"  parameter    {parameter.name} = {parameter.default}")
    if problem.system:
        lines += ["", "--- system", problem.system]
    lines += ["", "--- prompt", problem.prompt]
    if golden:
        lines += _with_titles("golden", problem.golden or {})
    if harness:
        lines += _with_titles("harness", problem.harness)
    if golden and problem.golden is None:
        lines.append("--- there is no golden answer")
    typer.echo("\n".join(lines))


def _with_titles(kind: str, files: Mapping[str, str]) -> Iterator[str]:
    for path, text in files.items():
        yield f"--- {kind}: {path}"
        yield text


@problems.command()
def stats(source: SourceOption = None) -> None:
    """Count the problems by source, task, difficulty, size, judge and licence, and what was left out and why.

    Example:

        rtl-grader problems stats --source cvdp=data/cvdp
    """
    from rtl_grader.problems.statistics import statistics

    print_statistics(statistics(load(source)))


def print_statistics(counts: Mapping[str, Counter[str]]) -> None:
    """Print a table of `statistics`."""
    from rtl_grader.problems.statistics import in_order

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("by", "value", "number", "share"):
        table.add_column(heading, justify="right" if heading in ("number", "share") else "left")
    for aspect, values in counts.items():
        for place, (value, number) in enumerate(in_order(values).items()):
            name, share = "" if place else aspect, f"{number / values.total():.1%}"
            table.add_row(name, Text(visible(value)), f"{number:,}", share)
        table.add_section()
    Console().print(table)


@problems.command()
def fetch(
    what: Annotated[
        str,
        typer.Argument(
            metavar="NAME|OWNER/REPOSITORY",
            help="A known set (cvdp, codev-r1, ...; an unknown name lists them), or a data set repository on the hub.",
        ),
    ] = "cvdp",
    folder: Annotated[
        Path | None,
        typer.Option(
            "--into",
            help="Output folder (default: where configurations expect the set, else data/REPOSITORY).",
        ),
    ] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option(
            "--pattern",
            help="Files to fetch (default: the known set's, else *.jsonl). May be repeated.",
        ),
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(help="Branch, tag or commit (default: the known set's, else main)."),
    ] = None,
) -> None:
    """Download a problem set from the Hugging Face hub, and record licence, size and SHA-256 of each file
    in `fetched.json`. Licence and size are printed before.

    A file that already has the size and hash listed by the hub is not downloaded again.

    Examples:

        rtl-grader problems fetch cvdp

        rtl-grader problems fetch codev-r1

        rtl-grader problems fetch nvidia/cvdp-benchmark-dataset --into data/all --pattern "*no_commercial*.jsonl"
    """
    from rtl_grader.problems.fetch import KNOWN_SETS
    from rtl_grader.problems.fetch import fetch as fetch_files

    known = KNOWN_SETS.get(what)
    if known is None and "/" not in what:
        raise ProblemError(
            f"no set is known as {what!r}",
            did_you_mean(
                what, KNOWN_SETS, f"known: {', '.join(KNOWN_SETS)}; or write OWNER/REPOSITORY"
            ),
        )
    by_repository = {entry.repository: entry for entry in KNOWN_SETS.values()}
    same_repository = known or by_repository.get(what)
    usual = Path("data", what.rsplit("/", 1)[-1])
    if same_repository:
        usual = same_repository.folder
    into = folder or usual
    fetched, downloaded = fetch_files(
        known.repository if known else what,
        into,
        patterns=pattern or (known.files if known else ["*.jsonl"]),
        revision=revision or (known.revision if known else "main"),
        licence=same_repository.licence if same_repository else None,
        announce=typer.echo,
    )
    for file in fetched.files:
        typer.echo(f"{file.sha256}  {file.bytes:>10}  {into / file.path}")
    typer.echo(f"{len(fetched.files)} files of {fetched.repository} at {fetched.revision}")
    typer.echo(f"licence: {fetched.licence or 'the repository names none'}")
    names = ", ".join(downloaded)
    typer.echo(f"downloaded: {names}" if names else "unchanged: nothing was downloaded")
    if known:
        typer.echo(f"read it with --source {known.kind}={into}")


problems.command()(repair)


@problems.command()
def export(
    folder: FolderArgument,
    as_: FormatOption,
    source: SourceOption = None,
    heldout: HeldoutOption = False,
    count: CountOption = None,
) -> None:
    """Export problems as environments for a training loop or an evaluation, with rewards from this grader.

    Inspect and verifiers grade in the client, which needs this package and its tools. Harbor and NeMo Gym
    call `serve-grader`. Licence files next to the data are copied. A problem without one is only referenced
    by name, and the client reads it from RTL_DISTILL_SOURCES. The folder holds harnesses and known-good
    answers: keep it away from the policy.

    Example:

        rtl-grader problems export --as verifiers --source cvdp=data/cvdp build/verifiers
    """
    export_to(folder, as_, sources_of(source), 0, "design", (), heldout, count)


def export_to(
    folder: Path,
    as_: Format,
    sources: Sequence[ProblemSource],
    seed: int,
    split: SplitBy,
    exclude: Sequence[ProblemSource],
    heldout: bool,
    count: int | None,
) -> None:
    """Export problems and print the client's command."""
    from rtl_grader.exports.exported import export_tasks
    from rtl_grader.exports.writers import WRITERS

    tasks = export_tasks(
        sources, seed, split, folder, heldout=heldout, count=count, exclude=exclude
    )
    command = WRITERS[as_](folder)
    typer.echo(f"{len(tasks)} problems written to {folder}")
    if unlicensed := sum(task.problem is None for task in tasks):
        typer.echo(
            f"{unlicensed} of them by name only, because they have no licence file: set "
            "RTL_DISTILL_SOURCES at the client"
        )
    typer.echo(f"next: {command}")


def sources_of(source: list[str] | None) -> tuple[ProblemSource, ...]:
    """Return the sources given by `--source`. Raises ConfigError if there is none."""
    from rtl_grader.problems.sources import source_of

    if not source:
        raise ConfigError(
            "which problems?",
            "name a set: --source cvdp=PATH; `problems sources` lists the kinds",
        )
    return tuple(map(source_of, source))


def named(loaded: LoadedProblems, problem_id: str) -> Problem:
    """Return the problem with this id. Raises ProblemError with similar ids when there is none."""
    every = {p.id: p for p in loaded.every}
    if problem_id not in every:
        raise ProblemError(
            f"there is no problem {problem_id!r}",
            did_you_mean(problem_id, every, "`problems list` shows all ids"),
        )
    return every[problem_id]


def load(source: list[str] | None) -> LoadedProblems:
    """Load the problems given by `--source`; generated ones are made with seed 0."""
    from rtl_grader.problems.sources import load_problems

    return load_problems(sources_of(source), 0)
