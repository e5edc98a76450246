"""`rtl-distill debug`: why was an answer not paid?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtl_distill.cli.database import DbOption, open_history

if TYPE_CHECKING:
    from rich.console import Console

    from rtl_core.types.verdict import Verdict


def debug(
    rollout: Annotated[str, typer.Argument(help="Key of a rollout, or its end where that is enough to tell it.")],
    waves: Annotated[
        Path | None,
        typer.Option(
            help="Write the waves of the simulation that failed to this VCD file, and print those around the failing check."
        ),
    ] = None,
    shell: Annotated[
        bool,
        typer.Option(
            "--shell", help="Open a shell in the sandbox: its files, environment and limits, but that of time."
        ),
    ] = False,
    db: DbOption = None,
) -> None:
    """Grade a stored rollout again, with waves or a shell in its sandbox. The recorded verdict stays as it is.

    It is graded as its run graded it: the same kind of sandbox, limits and seed, with the tools of this machine. In the shell,
    `harness` runs the harness; commands may also come from a pipe. Simulations by Verilator dump no waves.

    Exit code 0 when the verdict is the same as the recorded one, 1 when it is not; with --shell that of the shell.

    Examples:

        rtl-distill debug demo/step/00030/starter_adder_d07e3f57d5/2

        rtl-distill debug demo/step/00030/starter_adder_d07e3f57d5/2 --waves adder.vcd && gtkwave adder.vcd

        echo 'ls -R /code; harness' | rtl-distill debug demo/step/00030/starter_adder_d07e3f57d5/2 --shell
    """
    from rich.console import Console

    from rtl_core.debugging.again import Watched, executor_of, grade_again, is_same, open_case
    from rtl_core.debugging.checks import first_failing_check
    from rtl_core.debugging.shell import shell_of
    from rtl_core.debugging.table import waves_table
    from rtl_core.debugging.waves import dump
    from rtl_core.errors import ConfigError

    if waves and (waves.suffix != ".vcd" or not waves.absolute().parent.is_dir()):
        raise ConfigError(f"{waves} cannot hold the waves", "name a file in an existing folder that ends in .vcd")
    case = open_case(open_history(db), rollout)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    tell = partial(_tell, console)
    tell("rollout", case.stored.rollout.key)
    tell("problem", f"{case.problem.id} ({case.problem.source}), answer in {', '.join(case.answer.files) or 'no file'}")
    tell("verdict", *_in_words(case.verdict))
    with executor_of(case) as executor:
        watched = Watched(executor, case.problem)
        now = grade_again(case, watched)
        check = next((first_failing_check(r.steps, case.problem.harness) for _, r in watched.runs), None)
        if check:
            tell("check", *filter(None, (check.test, *check.words.splitlines())))
        same = is_same(case.verdict, now)
        tell(
            "again",
            *(["the same verdict"] if same else ["ANOTHER VERDICT", *_in_words(now), *_tools(case.verdict, now)]),
        )
        if waves:
            found = dump(case, executor)
            waves.write_bytes(found.vcd)
            tell("waves", f"{waves}, {len(found.vcd):,} bytes")
            if found.check and found.check.signal and found.check.expected:
                tell("saw", f"{found.check.signal} is {found.check.got}, expected {found.check.expected}")
            console.print(waves_table(found, console.width))
        if shell:
            opened = shell_of(watched)
            tell(
                "sandbox", f"{executor.name}; /code holds rtl, verif, docs, and the harness in src; leave it with exit"
            )
            tell("harness", f"the command `harness` runs {opened.command}")
            raise typer.Exit(opened.open(executor))
    raise typer.Exit(0 if same else 1)


def _tell(console: Console, name: str, *lines: str) -> None:
    from rich.text import Text

    from rtl_core.reporting.text import visible

    for number, line in enumerate(lines):
        console.print(Text.assemble(("" if number else name).ljust(9), visible(line), style="" if number else "bold"))


def _in_words(verdict: Verdict) -> list[str]:
    """Outcome and reasons."""
    head = f"{verdict.outcome.value.replace('_', ' ')}, {verdict.tests_passed} of {verdict.tests_total} tests"
    return [f"{head}, by {verdict.executor}, seed {verdict.seed}", *verdict.reasons]


def _tools(was: Verdict, now: Verdict) -> list[str]:
    """Which tools differ, the first thing to look at when verdicts do."""
    names = sorted(name for name in {*was.tools, *now.tools} if was.tools.get(name) != now.tools.get(name))
    return [f"{name} was {was.tools.get(name, 'absent')}, is {now.tools.get(name, 'absent')}" for name in names]
