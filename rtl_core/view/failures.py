"""Queries for the page on failures besides the tables of the report: outcomes over the run, and problems that flip."""

from __future__ import annotations

from rtl_core.history.store import History
from rtl_core.view.questions import Row

BINS = 20
"""Number of parts of the run in which outcomes are counted."""
MOST = 12
"""Maximum rows of a list."""

_OUTCOMES = """
WITH answers AS (SELECT step, outcome FROM verdicts WHERE run = $run AND purpose = 'train' AND outcome <> 'infrastructure_error')
SELECT step * $bins // (SELECT max(step) + 1 FROM answers) AS bin, outcome, count(*) AS n, min(step) AS first, max(step) AS last
FROM answers GROUP BY ALL ORDER BY bin
"""
_FLIPS = """
WITH visits AS (SELECT problem_id, step, count(*) AS n, count(*) FILTER (WHERE outcome = 'passed') AS passed FROM verdicts
                WHERE run = $run AND purpose = 'train' AND outcome <> 'infrastructure_error' GROUP BY ALL),
changes AS (SELECT *, lag(passed > 0) OVER (PARTITION BY problem_id ORDER BY step) AS solved_before FROM visits)
SELECT problem_id, count(*) AS visits, count(*) FILTER (WHERE solved_before AND passed = 0) AS lost,
       list(struct_pack(step := step, passed := passed, n := n) ORDER BY step)[-40:] AS record
FROM changes GROUP BY problem_id HAVING lost > 0 ORDER BY lost DESC, visits DESC, problem_id LIMIT $most
"""


def outcomes(history: History, run: str) -> list[Row]:
    """Outcomes of training answers by part of the run: bin, outcome, n, first and last step."""
    return history.query(_OUTCOMES, {"run": run, "bins": BINS}).to_pylist()


def flips(history: History, run: str) -> list[Row]:
    """Problems that were solved in one visit and not in the next: {problem_id, visits, lost, record of {step, passed, n}}."""
    return history.query(_FLIPS, {"run": run, "most": MOST}).to_pylist()
