"""Runs cases one after the other, each in a session of its own and for a limited time, and reads what went wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx
import tinker
from tinker.lib._auth_token_provider import ApiKeyAuthProvider

from rtl_core.backend.certify.bench import Bench, Server
from rtl_core.backend.certify.case import Case, Differs, NotTried, Outcome, Result
from rtl_core.backend.certify.catalogue import chosen
from rtl_core.backend.certify.statuses import Statuses
from rtl_core.backend.tinker import checkpoints
from rtl_core.backend.tinker.asking import credential, refusal
from rtl_core.backend.tinker.connect import Endpoint, tinker_session
from rtl_core.backend.tinker.faults import status_of

TOLERANCE = 0.02
"""Nats: what bfloat16 and different kernels for sampling and training cost in the mean. Float32 throughout reaches 1e-5."""
CASE_S, WHOLE_S, CLEANING_S, CONNECT_S = 300.0, 3600.0, 60.0, 20.0
"""How long a case, all of them, the deletion of what they saved, and a connection may take."""
ABSENT = (404, 405, 501)
"""What a server answers on a route that it does not have."""


@dataclass(frozen=True)
class Examination:
    """What came of all cases."""

    url: str
    student: str | None
    results: list[Result]
    sdk: str = tinker.__version__

    @property
    def fit(self) -> bool:
        """Whether everything that each run needs works."""
        return not any(result.prevents for result in self.results)

    @property
    def lacks(self) -> list[Result]:
        """What differs or is missing, and what there was no time for; without what was not tried because of these."""
        kept = {one.case.name for one in self.results if one.outcome == "OK"}
        return [
            one
            for one in self.results
            if one.outcome in ("differs", "missing") or (one.prevents and kept.issuperset(one.case.needs))
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "sdk": self.sdk,
            "student": self.student,
            "fit": self.fit,
            "results": [
                {
                    "case": one.case.name,
                    "group": one.case.group,
                    "promise": one.case.promise,
                    "needed": one.case.needed,
                    "outcome": one.outcome,
                    "found": one.found,
                    "without": one.case.without,
                    "seconds": round(one.seconds, 2),
                }
                for one in self.results
            ],
        }


class Watcher(Protocol):
    """Hears how an examination goes."""

    def begins(self, case: Case, number: int, count: int) -> None: ...

    def ended(self, result: Result) -> None: ...


async def examine(
    url: str,
    *,
    api_key: str | None = None,
    student: str | None = None,
    folders: Mapping[str, Path] | None = None,
    only: Collection[str] = (),
    rank: int = 8,
    tolerance: float = TOLERANCE,
    case_s: float = CASE_S,
    whole_s: float = WHOLE_S,
    watcher: Watcher | None = None,
) -> Examination:
    """Hold a server to the cases.

    Args:
        api_key: None takes the one that the SDK finds (TINKER_API_KEY).
        student: the model that is trained; None: the first of `folders`, else the first trainable one that is listed.
        folders: model -> its folder, to compare with transformers.
        only: names of cases, or of groups of them; those that they need run as well.

    Raises:
        PolicyError: there is no key.
        ConfigError: there is no such case.
    """
    cases = chosen(only)
    auth, source = (ApiKeyAuthProvider(api_key), "the key") if api_key else credential()
    url = url.rstrip("/")
    server = Server(Endpoint(url, api_key), url, auth, student, dict(folders or {}), rank, tolerance)
    results: dict[str, Result] = {}
    end = time.monotonic() + whole_s
    with Statuses() as statuses:
        try:
            for number, case in enumerate(cases, 1):
                if watcher:
                    watcher.begins(case, number, len(cases))
                begun = time.monotonic()
                lacking = [name for name in case.needs if results[name].outcome != "OK"]
                outcome: Outcome
                if lacking:
                    outcome, found = "not tried", f"it needs {lacking[0]}"
                elif case.needs and not await _listens(url):
                    outcome, found = "not tried", "nothing listens there any more"
                elif begun >= end:
                    outcome, found = "not tried", f"the {whole_s:.0f} seconds for all cases are over"
                else:
                    outcome, found = await _outcome(case, server, statuses, min(case_s, end - begun), source)
                results[case.name] = Result(case, outcome, found, time.monotonic() - begun)
                if watcher:
                    watcher.ended(results[case.name])
        finally:
            await _clean(server)
    return Examination(url, server.student, list(results.values()))


async def _listens(url: str) -> bool:
    """Whether somebody takes connections. The SDK would try for minutes, in every case that is left."""
    address = httpx.URL(url)
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(address.host, port)
    except OSError:  # a timeout is one, too
        return False
    writer.close()
    return True


async def _outcome(case: Case, server: Server, statuses: Statuses, limit_s: float, source: str) -> tuple[Outcome, str]:
    """Run a case until it ends, its time is over, or the server answers 5xx again and again."""
    statuses.reset()
    work = asyncio.create_task(_run(case, server))
    trouble = asyncio.create_task(statuses.trouble())
    try:
        await asyncio.wait({work, trouble}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return "OK", work.result()
        if trouble.done():
            return "differs", trouble.result()
        return "differs", f"no answer within {limit_s:.0f} s"
    except Exception as error:
        if not case.needs and (found := refusal(error, server.url, source)) is not None:
            return "differs", found.text
        return _read(error)
    finally:
        for task in (work, trouble):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def _run(case: Case, server: Server) -> str:
    async with tinker_session(server.endpoint) as service:
        if not case.needs:  # it asks whether there is a server at all
            return await case.body(Bench(server, service, None))
        # The SDK makes a session when it is first needed, and blocks whoever needs it.
        await asyncio.to_thread(lambda: service.holder)
        rest = await asyncio.to_thread(tinker.RestClient, base_url=server.url, api_key=server.endpoint.api_key)
        return await case.body(Bench(server, service, rest))


def _read(error: Exception) -> tuple[Outcome, str]:
    """What an error of a case means."""
    if isinstance(error, NotTried):
        return "not tried", str(error)
    if isinstance(error, Differs):
        return "differs", str(error)
    causes = [one for one in (error, error.__cause__) if isinstance(one, Exception)]
    refused = next((one for one in causes if isinstance(one, tinker.APIStatusError)), None)
    status = next((code for one in causes if (code := status_of(one))), None)
    said = " ".join(str(error).split())[:400]
    outcome: Outcome = "missing" if status in ABSENT else "differs"
    if refused is not None:
        return outcome, f"{refused.request.method} {refused.request.url.path} answers {status}: {said}"
    return outcome, f"{type(error).__name__}: {said}"


async def _clean(server: Server) -> None:
    """Delete what the cases saved. What cannot be deleted expires (`TTL_S`)."""
    if server.saved:
        with suppress(Exception):
            rest = await asyncio.to_thread(tinker.RestClient, base_url=server.url, api_key=server.endpoint.api_key)
            await asyncio.wait_for(checkpoints.delete(rest, server.saved), CLEANING_S)
