"""Terminal output: the before/after table of a run, one line per step, and the comparison of runs.

The HTML report has the same tables and the curves (figures/compare.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rtl_core.history.store import History
from rtl_core.learning.equal_difficulty import SUFFIX
from rtl_core.reporting import blocks
from rtl_core.reporting.curves import curves_of
from rtl_core.reporting.evaluations import (
    MIXTURE,
    RunResult,
    over_warm_start,
    run_result,
    same_problems,
)
from rtl_core.reporting.figures import compare
from rtl_core.reporting.text import BY_P
from rtl_grader.words import counted, visible

_BARS = "▁▂▃▄▅▆▇█"
_STYLES = {"student after": "bold", "teacher": "yellow"}


def before_after_table(history: History, run: str) -> Table:
    """Held-out results of a run: student before, student after, teacher.

    pass@1 and the share of answers with the required interface have 95 % intervals over problems; gain and
    p-value compare with the student before, paired by problem (two-sided sign-flip permutation test). With
    several sources of problems, each has its own rows, and all together come last.
    """
    result = run_result(history, run)
    ks = result.ks
    table = Table(
        title=f"Run {run}: held-out problems",
        title_style="bold",
        caption=_caption(result),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(
            0,
            1,
            0,
            0,
        ),  # so that a table with one pass@k beside pass@1 fits into 78 columns
    )
    table.add_column("policy", no_wrap=True)
    for name in (
        "pass@1",
        *(f"pass@{k}" for k in ks),
        "interface\nright",
        "gain,\npoints",
        "p",
    ):
        table.add_column(name, justify="right", overflow="fold")
    for label, part in result.parts:
        if label:
            _, first = part.views[0]
            problems = counted(first.record.n_problems, "problem")
            table.add_section()
            table.add_row(Text(f"{label}:\n{problems}", style="bold"))
        for name, view in part.views:
            steps = "" if name == "teacher" else f"\n  {counted(view.record.step, 'step')}"
            cells = (cell.replace(" [", "\n[") for cell in part.cells(view, ks))
            table.add_row(f"{name}{steps}", *cells, style=_STYLES.get(name, ""))
    if not result.views:
        table.add_row(Text("no evaluation has ended yet", style="dim"))
    return table


def rich_table(table: blocks.Table) -> Table:
    """Convert a report's table for the terminal."""
    converted = Table(
        title=table.title,
        title_justify="left",
        caption=table.caption,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for name, align in table.columns:
        converted.add_column(
            name, justify="right" if align == "right" else "left", overflow="fold"
        )
    for row in table.rows:
        converted.add_row(*(Text(visible(cell)) for cell in row))
    return converted


def step_line(step: int, total: int, metrics: Mapping[str, float]) -> str:
    """One line on a trained step from its recorded metrics; missing ones are omitted."""
    parts = [f"step {step + 1:>3}/{total}"]
    for label, name, form in (
        ("reward", "env/all/reward/total", ".2f"),
        ("pass", "env/all/tests_passed", ".2f"),
        ("interface", "env/all/interface_valid", ".2f"),
        ("imitated", "warm_start/examples", ".0f"),
        ("teacher KL", "teacher_kl", ".3f"),
        ("entropy", "optim/entropy", ".2f"),
    ):
        if name not in metrics:
            continue
        words = f"{metrics[name]:z{form}}"
        # At equal difficulty no step has a rate of 0; where no answer passed, that would be read as a pass.
        if name + SUFFIX in metrics and metrics[name]:
            words = f"{metrics[name + SUFFIX]:z{form}} (raw {words})"
        parts.append(f"{label} {words}")
    if "cost/usd" in metrics:
        parts.append(f"${metrics['cost/usd']:.3f}")
    if "time/total" in metrics:
        parts.append(f"{metrics['time/total']:.1f} s")
    return "  ".join(parts)


def _caption(result: RunResult) -> str | None:
    if not result.views:
        return None
    record = result.views[-1][1].record
    size = f"{counted(record.n_problems, 'problem')} × {counted(record.samples, 'sample')}"
    text = (
        f"{size}, {record.kind}, [95 % interval over problems].\n"
        f"Gain and p: compared with student before, paired by problem.\n{BY_P}"
    )
    if result.mixed:
        return f"{text}\n{MIXTURE}"
    if over := over_warm_start(result):
        text += f"\n{over}"
    if result.after and result.teacher and result.teacher.pass_at_1.mean > 0:
        share = result.after.pass_at_1.mean / result.teacher.pass_at_1.mean
        text += f"\nThe student is at {100 * share:.0f} % of the teacher's pass@1."
    return text


def comparison(history: History, runs: list[str]) -> Iterator[RenderableType]:
    """Tables of results, kinds of failure, settings that differ, curves, and problems on which the runs differ."""
    sources = [blocks.Source(history, run) for run in runs]
    for table in (
        compare.table(sources),
        compare.failures(sources),
        compare.differences(sources),
    ):
        if table.rows:
            yield rich_table(table)
    yield curves(history, runs)
    for other in runs[1:]:
        yield problem_differences(history, runs[0], other)


def sparkline(values: list[float], width: int = 24) -> str:
    """Values as a row of bars, scaled from the smallest to the largest value."""
    if len(values) > width:
        values = [float(np.mean(part)) for part in np.array_split(np.array(values), width)]
    low, high = min(values), max(values)
    span = high - low or 1.0
    heights = [int(8 * (value - low) / span) for value in values]
    return "".join(_BARS[min(7, height)] for height in heights)


def curves(history: History, runs: list[str]) -> Table:
    """Means of the first and last tenth of each curve, and a sparkline."""
    rows = []
    for run in runs:
        for curve in curves_of(history, run):
            ends = (f"{end:z.3f}" for end in curve.ends)
            rows.append([run, curve.label, *ends, sparkline(curve.values)])
    header = "run | curve | first tenth: | last tenth: | shape"
    return rich_table(blocks.Table("", "Training", "", header, rows))


def problem_differences(history: History, first: str, other: str) -> RenderableType:
    """The eight held-out problems on which the last results of two runs differ most."""
    ends = [run_result(history, run).after for run in (first, other)]
    a, b = (end.rates if end else {} for end in ends)
    shared = a.keys() & b.keys() & same_problems(history, first, other)
    gaps = {problem: abs(a[problem] - b[problem]) for problem in shared}
    largest = sorted((-gap, problem) for problem, gap in gaps.items() if gap)
    rows = [[name, f"{a[name]:.0%}", f"{b[name]:.0%}"] for _, name in largest[:8]]
    table = blocks.Table("", "", "", f"problem | {first}: | {other}:", rows or [["none"]])
    # Not the table's own title, which would be folded to the width of the table.
    return Group(
        Text(f"Held-out problems on which {first} and {other} differ most", style="italic"),
        rich_table(table),
    )
