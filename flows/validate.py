"""Validate: check that each problem's harness can tell right from wrong before its first answer is sampled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal

from prefect import flow
from prefect.artifacts import acreate_table_artifact

from rtl_core.config import Override, load_config
from rtl_core.reporting import problem_audit as document
from rtl_core.rollouts import survey
from rtl_core.rollouts.survey import ValidationAhead
from rtl_core.run import status
from rtl_core.run.session import Session
from rtl_distill.tasks.artifacts import artifact_key
from rtl_distill.tasks.orchestration import VALIDATION, named_by_run, session_of_flow
from rtl_distill.tasks.steps import validate_problem
from rtl_grader.progress import progress
from rtl_grader.validation import table
from rtl_grader.validation.level import full_level
from rtl_grader.words import counted
from rtl_grader.work import Tally, process_all


@flow(
    name="validate-problems", flow_run_name="validate {session.run}", validate_parameters=False
)
async def validate_problems(
    session: Session,
    level: Literal["quick", "full"] = "quick",
    mutants: int = 20,
    seeds: int = 3,
    audit: str | None = None,
) -> dict[str, int]:
    """Validate every problem of an open session that has no record in the history; unfit ones are excluded
    from the run.

    Args:
        session: the open run whose problems are validated.
        level: `quick` before a training run (a few simulations per problem), `full` for all checks.
        mutants: mutants of each golden answer at the full level.
        seeds: different seeds at the full level.
        audit: a file for the audit of the set as a document, `.html` or `.jsonl`.

    Returns:
        Mapping of status to number of problems; `known`: how many records came from the history.
    """
    depth = full_level(mutants, seeds) if level == "full" else survey.level_of_run(session)
    validation = survey.begin(session, depth)
    waiting, tell = validation.waiting, progress.get()
    tell.stage(
        f"validation: {counted(len(waiting), 'problem')}, {validation.n_known} validated before"
    )
    for moved in session.loaded.moved_in_words:
        tell.line(moved)
    tally, concurrency = Tally("problems validated", len(waiting)), 2 * session.graders.threads
    try:
        # Limited, so that a task starts only when a core will soon be free for it.
        await process_all(
            waiting, partial(validate_problem, validation), tally, concurrency=concurrency
        )
    finally:
        await session.recorder.settle()
    validation.mark_unfit()
    if audit is not None:
        document.write_document(
            Path(audit), session.loaded, validation.records, depth, session.history
        )
        tell.line(f"audit of the set written to {audit}")
    rows, unfit = table.by_source(
        validation.records,
        session.loaded.broken,
        session.loaded.left_out,
        session.loaded.every,
    )
    await acreate_table_artifact(
        key=artifact_key("validation", session.run),
        table=table.as_dicts(rows, unfit),
        description=f"Validation of the problems of {session.run} ({level} level)",
    )
    tell.line(validation.in_words())
    for line in table.published(session.loaded.every, validation.records):
        tell.line(line)
    if level == "full":
        tell.show(table.render(rows, unfit))
    else:
        for line in table.in_lines(unfit, validation.records.keys()):
            tell.line(line)
    return validation.summary()


@asynccontextmanager
async def validated_ahead(session: Session) -> AsyncIterator[ValidationAhead]:
    """Validate the problems of a run as they are needed within the block; records in the history are used
    immediately."""
    validation = survey.begin(session, survey.level_of_run(session))
    tell = progress.get()
    before, total = validation.n_known, len(session.problems)
    later = "" if before == total else "; each of the others is validated before it is used"
    tell.line(f"validation: {before} of {total} problems validated before{later}")
    for moved in session.loaded.moved_in_words:
        tell.line(moved)
    ahead = ValidationAhead(
        validation, validate_problem, concurrency=2 * session.graders.threads
    )
    try:
        yield ahead
    finally:
        await ahead.close()
        tell.line(f"validated: {validation.in_words()}")


@flow(name="validate", flow_run_name=named_by_run, validate_parameters=True)
async def validate(
    config: str = "demo",
    overrides: list[Override] | None = None,
    level: Literal["quick", "full"] = "full",
    mutants: int = 20,
    seeds: int = 3,
    audit: str | None = None,
) -> dict[str, int]:
    """Validate the problems of a configuration without training on them.

    The run of the same name is not changed: records go to the run `<name>.validation`, and a later training
    run with the same tools uses them.

    Returns:
        Mapping of status to number of problems; `known`: how many records came from the history.
    """
    settings = load_config(config, overrides or [])
    name = f"{settings.run.name[:53]}{VALIDATION}"
    settings = settings.but("run", name=name)
    opened = session_of_flow(settings, with_policy=False, accept_changes=True)
    async with opened as session, status.run_status(session):
        return await validate_problems(session, level, mutants, seeds, audit)
