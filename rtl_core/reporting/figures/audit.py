"""Were the passes deserved? What an audit beside the golden answers found, where one was made."""

from __future__ import annotations

from rtl_core.reporting.audit import AUDITS_SQL, COUNTS, SHOWN, cells, summary_of
from rtl_core.reporting.blocks import Block, Source, Table, draw
from rtl_core.reporting.figures import SECTIONS, section


@SECTIONS.register("audited")
@section("Were the passes deserved?", "Passed answers beside the golden ones.", place=20)
def blocks(source: Source) -> list[Block]:
    """Passes by family, and those that were paid wrongly."""
    return draw(source, audited, wrong)


def audited(source: Source) -> Table | None:
    """How many passes behave as the golden answer does."""
    rows = source.ask(AUDITS_SQL)
    if not rows:
        return None
    summary = summary_of(rows)
    return Table(
        "audit",
        f"Audited: {summary.in_words()}",
        "Each passed answer was simulated beside the golden one for long (rtl-distill audit). Wrong is what behaves differently; "
        "the share leaves out what is unknown and has Wilson's 95 % interval.",
        [("problems", "left"), *((name, "right") for name in (*COUNTS, "share wrong"))],
        [cells(part) for part in (summary.whole, *summary.parts)],
    )


def wrong(source: Source) -> Table | None:
    """Passes that were paid wrongly, with the first difference."""
    found = summary_of(source.ask(AUDITS_SQL)).wrong
    if not found:
        return None
    shown = found[:SHOWN]
    return Table(
        "wrongly-paid",
        "Passes that are wrong",
        f"The first difference from the golden answer. {len(shown)} of {len(found)} are shown.",
        [("rollout", "code"), ("difference", "left")],
        [[row["rollout"], row["detail"]] for row in shown],
        links={i: row["rollout"] for i, row in enumerate(shown)},
    )
