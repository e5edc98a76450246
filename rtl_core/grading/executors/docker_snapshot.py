"""Warm containers: the memory of a started simulator and Python, taken once, from which each container's process is made.

A bubblewrap cell forks every grade from a process that has imported Python, pytest and cocotb. A container of its own for every
grade cannot be forked from another one; instead the process is snapshot in a container that serves nothing else
(rtl_core/grading/inside/snapshot), and every further container maps that file, read-only and copied on write, where it would have
imported for a quarter of a second. Nothing of an answer was ever in that memory, and nothing flows back into the file.

What is shared by the containers of one executor is what forks of a cell share: where things lie in memory, and the state of
generators of random numbers (the harness' own are seeded again in each).

Needs x86-64 and an image with gcc. A snapshot is trusted once a container that was made from it has served a job; without one
containers start afresh, which costs time and changes no verdict.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rtl_core.errors import InfrastructureError
from rtl_core.grading.executors import docker_confinement as confinement
from rtl_core.grading.executors.base import ExecutorDiedError, Job, Step
from rtl_core.grading.executors.docker_container import SNAPSHOT, Container, cold_start
from rtl_core.grading.executors.probe import Inside
from rtl_core.grading.executors.wire import GUARD, INSIDE
from rtl_core.grading.limits import Limits

_MAKE_S = 120
_TRIES = 2


class Snapshots:
    """Snapshots by image, made when first asked for. Thread-safe."""

    def __init__(self, api: Any, folder: Path, labels: Mapping[str, str], runtime: str | None) -> None:
        """`folder` belongs to the executor, and the snapshots in it with it."""
        self._api, self._folder, self._labels, self._runtime = api, folder, dict(labels), runtime
        self._lock = threading.Lock()
        self._known: dict[str, Path | None] = {}

    def of(self, image: str, inside: Inside, trial: Callable[[Path], Container]) -> Path | None:
        """The directory of the image's snapshot, or None where there can be none; the reason is logged once.

        `trial` makes a container from a snapshot. Raises InfrastructureError when the engine fails.
        """
        with self._lock:
            if image not in self._known:
                self._known[image] = self._made(image, inside, trial)
            return self._known[image]

    def _made(self, image: str, inside: Inside, trial: Callable[[Path], Container]) -> Path | None:
        """A snapshot that has proved itself, at the second try at the latest: the engine may have ended the first."""
        reason = f"it is made on x86_64 only, this machine is {platform.machine()}"
        for _ in range(_TRIES if platform.machine() == "x86_64" else 0):
            place = self._folder / f"snapshot-{uuid.uuid4().hex[:16]}"
            place.mkdir()
            place.chmod(0o777)
            reason = self._take(image, inside, place) or _complaint(place, trial)
            if not reason:
                return place
            shutil.rmtree(place, ignore_errors=True)
        logging.getLogger("rtl_distill").warning("containers start without a snapshot, which takes longer: %s", reason)
        return None

    def _take(self, image: str, inside: Inside, place: Path) -> str:
        """Runs the process that is snapshot, to its end; what went wrong, if anything did."""
        command, environment = cold_start(inside)
        try:
            container = self._api.create_container(
                image,
                entrypoint=["sh", f"{GUARD}/snapshot/make.sh", *command],
                environment=environment,
                labels=dict(self._labels),
                host_config=self._api.create_host_config(
                    binds=[f"{INSIDE}:{GUARD}:ro", f"{place}:{SNAPSHOT}:rw"],
                    **confinement.host(Limits(), self._runtime),
                ),
                **confinement.container(),
            )["Id"]
        except Exception as error:
            raise InfrastructureError(f"the engine cannot start a container: {error}") from error
        try:
            self._api.start(container)
            code = self._api.wait(container, timeout=_MAKE_S)["StatusCode"]
        except Exception as error:
            raise InfrastructureError(f"the engine failed: {error}") from error
        finally:
            with contextlib.suppress(Exception):
                self._api.remove_container(container, force=True, v=True)
        place.chmod(0o755)
        if os.geteuid() == 0:
            # From here on it belongs to nobody that runs in a container.
            for file in place.iterdir():
                os.chown(file, 0, 0)
        if code == 0 and (place / "memory").is_file():
            return ""
        log = place / "log"
        return f"taking it ended with {code}: {log.read_text(errors='replace').strip()[-300:] if log.is_file() else ''}"


def _complaint(place: Path, trial: Callable[[Path], Container]) -> str:
    """Why a container that is made from a snapshot does not serve a job; empty when it does."""
    container = trial(place)
    try:
        answer = container.run(Job({}, {}, (Step("trial", ("true",)),)))
    except ExecutorDiedError as error:
        return f"a container made from it died: {error.message}"
    finally:
        container.remove()
    return (
        ""
        if "error" not in answer and answer["steps"][0]["exit_code"] == 0
        else f"a container made from it says {answer}"
    )
