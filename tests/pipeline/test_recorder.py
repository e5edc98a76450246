"""The recorder: one transaction for rows that come close together, and no acknowledgement without a commit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rtl_core.errors import HistoryError
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.pipeline.recorder import Recorder
from rtl_core.policy.rollout import Rollout


def rollout(problem: str, sample: int) -> Rollout:
    return Rollout(
        run="r", purpose="train", epoch=0, step=0, problem_id=problem, sample=sample, prompt_P=(1, 2), tokens_T=(3, 4),
        logprobs_T=(-0.5, -0.25), stop_reason="stop", text="x", policy_step=0,
    )  # fmt: skip


def test_writes_that_come_together_are_committed_together_and_only_then_acknowledged(tmp_path: Path) -> None:
    history = History(tmp_path / "h.duckdb")
    history.start_run(RunRecord(name="r"))
    recorder = Recorder(history)
    commits = []
    commit = recorder._commit
    recorder._commit = lambda batch: (commit(batch), commits.append(1))[0]  # type: ignore[method-assign]

    async def group(problem: str) -> int:
        await recorder.write("record_rollouts", [rollout(problem, i) for i in range(3)])
        return len(history.rollouts_of("r", 0))

    async def all_groups() -> list[int]:
        return await asyncio.gather(*(group(f"p{i}") for i in range(5)))

    assert asyncio.run(all_groups()) == [15] * 5
    assert len(commits) == 1


def test_a_failed_commit_reaches_every_writer(tmp_path: Path) -> None:
    path = tmp_path / "h.duckdb"
    path.write_text("this is not a database")
    recorder = Recorder(History(path))

    async def both() -> list[object]:
        writes = (recorder.write("record_rollouts", [rollout(p, 0)]) for p in "ab")
        return await asyncio.gather(*writes, return_exceptions=True)

    results = asyncio.run(both())
    assert [type(result) for result in results] == [HistoryError, HistoryError]


def test_an_unknown_method_is_an_error_not_a_silent_loss(tmp_path: Path) -> None:
    history = History(tmp_path / "h.duckdb")
    history.start_run(RunRecord(name="r"))
    with pytest.raises(ValueError, match="record_dreams"):
        asyncio.run(Recorder(history).write("record_dreams", [1]))
