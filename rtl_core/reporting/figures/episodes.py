"""Episodes: what working with tools brings at equal tokens, and how it goes."""

from __future__ import annotations

from dataclasses import replace

from rtl_core.reporting import agentic
from rtl_core.reporting.blocks import Block, Figure, Source, Table, draw, plain
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.theme import axis, layout

TOOLS = 12
"""Names of tools that are shown; models make up others."""
_PASSED = "count(*) AS n, count(*) FILTER (WHERE passed) AS good"


@SECTIONS.register("episodes")
@section(
    "At work with tools",
    "Episodes, in which the model reads, writes, compiles and simulates before it submits.",
    place=15,
)
def blocks(source: Source) -> list[Block]:
    """Single-shot against episodes at equal tokens, turns, how episodes ended, calls by tool."""
    return draw(source, equal_tokens, turns, endings, tools)


def equal_tokens(source: Source) -> Table | None:
    """pass@1 of both, and single-shot at as many tokens, for each evaluation in episodes."""
    lines: list[list[str]] = []
    said: list[str] = []
    for record in agentic.of_episodes(source.history, source.run):
        found, words = agentic.rows(source.history, record)
        where = f"{record.policy} after {record.step} steps, {record.split} × {record.samples}"
        lines += [[where, *line] for line in found]
        said += [f"{where}: {words}."] if words else []
        source.ask(agentic.COST_SQL, evaluation=record.key)
        source.ask(
            "SELECT * FROM evaluation_problems WHERE run = $run AND evaluation = $evaluation", evaluation=record.key
        )
    if not lines:
        return None
    return Table(
        "equal-tokens",
        "Single-shot and episodes",
        "pass@1 with its 95 % interval over problems. Any of k is single-shot at about as many tokens as an episode took: a problem counts if any of k"
        f" answers passes. Tokens are those that the model wrote. {' '.join(said)}".rstrip(),
        [("evaluation", "left"), ("answers", "left"), *((name, "right") for name in agentic.COLUMNS[1:])],
        lines,
    )


def turns(source: Source) -> Figure | None:
    """How many turns episodes took, those that passed and the others."""
    rows = source.ask(f"SELECT turns AS place, {_PASSED} FROM episodes WHERE run = $run GROUP BY turns ORDER BY turns")
    return _bars(
        Figure(
            "episode-turns",
            "Turns of an episode",
            "Episodes by how many turns the model took, those that passed apart.",
            rows,
            axis("turns"),
        )
    )


def endings(source: Source) -> Figure | None:
    """How episodes ended, those that passed and the others."""
    rows = source.ask(f"SELECT ended AS place, {_PASSED} FROM episodes WHERE run = $run GROUP BY ended ORDER BY n DESC")
    caption = "no call: by a turn without a call; cut: by a limit of tokens within a turn; turns, tokens, seconds: by that bound."
    return _bars(Figure("episode-endings", "How episodes ended", caption, rows, axis("")))


def tools(source: Source) -> Figure | None:
    """Calls by tool, with the share that failed."""
    rows = source.ask(
        "SELECT left(m.call ->> '$.name', 20) AS place, count(*) AS n, count(*) FILTER (WHERE m.ok) AS good FROM messages m JOIN episodes e USING (rollout)"
        " WHERE e.run = $run AND m.who = 'tool' GROUP BY place ORDER BY n DESC, place LIMIT $most",
        most=TOOLS,
    )
    for row in rows:
        row["place"] = f"{plain(row['place'])}<br>{1 - row['good'] / row['n']:.0%} failed"
    caption = "A call failed if it could not be carried out, or if a program failed: a compiler that finds an error, a test bench whose check fails."
    return _bars(Figure("episode-tools", "Calls by tool", caption, rows, axis(""), wide=True), ("done", "failed"))


def _bars(bare: Figure, names: tuple[str, str] = ("passed", "not passed")) -> Figure | None:
    """A figure of rows (place, n, good) as bars of two parts; its layout is the axis of the places."""
    places = [row["place"] for row in bare.data]
    parts = [[row["good"] for row in bare.data], [row["n"] - row["good"] for row in bare.data]]
    data = [
        {"type": "bar", "name": name, "x": places, "y": counts, "marker": {"color": role}, "hovertemplate": "%{y}"}
        for name, counts, role in zip(names, parts, ("@good", "@bad"), strict=True)
    ]
    unit = "episodes" if names[0] == "passed" else "calls"
    made = layout(barmode="stack", xaxis={**bare.layout, "tickangle": 0}, yaxis=axis(unit))
    return replace(bare, data=data, layout=made) if places else None
