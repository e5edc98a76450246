"""What an account at a Tinker service stores, and what it was billed for.

Bills and the price of storage have routes that only Tinker's cloud serves, to admins and billing admins.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import tinker
from tinker import types

from localtinker.client import weights
from rtl_core.backend.tinker.connect import credential
from rtl_core.backend.tinker.faults import sdk_errors
from rtl_core.backend.tinker.marks import PRODUCT, Marks
from rtl_core.backend.tinker.readiness import stored_weights
from rtl_core.backend.tinker.services import TinkerService, services_of
from rtl_core.config import RunConfig
from rtl_core.cost.tokens import Tokens, together
from rtl_core.errors import PolicyError

HOUR = timedelta(hours=1)
WINDOW = timedelta(days=14)
"""Longest period of one request for a bill."""
KINDS = {"training": "train", "sampling_sample": "sample", "sampling_prefill": "prefill"}
"""Kind of a billed event -> kind of tokens; other events have no session."""


@dataclass
class Bill:
    """What the sessions of a run were billed for."""

    sessions: set[str] = field(default_factory=set)
    tokens: dict[str, Tokens] = field(default_factory=dict)
    """Mapping of base model to its tokens."""
    usd: float = 0.0
    """Before credits, without tokens that have no price yet."""


async def bill_of(config: RunConfig, marks: Marks, since: datetime, until: datetime) -> Bill:
    """Return the bill of the sessions that have all `marks`, for all hours that overlap with `since` to `until`.

    Raises PolicyError if the key's owner may not see bills, or the service has none.
    """
    bill = Bill()
    start = since.replace(minute=0, second=0, microsecond=0)
    last = start + math.ceil((until - start) / HOUR) * HOUR
    with _admin(config) as client:
        while start < last:
            end = min(start + WINDOW, last)
            _add(bill, await client.get_billing_usage(start, end), marks)
            start = end
    return bill


def _add(bill: Bill, answer: types.BillingUsageResponse, marks: Marks) -> None:
    for name, session in answer.sessions.items():
        if marks.items() <= (session.user_metadata or {}).items():
            bill.sessions.add(name)
    for event in answer.data:
        info = event.event_info.model_dump()
        kind = "cached" if info.get("cached") else KINDS.get(info["type"])
        if kind and event.session_id in bill.sessions:
            used = Tokens(**{kind: info["token_count"]})
            bill.tokens = together([bill.tokens, {event.base_model or "unknown": used}])
            bill.usd += event.estimated_cost_usd or 0.0


async def weights_of_account(config: RunConfig) -> list[tuple[str, Marks, datetime, int]]:
    """Return all saved weights of the key's owner on the student's service: path, marks (none if no run of this product
    saved them), time, bytes."""
    service = _service(config)
    with sdk_errors():
        stored = await stored_weights(service)
    found = []
    for path, one in stored.items():
        marks = one.user_metadata or {}
        own = marks if PRODUCT in marks else {}
        found.append((path, own, one.time, one.size_bytes or 0))
    return found


async def storage_price(config: RunConfig) -> float | None:
    """Return the service's price of storage in USD per GB and month. None: it tells the key's owner none."""
    try:
        with _admin(config) as client:
            usage: types.CurrentCheckpointStorageUsageResponse
            usage = await client.get_current_checkpoint_storage_usage()
    except PolicyError:
        return None
    return usage.effective_rate_usd_per_gigabyte_month


async def delete_weights(config: RunConfig, paths: Collection[str]) -> int:
    """Delete saved weights on the student's service. Returns how many it still had."""
    service = _service(config)
    with sdk_errors():
        rest = tinker.RestClient(base_url=service.url, api_key=service.key)
        return await weights.delete(rest, paths)


def _service(config: RunConfig) -> TinkerService:
    """Return the student's service. Raises PolicyError if it has no accounts."""
    if config.backend.name != "tinker" or config.tinker.is_local:
        raise PolicyError(
            f"run {config.run.name!r} has no account: its tokens are free, and its weights are on this machine",
            "name a run with another tinker.base_url, or list its weights: `rtl-distill admin checkpoints RUN`",
        )
    return services_of(config)[0]


@contextmanager
def _admin(config: RunConfig) -> Iterator[tinker.AdminClient]:
    """Yield a client for bills. Raises PolicyError if the service has none, or not for the key's owner."""
    service = _service(config)
    credential(service)
    with sdk_errors("a request for a bill"):
        try:
            yield tinker.AdminClient(base_url=service.url, api_key=service.key)
        except tinker.PermissionDeniedError as error:
            raise PolicyError(
                "the service shows bills to admins and billing admins of the organisation alone (403)",
                "set TINKER_API_KEY to the key of one, or ask one to run this command",
            ) from error
        except tinker.NotFoundError as error:
            raise PolicyError(
                f"the service of {service.setting} has no bills (404)",
                "only Tinker's cloud bills: name a run that used it, or ask the owner of this service",
            ) from error
