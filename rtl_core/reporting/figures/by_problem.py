"""Which problems did the student learn, and which did it lose? A dot per held-out problem."""

from __future__ import annotations

from rtl_core.reporting.blocks import Figure, Source, curve, plain, values
from rtl_core.reporting.theme import Spec, axis, layout

_SIDES = {
    1: ("better", "@good", "triangle-up"),
    0: ("the same", "@slow", "circle"),
    -1: ("worse", "@bad", "triangle-down"),
}
"""Sign of after minus before -> name, colour role and shape of a dot."""
# Problems of equal shares fill a disc around their place: each is turned by the golden angle, so that none touch.
_DOTS = """
WITH counts AS (
    SELECT p.evaluation, p.problem_id, p.passed, p.samples
    FROM evaluation_problems p JOIN evaluations e USING (evaluation)
    WHERE p.run = $run AND p.samples = e.samples AND p.evaluation IN ($before, $after)),
both_ AS (
    SELECT problem_id, b.passed / b.samples AS was, a.passed / a.samples AS now,
           format('{} of {} → {} of {}', b.passed, b.samples, a.passed, a.samples) AS passes
    FROM counts b JOIN counts a USING (problem_id)
    WHERE b.evaluation = $before AND a.evaluation = $after),
placed AS (
    SELECT *, sqrt(place) * size * 0.0022 AS radius, place * 2.399963 AS angle FROM (
        SELECT *, row_number() OVER (PARTITION BY was, now ORDER BY problem_id) - 1 AS place,
               CASE WHEN count(*) OVER () <= 60 THEN 9 WHEN count(*) OVER () <= 300 THEN 6 ELSE 4 END AS size
        FROM both_))
SELECT problem_id, sign(now - was) AS side, passes, size, was + radius * cos(angle) AS x, now + radius * sin(angle) AS y
FROM placed ORDER BY problem_id
"""


def by_problem(source: Source) -> Figure | None:
    """pass@1 before and after by problem; `ids` of the dots are the problems."""
    before, after = source.result.before, source.result.after
    if before is None or after is None:
        return None
    rows = source.ask(_DOTS, before=before.record.key, after=after.record.key)
    same: Spec = {"hoverinfo": "skip", "showlegend": False}
    data = [curve("", [0, 1], [0, 1], "@rule", "", **same)] if rows else []
    for side, (name, role, shape) in _SIDES.items():
        mine = [r for r in rows if r["side"] == side]
        problems, passes, sizes, x, y = values(mine, "problem_id", "passes", "size", "x", "y")
        dots: Spec = {
            "mode": "markers",
            "ids": problems,
            "text": list(map(plain, problems)),
            "customdata": passes,
            "meta": after.record.key,
            "marker": {"size": sizes, "color": role, "symbol": shape, "opacity": 0.85},
            "cliponaxis": False,
        }
        if mine:
            hover = "%{text}: %{customdata}<extra></extra>"
            data.append(curve(f"{name}: {len(mine)}", x, y, role, hover, **dots))
    ends = {"tickformat": ".0%", "range": [-0.09, 1.09], "tickvals": [0, 0.25, 0.5, 0.75, 1]}
    return Figure(
        "by-problem",
        "Before and after, by problem",
        "Share of the answers to each held-out problem that pass: before training (across) and after (up). "
        "Above the line the student got better; equal problems lie around their place. "
        "Click a dot for the answers to its problem.",
        data,
        layout(
            xaxis=axis("before training", showgrid=True, **ends),
            yaxis=axis("after training", **ends),
            hovermode="closest",
        ),
        height=420,
    )
