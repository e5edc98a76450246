"""How failures change during training: a flow diagram of the levels of held-out answers."""

from __future__ import annotations

from collections import defaultdict

from rtl_core.history.columns import Row
from rtl_core.reporting.blocks import Figure, Source, spread
from rtl_core.reporting.evaluations import scheduled_evaluations
from rtl_core.reporting.theme import LEVELS, Spec, faded, layout, part

Node = tuple[int, str]
"""A column, from 1, and a level in it."""
COLUMNS = 4
"""Maximum evaluations in the flow diagram."""
SMALL, THIN = 0.025, 0.007
"""Share from which a level has a name of its own, and from which a band is more than a hairline."""
OTHER = "other failures"
_FLOW = """
WITH shown AS (SELECT evaluation, row_number() OVER (ORDER BY step) AS place
               FROM evaluations WHERE evaluation IN ({keys})),
answers AS (SELECT place, problem_id, coalesce(level, 'passed') AS level,
                   count(*) / sum(count(*)) OVER (PARTITION BY place, problem_id) AS share
            FROM verdicts v JOIN shown USING (evaluation)
            LEFT JOIN (SELECT rollout, level FROM failure_levels
                       WHERE run = $run AND evaluation IN ({keys})) USING (rollout)
            WHERE v.run = $run AND outcome NOT IN ('infrastructure_error', 'not_tested')
            GROUP BY place, problem_id, level),
problems AS (SELECT place, count(DISTINCT problem_id) AS n FROM answers GROUP BY place),
levels AS (SELECT place, level,
                  CASE WHEN level = 'passed' OR sum(share) / any_value(n) >= $small THEN level ELSE $other END AS name
           FROM answers JOIN problems USING (place) GROUP BY place, level),
named AS (SELECT place, problem_id, name AS level, sum(share) AS share
          FROM answers JOIN levels USING (place, level) GROUP BY ALL)
SELECT a.place, a.level AS was, b.level AS became, sum(a.share * b.share) / any_value(n) AS share
FROM named a JOIN named b ON b.problem_id = a.problem_id AND b.place = a.place + 1
JOIN problems p ON p.place = a.place GROUP BY ALL ORDER BY ALL
"""


def flow(source: Source) -> Figure | None:
    """How the levels of answers change from one evaluation of the student to the next."""
    every = scheduled_evaluations(source.history, source.run)
    evaluations = spread([e for e in every if e.policy == "student"], COLUMNS)
    keys = {f"e{i}": e.key for i, e in enumerate(evaluations)}
    if len(keys) < 2:
        return None
    holders = ", ".join(f"${key}" for key in keys)
    rows = source.ask(_FLOW.format(keys=holders), small=SMALL, other=OTHER, **keys)
    if all(r["was"] == r["became"] == "passed" for r in rows):
        return None
    sizes: dict[Node, float] = defaultdict(float)
    for r in rows:
        sizes[r["place"], r["was"]] += r["share"]
        target = r["place"] + 1, r["became"]
        # A node of another column gets its size from the rows that begin there.
        sizes[target] += r["share"] if target[0] == len(evaluations) else 0.0
    across = [place / (len(evaluations) - 1) for place in range(len(evaluations))]
    steps = [_heading(e.step, x) for e, x in zip(evaluations, across, strict=True)]
    return Figure(
        "failure-flow",
        "How failures change during training",
        "Answers to the held-out problems by level, one column per evaluation of the student. "
        "Answers are not paired: the width of a band is the"
        " probability that two answers to the same problem, drawn from the left and the right "
        f"evaluation, have these levels. Levels below {SMALL:.1%} of a column are one, “{OTHER}”; "
        f"bands below {THIN:.1%} are not drawn.",
        [_sankey([r for r in rows if r["share"] >= THIN], sizes, across)],
        layout(margin={"l": 8, "r": 8, "t": 34, "b": 8}, annotations=steps),
        height=520,
        wide=True,
    )


def _heading(step: int, x: float) -> Spec:
    """The annotation above a column of the flow diagram."""
    sides = {0.0: "left", 1.0: "right"}
    return part("heading", text=f"step {step}", x=x, xanchor=sides.get(x, "center"))


def _sankey(rows: list[Row], sizes: dict[Node, float], across: list[float]) -> Spec:
    """The flow diagram of the bands `rows`: `sizes` are the heights of its nodes (column, level), `across` the
    columns' places."""
    roles = {"passed": "@good", **dict(reversed(LEVELS.items())), OTHER: "@muted"}
    order = list(roles)
    sources = [(r["place"], r["was"]) for r in rows]
    targets = [(r["place"] + 1, r["became"]) for r in rows]
    nodes = sorted({*sources, *targets}, key=lambda node: (node[0], order.index(node[1])))
    labels = [
        f"{level.removeprefix('wrong in ')} {sizes[place, level]:.0%}" for place, level in nodes
    ]
    return part(
        "sankey",
        node={
            "label": labels,
            "color": [roles[level] for _, level in nodes],
            "x": [0.001 + 0.998 * across[place - 1] for place, _ in nodes],
            "y": _stacked(nodes, sizes),
        },
        link={
            "source": list(map(nodes.index, sources)),
            "target": list(map(nodes.index, targets)),
            "value": [r["share"] for r in rows],
            "color": [faded(roles[r["became"]], 0.3) for r in rows],
        },
    )


def _stacked(nodes: list[Node], sizes: dict[Node, float]) -> list[float]:
    """Vertical centres of the flow diagram's nodes, from top to bottom in each column. 0 and 1 would make
    Plotly choose positions itself."""
    centres, column, top = [], 0, 0.0
    for node in nodes:
        if node[0] != column:
            column, top = node[0], 0.0
        gaps = sum(other[0] == column for other in nodes)
        height = sizes[node] * (1 - 0.03 * gaps)
        centres.append(min(0.999, 0.001 + top + height / 2))
        top += height + 0.03
    return centres
