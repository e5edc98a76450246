"""What goes wrong: failures by level, interface mistakes, problems that were never solved or failed validation."""

from __future__ import annotations

import json

from rtl_core.history.columns import Row
from rtl_core.reporting.blocks import (
    Block,
    Source,
    Table,
    draw,
    listed,
    more,
)
from rtl_core.reporting.figures import SECTIONS, section

MOST = 12
"""Maximum rows of a table."""
_GRADED = (
    "FROM verdicts WHERE run = $run AND purpose = 'train' AND outcome <> 'infrastructure_error'"
)
_SPAN = f"WITH span AS MATERIALIZED (SELECT min(step) AS low, max(step) AS high {_GRADED})"
_QUARTERS = {
    "early": "(step - low) * 4 <= high - low",
    "late": "(high - step) * 4 <= high - low",
}
_LEVELS = """
SELECT level, count(*) AS answers, count(DISTINCT problem_id) AS problems,
       format('{{:.1f}} %', 100 * avg(CAST(solvable AS INTEGER))) AS solvable, {early}, {late}, max(rollout) AS example
FROM failure_levels, span WHERE run = $run AND purpose = 'train'
GROUP BY level ORDER BY answers DESC, level LIMIT $most
"""
_NAMED = """
SELECT mistake, mode(expected ORDER BY expected) AS expected, mode(got ORDER BY got) AS got,
       count(DISTINCT rollout) AS answers, count(DISTINCT problem_id) AS problems, {early}, {late},
       max(rollout) AS example
FROM named_mistakes, span WHERE run = $run AND purpose = 'train'
GROUP BY mistake ORDER BY answers DESC, mistake LIMIT $most
"""
_REASONS = r"""
SELECT left(CASE WHEN outcome = 'tests_failed'
                 THEN regexp_replace(trim(split_part(reasons[1], ':', 1)), '^.*\.', '')
                 ELSE regexp_replace(regexp_replace(left(reasons[1], 160), '^\S+:\d+: ', ''),
                      '[`''][^`'']*[`'']|0x[0-9a-fA-F]+|[0-9]+', '#', 'g') END, 90) AS reason,
       replace(outcome, '_', ' ') AS how, left(arg_max(reasons[1], rollout), 200) AS words,
       count(*) AS answers, {early}, {late}, max(rollout) AS example
FROM verdicts, span WHERE run = $run AND purpose = 'train' AND len(reasons) > 0
AND outcome NOT IN ('passed', 'interface_mismatch', 'infrastructure_error')
GROUP BY reason, outcome ORDER BY answers DESC, reason LIMIT $most
"""
_NEVER_SOLVED = """
WITH tried AS (SELECT * FROM verdicts WHERE run = $run AND outcome <> 'infrastructure_error'
               AND (purpose = 'train' OR evaluation IN
                    (SELECT evaluation FROM evaluations WHERE run = $run AND policy = 'student'))),
never AS (SELECT problem_id FROM tried GROUP BY problem_id
          HAVING count(*) FILTER (WHERE outcome = 'passed') = 0)
SELECT t.problem_id, p.split, p.difficulty, coalesce(p.family, p.category) AS family,
       count(*) AS answers, format('{:.2f}', max(w.total)) AS reward,
       replace(arg_max(t.outcome, (coalesce(w.total, 0), t.step, t.rollout)), '_', ' ') AS outcome,
       left(arg_max(t.reasons[1], (coalesce(w.total, 0), t.step, t.rollout)), 200) AS words,
       arg_max(t.rollout, (coalesce(w.total, 0), t.step, t.rollout)) AS example, count(*) OVER () AS total
FROM tried t JOIN never USING (problem_id) LEFT JOIN rewards w USING (rollout)
LEFT JOIN run_problems p ON p.run = $run AND p.problem_id = t.problem_id
GROUP BY ALL ORDER BY answers DESC, t.problem_id LIMIT $most
"""
_HARNESS = """
WITH solved AS (SELECT problem_id, count(*) AS passes, max(rollout) AS example
                FROM verdicts WHERE run = $run AND outcome = 'passed' GROUP BY ALL)
SELECT r.problem_id, r.split, v.status, coalesce(s.passes, 0) AS passes, v.evidence, s.example,
       count(*) OVER () AS total
FROM run_problems r JOIN validations v ON v.fingerprint = r.fingerprint
LEFT JOIN solved s ON s.problem_id = r.problem_id
WHERE r.run = $run AND v.status NOT IN ('fit', 'fit_without_golden')
QUALIFY row_number() OVER (PARTITION BY r.problem_id ORDER BY v.checked_at DESC) = 1
ORDER BY v.status, r.problem_id LIMIT $most
"""
_REGRADES = """
SELECT g.label, count(*) AS graded, count(*) FILTER (WHERE g.outcome <> v.outcome) AS changed,
       count(*) FILTER (WHERE v.outcome = 'passed') AS passed_was,
       count(*) FILTER (WHERE g.outcome = 'passed') AS passed_now,
       min(g.rollout) FILTER (WHERE g.outcome <> v.outcome) AS example
FROM regrades g JOIN verdicts v USING (rollout) WHERE g.run = $run
GROUP BY g.label ORDER BY max(g.graded_at), g.label
"""


@SECTIONS.register("wrong")
@section(
    "What goes wrong",
    "How answers fail, and problems that may be faulty themselves.",
    place=60,
)
def blocks(source: Source) -> list[Block]:
    return draw(source, levels, named, reasons, never_solved, harness, regrades)


def levels(source: Source) -> Table:
    return listed(
        "failure-levels",
        "Kinds of failure",
        "Failed training answers by level, as share of all graded answers of the first and the "
        "last quarter of the run. Solvable: another answer"
        " of the run solved the problem. Rules derive the level from the reports of the harness.",
        "level | answers: | problems: | solvable: | first quarter: | last quarter:",
        _by_quarter(source, _LEVELS),
    )


def named(source: Source) -> Table:
    return listed(
        "named-mistakes",
        "Mistakes by name",
        "Share of all graded answers of the first and the last quarter of the run with each "
        "mistake; expected and got are the most"
        " frequent values. An answer counts once for each of its mistakes.",
        "mistake | `expected` | `got` | answers: | problems: | first quarter: | last quarter:",
        _by_quarter(source, _NAMED, "DISTINCT rollout"),
    )


def reasons(source: Source) -> Table:
    return listed(
        "reasons",
        "Failing checks and other reasons",
        "The first reason of training answers that fail at another stage than the interface, "
        f"without numbers and names; at most {MOST}. Shares as above.",
        "check or reason | outcome | newest example | answers: | first quarter: | last quarter:",
        _by_quarter(source, _REASONS),
    )


def never_solved(source: Source) -> Table:
    rows = source.ask(_NEVER_SOLVED, most=MOST)
    return listed(
        "never-solved",
        "Never solved",
        "Problems that no answer of the student passed, in training or evaluation: too hard, or "
        f"faulty; with the best attempt.{more(rows, 'problems')}",
        "`problem` | split | difficulty | family | answers: | best reward: | outcome | reason",
        rows,
    )


def harness(source: Source) -> Table:
    rows = source.ask(_HARNESS, most=MOST)
    for row in rows:
        row["evidence"] = _evidence(row["evidence"])
    return listed(
        "harness-problems",
        "Problems that failed validation",
        "The golden answer fails, a wrong answer passes, or the verdict is not reproducible; "
        f"their passes are doubtful.{more(rows, 'problems')}",
        "`problem` | split | status | passes: | evidence",
        rows,
    )


def regrades(source: Source) -> Table:
    return listed(
        "regrades",
        "Graded again",
        "Stored answers graded with other tools or another seed (rtl-distill grade again). To list "
        "changed verdicts: rtl-distill query changed-verdicts.",
        "`regrading` | answers: | verdicts changed: | passed before: | passed now:",
        source.ask(_REGRADES),
    )


def _by_quarter(source: Source, sql: str, answers: str = "*") -> list[Row]:
    """Rows of a query from a table and `span`, in which `{early}` and `{late}` are the shares of failures,
    each the count of `answers`, among the graded answers of the first and the last quarter of the run."""
    shares = {}
    for quarter, steps in _QUARTERS.items():
        graded = f"(SELECT count(*) FROM span, (SELECT step {_GRADED}) WHERE {steps})"
        share = f"100 * count({answers}) FILTER (WHERE {steps}) / {graded}"
        shares[quarter] = f"format('{{:.1f}} %', {share}) AS {quarter}"
    return source.ask(f"{_SPAN} {sql.format(**shares)}", most=MOST)


def _evidence(text: str | None) -> str:
    """The evidence in one line: its reasons, or else its fields."""
    evidence = json.loads(text or "{}")
    reasons = evidence.get("reasons")
    words = ", ".join(f"{name}: {value}" for name, value in evidence.items())
    if reasons:
        words = "; ".join(map(str, reasons))
    return words if len(words) <= 240 else words[:239] + "…"
