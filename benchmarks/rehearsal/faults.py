"""The faults of a rehearsal: what a cloud does to a run, each at a planned request.

A fault is armed once the service has taken `after` optimizer steps, and strikes the next request of its route (and the `times` - 1 after it,
or all for `lasts_s` seconds, or all of what the first request named: a session, a sampler, a trainer). So a run meets the
same faults at the same place, however fast the machine is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

PAID = frozenset({"sample", "score", "forward_backward", "optim_step", "save_weights", "create_sampling_session"})
"""Routes that an account without credit is refused."""

Strike = Literal["status", "drop", "pause", "expire", "fail", "slow", "session", "sampler", "trainer", "weights"]


@dataclass
class Fault:
    """One fault and what came of it."""

    name: str
    strike: Strike
    routes: frozenset[str]
    after: int
    mended_by: str
    """The route whose next success shows that the run went on."""
    how: str
    """Who mends it, in words."""
    status: int = 0
    body: dict[str, str] = field(default_factory=dict)
    times: int = 1
    lasts_s: float = 0.0
    met: list[float] = field(default_factory=list)
    """When a request met it, on the monotonic clock."""
    at_call: str = ""
    mended_at: float | None = None
    lost_samples: int = 0
    """Answers that the service had sampled and this fault took away."""
    victim: str | None = None
    """The session, sampler or trainer that it struck."""
    owed: set[str] = field(default_factory=set)
    """The requests that it refused or whose answers it took: what must be asked again (`identity` in proxy.py)."""

    def strikes(self, route: str, steps: int) -> bool:
        """Whether the next request of a route meets it."""
        if route not in self.routes or steps < self.after:
            return False
        if self.lasts_s:
            return not self.met or time.monotonic() < self.met[0] + self.lasts_s
        return len(self.met) < self.times

    @property
    def cost_s(self) -> float | None:
        """From the first request that met it to the success that shows it mended."""
        return None if self.mended_at is None or not self.met else self.mended_at - self.met[0]


def fault(
    name: str, strike: Strike, route: str, after: int, mended_by: str, how: str, status: int = 0, **more: object
) -> Fault:
    routes = PAID if route == "paid" else frozenset({route})
    return Fault(name, strike, routes, after, mended_by, how, status, **more)  # type: ignore[arg-type]


def planned(spread: int, pause_s: float) -> list[Fault]:
    """Every kind of fault once, `spread` to the step from the second step on; pauses last `pause_s` seconds."""
    busy = {"detail": "capacity"}
    kinds: list[tuple[object, ...]] = [
        ("429, rate limit", "status", "sample", "sample", "the SDK sends again", 429, {"times": 3}),
        (
            "503, service unavailable",
            "status",
            "forward_backward",
            "forward_backward",
            "the SDK sends again",
            503,
            {"times": 2},
        ),
        ("a slow answer", "slow", "answer of sample", "answer of sample", "waited for", 0, {"lasts_s": 0.0}),
        (
            "connection dropped, sample accepted",
            "drop",
            "sample",
            "sample",
            "the SDK sends the same request again",
            0,
            {},
        ),
        (
            "connection dropped, step accepted",
            "drop",
            "optim_step",
            "optim_step",
            "the SDK sends the same request again",
            0,
            {},
        ),
        ("409, conflict", "status", "save_weights", "save_weights", "the SDK sends again", 409, {}),
        (
            "queue pause (408, paused_capacity)",
            "pause",
            "answer of sample",
            "answer of sample",
            "waited for, told in a line",
            408,
            {"lasts_s": pause_s},
        ),
        ("answer expired (410)", "expire", "answer of sample", "sample", "the SDK asks for another sample", 410, {}),
        (
            "sampling failed on the service",
            "fail",
            "answer of sample",
            "sample",
            "the task samples the group again",
            0,
            {},
        ),
        ("sampler expired (404)", "sampler", "sample", "create_sampling_session", "a new sampling client", 404, {}),
        (
            "402, no credit",
            "status",
            "paid",
            "sample",
            "waited for, told in a line",
            402,
            {"lasts_s": pause_s, "body": {"detail": "no credit left"}},
        ),
        ("500 to a score", "status", "score", "score", "the SDK sends again", 500, {"body": busy}),
        (
            "session lost (400 Invalid session_id)",
            "session",
            "sample",
            "create_session",
            "a new service client",
            400,
            {},
        ),
        (
            "sampler weights gone (404)",
            "weights",
            "create_sampling_session",
            "save_weights_for_sampler",
            "saved again from the state",
            404,
            {},
        ),
        (
            "trainer lost before its step (404)",
            "trainer",
            "forward_backward",
            "load_weights",
            "reopened from the last state",
            404,
            {},
        ),
        (
            "trainer lost after its step (410)",
            "trainer",
            "save_weights",
            "load_weights",
            "reopened from the last state",
            410,
            {},
        ),
    ]
    return [
        fault(str(name), strike, str(route), 1 + place // spread, str(mended), str(how), int(status), **more)  # type: ignore[arg-type, call-overload, dict-item]
        for place, (name, strike, route, mended, how, status, more) in enumerate(kinds)
    ]
