"""Problems are validated before they are first used, in the order of use and ahead of it, in place of all before the first step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from attrs import define, field

from rtl_core.observe.progress import progress
from rtl_core.rollouts.survey import Survey

STEPS_AHEAD = 2
"""How many steps' problems are validated beside the one that is being prepared."""


@define(eq=False)
class ValidationAhead:
    """A validation under way, whose problems are asked for as they are needed. What turns out unfit leaves the session at once.

    Attributes:
        validate: validates one problem of the survey; the task that retries it.
        at_once: how many problems are validated at one time; those that are waited for come first.
    """

    survey: Survey
    validate: Callable[[Survey, str], Awaitable[str]]
    at_once: int
    _tasks: dict[str, asyncio.Task[None]] = field(factory=dict)
    _slots: asyncio.Semaphore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.at_once)
        self.survey.mark_unfit()

    def begin(self, problem_ids: Iterable[str]) -> None:
        """Validate these in the background, after all that was begun before; what is known already costs nothing."""
        for problem_id in problem_ids:
            if problem_id not in self.survey.records and problem_id not in self._tasks:
                self._tasks[problem_id] = asyncio.create_task(self._one(problem_id))

    async def finished(self, problem_ids: Iterable[str]) -> None:
        """Wait until these are validated; `session.unfit` names those that may not be used.

        Raises what the validation of one of them raised.
        """
        wanted = list(problem_ids)
        self.begin(wanted)
        await asyncio.gather(*(self._tasks[one] for one in wanted if one in self._tasks))

    async def close(self) -> None:
        """End what nobody waits for any more, and write what was found."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.survey.write()

    async def _one(self, problem_id: str) -> None:
        async with self._slots:
            await self.validate(self.survey, problem_id)
        session = self.survey.session
        self.survey.mark_unfit()
        if problem_id in session.unfit:
            progress.get().line(f"left out: {problem_id} is {session.unfit[problem_id]}")
            excluded = [(session.problems[problem_id], "excluded", None)]
            await session.recorder.call(session.history.record_problems, session.run, excluded)
