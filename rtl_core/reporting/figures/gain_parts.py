"""Where a gain in pass@1 comes from, and the levels of answers before and after (the query `what-rl-taught`)."""

from __future__ import annotations

from rtl_core.history.columns import Row
from rtl_core.history.named_queries import named_query
from rtl_core.reporting.blocks import Source, Table
from rtl_core.reporting.evaluations import ALL_SOURCES
from rtl_core.reporting.theme import LEVELS

_BEFORE = "before:", "after:"
_QUERY = named_query("what-rl-taught")
_LINES = (line for line in _QUERY.sql.splitlines() if not line.startswith("--"))
_SQL = "\n".join(_LINES)


def causes(sources: list[Source]) -> Table:
    """The parts of each run's gain in pass@1, by source of problems if a run has several."""
    several, mixed = len(sources) > 1, any(source.result.mixed for source in sources)
    lines: list[list[str]] = []
    rows: list[Row] = []
    for source in sources:
        for label, _ in source.result.parts:
            names = [source.run] * several + [label or ALL_SOURCES] * mixed
            found = _rows(source, "cause", "" if label == ALL_SOURCES else label)
            lines += [[*names, *_cause(row)] for row in found]
            rows += found
    names = ["`run`"] * several + ["source"] * mixed
    return Table(
        "taught-causes",
        "Where the gain in pass@1 comes from",
        "pass@1 is the share of answers that compile, times the share of those with the right interface, times the "
        "share of these that behave right. The gain of each problem is divided among these three factors: a factor's "
        "part is its change times the other two, averaged over all orders of changing them. If one evaluation has no "
        "answer that reaches a factor, this factor counts as unchanged, and the earlier ones get the gain. “Passes, "
        "if it compiles” is the sum of the two rows below it. Before: the evaluation after the warm start, or else "
        "the one before training. Brackets: 95 % bootstrap intervals over "
        f"problems.{_without_share(rows)}",
        " | ".join([*names, "an answer", *_BEFORE, "gain in points:", "share of the gain:"]),
        lines,
    )


def levels(source: Source) -> Table:
    order = ["passed", *reversed(LEVELS)]
    rows = sorted(_rows(source, "level"), key=lambda row: order.index(row["part"]))
    n = rows[0]["problems"] if rows else 0
    return Table(
        "taught-levels",
        "Held-out answers by level, before and after",
        f"Share of answers of each level before and after, and the change in points, paired over {n} problems. "
        "Rules derive the level from the reports of the harness; an answer with a wrong interface may not "
        "compile either.",
        " | ".join(["level", *_BEFORE, "change in points:"]),
        [[row["part"], *_shares(row), _points(row)] for row in rows],
    )


def _rows(source: Source, kind: str, of: str = "") -> list[Row]:
    found = source.ask(_SQL, **_QUERY.bind({"source": of}, source.run))
    return [row for row in found if row["kind"] == kind]


def _cause(row: Row) -> list[str]:
    share = "–"
    if row["part"] == "pass@1" and row["share"] is not None:
        share = "100 %"
    elif row["share"] is not None:
        middle, low, high = (100 * row[name] for name in ("share", "share_lo", "share_hi"))
        share = f"{middle:.0f} % [{low:.0f}, {high:.0f}]"
    return [row["part"], *_shares(row), _points(row), share]


def _shares(row: Row) -> list[str]:
    """Cells of the rates before and after; a dash where no answer got so far."""
    rates = row["before"], row["after"]
    return ["–" if rate is None else f"{100 * rate:.1f} %" for rate in rates]


def _points(row: Row) -> str:
    interval = "" if row["lo"] is None else f" [{row['lo']:z.1f}, {row['hi']:z.1f}]"
    return f"{row['points']:+z.1f}{interval}"


def _without_share(rows: list[Row]) -> str:
    """A sentence for the caption where a gain has no shares."""
    gains = [row for row in rows if row["part"] == "pass@1" and row["share"] is None]
    if not gains:
        return ""
    fell = [row["hi"] is not None and row["hi"] < 0 for row in gains]
    words = ["pass@1 fell"] * any(fell) + ["the gain cannot be told from 0"] * (not all(fell))
    return f" No share: {', or '.join(words)}."
