"""The query for the page on failures besides the blocks of the report: problems that flip."""

from __future__ import annotations

from rtl_core.history.columns import Row
from rtl_core.history.store import History

MOST = 12
"""Maximum rows of a list."""

_FLIPS = """
WITH visits AS (SELECT problem_id, step, count(*) AS n, count(*) FILTER (WHERE outcome = 'passed') AS passed
                FROM verdicts WHERE run = $run AND purpose = 'train' AND outcome <> 'infrastructure_error'
                GROUP BY ALL),
changes AS (SELECT *, lag(passed > 0) OVER (PARTITION BY problem_id ORDER BY step) AS solved_before FROM visits)
SELECT problem_id, count(*) AS visits, count(*) FILTER (WHERE solved_before AND passed = 0) AS lost,
       list(struct_pack(step := step, passed := passed, n := n) ORDER BY step)[-40:] AS record
FROM changes GROUP BY problem_id HAVING lost > 0 ORDER BY lost DESC, visits DESC, problem_id LIMIT $most
"""


def flips(history: History, run: str) -> list[Row]:
    """Problems that were solved in one visit and not in the next: {problem_id, visits, lost, record of
    {step, passed, n}}."""
    return history.rows(_FLIPS, run=run, most=MOST)
