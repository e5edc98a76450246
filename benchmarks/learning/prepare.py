"""Prepare what all cells of a tier share: validated problems, evaluations of teacher and untrained student, and their verdicts.

    python -m benchmarks.learning.prepare [--validate-only] CONFIG.toml [CONFIG.toml ...]

Takes one configuration a seed, all with the same history. Teacher and untrained student answer the first one's test problems, unless their
figures are known (`--validate-only`). Runs start from a copy of this history.
"""

import sys
from pathlib import Path

from rtl_core.config import load_config
from rtl_core.rollouts import evaluation
from rtl_core.run.session import open_session
from rtl_distill.cli.flow import run_flow


async def prepare(paths: list[Path], *, evaluate: bool) -> None:
    """Validate the problems of every configuration; with `evaluate`, have teacher and student answer the first one's test problems."""
    # Imported here because importing Prefect before the command's server runs would start another server.
    from rtl_distill.flows.evaluate import evaluate_policy
    from rtl_distill.flows.validate import validate_problems

    for number, path in enumerate(paths):
        answered = evaluate and number == 0
        async with open_session(load_config(path), with_policy=answered, accept_changes=True) as session:
            await validate_problems(session)
            if answered:
                for policy in ("teacher", "student") if session.config.tinker.teacher else ("student",):
                    await evaluate_policy(session, evaluation.plan_evaluation(session, policy, 0), must_succeed=True)


if __name__ == "__main__":
    names = sys.argv[1:]
    evaluate = "--validate-only" not in names
    paths = [Path(name) for name in names if not name.startswith("--")]
    run_flow("benchmarks.learning.prepare:prepare", paths, title="prepare", evaluate=evaluate)
