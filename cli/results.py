"""Results of a run: `report`, `compare`, `watch` and `view`; `show` for a single rollout."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from rtl_core.errors import ConfigError, HistoryError
from rtl_distill.cli.arguments import (
    HISTORY,
    DbOption,
    NewestRunArgument,
    RolloutArgument,
    announce,
    open_history,
    pick_run,
)

if TYPE_CHECKING:
    from rtl_core.debugging.again import Case
    from rtl_grader.grading.executors.base import Executor
    from rtl_grader.grading.jobs import RecordingExecutor


AGAIN = "Grade it again"


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN...", help="One run, or several to compare (default: the newest)."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="HTML file (default: report.html in the run's folder, as `train` writes it; for "
            "several, report-RUNS.html beside the history).",
        ),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(
            "--png", metavar="DIR", help="Also write every figure as a PNG file to this folder."
        ),
    ] = None,
    dark: Annotated[
        bool, typer.Option("--dark", help="Make the PNG files for a dark background.")
    ] = False,
    section: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Add a section of your own (docs/architecture.md). May be repeated.",
        ),
    ] = None,
    db: DbOption = HISTORY,
) -> None:
    """Write the report of a run as one HTML file that needs no network. This works while the run is in progress.

    Examples:

        rtl-distill report demo

        rtl-distill report with-teacher without-teacher -o comparison.html

        rtl-distill report demo --png figures/
    """
    announce("writing the report")
    from rtl_core.reporting.report import write_report
    from rtl_core.run.folder import flow_run_page, report_path

    history = open_history(db)
    names = [pick_run(history, name) for name in runs or (None,)]
    path = write_report(
        history,
        names,
        output or report_path(history, names),
        section or [],
        flow_run_page(history, names[0]),
    )
    typer.echo(str(path))
    if png is not None:
        from rtl_core.reporting.png import write_pngs

        theme: Literal["dark", "light"] = "dark" if dark else "light"
        for figure in write_pngs(history, names, png, theme, section or []):
            typer.echo(str(figure))


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN...",
            help="Two or more runs, or two cards (.json); the others are compared with the first.",
        ),
    ],
    db: DbOption = HISTORY,
) -> None:
    """Compare runs: held-out results with a paired test, short curves, problems on which they differ,
    different settings.

    Two cards of `evaluate --card` are tested, paired where they have the same problems; why they are not
    comparable is said first.

    Examples:

        rtl-distill compare with-teacher without-teacher

        rtl-distill compare ours.json theirs.json
    """
    from rtl_core.reporting.console import comparison

    if len(runs) < 2:
        raise HistoryError("it takes two runs to compare", "rtl-distill compare RUN RUN")
    if any(name.endswith(".json") for name in runs):
        _compare_cards(runs)
        return
    history = open_history(db)
    console = Console()
    for part in comparison(history, [pick_run(history, run) for run in runs]):
        console.print(part)


def _compare_cards(names: list[str]) -> None:
    from rtl_core.cards.card import read_sealed
    from rtl_core.cards.comparing import comparison
    from rtl_grader.words import visible

    if len(names) != 2:
        raise ConfigError(
            f"{len(names)} cards are given", "rtl-distill compare CARD.json CARD.json"
        )
    for line in comparison(*map(read_sealed, map(Path, names))):
        typer.echo(visible(line))


def watch(
    run: NewestRunArgument = None,
    every: Annotated[
        float, typer.Option("--every", min=0.2, help="Seconds between updates.")
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print the state once and exit.")
    ] = False,
    db: DbOption = HISTORY,
) -> None:
    """Watch a run from any terminal until it ends or is paused. Exit code 0 when it finished, else 1.

    Examples:

        rtl-distill watch

        rtl-distill watch demo --once
    """
    import time

    from rich.live import Live

    from rtl_core.reporting.live import ended, live_view

    history = open_history(db)
    record = history.existing_run(pick_run(history, run))
    if once:
        Console().print(live_view(history, record))
        return
    with Live(live_view(history, record), refresh_per_second=4) as live:
        while not ended(record):
            time.sleep(every)
            record = history.run(record.name) or record
            live.update(live_view(history, record))
    if record.status != "finished":
        raise typer.Exit(1)


def view(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 picks a free one.")
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in your browser.")
    ] = True,
    db: DbOption = HISTORY,
) -> None:
    """Serve a local web page: runs, steps, groups, rollouts with their tokens and waveforms, and the model's mistakes.

    This works while runs are in progress. Prints the page's address; Ctrl-C stops the server.

    Examples:

        rtl-distill view

        rtl-distill view --db runs/history.duckdb --port 8765 --no-browser
    """
    import webbrowser

    from rtl_core.view.server import has_screen, serve

    history = open_history(db)
    history.runs()  # fail here if the file cannot be read, and not on every page

    def announce(address: str) -> None:
        typer.echo(address)
        if browser and has_screen():
            webbrowser.open(address)

    serve(history, port, announce)


def show(
    rollout: RolloutArgument,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer",
            help="Folder or name of the tokenizer (default: the student's, as in the run).",
        ),
    ] = None,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            help="Grade it again instead. The recorded verdict is not changed.",
            rich_help_panel=AGAIN,
        ),
    ] = False,
    waves: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Write the waveforms of the failed simulation to this VCD file, and print those "
                "around the failing check."
            ),
            rich_help_panel=AGAIN,
        ),
    ] = None,
    shell: Annotated[
        bool,
        typer.Option(
            "--shell",
            help="Open a shell in the sandbox, with its files, environment and limits but no timeout.",
            rich_help_panel=AGAIN,
        ),
    ] = False,
    db: DbOption = HISTORY,
) -> None:
    """Print a rollout: problem, tool calls if any, answer, verdict with reasons, reward by term, KL by token.

    With --debug, --waves or --shell it is graded again. Sandbox, limits and seed are then those of the run,
    the tools those of this machine. In the shell, `harness` runs the harness; commands can also be piped
    in. Verilator simulations dump no waveforms. Exit code: 0 when the verdict equals the recorded one, else
    1; with --shell, the shell's exit code.

    Examples:

        rtl-distill show demo/step/00030/starter_adder_d07e3f57d5/2

        rtl-distill show demo/step/00030/starter_adder_d07e3f57d5/2 --waves adder.vcd && gtkwave adder.vcd

        echo 'ls -R /code; harness' | rtl-distill show demo/step/00030/starter_adder_d07e3f57d5/2 --shell
    """
    if debug or waves or shell:
        announce("grading the answer again")
        _debug(rollout, waves, shell, db)
    else:
        _print_rollout(rollout, tokenizer, db)


def _print_rollout(rollout: str, tokenizer: str | None, db: Path) -> None:
    from rtl_core.reporting.rollout import audit_of, level_of, rollout_view
    from rtl_core.view.pieces import pieces
    from rtl_grader.words import visible

    history = open_history(db)
    stored = history.find_rollout(rollout)
    problem = history.problem_record(stored.rollout.run, stored.rollout.problem_id)
    record = history.run(stored.rollout.run)
    texts = pieces(record, stored.rollout.tokens_T, tokenizer) if stored.teacher else None
    console = Console()
    key, level = stored.rollout.key, level_of(history, stored.rollout)
    console.print(rollout_view(stored, problem, texts, level, messages=history.messages(key)))
    if finding := audit_of(history, stored.rollout.key):
        detail = visible(finding["detail"])
        console.print(
            f"audit: {finding['result']}, by {finding['method']}: {detail}",
            soft_wrap=True,
            markup=False,
        )
        for text in filter(None, (finding["netlist"], finding["waveform"])):
            console.print(text, markup=False, highlight=False)
    if stored.teacher and texts is None:
        console.print(
            "no tokenizer found: tokens are shown by number; name a tokenizer with --tokenizer",
            style="dim",
        )


def _debug(rollout: str, waves: Path | None, shell: bool, db: Path) -> None:
    """Grade a rollout again, and exit with 0 if its verdict equals the recorded one."""
    from rtl_core.debugging.again import executor_of, open_case
    from rtl_core.debugging.shell import shell_of
    from rtl_grader.grading.jobs import RecordingExecutor

    if waves and (waves.suffix != ".vcd" or not waves.absolute().parent.is_dir()):
        raise ConfigError(
            f"{waves} cannot hold the waves", "name a .vcd file in an existing folder"
        )
    case = open_case(open_history(db), rollout)
    with closing(executor_of(case)) as executor:
        watched = RecordingExecutor(executor, case.problem)
        same = _grade_again(case, watched)
        if waves:
            _write_waves(case, executor, waves)
        if shell:
            session = shell_of(watched)
            _tell(
                "sandbox",
                f"{executor.name}; /code holds rtl, verif, docs, and the harness in src; type exit to leave",
            )
            _tell("harness", f"the command `harness` runs {session.command}")
            raise typer.Exit(session.open(executor))
    raise typer.Exit(0 if same else 1)


def _grade_again(case: Case, watched: RecordingExecutor) -> bool:
    """Grade a rollout again and print the result; return whether the verdict is the recorded one."""
    from rtl_core.debugging.again import grade_again, in_words, is_same, other_tools
    from rtl_core.debugging.checks import first_failing_check

    was, problem = case.verdict, case.problem
    _tell("rollout", case.stored.rollout.key)
    files = ", ".join(case.answer.files) or "no file"
    _tell("problem", f"{problem.id} ({problem.source}), answer in {files}")
    _tell("verdict", *in_words(was))
    now = grade_again(case, watched)
    checks = (first_failing_check(result.steps, problem.harness) for _, result in watched.runs)
    if check := next(checks, None):
        _tell("check", *filter(None, (check.test, *check.words.splitlines())))
    if is_same(was, now):
        _tell("again", "the same verdict")
        return True
    _tell("again", "ANOTHER VERDICT", *in_words(now), *other_tools(was, now))
    return False


def _write_waves(case: Case, executor: Executor, file: Path) -> None:
    from rtl_core.debugging.table import waves_table
    from rtl_core.debugging.waves import dump

    waves = dump(case, executor)
    file.write_bytes(waves.vcd)
    _tell("waves", f"{file}, {len(waves.vcd):,} bytes")
    if waves.check and waves.check.seen:
        _tell("saw", waves.check.seen)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(waves_table(waves, console.width))


def _tell(name: str, *lines: str) -> None:
    """Print lines, the first one in bold with the label `name`."""
    from rtl_grader.words import visible

    console = Console(highlight=False, markup=False, soft_wrap=True)
    for number, line in enumerate(lines):
        label = "" if number else name
        console.print(
            Text.assemble(label.ljust(9), visible(line), style="" if number else "bold")
        )
