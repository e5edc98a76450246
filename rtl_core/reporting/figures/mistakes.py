"""What goes wrong: failures by level, interface mistakes, problems that were never solved or failed validation."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from rtl_core.reporting.blocks import Block, Figure, Source, Table, curve, draw, left_out
from rtl_core.reporting.evaluations import scheduled_evaluations
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.theme import LEVELS, LINES, axis, faded, layout, line

MOST = 12
"""Maximum rows of a table."""
COLUMNS = 4
"""Maximum evaluations in the flow diagram."""
_FLOW = """
WITH shown AS (SELECT evaluation, row_number() OVER (ORDER BY step) AS place FROM evaluations WHERE evaluation IN ({keys})),
answers AS (SELECT place, problem_id, coalesce(level, 'passed') AS level, count(*) / sum(count(*)) OVER (PARTITION BY place, problem_id) AS share
            FROM verdicts v JOIN shown USING (evaluation) LEFT JOIN (SELECT rollout, level FROM failure_levels WHERE run = $run) USING (rollout)
            WHERE v.run = $run AND outcome NOT IN ('infrastructure_error', 'not_tested') GROUP BY place, problem_id, level),
problems AS (SELECT place, count(DISTINCT problem_id) AS n FROM answers GROUP BY place)
SELECT a.place, a.level AS was, b.level AS became, sum(a.share * b.share) / any_value(n) AS share FROM answers a
JOIN answers b ON b.problem_id = a.problem_id AND b.place = a.place + 1 JOIN problems p ON p.place = a.place GROUP BY ALL ORDER BY ALL
"""


@SECTIONS.register("wrong")
@section(
    "What goes wrong",
    "How answers fail, and problems that may be faulty themselves.",
    place=60,
)
def blocks(source: Source) -> list[Block]:
    return draw(source, flow, levels, kinds, named, reasons, never_solved, harness, regrades)


def flow(source: Source) -> Figure | None:
    """How the levels of answers change from one evaluation of the student to the next."""
    every = [e for e in scheduled_evaluations(source.history, source.run) if e.policy == "student"]
    shown = (
        [every[i * (len(every) - 1) // (COLUMNS - 1)] for i in range(COLUMNS)]
        if len(every) > COLUMNS
        else every
    )
    keys = {f"e{i}": e.key for i, e in enumerate(shown)}
    rows = (
        source.ask(_FLOW.format(keys=", ".join(f"${key}" for key in keys)), **keys)
        if len(shown) > 1
        else []
    )
    if all(r["was"] == r["became"] == "passed" for r in rows):
        return None
    sizes: dict[tuple[int, str], float] = defaultdict(float)
    for r in rows:
        sizes[r["place"], r["was"]] += r["share"]
        sizes[r["place"] + 1, r["became"]] += r["share"] * (r["place"] + 1 == len(shown))
    roles = {"passed": "@good", **{level: LEVELS[level] for level in reversed(LEVELS)}}
    nodes = sorted(sizes, key=lambda node: (node[0], list(roles).index(node[1])))
    across = [(place - 1) / (len(shown) - 1) for place in range(1, len(shown) + 1)]
    steps = [
        {
            "text": f"step {e.step}",
            "x": x,
            "y": 1.0,
            "xref": "paper",
            "yref": "paper",
            "yanchor": "bottom",
            "yshift": 8,
            "showarrow": False,
            "xanchor": "left" if x == 0 else "right" if x == 1 else "center",
            "font": {"color": "@muted"},
        }
        for e, x in zip(shown, across, strict=True)
    ]
    sankey = {
        "type": "sankey",
        "arrangement": "snap",
        "valueformat": ".1%",
        "textfont": {"color": "@ink", "size": 12},
        "node": {
            "label": [
                f"{level.removeprefix('wrong in ')} {sizes[place, level]:.0%}"
                for place, level in nodes
            ],
            "color": [roles[level] for _, level in nodes],
            "x": [0.001 + 0.998 * across[place - 1] for place, _ in nodes],
            "y": _stacked(nodes, sizes),
            "pad": 14,
            "thickness": 14,
            "line": {"width": 0},
        },
        "link": {
            "source": [nodes.index((r["place"], r["was"])) for r in rows],
            "target": [nodes.index((r["place"] + 1, r["became"])) for r in rows],
            "value": [r["share"] for r in rows],
            "color": [faded(roles[r["became"]], 0.3) for r in rows],
        },
    }
    return Figure(
        "failure-flow",
        "How failures change during training",
        "Answers to the held-out problems by level, one column per evaluation of the student. "
        "Answers are not paired: the width of a band is the"
        " probability that two answers to the same problem, drawn from the left and the right "
        "evaluation, have these levels.",
        [sankey],
        layout(margin={"l": 8, "r": 8, "t": 34, "b": 8}, annotations=steps),
        height=520,
        wide=True,
    )


def levels(source: Source) -> Table:
    rows = _by_quarter(
        source,
        "SELECT level, count(*) AS answers, count(DISTINCT problem_id) AS problems, "
        "avg(CAST(solvable AS INTEGER)) AS solvable,"
        " max(rollout) AS example, {early}, {late} FROM failure_levels, span WHERE run = $run AND purpose = 'train'"
        " GROUP BY level ORDER BY answers DESC, level LIMIT $most",
    )
    return Table(
        "failure-levels",
        "Kinds of failure",
        "Failed training answers by level, as share of all graded answers of the first and the "
        "last quarter of the run. Solvable: another answer"
        " of the run solved the problem. Rules derive the level from the reports of the harness.",
        [
            ("level", "left"),
            ("answers", "right"),
            ("problems", "right"),
            ("solvable", "right"),
            ("first quarter", "right"),
            ("last quarter", "right"),
        ],
        [
            [
                r["level"],
                str(r["answers"]),
                str(r["problems"]),
                *_shares(r, "solvable", "early", "late"),
            ]
            for r in rows
        ],
        links=_examples(rows),
    )


def kinds(source: Source) -> Figure:
    rows = source.ask(
        "WITH graded AS (SELECT step // $width AS bin, count(*) AS answers FROM verdicts WHERE "
        "run = $run AND purpose = 'train' GROUP BY ALL),"
        " missed AS (SELECT step // $width AS bin, kind, count(*) AS n FROM interface_mismatches "
        "WHERE run = $run AND purpose = 'train' GROUP BY ALL)"
        " SELECT kind, bin, coalesce(n, 0) / answers AS rate FROM graded CROSS JOIN (SELECT "
        "DISTINCT kind FROM missed) LEFT JOIN missed USING (bin, kind)"
        " ORDER BY sum(rate) OVER (PARTITION BY kind) DESC, kind, bin"
    )
    data = []
    for i, kind in enumerate(dict.fromkeys(r["kind"] for r in rows)):
        mine = [r for r in rows if r["kind"] == kind]
        x, y = [source.middle(r["bin"]) for r in mine], [r["rate"] for r in mine]
        data.append(
            curve(
                kind.replace("_", " "),
                x,
                y,
                line(i),
                "%{y:.2f}",
                dash="solid" if i < LINES else "dot",
            )
        )
    caption = "Differences from the required interface per answer; an answer can have several."
    yaxis = axis("mistakes per answer", rangemode="tozero")
    return source.by_step("mistake-kinds", "Interface mistakes by kind", caption, data, yaxis)


def named(source: Source) -> Table:
    rows = _by_quarter(
        source,
        "SELECT mistake, mode(expected ORDER BY expected) AS expected, mode(got ORDER BY got) AS "
        "got, count(DISTINCT problem_id) AS problems, max(rollout) AS example,"
        " count(DISTINCT rollout) AS answers, {early}, {late} FROM named_mistakes, span WHERE run "
        "= $run AND purpose = 'train'"
        " GROUP BY mistake ORDER BY answers DESC, mistake LIMIT $most",
        "DISTINCT rollout",
    )
    return Table(
        "named-mistakes",
        "Mistakes by name",
        "Share of all graded answers of the first and the last quarter of the run with each "
        "mistake; expected and got are the most"
        " frequent values. An answer counts once for each of its mistakes.",
        [
            ("mistake", "left"),
            ("expected", "code"),
            ("got", "code"),
            ("answers", "right"),
            ("problems", "right"),
            ("first quarter", "right"),
            ("last quarter", "right"),
        ],
        [
            [
                r["mistake"],
                r["expected"] or "–",
                r["got"] or "–",
                str(r["answers"]),
                str(r["problems"]),
                *_shares(r),
            ]
            for r in rows
        ],
        links=_examples(rows),
    )


def reasons(source: Source) -> Table:
    rows = _by_quarter(
        source,
        "SELECT CASE WHEN outcome = 'tests_failed' THEN "
        "regexp_replace(trim(split_part(reasons[1], ':', 1)), '^.*\\.', '')"
        " ELSE regexp_replace(regexp_replace(left(reasons[1], 160), '^\\S+:\\d+: ', ''), "
        "'[`''][^`'']*[`'']|0x[0-9a-fA-F]+|[0-9]+', '#', 'g') END AS reason,"
        " outcome, count(*) AS answers, arg_max(reasons[1], rollout) AS words, max(rollout) AS example, {early}, {late}"
        " FROM verdicts, span WHERE run = $run AND purpose = 'train' AND len(reasons) > 0"
        " AND outcome NOT IN ('passed', 'interface_mismatch', 'infrastructure_error') GROUP BY "
        "reason, outcome ORDER BY answers DESC, reason LIMIT $most",
    )
    return Table(
        "reasons",
        "Failing checks and other reasons",
        "The first reason of training answers that fail at another stage than the interface, "
        f"without numbers and names; at most {MOST}. Shares as above.",
        [
            ("check or reason", "left"),
            ("outcome", "left"),
            ("newest example", "left"),
            ("answers", "right"),
            ("first quarter", "right"),
            ("last quarter", "right"),
        ],
        [
            [
                r["reason"][:90],
                r["outcome"].replace("_", " "),
                r["words"][:200],
                str(r["answers"]),
                *_shares(r),
            ]
            for r in rows
        ],
        links=_examples(rows),
    )


def never_solved(source: Source) -> Table:
    best = "(coalesce(w.total, 0), t.step, t.rollout)"
    rows = source.ask(
        "WITH tried AS (SELECT * FROM verdicts WHERE run = $run AND outcome <> "
        "'infrastructure_error' AND (purpose = 'train' OR"
        "   evaluation IN (SELECT evaluation FROM evaluations WHERE run = $run AND policy = 'student'))),"
        " never AS (SELECT problem_id FROM tried GROUP BY problem_id HAVING count(*) FILTER "
        "(WHERE outcome = 'passed') = 0)"
        " SELECT t.problem_id, p.split, p.difficulty, coalesce(p.family, p.category) AS family, "
        "count(*) AS answers, max(w.total) AS reward,"
        f" arg_max(t.rollout, {best}) AS example, arg_max(t.outcome, {best}) AS outcome, "
        f"arg_max(t.reasons[1], {best}) AS words, count(*) OVER () AS problems"
        " FROM tried t JOIN never USING (problem_id) LEFT JOIN rewards w USING (rollout)"
        " LEFT JOIN run_problems p ON p.run = $run AND p.problem_id = t.problem_id"
        " GROUP BY ALL ORDER BY answers DESC, t.problem_id LIMIT $most",
        most=MOST,
    )
    return Table(
        "never-solved",
        "Never solved",
        "Problems that no answer of the student passed, in training or evaluation: too hard, or "
        f"faulty; with the best attempt.{_left_out(rows)}",
        [
            ("problem", "code"),
            ("split", "left"),
            ("difficulty", "left"),
            ("family", "left"),
            ("answers", "right"),
            ("best reward", "right"),
            ("outcome", "left"),
            ("reason", "left"),
        ],
        [
            [
                r["problem_id"],
                r["split"] or "",
                r["difficulty"] or "",
                r["family"] or "",
                str(r["answers"]),
                "–" if r["reward"] is None else f"{r['reward']:.2f}",
                r["outcome"].replace("_", " "),
                (r["words"] or "")[:200],
            ]
            for r in rows
        ],
        links=_examples(rows),
    )


def harness(source: Source) -> Table:
    rows = source.ask(
        "WITH solved AS (SELECT problem_id, count(*) AS passes, max(rollout) AS example FROM "
        "verdicts WHERE run = $run AND outcome = 'passed' GROUP BY ALL)"
        " SELECT r.problem_id, r.split, v.status, v.evidence, coalesce(s.passes, 0) AS passes, "
        "s.example, count(*) OVER () AS problems FROM run_problems r"
        " JOIN validations v ON v.fingerprint = r.fingerprint LEFT JOIN solved s ON s.problem_id = r.problem_id"
        " WHERE r.run = $run AND v.status NOT IN ('fit', 'fit_without_golden')"
        " QUALIFY row_number() OVER (PARTITION BY r.problem_id ORDER BY v.checked_at DESC) = 1"
        " ORDER BY v.status, r.problem_id LIMIT $most",
        most=MOST,
    )
    return Table(
        "harness-problems",
        "Problems that failed validation",
        "The golden answer fails, a wrong answer passes, or the verdict is not reproducible; "
        f"their passes are doubtful.{_left_out(rows)}",
        [
            ("problem", "code"),
            ("split", "left"),
            ("status", "left"),
            ("passes", "right"),
            ("evidence", "left"),
        ],
        [
            [r["problem_id"], r["split"], r["status"], str(r["passes"]), _evidence(r["evidence"])]
            for r in rows
        ],
        links=_examples(rows),
    )


def regrades(source: Source) -> Table:
    rows = source.ask(
        "SELECT g.label, count(*) AS graded, count(*) FILTER (WHERE g.outcome <> v.outcome) AS changed,"
        " count(*) FILTER (WHERE v.outcome = 'passed') AS passed_was, count(*) FILTER (WHERE "
        "g.outcome = 'passed') AS passed_now,"
        " min(g.rollout) FILTER (WHERE g.outcome <> v.outcome) AS example"
        " FROM regrades g JOIN verdicts v USING (rollout) WHERE g.run = $run GROUP BY g.label "
        "ORDER BY max(g.graded_at), g.label"
    )
    return Table(
        "regrades",
        "Graded again",
        "Stored answers graded with other tools or another seed (rtl-distill regrade). To list "
        "changed verdicts: rtl-distill query changed-verdicts.",
        [
            ("regrading", "code"),
            ("answers", "right"),
            ("verdicts changed", "right"),
            ("passed before", "right"),
            ("passed now", "right"),
        ],
        [
            [r["label"], *(str(r[c]) for c in ("graded", "changed", "passed_was", "passed_now"))]
            for r in rows
        ],
        links=_examples(rows),
    )


def _by_quarter(source: Source, sql: str, answers: str = "*") -> list[dict[str, Any]]:
    """Rows of a query from a table and `span`, in which `{early}` and `{late}` are the shares of failures,
    each the count of `answers`, among the graded answers of the first and the last quarter of the run."""
    within = {"early": "(step - low) * 4 <= high - low", "late": "(high - step) * 4 <= high - low"}
    graded = (
        "FROM verdicts WHERE run = $run AND purpose = 'train' AND outcome <> 'infrastructure_error'"
    )
    shares = {
        part: f"count({answers}) FILTER (WHERE {place}) / (SELECT count(*) FROM span, (SELECT step {graded}) WHERE {place}) AS {part}"
        for part, place in within.items()
    }
    span = f"WITH span AS MATERIALIZED (SELECT min(step) AS low, max(step) AS high {graded})"
    return source.ask(f"{span} {sql.format(**shares)}", most=MOST)


def _shares(row: dict[str, Any], *columns: str) -> list[str]:
    """Cells of shares, by default those of both quarters."""
    return [f"{100 * row[column]:.1f} %" for column in columns or ("early", "late")]


def _left_out(rows: list[dict[str, Any]]) -> str:
    """A sentence for a caption where not every problem is shown, else empty."""
    return left_out(len(rows), rows[0]["problems"], "problems") if rows else ""


def _examples(rows: list[dict[str, Any]]) -> dict[int, str]:
    """Row -> key of its example rollout, if it has one."""
    return {i: row["example"] for i, row in enumerate(rows) if row["example"]}


def _stacked(places: list[tuple[int, str]], sizes: dict[tuple[int, str], float]) -> list[float]:
    """Vertical centres of the flow diagram's nodes, from top to bottom in each column. 0 and 1 would make
    Plotly choose positions itself."""
    found, column, top = [], 0, 0.0
    for place in places:
        if place[0] != column:
            column, top = place[0], 0.0
        gaps = sum(other[0] == column for other in places)
        found.append(min(0.999, 0.001 + top + sizes[place] * (1 - 0.03 * gaps) / 2))
        top += sizes[place] * (1 - 0.03 * gaps) + 0.03
    return found


def _evidence(text: str | None) -> str:
    """The evidence in one line: its reasons, or else its fields."""
    evidence = json.loads(text or "{}")
    reasons = evidence.get("reasons")
    words = (
        "; ".join(map(str, reasons))
        if reasons
        else ", ".join(f"{k}: {v}" for k, v in evidence.items())
    )
    return words if len(words) <= 240 else words[:239] + "…"
