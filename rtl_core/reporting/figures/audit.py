"""Were the passes deserved? What an audit found, where one was made."""

from __future__ import annotations

from rtl_core.reporting.audit import AUDITS_SQL, COUNTS, DESERVED_SQL, SHOWN, cells, deserved_of, summary_of
from rtl_core.reporting.blocks import Block, Source, Table, draw
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.text import rate_in_words

SIZES_SQL = """
SELECT coalesce(p.family, p.source) AS problems, count(*) AS passes, quantile_cont(a.relative_area, 0.25) AS q1,
       median(a.relative_area) AS q2, quantile_cont(a.relative_area, 0.75) AS q3, median(a.relative_levels) AS levels
FROM audits a JOIN run_problems p ON p.run = a.run AND p.problem_id = a.problem_id
WHERE a.run = $run AND a.relative_area IS NOT NULL GROUP BY ALL ORDER BY problems
"""


@SECTIONS.register("audited")
@section("Were the passes deserved?", "Passed answers beside the golden ones, or beside one another.", place=20)
def blocks(source: Source) -> list[Block]:
    """Passes by family, and those that are doubtful."""
    return draw(source, audited, deserved, doubtful, sizes)


def audited(source: Source) -> Table | None:
    """How many passes are proved, not told apart, or doubtful."""
    rows = source.ask(AUDITS_SQL)
    if not rows:
        return None
    summary = summary_of(rows)
    return Table(
        "audit",
        f"Audited: {summary.in_words()}",
        "Each passed answer was held against the golden one, or where there is none against the other passes (rtl-distill audit). "
        "Proved: equal for all inputs. Same: no input tried tells them apart. Doubtful: one does. The share leaves out what is "
        "unknown and has Wilson's 95 % interval.",
        [("problems", "left"), *((name, "right") for name in (*COUNTS, "share doubtful"))],
        [cells(part) for part in (summary.whole, *summary.parts)],
    )


def deserved(source: Source) -> Table | None:
    """pass@1 with and without the doubtful passes, of evaluations whose passes were all looked at."""
    if not source.ask(AUDITS_SQL):
        return None
    rows = deserved_of(source.ask(DESERVED_SQL))
    if not rows:
        return None
    return Table(
        "deserved",
        "pass@1 of deserved passes",
        "Doubtful passes count as failed. Mean over the held-out problems with its 95 % interval.",
        [("evaluation", "left"), ("pass@1", "right"), ("deserved", "right")],
        [[words, rate_in_words(every), rate_in_words(kept)] for words, every, kept in rows],
    )


def doubtful(source: Source) -> Table | None:
    """Passes that are unlike the golden answer or the majority, with the difference."""
    found = summary_of(source.ask(AUDITS_SQL)).doubtful
    if not found:
        return None
    shown = found[:SHOWN]
    return Table(
        "doubtful",
        "Doubtful passes",
        f"What tells them apart. {len(shown)} of {len(found)} are shown.",
        [("rollout", "code"), ("by", "left"), ("difference", "left")],
        [[row["rollout"], row["method"], row["detail"]] for row in shown],
        links={i: row["rollout"] for i, row in enumerate(shown)},
    )


def sizes(source: Source) -> Table | None:
    """Cells and levels of the passes by family, beside the golden answers or the median passes."""
    rows = source.ask(SIZES_SQL)
    if not rows:
        return None
    return Table(
        "netlists",
        "How large the passes are",
        "After synthesis to gates of two inputs (cells include registers), relative to the golden answer, or to the median of the passes that "
        "behave alike. Quartiles of the passes that are not doubtful.",
        [("problems", "left"), ("passes", "right"), ("area: lower quartile", "right"), ("median", "right"), ("upper", "right"),
         ("levels: median", "right")],
        [[row["problems"], str(row["passes"]), *(f"{row[name]:.2f}" for name in ("q1", "q2", "q3", "levels"))] for row in rows],
    )  # fmt: skip
