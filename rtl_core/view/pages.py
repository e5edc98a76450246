"""One function per page: reads its data from the history, and returns the values of the template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from rtl_core.debugging.waves import waves_of
from rtl_core.episodes.episode import Turn, to_turns
from rtl_core.errors import HistoryError, UserError
from rtl_core.history.columns import Row
from rtl_core.history.records import MessageRecord
from rtl_core.history.store import History
from rtl_core.reporting.blocks import Source, draw
from rtl_core.reporting.figures import gain_parts
from rtl_core.reporting.figures.audit import audited, doubtful
from rtl_core.reporting.figures.failure_flow import flow
from rtl_core.reporting.figures.held_out import Against
from rtl_core.reporting.figures.mistakes import (
    harness,
    levels,
    named,
    never_solved,
    reasons,
    regrades,
)
from rtl_core.reporting.rollout import interface_rows
from rtl_core.reporting.theme import LINES
from rtl_core.reporting.transcript import call_in_words, total
from rtl_core.run.folder import flow_run_page
from rtl_core.view import code, failures, figures, one, pieces, questions, tokens
from rtl_core.view import waves as drawing
from rtl_core.view.links import link
from rtl_core.view.questions import PAGE, Filters

Values = dict[str, Any]
KINDS = {
    "module name": "wrong_module",
    "direction": "wrong_direction",
    "width": "wrong_width",
    "type": "wrong_type",
    "port too many": "extra_port",
    "parameter": "",
    "failing check": "",
    "reset behaviour": "",
    "bit order": "",
}
"""Name of a mistake (view `named_mistakes`) -> kind of interface mismatch, empty if it is none; other names
are missing ports."""
MOST_RUNS = 6
"""Maximum runs whose curves are drawn on a page."""
MOST_TEXT = 20_000
"""Maximum characters of a text in a conversation."""


def home(history: History, chosen: list[str], against: Against) -> Values:
    """All runs, and the curves of the chosen or newest ones."""
    with history.reading():
        rows = questions.runs_with_counts(history)
        names = [row["run"] for row in rows]
        trained = [row["run"] for row in rows if row["planned_steps"]]
        drawn = [run for run in chosen if run in names][:MOST_RUNS] or trained[:3]
        curves = (
            figures.curves([Source(history, run) for run in drawn], against) if drawn else []
        )
    colours = {run: f"line{i % LINES}" for i, run in enumerate(drawn)}
    live = any(row["status"] == "running" for row in rows)
    return Values(
        runs=rows,
        drawn=drawn,
        colours=colours,
        charts=curves,
        against=against,
        live=live,
    )


def run(history: History, name: str, page: int, against: Against) -> Values:
    """The curves, evaluations and steps of a run."""
    with history.reading():
        record = history.existing_run(name)
        curves = figures.curves([Source(history, name)], against)
        every = history.evaluations(name)
        mine = [e for e in every if e.policy == "student"]
        steps = questions.steps(history, name, page)
        purposes = history.rows(
            "SELECT purpose, count(*) AS n FROM rollouts WHERE run = $run GROUP BY 1"
            " UNION ALL SELECT 'episodes', count(*) FROM episodes WHERE run = $run HAVING count(*) > 0 ORDER BY 1",
            run=name,
        )
    return Values(
        record=record,
        charts=curves,
        against=against,
        evaluates=record.setting("run", "purpose") == "evaluation",
        evaluations=[*reversed(mine), *(e for e in every if e.policy != "student")],
        steps=steps[:PAGE],
        more=len(steps) > PAGE,
        page=page,
        purposes=purposes,
        live=record.status == "running",
        flow_run=flow_run_page(history, name),
    )


def pictures(history: History, name: str) -> Values:
    """Further figures of a run."""
    record = history.existing_run(name)
    with history.reading():
        charts = figures.pictures(Source(history, name))
    return Values(
        record=record,
        charts=charts,
        live=record.status == "running",
    )


def step(history: History, filters: Filters, order: str) -> Values:
    """The groups of a step or an evaluation."""
    with history.reading():
        record = history.existing_run(filters.run)
        rows = questions.groups(history, filters, order)
        metrics: dict[str, float] = {}
        near: list[int] = []
        if filters.step and not filters.evaluation:
            step_ = int(filters.step)
            metrics = history.step_metrics(filters.run, step_, step_).get(step_, {})
            near = history.column(
                "SELECT DISTINCT step FROM steps WHERE run = $run AND step IN ($a, $b)",
                run=filters.run,
                a=step_ - 1,
                b=step_ + 1,
            )
    if not rows and filters.page == 0 and record.status != "running":
        raise HistoryError(
            f"no rollouts of run {filters.run!r} are stored for it",
            "go back to the run's steps",
        )
    return Values(
        record=record,
        filters=filters,
        groups=rows[:PAGE],
        more=len(rows) > PAGE,
        order=order,
        metrics=metrics,
        near=near,
        live=record.status == "running" and not filters.evaluation,
    )


def group(history: History, filters: Filters) -> Values:
    """The rollouts of a group."""
    with history.reading():
        rows = questions.rollouts(history, filters, newest=False, most=200)
        record = history.problem_record(filters.run, filters.problem)
        visits = history.rows(
            "SELECT step, count(*) AS n, count(*) FILTER (WHERE outcome = 'passed') AS passed "
            "FROM verdicts WHERE run = $run"
            " AND problem_id = $problem AND purpose = 'train' AND outcome <> "
            "'infrastructure_error' GROUP BY step ORDER BY step DESC LIMIT 40",
            run=filters.run,
            problem=filters.problem,
        )[::-1]
    if not rows:
        raise HistoryError(
            f"no rollouts of problem {filters.problem!r} are stored for it",
            "go back to the run's steps",
        )
    return Values(
        filters=filters,
        rollouts=rows,
        prompt=record and record["prompt"],
        visits=visits,
    )


def rollouts(history: History, filters: Filters) -> Values:
    """A list of rollouts by filters and search; by default of the newest run."""
    with history.reading():
        names = [record.name for record in history.runs()]
        if not filters.run and names:
            filters = filters.model_copy(update={"run": names[0]})
        if filters.run not in names:
            history.existing_run(filters.run)
        rows = questions.rollouts(history, filters)
        total = questions.count(history, filters)
        choices = questions.choices(history, filters.run)
    return Values(
        filters=filters,
        rollouts=rows,
        total=total,
        runs=names,
        choices=choices,
        size=PAGE,
    )


def wrong(history: History, name: str) -> Values:
    """What the model gets wrong. Its queries are long, so each one opens the history separately, to let a
    writer proceed in between."""
    record = history.existing_run(name)
    source = Source(history, name)
    tables = (reasons, never_solved, audited, doubtful, regrades, harness)
    return Values(
        record=record,
        charts=draw(source, figures.outcomes),
        live=record.status == "running",
        evaluates=record.setting("run", "purpose") == "evaluation",
        flips=failures.flips(history, name),
        tables=draw(source, *tables),
        alike=partial(_alike, name),
    )


def mistakes(history: History, name: str) -> Values:
    """How failures change, kinds of failure and interface mistakes: the longest queries on what goes wrong, which
    the page `wrong` loads last."""
    source = Source(history, history.existing_run(name).name)
    charts = draw(source, flow)
    tables = [
        *draw([source], gain_parts.causes),
        *draw(source, gain_parts.levels, levels, named),
    ]
    return Values(
        run=name,
        charts=charts,
        tables=tables,
        alike=partial(_alike, name),
    )


def _alike(run: str, table: str, row: Sequence[str]) -> tuple[str, str] | None:
    """(words, URL) of the list of answers that a row of a report's table counts; None where no filter selects them."""
    match table:
        case "failure-levels":
            return "all", link("/rollouts", run=run, outcome=row[0], purpose="train")
        case "reasons" if row[1] == "tests failed":
            return "all", link(
                "/rollouts", run=run, outcome="tests_failed", check=row[0], purpose="train"
            )
        case "named-mistakes" if kind := KINDS.get(row[0], "missing_port"):
            return f"all with a {kind.replace('_', ' ')}", link(
                "/rollouts", run=run, mistake=kind, purpose="train"
            )
        case "regrades":
            return "all changed", link("/rollouts", run=run, doubt="regrade")
    return None


def rollout(
    history: History, key: str, against: str, overlay: str, start: int, waves: bool = False
) -> Values:
    """Everything about a rollout; `waves`: also its waveform, which the page then asks for."""
    details = one.details_of(history, key)
    stored = details.stored
    overlays = tokens.overlays(history, stored, details.metrics)
    if overlay not in overlays:
        overlay = "surprise" if overlays["kl"].values is None else "kl"
    source = details.problem.source if details.problem else None
    writer = pieces.writer_of(details.run, stored.rollout.policy, source)
    known = pieces.pieces(details.run, stored.rollout.tokens_T, model=writer)
    texts = known or tokens.numbers(stored.rollout.tokens_T)
    read_texts: list[str] = []
    if stored.teacher and stored.teacher.reading:
        read_U, teacher = stored.teacher.reading.tokens_U, stored.teacher.teacher
        read = pieces.pieces(details.run, read_U, model=teacher)
        read_texts = read or tokens.numbers(read_U)
    choices = tokens.teacher_choices(history, key, partial(pieces.pieces, details.run))
    against = against if against in details.others and details.problem is not None else ""
    files = details.answer.files if details.answer else {}
    other = one.other_files(details, against) if against else {}
    required, verdict = details.problem.interface if details.problem else None, stored.verdict
    keys = [row["rollout"] for row in details.group]
    at = keys.index(key) if key in keys else 0
    return Values(
        details=details,
        stored=stored,
        r=stored.rollout,
        files=[(path, text, code.coloured(text)) for path, text in files.items()],
        against=against,
        differences=[
            (path, code.difference(other.get(path, ""), files.get(path, "")))
            for path in ({**files, **other} if against else ())
        ],
        ports=interface_rows(required, verdict.mismatches)
        if required and verdict and verdict.mismatches
        else [],
        overlays=overlays,
        overlay=overlays[overlay],
        tokens=tokens.tokens_from(stored, overlays, overlay, texts, choices, start),
        strongest=tokens.strongest(overlays, overlay, texts),
        choices=choices,
        read=tokens.read_by_teacher(stored, overlays["kl"], read_texts),
        named=known is not None,
        start=start,
        most_tokens=tokens.MOST,
        previous=keys[at - 1] if at > 0 else None,
        next=keys[at + 1] if at + 1 < len(keys) else None,
        conversation=_conversation(details.messages),
        total=total(details.messages),
        ended=questions.ended(history, key) or stored.rollout.stop_reason,
        most_text=MOST_TEXT,
        waves=waves,
    )


def _conversation(messages: list[MessageRecord]) -> list[tuple[Turn, list[Row]]]:
    """Turns, each with its calls or the grader's messages: the call in a line, its long arguments, and its result."""
    conversation = []
    for turn in to_turns(messages):
        calls = []
        for call, result in turn.by_call:
            line, long = call_in_words(asdict(call) if call else None)
            calls.append({"line": line, "long": long, "result": result})
        conversation.append((turn, calls))
    return conversation


def waves(history: History, key: str) -> Values:
    """The waveform around a rollout's failing check, or an error; grades the answer again."""
    try:
        window = waves_of(history, key)
    except UserError as error:
        return Values(
            error=error.message,
            hint=error.hint,
        )
    stored = history.rollout(window.rollout)
    recorded = stored.verdict.outcome.value if stored and stored.verdict else None
    return Values(
        error=None,
        waves=window,
        drawing=drawing.draw(window),
        recorded=recorded,
        row=drawing.ROW,
        head=drawing.HEAD,
    )
