"""The backend's checks before a run, also of the saved weights that it names, and the refusal to start a run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator

from rtl_core.backend.base import Provider, Readiness, check_start
from rtl_core.config import RunConfig
from rtl_core.errors import BackendUnavailableError, HistoryError, PolicyError
from rtl_core.history.store import History
from rtl_core.run.folder import has_begun
from rtl_core.types.finding import Finding

PATIENCE_S = 30.0
"""Seconds for which transient errors are retried."""
PAUSE_S = 3.0


async def ready(provider: Provider, config: RunConfig, tell: Callable[[str], None]) -> Readiness:
    """Check the backend before a run, retrying for a while if it is busy or out of reach.

    Raises:
        PolicyError: a permanent error.
        BackendUnavailableError: it is still busy or out of reach.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = await provider.check(config)
        wrong = [finding for finding in found.findings if finding.level == "wrong"]
        if (
            not wrong
            or not all(finding.passing for finding in wrong)
            or time.monotonic() > deadline
        ):
            refuse_or_tell(found.findings, tell)
            return found
        tell(f"{wrong[0].text}; trying again")
        await asyncio.sleep(PAUSE_S)


def refuse_or_tell(findings: Iterable[Finding], tell: Callable[[str], None]) -> None:
    """Log the findings, and raise one error for all that are wrong.

    Raises:
        BackendUnavailableError: all errors are transient.
        PolicyError: some error is permanent.
    """
    wrong = []
    for finding in findings:
        if finding.level == "wrong":
            wrong.append(finding)
        else:
            warning = "" if finding.level == "ok" else "warning: "
            tell(
                f"{warning}{finding.about}: {finding.text}"
                + (f"; {finding.remedy}" if finding.remedy else "")
            )
    if not wrong:
        return
    kind = BackendUnavailableError if all(finding.passing for finding in wrong) else PolicyError
    if len(wrong) == 1:
        raise kind(f"{wrong[0].about}: {wrong[0].text}", wrong[0].remedy)
    lines = (f"  {f.about}: {f.text}" + (f"\n    -> {f.remedy}" if f.remedy else "") for f in wrong)
    raise kind("\n".join(["the run cannot start", *lines]))


def saved_weights(config: RunConfig, readiness: Readiness) -> Iterator[Finding]:
    """Findings on the saved weights that the configuration names. A run that has started has its own copy
    of its starting weights."""
    for key, found in readiness.saved.items():
        starts = key == "tinker.start_from"
        try:
            if isinstance(found, PolicyError):
                raise found
            if starts:
                check_start(config, found)
        except PolicyError as error:
            text = error.message.removeprefix(f"{key}: ")
            if starts and _has_begun(config):
                yield Finding(
                    key, "warning", f"{text}; this run has started and has its own copy", error.hint
                )
            else:
                yield Finding(key, "wrong", text, error.hint)
        else:
            rank = "" if found.rank is None else f", rank {found.rank}"
            yield Finding(key, "ok", f"saved weights of {found.base_model}{rank}")


def _has_begun(config: RunConfig) -> bool:
    if not config.run.history.is_file():
        return False
    try:
        return has_begun(History(config.run.history, read_only=True), config.run.name)
    except HistoryError:  # a history that cannot be read has no run
        return False
