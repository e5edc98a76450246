"""Metrics reach the files of Weights & Biases, each step once, even after a crash between recording and sending."""

import json
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rtl_core.config import load_config
from rtl_core.history.store import History
from rtl_core.observe import tracking
from rtl_core.observe.tracking import Tracker
from tests import synthetic


def records(data: bytes) -> Iterator[bytes]:
    """Records of a .wandb file: LevelDB's log format, blocks of 32 KiB after a header of 7 bytes."""
    place, parts = 7, b""
    while place + 7 <= len(data):
        room = 32768 - place % 32768
        if room < 7:
            place += room
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield parts
            parts = b""


def logged(folder: Path) -> list[dict[str, float]]:
    """All rows in the files that wandb wrote, in the order of the files."""
    from wandb.proto import wandb_internal_pb2

    rows = []
    for file in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        for data in records(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                rows.append(
                    {
                        i.key or "/".join(i.nested_key): json.loads(i.value_json)
                        for i in record.history.item
                    }
                )
    return rows


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    shape = synthetic.Shape(steps=5)
    return synthetic.write_run(tmp_path_factory.mktemp("history") / "h.duckdb", "demo", shape)


@pytest.mark.slow
def test_every_recorded_step_is_sent_once_and_in_order(history, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(
        tracking, "PATIENCE_S", 600.0
    )  # a busy machine may need minutes to start wandb's own process
    config = load_config("demo", [f"run.directory={tmp_path}", "tracking.wandb_project=rtl"])
    folder = tmp_path / "demo"
    folder.mkdir()
    # Steps 0 and 1 were sent before a crash.
    (folder / "wandb.sent").write_text("1\n")
    told: list[str] = []
    with Tracker(history, config, told.append) as tracker:
        tracker.recorded()
    assert told == []
    rows = logged(folder)
    assert [row["_step"] for row in rows] == [3, 4, 5]
    for row, metrics in zip(rows, history.step_metrics("demo", 2).values(), strict=True):
        assert {name: row[name] for name in metrics} == pytest.approx(metrics)
    with Tracker(history, config, told.append):
        pass
    assert len(logged(folder)) == 3


@pytest.mark.slow
def test_unsent_metrics_are_logged_and_sent_by_the_next_run(history, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(tracking, "PATIENCE_S", 0.01)
    config = load_config("demo", [f"run.directory={tmp_path}", "tracking.wandb_project=rtl"])
    (tmp_path / "demo").mkdir()
    starting, told = threading.Event(), []
    with monkeypatch.context() as slow, Tracker(history, config, told.append):
        slow.setattr(History, "step_metrics", lambda *_: starting.wait(600) and {})
    assert told == [
        "not all metrics reached Weights & Biases within 0 s; run the same command to send the rest"
    ]
    starting.set()
    for thread in threading.enumerate():
        if thread.name == "tracking":
            thread.join(600)
    monkeypatch.setattr(tracking, "PATIENCE_S", 600.0)
    with Tracker(history, config, told.append):
        pass
    assert [row["_step"] for row in logged(tmp_path / "demo")] == [1, 2, 3, 4, 5]


def test_without_a_project_nothing_is_sent(history, tmp_path):
    config = load_config("demo", [f"run.directory={tmp_path}"])
    with Tracker(history, config, print) as tracker:
        tracker.recorded()
    assert list(tmp_path.iterdir()) == []
