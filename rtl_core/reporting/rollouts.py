"""The sample of rollouts in a report, chosen so that it contains rare outcomes and all periods of the run."""

from __future__ import annotations

from collections.abc import Sequence

from rtl_core.history.columns import Row
from rtl_core.history.store import History
from rtl_core.reporting.rollout import InterfaceRow, interface_rows
from rtl_grader.types.problem import Interface
from rtl_grader.types.verdict import InterfaceMismatch

MOST_ROLLOUTS = 500
MOST_TEXT = 6_000
"""Maximum characters of an answer or prompt."""
MOST_BYTES = 4_000_000
"""Maximum characters of all answers and prompts together."""

_CHOOSE = """
WITH span AS (SELECT greatest(1, max(step) + 1) AS steps FROM verdicts WHERE run = $run),
strata AS (
    SELECT rollout, purpose, outcome,
           row_number() OVER (
               PARTITION BY outcome, CASE WHEN purpose = 'evaluation' THEN evaluation
                                          ELSE CAST(step * 10 // steps AS VARCHAR) END
               ORDER BY hash(rollout)
           ) AS place
    FROM verdicts, span WHERE run = $run)
SELECT rollout FROM strata ORDER BY place, hash(rollout) LIMIT $most
"""
_HEADS = """
SELECT r.rollout, r.purpose, r.evaluation, r.epoch, r.step, r.problem_id AS problem, r.sample,
       coalesce(c.ended, r.stop_reason) AS stop_reason, coalesce(m.tokens, r.n_tokens) AS n_tokens,
       r.text, v.outcome, v.tests_passed, v.tests_total, [left(one, 600) FOR one IN v.reasons[:8]] AS reasons,
       v.wall_s, w.total AS reward, coalesce(s.stages, []) AS stages, coalesce(i.mismatches, []) AS mismatches,
       coalesce(terms, []) AS terms,
       a.reward AS trained, a.advantage, t.k1_mean AS k1, p.difficulty,
       coalesce(p.family, p.category) AS family, q.prompt, q.interface
FROM rollouts r JOIN verdicts v USING (rollout) LEFT JOIN rewards w USING (rollout)
LEFT JOIN advantages a USING (rollout) LEFT JOIN teacher_scores t USING (rollout)
LEFT JOIN run_problems p ON p.run = r.run AND p.problem_id = r.problem_id
LEFT JOIN (SELECT rollout, ended FROM episodes WHERE rollout IN ({keys})) c USING (rollout)
LEFT JOIN (SELECT rollout, CAST(sum(n_tokens) AS BIGINT) AS tokens FROM messages
           WHERE rollout IN ({keys}) GROUP BY rollout) m USING (rollout)
LEFT JOIN (SELECT rollout, list({{'stage': stage, 'status': status,
                                  'reasons': [left(one, 600) FOR one IN reasons[:4]]}} ORDER BY position) AS stages
           FROM verdict_stages WHERE rollout IN ({keys}) GROUP BY rollout) s USING (rollout)
LEFT JOIN (SELECT rollout, list({{'kind': kind, 'name': name, 'expected': expected, 'got': got}} ORDER BY position)
                           AS mismatches
           FROM interface_mismatches WHERE rollout IN ({keys}) GROUP BY rollout) i USING (rollout)
LEFT JOIN (SELECT rollout, list({{'term': term, 'weight': weight, 'value': value}} ORDER BY rowid) AS terms
           FROM reward_terms WHERE weight <> 0 AND rollout IN ({keys}) GROUP BY rollout) n USING (rollout)
LEFT JOIN problems q ON q.fingerprint = p.fingerprint WHERE r.rollout IN ({keys})
"""


def sample(history: History, run: str, always: Sequence[str] = ()) -> Row:
    """Rollouts of a run for the report, including `always`: {total, shown, rollouts, problems}, JSON-serialisable.

    Every outcome of every tenth of the run and of every evaluation is drawn in turn, up to the limits above.
    """
    sql = "SELECT count(*) FROM verdicts WHERE run = $run"
    (total,) = history.column(sql, run=run)
    chosen = history.column(_CHOOSE, run=run, most=MOST_ROLLOUTS)
    keys = list(dict.fromkeys([*always, *chosen]))[:MOST_ROLLOUTS]
    rows = _rows(history, keys)
    rollouts, problems, size = [], {}, 0
    for row in (rows[key] for key in keys if key in rows):
        prompt, interface = row.pop("prompt"), row.pop("interface")
        if row["problem"] not in problems:
            text = cut(prompt)
            labels = {name: row[name] for name in ("difficulty", "family")}
            problems[row["problem"]] = {"prompt": text, **labels}
            size += len(text)
        row["ports"] = _ports(row, interface)
        size += len(row["text"])
        if size > MOST_BYTES:
            break
        rollouts.append(row)
    rollouts.sort(key=lambda r: (r["purpose"] != "train", r["step"], r["problem"], r["sample"]))
    return {"total": total, "shown": len(rollouts), "rollouts": rollouts, "problems": problems}


def _ports(row: Row, interface: str | None) -> list[InterfaceRow]:
    """The interface as required (JSON) and as written; empty if the answer did not reach that stage."""
    status = {stage["stage"]: stage["status"] for stage in row["stages"]}
    if not interface or status.get("interface", "skipped") == "skipped":
        return []
    mismatches = [InterfaceMismatch(**mismatch) for mismatch in row["mismatches"]]
    return interface_rows(Interface.model_validate_json(interface), mismatches)


def cut(text: str | None) -> str:
    """The beginning of a text, with the number of omitted characters."""
    text = text or ""
    more = len(text) - MOST_TEXT
    return text if more <= 0 else f"{text[:MOST_TEXT]}\n… {more} more characters"


def _rows(history: History, keys: Sequence[str]) -> dict[str, Row]:
    if not keys:
        return {}
    holders = ", ".join(f"${number}" for number in range(1, len(keys) + 1))
    rows = history.rows(_HEADS.format(keys=holders), list(keys))
    for row in rows:
        row["text"] = cut(row["text"])
        row["terms"] = {one["term"]: [one["weight"], one["value"]] for one in row["terms"]}
    return {row["rollout"]: row for row in rows}
