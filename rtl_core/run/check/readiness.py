"""The backend's checks before a run, also of the saved weights that it names, and the refusal to start a run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from rtl_core.backend.base import Provider, Readiness
from rtl_core.backend.start import check_start
from rtl_core.config import RunConfig
from rtl_core.errors import BackendUnavailableError, HistoryError, PolicyError
from rtl_core.history.store import History
from rtl_core.run.folder import has_begun
from rtl_core.types.finding import Finding, Findings
from rtl_core.types.tell import Tell

PATIENCE_S = 30.0
"""Seconds for which transient errors are retried."""
PAUSE_S = 3.0


async def ready(provider: Provider, config: RunConfig, tell: Tell) -> Readiness:
    """Check the backend before a run, retrying for a while if it is busy or out of reach.

    Raises:
        PolicyError: a permanent error.
        BackendUnavailableError: it is still busy or out of reach.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        readiness = await provider.check(config)
        wrong = [finding for finding in readiness.findings if finding.level == "wrong"]
        may_pass = bool(wrong) and all(finding.passing for finding in wrong)
        if not may_pass or time.monotonic() > deadline:
            refuse_or_log(readiness.findings, tell)
            return readiness
        tell(f"{wrong[0].text}; trying again")
        await asyncio.sleep(PAUSE_S)


def refuse_or_log(findings: Iterable[Finding], tell: Tell) -> None:
    """Log the findings, and raise one error for all that are wrong.

    Raises:
        BackendUnavailableError: all errors are transient.
        PolicyError: some error is permanent.
    """
    wrong = []
    for finding in findings:
        if finding.level == "wrong":
            wrong.append(finding)
            continue
        warning = "" if finding.level == "ok" else "warning: "
        remedy = f"; {finding.remedy}" if finding.remedy else ""
        tell(f"{warning}{finding.about}: {finding.text}{remedy}")
    if not wrong:
        return
    kind = BackendUnavailableError if all(finding.passing for finding in wrong) else PolicyError
    if len(wrong) == 1:
        (finding,) = wrong
        raise kind(f"{finding.about}: {finding.text}", finding.remedy)
    lines = ["the run cannot start"]
    for finding in wrong:
        lines.append(f"  {finding.about}: {finding.text}")
        if finding.remedy:
            lines.append(f"    -> {finding.remedy}")
    raise kind("\n".join(lines))


def saved_weights(config: RunConfig, readiness: Readiness) -> Findings:
    """Findings on the saved weights that the configuration names. A run that has started has its own copy
    of its starting weights."""
    for key, weights in readiness.saved.items():
        starts = key == "tinker.start_from"
        try:
            if isinstance(weights, PolicyError):
                raise weights
            if starts:
                check_start(config, weights)
        except PolicyError as error:
            text = error.message.removeprefix(f"{key}: ")
            if starts and _has_begun(config):
                text += "; this run has started and has its own copy"
                yield Finding(key, "warning", text, error.hint)
            else:
                yield Finding(key, "wrong", text, error.hint)
        else:
            rank = "" if weights.rank is None else f", rank {weights.rank}"
            yield Finding(key, "ok", f"saved weights of {weights.base_model}{rank}")


def _has_begun(config: RunConfig) -> bool:
    if not config.run.history.is_file():
        return False
    try:
        return has_begun(History(config.run.history, read_only=True), config.run.name)
    except HistoryError:  # a history that cannot be read has no run
        return False
