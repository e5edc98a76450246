"""What a run waits for: its tasks, its outstanding requests, and pauses of the service."""

import asyncio
import logging
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from rich.console import Console

from rtl_core import at_work
from rtl_core.at_work import Pause, outstanding, slow_work
from rtl_core.backend.tinker.pauses import Pauses
from rtl_core.backend.tinker.training import TinkerTrainer
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.reporting.live import live_view
from rtl_core.run import stopping
from rtl_grader.work import AtWork


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests advance, for a service that was never paused."""
    now = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(at_work, "service_pause", Pause())
    monkeypatch.setattr(at_work, "time", SimpleNamespace(monotonic=lambda: now.s))
    monkeypatch.setattr("rtl_grader.work.time", SimpleNamespace(monotonic=lambda: now.s))
    return now


def test_items_of_one_name_are_told_apart(clock):
    items = AtWork()
    with items.item("sample"):
        clock.s += 60
        with items.item("optim_step"), items.item("sample"):
            clock.s += 5
            assert items.in_words() == "sample (65 s), optim_step (5 s), sample (5 s)"
            assert items.in_words(least_s=10) == "sample (65 s)"
        assert items.in_words() == "sample (65 s)"
    assert items.in_words() == ""


def test_a_line_of_a_step_that_takes_long_names_the_outstanding_requests(clock):
    def hang():
        return asyncio.get_running_loop().create_future()

    client = SimpleNamespace(
        forward_backward=lambda *given: hang(), optim_step=lambda *given: hang(), save_state=lambda *given, **more: hang(),
        save_weights_for_sampler=lambda *given, **more: hang(),
    )  # fmt: skip

    async def words_of(call):
        with at_work.steps_at_work.item("train step 1"):
            waiting = asyncio.create_task(call)
            await asyncio.sleep(0.01)
            clock.s += 90
            words = slow_work(30.0)
            waiting.cancel()
            await asyncio.wait([waiting])
        return words

    adam = SimpleNamespace(
        learning_rate=1e-4, beta1=0.9, beta2=0.95, eps=1e-8, grad_clip_norm=0.0
    )
    trainer = TinkerTrainer(client, nullcontext, {}, set())
    step = asyncio.run(words_of(trainer.step([], "importance_sampling", {}, adam)))
    assert (
        step
        == "still in progress: train step 1 (90 s); outstanding requests: forward_backward (90 s)"
    )
    assert "outstanding requests: save_state (90 s)" in asyncio.run(
        words_of(trainer.save("r-000001", None))
    )
    assert slow_work(30.0) == ""


def test_a_request_that_fails_is_no_longer_outstanding():
    async def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(outstanding("sample", fail()))
    assert at_work.calls_at_work.in_words() == ""


def test_a_pause_lasts_while_it_is_reported_and_its_seconds_add_up(clock):
    pause = Pause()
    assert pause.in_words() == ""
    for _ in range(5):  # the SDK reports one every minute
        pause.report("short on capacity")
        clock.s += 60
    assert (pause.in_words(), pause.seconds) == ("short on capacity", 240)
    clock.s += 600
    assert pause.in_words() == ""
    pause.report("rate limit")
    assert (pause.in_words(), pause.seconds) == ("rate limit", 240)


@pytest.fixture
def paused(clock, monkeypatch):
    pause = Pause()
    for module in (stopping, at_work):
        monkeypatch.setattr(module, "service_pause", pause)
    monkeypatch.setattr("rtl_core.backend.tinker.pauses.service_pause", pause)
    return pause


def test_watch_shows_a_pause_and_a_heartbeat_after_it_removes_it(paused, clock, tmp_path):
    history = History(tmp_path / "h.duckdb")
    history.start_run(RunRecord(name="r", student="student", status="running"))
    words = "Training for demo is paused. Reason: Tinker backend is running short on capacity, please wait."
    Pauses(print).emit(logging.makeLogRecord({"msg": words, "pathname": "p", "lineno": 1}))
    history.heartbeat("r", slow_work(30.0))
    console = Console(width=200)
    with console.capture() as capture:
        console.print(live_view(history, history.existing_run("r")))
    assert "running short on capacity" in capture.get()
    clock.s += 600
    history.heartbeat("r", slow_work(30.0))
    assert history.existing_run("r").message is None

    Pauses(print).note_refusal("add credit")
    assert slow_work(30.0) == "the account has no credit (402): add credit"


@pytest.mark.parametrize(
    ("status", "message"), [("cancelled", "stopped by a signal"), ("running", "interrupted: x")]
)
def test_a_late_heartbeat_keeps_the_reason_why_a_run_ended(tmp_path, status, message):
    history = History(tmp_path / "h.duckdb")
    history.start_run(RunRecord(name="r"))
    history.set_run_status("r", status, message)
    history.heartbeat("r", "still in progress: train step 1 (90 s)")
    assert history.existing_run("r").message == message


def test_a_pause_does_not_count_for_the_budget_of_hours(paused, clock, tmp_path, monkeypatch):
    monkeypatch.setattr(stopping, "time", SimpleNamespace(monotonic=lambda: clock.s))
    cost = SimpleNamespace(budget_hours=1.0, budget_usd=None)
    config = SimpleNamespace(cost=cost, run=SimpleNamespace(folder=tmp_path))
    run = SimpleNamespace(config=config, run="r", progress=SimpleNamespace(opened_at=clock.s))
    for _ in range(120):
        paused.report("short on capacity")
        clock.s += 60
    assert stopping.stop_reason(run) is None
    clock.s += 3600
    assert "the budget of 1 hours is used up" in stopping.stop_reason(run)
