"""Many items, worked off by a command that may be stopped and repeated: `audit`, `grade`, `regrade` and `validate`.

Each leaves out what is known already, so that a repetition does what is missing. Shared are the choice among a run's rollouts, how
many items are at work at one time, what is told meanwhile, when found rows are written, and how it ends.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Generic, Literal, TypeVar

from attrs import define, field
from pydantic import BaseModel, ConfigDict, Field

from rtl_core.errors import HistoryError, InfrastructureError
from rtl_core.grading.executors import Executor
from rtl_core.history.store import History
from rtl_core.observe.progress import AtWork, at_intervals, progress
from rtl_core.rollouts.side_by_side import all_of
from rtl_core.types.problem import Problem

Item = TypeVar("Item")
Row = TypeVar("Row")

TELL_S = 30.0
"""How often a line tells what is at work: a few slow items may take most of the time."""
WRITE_EVERY_S = 5.0
END_S = 1.0
"""How long threads are waited for once the executor is closed."""

# Deterministic when cut short: which rollouts come first does not depend on how often one asks.
_CHOSEN = """
SELECT r.rollout, r.problem_id FROM rollouts r JOIN verdicts v USING (rollout)
WHERE r.run = $run AND ($purpose = 'all' OR r.purpose = $purpose) AND r.step BETWEEN $first_step AND $last_step
  AND (v.outcome = 'passed' OR NOT $passed)
ORDER BY hash(r.rollout), r.rollout LIMIT $most
"""
_TEXTS = "SELECT rollout, text FROM rollouts WHERE run = $run AND problem_id = $problem_id ORDER BY rollout"


class Choice(BaseModel):
    """Which of a run's graded rollouts are looked at."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    purpose: Literal["all", "train", "evaluation"] = "all"
    """Training rollouts, those of evaluations, or all."""
    first_step: int = Field(default=0, ge=0)
    last_step: int = Field(default=2**31 - 1, ge=0)
    most: int = Field(default=2**31 - 1, ge=1)
    """How many rollouts at most."""

    def of(self, history: History, run: str, *, passed: bool = False) -> dict[str, list[str]]:
        """Problem id -> rollouts; with `passed` those alone that passed."""
        chosen: dict[str, list[str]] = defaultdict(list)
        asked = {"run": run, "passed": passed, **self.model_dump()}
        for row in history.query(_CHOSEN, asked).to_pylist():
            chosen[row["problem_id"]].append(row["rollout"])
        return dict(chosen)


ALL = Choice()


def problems_as_recorded(history: History, run: str, wanted: Collection[str] | None = None) -> dict[str, Problem]:
    """The wanted problems (None: all) by id as the run had them, in order of split and curriculum. HistoryError where one is lost."""
    records = {one.problem_id: one.record for one in history.problems_of(run)}
    if lost := sorted(set(wanted or ()) - records.keys()):
        raise HistoryError(f"{history.path} has lost problem {lost[0]!r} of run {run!r}", "restore it from a snapshot")
    return {name: Problem.model_validate(one) for name, one in records.items() if wanted is None or name in wanted}


def texts_of(history: History, run: str, problem_id: str, wanted: Collection[str]) -> dict[str, list[str]]:
    """Text -> rollouts that hold it, of those of one problem's rollouts that are wanted."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in history.query(_TEXTS, {"run": run, "problem_id": problem_id}).to_pylist():
        if row["rollout"] in wanted:
            found[row["text"]].append(row["rollout"])
    return found


def refuse_failed(what: str, items: str, failed: Counter[str]) -> None:
    """Raises InfrastructureError where something failed: `what` it was, and why (`failed`) for how many `items`."""
    if failed:
        ((why, _),) = failed.most_common(1)
        raise InfrastructureError(
            f"{what} failed for {failed.total()} {items}: {why}", "the same command tries them again"
        )


@define(eq=False)
class Tally:
    """How far the work is: `done` of `total` things called `label`."""

    label: str
    total: int
    done: int = 0

    def advance(self, count: int = 1) -> None:
        """So many more are done."""
        self.done += count
        progress.get().advance(self.label, self.done, self.total)


async def work_off(
    items: Iterable[Item],
    work: Callable[[Item], Awaitable[object]],
    tally: Tally,
    *,
    at_once: int,
    name: Callable[[Item], str] = str,
    size: Callable[[Item], int] = lambda _: 1,
) -> None:
    """Await `work(item)` for every item, in order and at most `at_once` at one time; items are taken as places become free.

    Args:
        tally: advanced by `size(item)` when an item is done.
        name: what an item is called in the line that tells from time to time what is at work.

    Raises the first error, after cancelling what is under way.
    """
    left, at_work = iter(items), AtWork()

    async def one_after_another() -> None:
        for item in left:
            with at_work.item(name(item)):
                await work(item)
            tally.advance(size(item))

    def tell() -> None:
        if words := at_work.in_words():
            progress.get().line(f"{tally.done} of {tally.total} {tally.label}; at work: {words}")

    async with at_intervals(TELL_S, tell):
        await all_of(one_after_another() for _ in range(at_once))


@define(eq=False)
class NowAndThen(Generic[Row]):
    """Collects rows and writes them every few seconds; whoever makes it calls `flush` at the end, also when cut short."""

    write: Callable[[list[Row]], Awaitable[object]]
    _rows: list[Row] = field(factory=list)
    _written_at: float = field(factory=time.monotonic)

    async def add(self, *rows: Row) -> None:
        self._rows += rows
        if time.monotonic() - self._written_at > WRITE_EVERY_S:
            await self.flush()

    async def flush(self) -> None:
        """Write what came since the last write."""
        self._written_at = time.monotonic()
        rows, self._rows = self._rows, []
        if rows:
            await self.write(rows)


@contextmanager
def daemon_threads(executor: Executor) -> Iterator[Callable[..., Awaitable[Any]]]:
    """Yields `call(function, *arguments)`, which runs a function on a thread of its own. At the end of the block the executor is closed.

    An answer that hangs holds up neither an interrupt nor the end of the process: simulations end with their executor, and the
    threads are daemons.
    """
    threads: set[threading.Thread] = set()

    async def call(function: Callable[..., Any], *arguments: Any) -> Any:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # a thread cannot be cancelled

        def run() -> None:
            try:
                future.set_result(function(*arguments))
            except BaseException as error:
                future.set_exception(error)

        thread = threading.Thread(target=run, daemon=True)
        threads.add(thread)
        thread.start()
        try:
            return await asyncio.wrap_future(future)
        finally:
            if future.done():
                threads.discard(thread)

    try:
        yield call
    finally:
        executor.close()
        deadline = time.monotonic() + END_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
