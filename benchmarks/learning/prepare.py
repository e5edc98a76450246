"""What all cells of a tier share, made once: validation of every problem, the evaluations of teacher and untrained student, their verdicts.

    python -m benchmarks.learning.prepare CONFIG.toml [CONFIG.toml ...]

One configuration a seed, all with one history. The first one's test problems are answered by the teacher and by the untrained
student. Runs start from a copy of the history, so that they find all of it there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cli.flow import run_flow
from flows.evaluate import evaluate_policy
from flows.validate import validate_problems
from rtl_core.config import load_config
from rtl_core.rollouts import evaluation
from rtl_core.run.session import open_session


async def prepare(paths: list[Path]) -> None:
    """Validate the problems of every configuration; evaluate both policies of the first."""
    for number, path in enumerate(paths):
        settings = load_config(path)
        async with open_session(settings, with_policy=number == 0, accept_changes=True) as session:
            await validate_problems(session)
            if number == 0:
                for policy in ("teacher", "student"):
                    await evaluate_policy(session, evaluation.plan_evaluation(session, policy, 0), must_succeed=True)


if __name__ == "__main__":
    run_flow(lambda: prepare([Path(name) for name in sys.argv[1:]]))
