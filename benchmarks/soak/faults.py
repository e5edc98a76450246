"""The faults of a soak test: which process is killed or stopped.

Kills are SIGKILL. Keepers restart server and worker, as systemd or compose would; the run restarts the
embedded Tinker service; the scheduled flow `resume` restarts the run. `network` suspends the server or the
Tinker service for a while (SIGSTOP) with connections open, like a network that drops packets. `machine`
kills all processes of the deployment at once and starts it again, like a reboot.
"""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable

import psutil

from benchmarks.common import marked
from rtl_core.run.lock import read_holder
from rtl_distill.operations.local import MARK, LocalDeployment

KINDS = ("run", "worker", "server", "tinker", "graders", "network", "machine")
SHORT_S, LONG_S = (3.0, 15.0), 120.0
"""Seconds for which the network fails: LONG_S the first time, then a random time within SHORT_S."""


class Faults:
    """Draws and injects the faults of one run."""

    def __init__(
        self,
        place: LocalDeployment,
        rng: random.Random,
        at: list[int],
        *,
        up_again: Callable[[], None],
        tell: Callable[[str], None],
    ) -> None:
        """`at`: the steps after which faults are due."""
        self._place, self._random, self._up_again, self._tell = place, rng, up_again, tell
        drawn = [KINDS[i % len(KINDS)] for i in range(len(at))]
        rng.shuffle(drawn)
        self.waiting = list(zip(sorted(at), drawn, strict=True))
        self.injected: Counter[str] = Counter()
        self._cut_s = LONG_S

    def due(self, trained: int) -> bool:
        return bool(self.waiting) and trained >= self.waiting[0][0]

    def inject(self, run: str, trained: int) -> None:
        """Inject the next fault, if its target exists at the moment."""
        kind = self.waiting[0][1]
        time.sleep(self._random.uniform(0, 1.5))
        with contextlib.suppress(psutil.NoSuchProcess):
            if (what := self._strike(kind, run)) is not None:
                self.waiting.pop(0)
                self.injected[kind] += 1
                self._tell(f"{run} at step {trained}: {kind}: {what}")

    def _strike(self, kind: str, run: str) -> str | None:
        """Return what was done, or None if there is no target."""
        if kind == "machine":
            return self._power_cut()
        target = self._random.choice(("server", "tinker")) if kind == "network" else kind
        victims = self._victims(target, run)
        if not victims:
            return None
        victim = self._random.choice(victims)
        words = " ".join(victim.cmdline()[:4])[-50:]
        if kind != "network":
            victim.kill()
            return f"killed {victim.pid} ({words})"
        seconds, self._cut_s = self._cut_s, self._random.uniform(*SHORT_S)
        victim.suspend()
        time.sleep(seconds)
        victim.resume()
        return f"the {target} did not answer for {seconds:.0f} s"

    def _power_cut(self) -> str:
        processes = marked(f"{MARK}={self._place.settings()[MARK]}\0")
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(1.0)
        self._up_again()
        return f"killed all {len(processes)} processes of the deployment and started it again"

    def _victims(self, kind: str, run: str) -> list[psutil.Process]:
        """Living processes of a kind: a keeper's child, the run, or children of the run."""
        if kind in ("server", "worker"):
            keeper = self._place.pid_of(kind)
            return [] if keeper is None else psutil.Process(keeper).children()
        holder = read_holder(self._place.home / "runs" / run / "lock")
        if (
            not holder
            or "prefect.engine" not in (process := psutil.Process(holder["pid"])).cmdline()
        ):
            return []
        if kind == "run":
            return [process]
        programs = {
            "tinker": {"localtinker"},
            "graders": {"rtl_grader.grading.analysis", "bwrap"},
        }[kind]
        return [
            child for child in process.children() if programs & {child.name(), *child.cmdline()}
        ]
