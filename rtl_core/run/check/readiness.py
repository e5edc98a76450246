"""What the backend says of a run before it begins, of the saved weights that it names too, and how a run refuses to begin."""

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

PATIENCE_S = 10.0
"""How long a run asks again where what is wrong may pass."""
PAUSE_S = 3.0


async def ready(provider: Provider, config: RunConfig, tell: Callable[[str], None]) -> Readiness:
    """What the backend says before a run. Where it is merely busy or out of reach it is asked again for a while.

    Raises:
        PolicyError: something is wrong that no time mends.
        BackendUnavailableError: it is still busy or out of reach.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = await provider.check(config)
        wrong = [finding for finding in found.findings if finding.level == "wrong"]
        if not wrong or not all(finding.passing for finding in wrong) or time.monotonic() > deadline:
            refuse_or_tell(found.findings, tell)
            return found
        tell(f"{wrong[0].text}; asked again")
        await asyncio.sleep(PAUSE_S)


def refuse_or_tell(findings: Iterable[Finding], tell: Callable[[str], None]) -> None:
    """Tell what was found, and raise one error of all that is wrong.

    Raises:
        BackendUnavailableError: all of it may be right a moment later.
        PolicyError: anything else is wrong.
    """
    wrong = []
    for finding in findings:
        if finding.level == "wrong":
            wrong.append(finding)
        else:
            warning = "" if finding.level == "ok" else "warning: "
            tell(f"{warning}{finding.about}: {finding.text}" + (f"; {finding.remedy}" if finding.remedy else ""))
    if not wrong:
        return
    kind = BackendUnavailableError if all(finding.passing for finding in wrong) else PolicyError
    if len(wrong) == 1:
        raise kind(f"{wrong[0].about}: {wrong[0].text}", wrong[0].remedy)
    lines = (f"  {one.about}: {one.text}" + (f"\n    -> {one.remedy}" if one.remedy else "") for one in wrong)
    raise kind("\n".join(["the run cannot begin", *lines]))


def saved_weights(config: RunConfig, readiness: Readiness) -> Iterator[Finding]:
    """Findings on the saved weights that the configuration names. A run that has begun has its own copy of those that it started from."""
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
                yield Finding(key, "warning", f"{text}; this run has begun and has its own copy", error.hint)
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
    except HistoryError:  # one that cannot be read knows of no run
        return False
