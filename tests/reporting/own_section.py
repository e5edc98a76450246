"""A complete user-defined section of the report: the length of answers by outcome."""

from rtl_core.reporting.blocks import Block, Figure, Source, draw
from rtl_core.reporting.figures import section
from rtl_core.reporting.theme import axis, layout


@section("How long are answers?", "Longer is not better.", place=35)
def lengths(source: Source) -> list[Block]:
    return draw(source, by_outcome)


def by_outcome(source: Source) -> Figure | None:
    """Mean tokens of an answer for each outcome; None where nothing was graded."""
    rows = source.ask(
        "SELECT v.outcome, avg(r.n_tokens) AS tokens FROM rollouts r JOIN verdicts v USING (rollout)"
        " WHERE r.run = $run GROUP BY ALL ORDER BY v.outcome"
    )
    if not rows:
        return None
    bars = {
        "type": "bar",
        "x": [row["outcome"] for row in rows],
        "y": [row["tokens"] for row in rows],
    }
    caption = "Mean tokens of an answer, by outcome, over all rollouts of the run."
    return Figure(
        "own-lengths",
        "Tokens by outcome",
        caption,
        [bars],
        layout(xaxis=axis(""), yaxis=axis("tokens")),
    )
