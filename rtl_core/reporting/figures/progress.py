"""How did the run go? Curriculum, time by stage, cost."""

from __future__ import annotations

from rtl_core.reporting.blocks import (
    Block,
    Figure,
    Source,
    Table,
    draw,
    left_out,
    listed,
    plain,
)
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.figures.health import pools
from rtl_core.reporting.theme import axis, layout, part

ROWS = 120
"""Maximum problems in the curriculum figure, evenly spaced."""
_CURRICULUM = """
WITH ordered AS (SELECT problem_id, difficulty,
                        row_number() OVER (ORDER BY position NULLS LAST, problem_id) - 1 AS place,
                        count(*) OVER () AS problems
                 FROM run_problems WHERE run = $run
                 AND problem_id IN (SELECT problem_id FROM step_problems WHERE run = $run)),
chosen AS (SELECT * FROM ordered WHERE problems <= $most OR place = 0
           OR place * $most // problems > (place - 1) * $most // problems)
SELECT c.problem_id, c.place, c.problems, g.epoch, sum(g.passed) / sum(g.samples) AS rate,
       format('{}, {} of {} passed', c.difficulty, CAST(sum(g.passed) AS BIGINT),
              CAST(sum(g.samples) AS BIGINT)) AS words
FROM chosen c JOIN group_record g ON g.run = $run AND g.problem_id = c.problem_id
GROUP BY c.problem_id, c.difficulty, c.place, c.problems, g.epoch ORDER BY c.place, g.epoch
"""


@SECTIONS.register("progress")
@section(
    "How the run went",
    "The order of the problems, and the time and cost of each stage.",
    place=70,
)
def blocks(source: Source) -> list[Block]:
    return draw(source, curriculum, pools, time_table, cost)


def curriculum(source: Source) -> Figure | None:
    rows = source.ask(_CURRICULUM, most=ROWS)
    if not rows:
        return None
    problems = list(dict.fromkeys(r["problem_id"] for r in rows))
    epochs = sorted({r["epoch"] for r in rows})
    cell = {(r["problem_id"], r["epoch"]): r for r in rows}
    grid, words = [], []
    for epoch in epochs:
        visits = [cell.get((problem, epoch)) for problem in problems]
        grid.append([r and r["rate"] for r in visits])
        words.append([plain(r["words"]) if r else "" for r in visits])
    trace = part(
        "heatmap",
        x=list(map(plain, problems)),
        y=[f"epoch {e + 1}" for e in epochs],
        z=grid,
        customdata=words,
        xgap=1 if len(problems) < 90 else 0,
    )
    return Figure(
        "curriculum",
        "Curriculum",
        "Each column is a training problem, in the order of the first placement by the "
        "curriculum; each row is an epoch. The stronger the "
        f"colour, the more answers passed. Blank: not tried.{left_out(problems, rows[0]['problems'], 'problems')}",
        [trace],
        layout(
            xaxis=axis("problems, first placed on the left", showticklabels=False),
            showlegend=False,
            hovermode="closest",
            yaxis={"autorange": "reversed", "showgrid": False, "type": "category"},
            margin={"t": 10, "l": 70, "b": 34},
        ),
        height=110 + 26 * min(len(epochs), 16),
        wide=True,
    )


def time_table(source: Source) -> Table:
    rows = source.ask(
        "SELECT replace(stage, '_', ' ') AS stage, t.seconds, format('{:.2f} s', mean_s) AS mean,"
        " format('{:.1f}%', 100 * share_of_total) AS share FROM time_by_stage t WHERE run = $run"
        " ORDER BY t.stage = 'total', t.seconds DESC"
    )
    for row in rows:
        row["seconds"] = duration(row["seconds"])
    return listed(
        "time-table",
        "Where the time went",
        "Sums over all trained steps; stages overlap. Most of “store” runs in parallel with other "
        "work; “store waited” is the time that "
        "steps waited for it. “work” is the time during which any stage was running; the rest of "
        "the total is overhead of the pipeline. "
        "With learning.staleness a step's total starts when the previous step ended, although its work starts earlier.",
        "stage | sum: | mean per step: | share of total:",
        rows,
        wide=False,
    )


def cost(source: Source) -> Table:
    rows = source.ask(
        "SELECT name[6:] AS metric, sum(value) AS total, avg(value) AS mean FROM step_metrics"
        " WHERE run = $run AND name LIKE 'cost/%' GROUP BY name ORDER BY total DESC"
    )
    note = "Sums of the recorded `cost/…` metrics over all trained steps, in the unit of the run's configuration."
    (cache,) = source.ask(
        "SELECT sum(value) FILTER (WHERE name LIKE '%/cached') / sum(value) AS share FROM step_metrics"
        " WHERE run = $run AND (name LIKE 'tokens/%/cached' OR name LIKE 'tokens/%/prefill')"
    )
    if cache["share"] is not None:
        note += (
            f" Of the prompt tokens, {cache['share']:.0%} were read from the service's cache."
        )
    return listed(
        "cost",
        "Cost",
        note,
        "metric | sum: | mean per step:",
        rows,
        wide=False,
    )


def duration(seconds: float) -> str:
    """Seconds in a readable unit: `90.0 s`, `12.5 min`, `3.1 h`."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
