"""Live view of a run for a terminal. It only reads the history, so it works from any process and does not
disturb the run."""

from __future__ import annotations

from datetime import UTC, datetime

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.reporting import blocks
from rtl_core.reporting.console import rich_table, sparkline, step_line
from rtl_core.reporting.curves import curves_of
from rtl_core.reporting.figures.progress import duration
from rtl_core.reporting.text import EQUAL_DIFFICULTY, rate_in_words
from rtl_grader.words import counted

_STAGES_SQL = """
SELECT count(*) AS sampled, count(v.rollout) AS graded, count(t.rollout) AS scored
FROM rollouts r LEFT JOIN verdicts v USING (rollout) LEFT JOIN teacher_scores t USING (rollout)
WHERE r.run = $run AND r.purpose = 'train' AND r.step = $step
"""
_RECENT_SQL = """
SELECT avg(seconds) FROM (SELECT seconds FROM step_times
WHERE run = $run AND stage = 'total' ORDER BY step DESC LIMIT 10)
"""
_STYLES = {
    "finished": "green",
    "running": "cyan",
    "failed": "red",
    "cancelled": "red",
    "silent": "red",
    "paused": "yellow",
}


def ended(run: RunRecord) -> bool:
    """Return whether the run will not continue unless it is started again."""
    return run.status in ("finished", "failed", "cancelled", "paused")


def live_view(history: History, run: RunRecord, lines: int = 8) -> RenderableType:
    """Progress, curves, evaluations, the current step, the last `lines` steps."""
    steps = history.steps(run.name)
    trained = [s for s in steps if s.status == "trained"]
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text(run.state, style=f"bold {_STYLES.get(run.state, '')}"),
        _heartbeat(run),
        Text(f"{run.student} ← {run.teacher or '–'}"),
    )
    parts: list[RenderableType] = [head]
    if run.message:
        parts.append(Text(run.message, style="yellow"))
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        ProgressBar(total=max(1, len(steps)), completed=len(trained), width=40),
        f"{len(trained)} of {counted(len(steps), 'step')}",
        _remaining(history, run.name, len(steps) - len(trained)),
    )
    parts += [bar, _curves(history, run.name)]
    if (evaluations := _evaluations(history, run.name)).row_count:
        parts.append(evaluations)
    following = next((s for s in steps if s.status == "planned"), None)
    if following is not None and not ended(run):
        row = history.rows(_STAGES_SQL, run=run.name, step=following.step)[0]
        answers = counted(row["sampled"], "answer")
        counts = f"{answers} sampled, {row['graded']} graded, {row['scored']} scored"
        problems = counted(len(following.problem_ids), "problem")
        parts.append(Text(f"step {following.step + 1}: {problems}, {counts}"))
    metrics = history.step_metrics(
        run.name, trained[-lines].step if len(trained) >= lines else 0
    )
    last = list(metrics)[-lines:]
    parts += [Text(step_line(step, len(steps), metrics[step]), style="dim") for step in last]
    return Panel(Group(*parts), title=f"run {run.name}", title_align="left", box=box.ROUNDED)


def _heartbeat(run: RunRecord) -> Text:
    if run.heartbeat_at is None or ended(run):
        return Text("")
    age = (datetime.now(UTC) - run.heartbeat_at).total_seconds()
    words = f"last heartbeat {duration(max(0.0, age))} ago"
    return Text(words, style="bold red" if run.state == "silent" else "dim")


def _remaining(history: History, run: str, left: int) -> Text:
    (mean,) = history.column(_RECENT_SQL, run=run)
    words = f"about {duration(mean * left)} left" if mean and left else ""
    return Text(words, style="dim")


def _curves(history: History, run: str) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    explained = False
    for curve in curves_of(history, run):
        style = "bright_black" if curve.kind == "raw" else "cyan"
        bars = Text(sparkline(curve.values, 38), style=style)
        table.add_row(curve.label, bars, f"{curve.values[-1]:z.3f}")
        explained |= bool(curve.kind)
    return Group(table, Text(EQUAL_DIFFICULTY, style="dim")) if explained else table


def _evaluations(history: History, run: str) -> Table:
    rows = []
    for e in history.evaluations(run):
        name = ", ".join([e.policy, e.split, *e.conditions])
        rows.append([name, str(e.step), rate_in_words(e.rate) if e.rate else e.status])
    return rich_table(blocks.Table("", "", "", "evaluation | steps | pass@1 [95 %]", rows))
