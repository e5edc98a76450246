"""Validate: before the first token is sampled, every problem shows that its harness tells right from wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal

from prefect import flow
from prefect.artifacts import acreate_table_artifact

from rtl_core.config import load_config
from rtl_core.observe.progress import progress
from rtl_core.reporting.text import counted
from rtl_core.rollouts import survey
from rtl_core.rollouts.resumable import Tally, work_off
from rtl_core.rollouts.survey import ValidationAhead
from rtl_core.run import status
from rtl_core.run.session import Session, open_session
from rtl_core.validation import document, table
from rtl_core.validation.level import full_level
from rtl_distill.tasks.artifacts import artifact_key
from rtl_distill.tasks.cluster import cluster_of
from rtl_distill.tasks.logs import lines_in_flow_run_log
from rtl_distill.tasks.steps import validate_problem


@flow(name="validate-problems", flow_run_name="validate {session.run}", validate_parameters=False)
async def validate_problems(
    session: Session,
    level: Literal["quick", "full"] = "quick",
    mutants: int = 20,
    seeds: int = 3,
    audit: str | None = None,
) -> dict[str, int]:
    """Validate every problem of an open session that the history does not know yet; the unfit ones take no part in the run.

    Args:
        session: the open run whose problems are validated.
        level: `quick` before a training run (a few simulations a problem), `full` for all checks.
        mutants: mutants of each golden answer at the full level.
        seeds: different seeds at the full level.
        audit: a file for the audit of the set as a document, `.html` or `.jsonl`.

    Returns:
        Status -> number of problems, and `known`: how many were taken from the history.
    """
    under_way = survey.begin(session, full_level(mutants, seeds) if level == "full" else survey.level_of_run(session))
    waiting, tell = under_way.waiting, progress.get()
    tell.stage(f"validation: {counted(len(waiting), 'problem')}, {under_way.known} known from before")
    for moved in session.loaded.moved:
        tell.line(str(moved))
    tally = Tally("problems validated", len(waiting))
    try:
        # A task is worth starting only when a core is about to be free for it.
        await work_off(waiting, partial(validate_problem, under_way), tally, at_once=2 * session.graders.at_once)
    finally:
        await under_way.found.flush()
    under_way.mark_unfit()
    if audit is not None:
        path = Path(audit)
        document.write_document(path, session.loaded, under_way.records, under_way.level, session.history)
        tell.line(f"audit of the set written to {path}")
    rows, unfit = table.by_source(under_way.records, session.loaded.broken, session.loaded.left_out)
    await acreate_table_artifact(
        key=artifact_key("validation", session.run),
        table=table.as_dicts(rows, unfit),
        description=f"Validation of the problems of {session.run} ({level} level)",
    )
    summary = under_way.summary()
    tell.line(under_way.in_words())
    if level == "full":
        tell.show(table.render(rows, unfit))
    else:
        for entry in unfit[:20]:
            tell.line(f"left out: {entry.problem} is {entry.status}: {entry.reason}")
    return summary


@asynccontextmanager
async def validated_ahead(session: Session) -> AsyncIterator[ValidationAhead]:
    """Within the block the problems of a run are validated as they are needed, those that the history knows at once."""
    under_way = survey.begin(session, survey.level_of_run(session))
    tell = progress.get()
    known, all_ = under_way.known, len(session.problems)
    later = "" if known == all_ else "; each of the others is validated before it is used"
    tell.line(f"validation: {known} of {all_} problems known from before{later}")
    for moved in session.loaded.moved:
        tell.line(str(moved))
    ahead = ValidationAhead(under_way, validate_problem, at_once=2 * session.graders.at_once)
    try:
        yield ahead
    finally:
        await ahead.close()
        tell.line(f"validated: {under_way.in_words()}")


@flow(name="validate", flow_run_name="validate {config}", validate_parameters=True)
async def validate(
    config: str = "demo",
    overrides: list[str] | None = None,
    level: Literal["quick", "full"] = "full",
    mutants: int = 20,
    seeds: int = 3,
    audit: str | None = None,
) -> dict[str, int]:
    """Validate the problems of a configuration without training on them.

    The run of the same name is left alone: what is found is recorded under `<name>.validation`, and a later training run
    with the same tools finds it there.

    Returns:
        Status -> number of problems, and `known`: how many were taken from the history.
    """
    settings = load_config(config, overrides or [])
    section = settings.run.model_copy(update={"name": f"{settings.run.name[:53]}.validation"})
    settings = settings.model_copy(update={"run": section})
    with lines_in_flow_run_log(), cluster_of(settings) as cluster:
        async with (
            open_session(settings, with_policy=False, accept_changes=True, cluster=cluster) as session,
            status.run_status(session),
        ):
            return await validate_problems(session, level, mutants, seeds, audit)
