"""Describe: a model writes specifications of golden answers, another one must find the way back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from prefect import flow

from rtl_core.config import RunConfig, load_config
from rtl_core.history.records import StoredRollout
from rtl_core.rollouts import evaluation, playing
from rtl_core.run import status
from rtl_core.synthesis.asking import judge_descriptions
from rtl_core.synthesis.descriptions import Description, RoundTrips, add_rows
from rtl_distill.flows.evaluate import evaluated
from rtl_distill.tasks.orchestration import session_of_flow
from rtl_distill.tasks.steps import sample_group
from rtl_grader.work import Tally, all_of

Configuration = tuple[str, list[str]]
"""A TOML file and its overrides."""


@flow(name="describe", validate_parameters=True)
async def describe(
    writers: list[Configuration], solver: Configuration, ids: list[str], path: str, output: str
) -> dict[str, Description]:
    """Describe the golden answers of problems, and evaluate a model on the descriptions. The result of each problem is
    written when its answers are graded.

    Args:
        writers: the runs of the writer; each asks for the descriptions that the run before lacks.
        solver: the evaluation, whose problems are read from `path`.
        ids: the problems to describe.
        path: the pairs file to write usable descriptions to.
        output: the pairs file for the results.

    Returns:
        The last description of each problem; none where its prompt was too long.
    """
    descriptions: dict[str, Description] = {}
    for file, changes in writers:
        usable = [name for name, one in descriptions.items() if one.refusal is None]
        missing = [problem_id for problem_id in ids if problem_id not in usable]
        if missing:
            descriptions |= await _written(load_config(file, changes), missing)
    rows = [one.row for one in descriptions.values() if one.refusal is None]
    if rows:
        Path(path).unlink(missing_ok=True)
        add_rows(Path(path), rows)
        trips = RoundTrips(Path(output))

        def ended(problem_id: str, answers: Sequence[StoredRollout]) -> None:
            verdicts = [one.verdict for one in answers if one.verdict]
            passed = sum(verdict.passed for verdict in verdicts)
            trips.end(descriptions[problem_id], passed, len(verdicts))

        await evaluated(load_config(*solver), [ended])
    return descriptions


async def _written(config: RunConfig, ids: list[str]) -> Mapping[str, Description]:
    """The descriptions that a run writes, or has written before."""
    descriptions: dict[str, Description] = {}
    by_policy = config.evaluation.endpoint is None
    async with (
        session_of_flow(config, accept_changes=True, with_policy=by_policy) as session,
        status.run_status(session),
        playing.players(session) as [(plan, player)],
    ):
        batch = evaluation.evaluation_batch(session, plan)
        asked = [problem_id for problem_id in ids if problem_id not in session.unfit]
        tally = Tally("descriptions", len(asked))

        async def ask(problem_id: str) -> None:
            await sample_group(session, batch, problem_id, player)
            descriptions[problem_id] = judge_descriptions(session, batch, problem_id)
            tally.advance()

        await all_of(map(ask, asked))
    return descriptions
