"""The recorder: rows put within a short time are written in one transaction, and no run goes on unrecorded."""

import asyncio
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from rtl_core.errors import HistoryError
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.run.recorder import Recorder
from rtl_core.types.rollout import Rollout
from tests.nouns import a_rollout


def rollout(problem: str, sample: int) -> Rollout:
    return a_rollout(
        problem_id=problem,
        sample=sample,
        prompt_P=(1, 2),
        tokens_T=(3, 4),
        logprobs_T=(-0.5, -0.25),
    )


def started(tmp_path: Path, kind: type[History] = History) -> History:
    """A history with the run `r`."""
    history = kind(tmp_path / "h.duckdb")
    history.start_run(RunRecord(name="r"))
    return history


class CountingHistory(History):
    """Counts its transactions with many rows."""

    batches = 0

    def batch(self) -> AbstractContextManager[None]:
        self.batches += 1
        return super().batch()


def test_rows_are_committed_together_when_settled(tmp_path):
    history = started(tmp_path, CountingHistory)
    recorder = Recorder(history, interval_s=60)

    async def groups():
        for problem in "abcde":
            recorder.put("record_rollouts", [rollout(problem, i) for i in range(3)])
        before = len(history.rollouts_of("r", 0))
        await recorder.settle()
        return before, len(history.rollouts_of("r", 0))

    assert asyncio.run(groups()) == (0, 15)
    assert history.batches == 1


def test_rows_are_written_after_the_interval_without_settle(tmp_path):
    history = started(tmp_path)
    recorder = Recorder(history, interval_s=0.01)

    async def wait():
        recorder.put("record_rollouts", [rollout("a", 0)])
        for _ in range(30_000):  # minutes: the machine may be busy
            await asyncio.sleep(0.01)
            if history.rollouts_of("r", 0):
                return True
        return False

    assert asyncio.run(wait())


def test_the_writer_rests_so_that_it_takes_only_its_share_of_the_time(tmp_path):
    history = started(tmp_path)
    recorder = Recorder(history, interval_s=0.001, share=1e-6)

    async def two_groups():
        recorder.put("record_rollouts", [rollout("a", 0)])
        await recorder.settle()
        recorder.put("record_rollouts", [rollout("b", 0)])
        await asyncio.sleep(
            0.5
        )  # a write takes milliseconds, so the rest after it takes the better part of an hour
        resting = len(history.rollouts_of("r", 0))
        await recorder.settle()
        return resting, len(history.rollouts_of("r", 0))

    assert asyncio.run(two_groups()) == (1, 2)


def test_rows_are_written_during_other_work_and_committed_at_its_end(tmp_path):
    history = started(tmp_path)
    recorder = Recorder(history, interval_s=60)

    async def train(fails):
        recorder.put("record_rollouts", [rollout("b" if fails else "a", 0)])
        before = asyncio.all_tasks()
        async with recorder.settling():
            while asyncio.all_tasks() - before:  # until it is written
                await asyncio.sleep(0.01)
            if fails:
                raise RuntimeError("the service is gone")

    async def both():
        await train(False)
        spent = recorder.take_spent()
        assert spent.waited_s < spent.busy_s  # written while the other work went on
        assert spent.cpu_s > 0
        assert recorder.take_spent().waited_s == 0
        with pytest.raises(RuntimeError, match="is gone"):
            await train(True)

    asyncio.run(both())
    assert len(history.rollouts_of("r", 0)) == 2


async def settling(recorder: Recorder) -> None:
    async with recorder.settling():
        pass


async def put_again(recorder: Recorder) -> None:
    for _ in range(30_000):  # minutes: the machine may be busy
        await asyncio.sleep(0.01)
        recorder.put("record_rollouts", [rollout("b", 0)])


@pytest.mark.parametrize(
    ("call", "interval_s"), [(Recorder.settle, 60), (settling, 60), (put_again, 0.0)]
)
def test_a_failed_write_is_raised_by_the_next_call(tmp_path, call, interval_s):
    path = tmp_path / "h.duckdb"
    path.write_text("this is not a database")

    async def write():
        recorder = Recorder(History(path), interval_s=interval_s)
        recorder.put("record_rollouts", [rollout("a", 0)])
        await call(recorder)

    with pytest.raises(HistoryError):
        asyncio.run(write())


def test_rows_put_when_a_failure_is_raised_are_written_by_the_next_attempt(tmp_path):
    class BusyOnce(CountingHistory):
        """Its first transaction with many rows finds the file locked."""

        def batch(self):
            found = super().batch()
            if self.batches == 1:
                raise HistoryError("the file is locked")
            return found

    history = started(tmp_path, BusyOnce)
    recorder = Recorder(history, interval_s=0.0)
    put = []

    async def put_until_raised():
        for sample in range(30_000):
            put.append(sample)
            recorder.put("record_rollouts", [rollout("a", sample)])
            await asyncio.sleep(0.01)

    async def work():
        with pytest.raises(HistoryError, match="locked"):
            await put_until_raised()
        await recorder.settle()
        assert sorted(stored.rollout.sample for stored in history.rollouts_of("r", 0)) == put

    asyncio.run(work())


def test_rows_of_a_cancelled_write_that_fails_are_written_by_the_next_attempt(tmp_path):
    begun, held = threading.Event(), threading.Event()

    class BusyOnce(CountingHistory):
        """Its first transaction waits for the file, in vain."""

        def batch(self):
            found = super().batch()
            if self.batches == 1:
                begun.set()
                held.wait()
                raise HistoryError("the file is locked")
            return found

    history = started(tmp_path, BusyOnce)
    recorder = Recorder(history, interval_s=60)

    async def work():
        recorder.put("record_rollouts", [rollout("a", 0)])
        writing = asyncio.create_task(recorder.settle())
        await asyncio.to_thread(begun.wait)
        writing.cancel()
        await asyncio.sleep(0)
        held.set()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await recorder.settle()

    asyncio.run(work())
    assert len(history.rollouts_of("r", 0)) == 1


def test_an_unknown_method_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="record_dreams"):
        Recorder(History(tmp_path / "h.duckdb")).put("record_dreams", [1])
