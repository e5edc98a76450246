"""What all runs share, made once: validation of every problem, the teacher's evaluation, and the verdicts of both.

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
            await validate_problems(session.run)
            if number == 0:
                for policy in ("teacher", "student"):
                    await evaluate_policy(session.run, evaluation.plan_evaluation(session, policy, 0))


if __name__ == "__main__":
    run_flow(lambda: prepare([Path(name) for name in sys.argv[1:]]))
