"""The Tinker clients of a run: opened when they are first needed, opened anew when they may be broken."""

from __future__ import annotations

import asyncio
from typing import Any

MOST_SAMPLERS = 4
"""Sampling clients that are kept, the last ones opened."""


class Policy:
    """The Tinker side of a session: the service, its REST client, the tokenizer that student and teacher share, their clients.

    `trainer` is the student's training client, or None when the next train step has to load one from the last saved state.
    """

    def __init__(self, service: Any, rest: Any, tokenizer: Any, student: str, teacher: str | None) -> None:
        self.service = service
        self.rest = rest
        self.tokenizer = tokenizer
        self.trainer: Any | None = None
        self._student = student
        self._teacher = teacher
        self._samplers: dict[str | None, Any] = {}
        self._scorer: Any | None = None
        self._lock = asyncio.Lock()

    async def sampler(self, path: str | None) -> Any:
        """Sampling client of frozen weights; None stands for the untrained student. A new path always gives a new client."""
        async with self._lock:
            if path not in self._samplers:
                # Few snapshots at a time are sampled from (a stale one, the newest, an evaluated one).
                for old in list(self._samplers)[: 1 - MOST_SAMPLERS]:
                    del self._samplers[old]
                self._samplers[path] = await self.service.create_sampling_client(
                    **({"base_model": self._student} if path is None else {"model_path": path})
                )
            return self._samplers[path]

    async def teacher(self) -> Any:
        """Sampling client of the teacher. Raises RuntimeError when the run has none."""
        if self._teacher is None:
            raise RuntimeError("this run has no teacher")
        async with self._lock:
            if self._scorer is None:
                self._scorer = await self.service.create_sampling_client(base_model=self._teacher)
            return self._scorer

    def forget_samplers(self) -> None:
        """Open new sampling clients at their next use: one whose requests failed may be broken for good."""
        self._samplers, self._scorer = {}, None
