"""Commands about folders with a user's own designs: `problems new` and `problems check`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rtl_grader.errors import ConfigError
from rtl_grader.words import command

if TYPE_CHECKING:
    from rtl_grader.problems.folder.reader import Understanding
    from rtl_grader.types.problem import Problem
    from rtl_grader.validation.record import ValidationRecord

BenchForm = Literal["cocotb", "verilog", "none"]
SKELETONS = Path(__file__).parents[1] / "problems/folder/skeleton"


def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    bench: Annotated[BenchForm, typer.Option(help="Kind of test bench.")] = "cocotb",
) -> None:
    """Write a folder with a small problem of your own: specification, golden answer and bench, to be replaced.

    Example:

        rtl-grader problems new problems/adder --bench verilog
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty", "give a new folder")
    for part in ("common", bench):
        shutil.copytree(SKELETONS / part, folder, dirs_exist_ok=True)
    for path in sorted(folder.rglob("*.*")):
        typer.echo(path)
    typer.echo(f"next: {command('problems check')} {folder} --validate")


def check(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="The folder of a problem, or a folder of such folders."
        ),
    ],
    validate: Annotated[
        bool,
        typer.Option(
            "--validate",
            help="Also run the golden answer, stubs and mutants, as `validate` does.",
        ),
    ] = False,
    mutants: Annotated[int, typer.Option(min=0, help="Mutants of each golden answer.")] = 20,
) -> None:
    """Say how each folder is understood, or what it lacks; exits with 1 if one cannot be used or, with
    `--validate`, is not fit to train on.

    Examples:

        rtl-grader problems check problems

        rtl-grader problems check problems/adder --validate
    """
    from rtl_grader.problems.sources.folder import understandings

    readings = understandings(folder)
    problems = [reading.problem for reading in readings if reading.problem]
    records = _validated(problems, mutants) if validate else {}
    for reading in readings:
        typer.echo("\n".join(_lines(reading, records)))
    unfit = [record for record in records.values() if not record.status.startswith("fit")]
    broken = len(readings) - len(problems)
    text = f", {len(unfit)} not fit to train on" if unfit else ""
    typer.echo(f"{len(problems)} of {len(readings)} folders can be used{text}")
    raise typer.Exit(1 if broken or unfit else 0)


def _validated(problems: Sequence[Problem], mutants: int) -> Mapping[str, ValidationRecord]:
    from contextlib import closing

    from rtl_grader.grading.executors import make_executor
    from rtl_grader.grading.grader import Grader
    from rtl_grader.grading.pool import GraderPool
    from rtl_grader.validation.level import full_level
    from rtl_grader.validation.validate_all import validate_all

    with closing(GraderPool(Grader(make_executor("bubblewrap")), 0)) as pool:
        return validate_all(problems, pool, full_level(mutants))


def _lines(reading: Understanding, records: Mapping[str, ValidationRecord]) -> Iterator[str]:
    """A table of what is known about one folder: a line for each fact."""
    rows = {"problem": reading.name, **reading.notes}
    if reading.error:
        rows["mend"] = f"{reading.place}: {reading.error}"
    record = reading.problem and records.get(reading.problem.id)
    if record:
        rows["validation"] = f"{record.status}: {record.evidence['reason']}"
    for name, text in rows.items():
        if text:
            yield f"{name:<12}{text}"
    yield ""
