"""The faults: what is killed, stopped or cut, and how it comes back.

Killed is always kill -9. Server and worker are started again by their keepers, as systemd or compose would; the embedded Tinker
service by its run; a run by the scheduled flow `resume`. `network` stops the server or the Tinker service from answering for a
while (SIGSTOP), with every connection left open: to their clients it is a network that swallows packets. `machine` kills every process of the
deployment at the same moment and starts the deployment again, as a reboot would.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from benchmarks.soak.engine import Engine
from benchmarks.soak.postgres import Postgres
from rtl_distill.operations.local import MARK, LocalDeployment

KINDS = ("run", "worker", "server", "tinker", "graders", "network", "machine")
SHORT_S, LONG_S = (3.0, 15.0), 120.0
"""How long the network is away; the first time for minutes."""


class Faults:
    """Draws and injects the faults of one run, each when so many steps are trained."""

    def __init__(
        self,
        place: LocalDeployment,
        rng: random.Random,
        *,
        steps: int,
        number: int,
        up_again: Callable[[], None],
        tell: Callable[[str], None],
        database: Postgres | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._place, self._random, self._up_again, self._tell = place, rng, up_again, tell
        self._database, self._engine = database, engine
        kinds = [*KINDS, *(["database"] if database else []), *(["engine"] if engine else [])]
        drawn = [kinds[i % len(kinds)] for i in range(number)]
        rng.shuffle(drawn)
        at = sorted(rng.sample(range(1, steps), min(number, steps - 1)))
        self.waiting = list(zip(at, drawn, strict=False))
        self.injected: Counter[str] = Counter()
        self._cuts = 0

    def due(self, trained: int) -> bool:
        return bool(self.waiting) and trained >= self.waiting[0][0]

    def inject(self, run: str, trained: int) -> None:
        """The next fault, if what it strikes is there just now."""
        kind = self.waiting[0][1]
        time.sleep(self._random.uniform(0, 1.5))
        what = self._strike(kind, run)
        if what is None:
            return
        self.waiting.pop(0)
        self.injected[kind] += 1
        self._tell(f"{run} at step {trained}: {kind}: {what}")

    def _strike(self, kind: str, run: str) -> str | None:
        if kind == "machine":
            return self._power_cut()
        if kind == "network":
            return self._cut(run)
        if kind == "database":
            assert self._database is not None
            self._database.crash()
            return "Postgres crashed and was started again"
        if kind == "engine":
            assert self._engine is not None
            self._engine.crash()
            return "the Docker engine was killed and started again"
        victims = list(self._victims(kind, run))
        if not victims:
            return None
        victim = self._random.choice(victims)
        with contextlib.suppress(psutil.NoSuchProcess):
            words = " ".join(victim.cmdline()[:4])[-50:]
            victim.send_signal(signal.SIGKILL)
            return f"killed {victim.pid} ({words})"
        return None

    def _cut(self, run: str) -> str | None:
        kind = self._random.choice(("server", "tinker"))
        victims = list(self._victims(kind, run))
        if not victims:
            return None
        seconds = LONG_S if self._cuts == 0 else self._random.uniform(*SHORT_S)
        self._cuts += 1
        with contextlib.suppress(psutil.NoSuchProcess):
            victims[0].suspend()
            time.sleep(seconds)
            victims[0].resume()
        return f"the {kind} did not answer for {seconds:.0f} s"

    def _power_cut(self) -> str:
        mark = f"{MARK}={self._place.settings()[MARK]}".encode()
        number = 0
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
                if process.pid != os.getpid() and mark in environment:
                    process.send_signal(signal.SIGKILL)
                    number += 1
        time.sleep(1.0)
        self._up_again()
        return f"killed all {number} processes of the deployment and started it again"

    def _victims(self, kind: str, run: str) -> Iterator[psutil.Process]:
        if kind in ("server", "worker"):
            keeper = self._place.pid_of(kind)
            if keeper is not None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    yield from psutil.Process(keeper).children()
            return
        try:
            process = psutil.Process(json.loads((self._place.home / "runs" / run / "lock").read_text())["pid"])
            if "prefect.engine" not in process.cmdline():
                return
            children = process.children()
        except (psutil.NoSuchProcess, FileNotFoundError, json.JSONDecodeError):
            return
        if kind == "run":
            yield process
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                words = child.cmdline()
                if kind == "tinker" and "rtl_core.localtinker" in words:
                    yield child
                if kind == "graders" and ("rtl_core.grading.analysis" in words or child.name() == "bwrap"):
                    yield child
