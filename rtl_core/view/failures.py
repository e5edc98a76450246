"""Queries for the page on failures: clusters over the run, problems that flip, problems never solved, doubtful passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rtl_core.history.store import History
from rtl_core.view.questions import Row

BINS = 20
"""Number of parts of the run in which clusters are counted."""
MOST = 12
"""Maximum rows of a list."""
LOOKED_AT = 4_000
"""Maximum number of newest answers whose text is searched for constructs."""

_OUTCOMES = """
SELECT step * $bins // $steps AS bin, outcome, count(*) AS n, min(step) AS first, max(step) AS last FROM verdicts
WHERE run = $run AND purpose = 'train' AND outcome <> 'infrastructure_error' GROUP BY ALL ORDER BY bin
"""
_MISTAKES = """
SELECT 'interface' AS kind, mistake AS name, step * $bins // $steps AS bin, count(*) AS n, 0 AS solvable, arg_max(rollout, step) AS example, max(step) AS last,
       concat_ws(' · ', 'expected ' || nullif(arg_max(expected, step), ''), 'got ' || nullif(arg_max(got, step), '')) AS words
FROM named_mistakes WHERE run = $run AND purpose = 'train' AND mistake NOT IN ('failing check', 'reset behaviour', 'bit order') GROUP BY ALL
"""
_LEVELS = """
SELECT 'level' AS kind, level AS name, step * $bins // $steps AS bin, count(*) AS n, count(*) FILTER (WHERE solvable) AS solvable,
       arg_max(rollout, step) AS example, max(step) AS last, '' AS words
FROM failure_levels WHERE run = $run AND purpose = 'train' GROUP BY ALL
"""
_REASONS = """
WITH failed AS (
    SELECT rollout, step, outcome, reasons[1] AS reason FROM verdicts
    WHERE run = $run AND purpose = 'train' AND outcome NOT IN ('passed', 'interface_mismatch', 'infrastructure_error') AND len(reasons) > 0)
SELECT outcome AS kind, CASE WHEN outcome = 'tests_failed' THEN regexp_replace(trim(split_part(reason, ':', 1)), '^.*\\.', '')
            ELSE regexp_replace(regexp_replace(left(reason, 160), '^\\S+:\\d+: ', ''), '[`''][^`'']*[`'']|0x[0-9a-fA-F]+|[0-9]+', '#', 'g') END AS name,
       step * $bins // $steps AS bin, count(*) AS n, 0 AS solvable, arg_max(rollout, step) AS example,
       max(step) AS last, arg_max(reason, step) AS words
FROM failed GROUP BY ALL ORDER BY n DESC LIMIT 4000
"""
_FLIPS = """
WITH visits AS (SELECT problem_id, step, count(*) AS n, count(*) FILTER (WHERE outcome = 'passed') AS passed FROM verdicts
                WHERE run = $run AND purpose = 'train' AND outcome <> 'infrastructure_error' GROUP BY ALL),
changes AS (SELECT *, lag(passed > 0) OVER (PARTITION BY problem_id ORDER BY step) AS solved_before FROM visits)
SELECT problem_id, count(*) AS visits, count(*) FILTER (WHERE solved_before AND passed = 0) AS lost,
       list(struct_pack(step := step, passed := passed, n := n) ORDER BY step)[-40:] AS record
FROM changes GROUP BY problem_id HAVING lost > 0 ORDER BY lost DESC, visits DESC, problem_id LIMIT $most
"""
_NEVER = """
WITH tried AS (SELECT rollout, problem_id, step, outcome, tests_passed, tests_total, reasons FROM verdicts
               WHERE run = $run AND outcome <> 'infrastructure_error'
               AND (purpose = 'train' OR evaluation IN (SELECT evaluation FROM evaluations WHERE run = $run AND policy = 'student'))),
never AS (SELECT problem_id FROM tried GROUP BY problem_id HAVING count(*) FILTER (WHERE outcome = 'passed') = 0)
SELECT t.problem_id, p.split, p.difficulty, coalesce(p.family, p.category) AS family, count(*) AS answers, max(w.total) AS reward,
       arg_max(t.rollout, (coalesce(w.total, 0), t.step)) AS best, arg_max(t.outcome, (coalesce(w.total, 0), t.step)) AS outcome,
       arg_max(t.reasons[1], (coalesce(w.total, 0), t.step)) AS words
FROM tried t JOIN never USING (problem_id) LEFT JOIN rewards w USING (rollout) LEFT JOIN run_problems p ON p.run = $run AND p.problem_id = t.problem_id
GROUP BY ALL ORDER BY answers DESC, t.problem_id LIMIT $most
"""
_CONSTRUCTS = """
WITH newest AS (SELECT min(step) FROM (SELECT step, sum(count(*)) OVER (ORDER BY step DESC) AS n FROM verdicts WHERE run = $run AND purpose = 'train' GROUP BY step)
                WHERE n <= $most OR step = (SELECT max(step) FROM verdicts WHERE run = $run AND purpose = 'train')),
answers AS (SELECT CAST(v.outcome = 'passed' AS INTEGER) AS ok, r.text FROM rollouts r JOIN verdicts v USING (rollout)
            WHERE r.run = $run AND r.purpose = 'train' AND v.run = $run AND v.outcome <> 'infrastructure_error'
            AND r.step >= (FROM newest) AND v.step >= (FROM newest))
SELECT c.text, count(*) AS looked, count(*) FILTER (WHERE contains(a.text, c.text)) AS n, avg(ok) FILTER (WHERE contains(a.text, c.text)) AS with,
       avg(ok) FILTER (WHERE NOT contains(a.text, c.text)) AS without
FROM answers a, (SELECT unnest($texts) AS text) c GROUP BY c.text
"""
_DIFFERENT = """
SELECT a.rollout, a.problem_id, a.method, a.detail, v.step FROM audits a JOIN verdicts v USING (rollout)
WHERE a.run = $run AND a.result = 'different' AND v.outcome = 'passed' ORDER BY v.step DESC, a.rollout LIMIT $most
"""
_CHANGED = "SELECT label, rollout, problem_id, was, now FROM changed_verdicts WHERE run = $run ORDER BY (was = 'passed') DESC, label, rollout LIMIT $most"
_WEAK = """
SELECT p.problem_id, v.status, count(*) AS passes, max(x.rollout) AS example
FROM run_problems p JOIN validations v USING (fingerprint) JOIN verdicts x ON x.run = p.run AND x.problem_id = p.problem_id AND x.outcome = 'passed'
WHERE p.run = $run AND v.status IN ('weak', 'flaky') GROUP BY ALL ORDER BY passes DESC, p.problem_id LIMIT $most
"""
_CHECKED = """
SELECT (SELECT count(*) FROM audits WHERE run = $run) AS audited, (SELECT count(*) FROM audits WHERE run = $run AND result = 'unknown') AS unknown,
       (SELECT count(*) FROM regrades WHERE run = $run) AS regraded,
       (SELECT count(*) FROM validations WHERE status IN ('weak', 'flaky')) AS doubted
"""
KINDS = {
    "module name": "wrong_module", "direction": "wrong_direction", "width": "wrong_width", "port too many": "extra_port", "parameter": "",
}  # fmt: skip
"""Name of a mistake (view `named_mistakes`) -> kind of interface mismatch; other names are missing ports."""
CONSTRUCTS = {
    "always @(posedge": "clocked block", "always_ff": "always_ff", "always_comb": "always_comb", "always @(*)": "always @(*)", "case": "case",
    "for (": "for loop", "generate": "generate", "function": "function", "signed": "signed", "parameter": "parameter", "?": "conditional ?:",
    "assign ": "assign", ">>": "shift", "negedge": "asynchronous reset",
}  # fmt: skip


@dataclass
class Cluster:
    """Failures of the same kind."""

    kind: str
    name: str
    words: str
    """An example in full."""
    example: str = ""
    answers: int = 0
    solvable: int = 0
    last: int = -1
    bins: list[int] = field(default_factory=lambda: [0] * BINS)


def outcomes(history: History, run: str) -> list[Row]:
    """Outcomes of training answers by part of the run: bin, outcome, n, first and last step."""
    return history.query(_OUTCOMES, _parts(history, run)).to_pylist()


def mistakes(history: History, run: str) -> list[Cluster]:
    """Interface mistakes by name, most frequent first."""
    return _clusters(history, run, _MISTAKES)[:MOST]


def levels(history: History, run: str) -> list[Cluster]:
    """Failed answers by level, most frequent first."""
    return _clusters(history, run, _LEVELS)


def reasons(history: History, run: str) -> list[Cluster]:
    """Failing checks by name, and other failures by their reason without numbers and names; most frequent first."""
    return _clusters(history, run, _REASONS)[: 2 * MOST]


def _clusters(history: History, run: str, sql: str) -> list[Cluster]:
    """The clusters of a query that counts failures by kind, name and part of the run; most frequent first."""
    found: dict[tuple[str, str], Cluster] = {}
    for row in history.query(sql, _parts(history, run)).to_pylist():
        key = row["kind"], row["name"]
        cluster = found.setdefault(key, Cluster(*key, row["words"]))
        cluster.answers += row["n"]
        cluster.solvable += row["solvable"]
        cluster.bins[min(BINS - 1, row["bin"])] += row["n"]
        if row["last"] > cluster.last:
            cluster.last, cluster.example, cluster.words = row["last"], row["example"], row["words"]
    return sorted(found.values(), key=lambda c: (-c.answers, c.name))


def flips(history: History, run: str) -> list[Row]:
    """Problems that were solved in one visit and not in the next: {problem_id, visits, lost, record of {step, passed, n}}."""
    return history.query(_FLIPS, {"run": run, "most": MOST}).to_pylist()


def never_solved(history: History, run: str) -> list[Row]:
    """Problems that the student never solved, each with its best answer."""
    return history.query(_NEVER, {"run": run, "most": 2 * MOST}).to_pylist()


def constructs(history: History, run: str) -> tuple[int, list[Row]]:
    """The number of newest training answers that were searched, and for each construct how many contain it and the pass rates with and
    without it."""
    asked = {"run": run, "most": LOOKED_AT, "texts": list(CONSTRUCTS)}
    found = history.query(_CONSTRUCTS, asked).to_pylist()
    made = [{"name": CONSTRUCTS[row["text"]], **row} for row in found if row["n"]]
    made.sort(key=lambda r: (r["with"] - (r["without"] if r["without"] is not None else r["with"]), r["name"]))
    return found[0]["looked"] if found else 0, made


def suspects(history: History, run: str) -> dict[str, Any]:
    """Doubtful passes: {different, changed, weak: rows; audited, unknown, regraded, doubted: counts}."""
    values = {"run": run, "most": MOST}
    found: dict[str, Any] = history.query(_CHECKED, {"run": run}).to_pylist()[0]
    for name, there, sql in (
        ("different", "audited", _DIFFERENT),
        ("changed", "regraded", _CHANGED),
        ("weak", "doubted", _WEAK),
    ):
        found[name] = history.query(sql, values).to_pylist() if found[there] else []
    return found


def _parts(history: History, run: str) -> dict[str, Any]:
    sql = "SELECT max(step) + 1 FROM verdicts WHERE run = $run AND purpose = 'train'"
    return {"run": run, "bins": BINS, "steps": history.query(sql, {"run": run}).column(0).to_pylist()[0] or 1}
