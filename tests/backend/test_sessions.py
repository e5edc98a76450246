"""A session of the SDK ends with whoever opened it: no heartbeat outlives it, whatever has become of the service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rtl_core.backend.base import Weights
from rtl_core.backend.tinker import connect
from rtl_core.backend.tinker.connect import Endpoint, tinker_session
from rtl_core.config import load_config
from rtl_core.localtinker.process import LocalTinker
from rtl_core.run.session import open_session
from rtl_core.tinymodels import model_path
from tests.conftest import sdk_loops, wait_until_no_sdk_loop_runs


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LocalTinker]:
    with LocalTinker({"student": model_path("student")}, tmp_path / "tinker") as running:
        yield running


async def open_and_leave(
    service: LocalTinker, before_the_end: BaseException | None = None, *, kill: bool = False
) -> None:
    async with tinker_session(Endpoint(service.base_url, service.api_key)) as client:
        await client.create_sampling_client(base_model="student")
        assert "_session_heartbeat" in sdk_loops()
        if kill:
            service.kill()
        if before_the_end is not None:
            raise before_the_end


def test_the_end_of_a_session_finishes_it_and_ends_its_heartbeats_whatever_has_become_of_the_service(
    service: LocalTinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(open_and_leave(service))
    assert sdk_loops() == []  # at once: the service has answered
    with pytest.raises(ValueError, match="in the middle"):
        asyncio.run(open_and_leave(service, ValueError("in the middle")))
    assert sdk_loops() == []
    monkeypatch.setattr(connect, "CLOSING_S", 0.2)
    asyncio.run(open_and_leave(service, kill=True))
    wait_until_no_sdk_loop_runs()


def test_a_run_leaves_no_session_behind(tmp_path: Path) -> None:
    small = ["problems.sources.0.train=1", "problems.sources.0.heldout=1"]
    config = load_config(
        "demo", [f"run.directory={tmp_path}", f"run.history={tmp_path / 'h.duckdb'}", *small], environment={}
    )

    async def run() -> None:
        async with open_session(config) as session:
            await session.require_backend().sample(
                Weights(), [2, 3], 1, max_tokens=1, temperature=1.0, stop=session.require_chat().stop
            )
            assert "_session_heartbeat" in sdk_loops()

    asyncio.run(run())
    assert sdk_loops() == []
