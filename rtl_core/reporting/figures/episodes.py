"""Episodes: results with tools at equal tokens, turns, endings, calls."""

from __future__ import annotations

from dataclasses import replace

from rich.table import Table as RichTable

from rtl_core.history.columns import Row
from rtl_core.history.records import Conditions, EvaluationRecord
from rtl_core.history.store import History
from rtl_core.learning.intervals import Interval, mean_interval
from rtl_core.learning.passk import pass_at_k_interval
from rtl_core.reporting.blocks import (
    Block,
    Figure,
    Source,
    Table,
    bar,
    draw,
    plain,
    values,
)
from rtl_core.reporting.breakdown import Counts
from rtl_core.reporting.console import rich_table
from rtl_core.reporting.evaluations import (
    COST_SQL,
    PROBLEMS_SQL,
    cost_of,
    counts_of,
    paired_rates,
    rates_of,
)
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.text import paired_in_words, rate_in_words
from rtl_core.reporting.theme import Spec, axis, layout
from rtl_grader.words import counted

COLUMNS = " | problems: | pass@1: | tokens per answer: | turns:"
_PLACE = (
    "policy",
    "step",
    "split",
    "samples",
    *(name for name in Conditions.model_fields if name != "turns"),
)
TOOLS = 12
"""Maximum tool names that are shown; models invent further names."""
_TURNS_SQL = """
SELECT turns AS place, count(*) FILTER (WHERE passed) AS good, count(*) - good AS bad
FROM episodes WHERE run = $run GROUP BY turns ORDER BY turns
"""
_ENDINGS_SQL = """
SELECT ended AS place, count(*) FILTER (WHERE passed) AS good, count(*) - good AS bad
FROM episodes WHERE run = $run GROUP BY ended ORDER BY count(*) DESC
"""
_TOOLS_SQL = """
SELECT left(m.call ->> '$.name', 20) AS place, count(*) FILTER (WHERE m.ok) AS good, count(*) - good AS bad,
       bad / count(*) AS failed
FROM messages m JOIN episodes e USING (rollout)
WHERE e.run = $run AND m.who = 'tool' GROUP BY place ORDER BY count(*) DESC, place LIMIT $most
"""


@SECTIONS.register("episodes")
@section(
    "Working with tools",
    "Episodes, in which the model reads, writes, compiles and simulates before it submits.",
    place=15,
)
def blocks(source: Source) -> list[Block]:
    return draw(source, equal_tokens, turns, endings, tools)


def equal_tokens(source: Source) -> Table:
    lines: list[list[str]] = []
    differences: list[str] = []
    for record in source.history.evaluations(source.run):
        if record.status != "done" or record.turns is None:
            continue
        own_lines, words = compared(source.history, record)
        weights = f"{record.policy} after {counted(record.step, 'step')}"
        where = f"{weights}, {record.split} × {record.samples}, {record.kind}"
        lines += [[where, *line] for line in own_lines]
        differences += [f"{where}: {words}."] if words else []
        source.ask(COST_SQL, evaluation=record.key)
        source.ask(PROBLEMS_SQL, evaluation=record.key)
    return Table(
        "equal-tokens",
        "Single-shot and episodes",
        "pass@1 with its 95 % interval over problems. “Any of k” is single-shot with about as "
        "many tokens as an episode: a problem counts if any of k"
        f" answers passes. Tokens are those that the model sampled. {' '.join(differences)}".rstrip(),
        f"evaluation | answers{COLUMNS}",
        lines,
    )


def turns(source: Source) -> Figure:
    rows = source.ask(_TURNS_SQL)
    caption = "Number of episodes by their number of turns, passed and not passed."
    return _bars("episode-turns", "Turns of an episode", caption, rows, axis("turns"))


def endings(source: Source) -> Figure:
    rows = source.ask(_ENDINGS_SQL)
    caption = (
        "no call: a turn without a call; cut: the token limit of a turn; "
        "turns, tokens, seconds: that limit of the episode."
    )
    return _bars("episode-endings", "How episodes ended", caption, rows, axis(""))


def tools(source: Source) -> Figure:
    rows = source.ask(_TOOLS_SQL, most=TOOLS)
    for row in rows:
        row["place"] = f"{plain(row['place'])}<br>{row['failed']:.0%} failed"
    caption = (
        "A call failed if it could not be executed or its program failed, "
        "such as a compiler error or a failing check of a test bench."
    )
    figure = _bars(
        "episode-tools", "Calls by tool", caption, rows, axis(""), ("done", "failed")
    )
    return replace(figure, wide=True)


def _bars(
    id_: str,
    title: str,
    caption: str,
    rows: list[Row],
    places: Spec,
    names: tuple[str, str] = ("passed", "not passed"),
) -> Figure:
    """Rows (place, good, bad) as stacked bars; `places` is their axis."""
    x, good, bad = values(rows, "place", "good", "bad")
    bars = ((names[0], good, "@good"), (names[1], bad, "@bad"))
    data = [bar(name, x, y, role, "%{y}") for name, y, role in bars] if rows else []
    unit = "episodes" if names[0] == "passed" else "calls"
    stacked = layout(barmode="stack", xaxis={**places, "tickangle": 0}, yaxis=axis(unit))
    return Figure(id_, title, caption, data, stacked)


def compared(history: History, episodes: EvaluationRecord) -> tuple[list[list[str]], str]:
    """Table lines for single-shot, for episodes, and for single-shot with about as many tokens (a problem
    counts if any of k answers passes); and the paired difference in words. Without a matching single-shot
    evaluation: only the line for episodes."""
    line, ours, tokens = _side(history, episodes, f"episodes of up to {episodes.turns} turns")
    single = next(
        (e for e in history.evaluations(episodes.run) if _is_counterpart(e, episodes)), None
    )
    if single is None:
        return [line], ""
    first, theirs, spent = _side(history, single, "single-shot")
    lines = [first, line]
    if spent:
        k = min(max(round(tokens / spent), 1), single.samples)
        best = pass_at_k_interval(theirs.values(), k)
        lines.append(_line(f"single-shot, any of {k}", theirs, best, k * spent, str(k)))
    paired = paired_rates(rates_of(theirs), rates_of(ours))
    if paired is None:
        return lines, ""
    return lines, f"episodes minus single-shot, paired by problem: {paired_in_words(paired)}"


def compared_table(history: History, episodes: EvaluationRecord) -> RichTable:
    """The table of `compared` for a terminal."""
    lines, caption = compared(history, episodes)
    student = history.existing_run(episodes.run).student
    title = f"single-shot and episodes ({episodes.kind}): {student}"
    return rich_table(Table("", title, caption, COLUMNS, lines))


def _side(
    history: History, record: EvaluationRecord, name: str
) -> tuple[list[str], Counts, float]:
    """Table line, samples and passes by problem, and mean tokens per answer of an evaluation."""
    cost = cost_of(history, record)
    counts = counts_of(history, record)
    rate = mean_interval(list(rates_of(counts).values()))
    turns = f"{cost['turns']:.1f}"
    return _line(name, counts, rate, cost["tokens"], turns), counts, cost["tokens"]


def _line(name: str, counts: Counts, rate: Interval, tokens: float, turns: str) -> list[str]:
    """A table line in the order of `COLUMNS`."""
    return [
        name,
        str(len(counts)),
        rate_in_words(rate),
        f"{tokens:,.0f}" if tokens else "unknown",
        turns,
    ]


def _is_counterpart(single: EvaluationRecord, episodes: EvaluationRecord) -> bool:
    alike = all(getattr(single, name) == getattr(episodes, name) for name in _PLACE)
    return alike and single.turns is None and single.status == "done"
