"""A running run has a report, and no step waits for it."""

from contextlib import closing

import pytest

from rtl_core.history import connection
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.observe import live_report
from rtl_core.observe.live_report import LiveReport
from tests.waiting import wait_for


@pytest.mark.slow
def test_a_running_run_has_a_report_written_by_a_child_process(tmp_path, monkeypatch):
    gate = tmp_path / "gate"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\n"
    monkeypatch.setattr(live_report, "PROGRAM", wait + live_report.PROGRAM)
    history, path, said = History(tmp_path / "h.duckdb"), tmp_path / "runs" / "report.html", []
    history.start_run(RunRecord(name="r", status="running", student="tiny"))
    with closing(LiveReport(history.path, "r", path, said.append, every_s=0.0)) as report:
        report.after_step()  # only starts it
        assert report.running()
        history.heartbeat("r")  # a step continues
        gate.touch()
        wait_for(lambda: not report.running(), "the report")
        assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
        written = path.stat().st_mtime_ns
        report.after_step()  # pauses for many times as long as that took
        assert not report.running()
        assert path.stat().st_mtime_ns == written
    assert said == []
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_a_run_that_waits_for_its_own_report_does_not_blame_another_program(
    tmp_path, monkeypatch, caplog
):
    history = History(tmp_path / "h.duckdb")
    history.start_run(RunRecord(name="r"))
    gate = tmp_path / "gate"
    hold = f"""import pathlib, sys, time, duckdb
held = duckdb.connect(sys.argv[1], read_only=True)
pathlib.Path({str(gate)!r}).touch()
time.sleep(1)
"""
    monkeypatch.setattr(live_report, "PROGRAM", hold)
    monkeypatch.setattr(connection, "WARN_AFTER_S", 0.0)
    with closing(
        LiveReport(history.path, "r", tmp_path / "report.html", print, every_s=0.0)
    ) as report:
        report.after_step()
        wait_for(gate.exists, "the child")
        history.heartbeat("r")
        wait_for(lambda: not report.running(), "the end of the child")
    assert "this process writes the run's report and ends by itself" in caplog.text
    assert "close the other program" not in caplog.text
    assert connection.own_readers == set()


def test_no_report_is_written_before_it_is_due(tmp_path):
    with closing(
        LiveReport(tmp_path / "h.duckdb", "r", tmp_path / "report.html", print, every_s=60)
    ) as report:
        report.after_step()
        assert not report.running()


@pytest.mark.slow
def test_a_failed_report_is_logged_and_a_running_one_ends_with_the_run(tmp_path):
    said: list[str] = []
    missing = LiveReport(
        tmp_path / "none.duckdb", "r", tmp_path / "report.html", said.append, every_s=0.0
    )
    with closing(missing) as report:
        report.after_step()
        wait_for(lambda: not report.running(), "the report")
    (told,) = said
    assert "the live report could not be written" in told
    History(tmp_path / "h.duckdb").start_run(RunRecord(name="r"))
    report = LiveReport(
        tmp_path / "h.duckdb", "r", tmp_path / "report.html", said.append, every_s=0.0
    )
    report.after_step()
    report.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["h.duckdb"]


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_writes_leaves_nothing(tmp_path, monkeypatch):
    program = (
        "import os, sys, pathlib\nfrom rtl_grader.files import replacing\n"
        "with replacing(pathlib.Path(sys.argv[3])) as part:\n    part.touch()\n    os.kill(os.getpid(), 9)\n"
    )
    monkeypatch.setattr(live_report, "PROGRAM", program)
    said: list[str] = []
    with closing(
        LiveReport(tmp_path / "h.duckdb", "r", tmp_path / "r.html", said.append, every_s=0.0)
    ) as report:
        report.after_step()
        wait_for(lambda: not report.running(), "the report")
    assert said == ["the live report could not be written: exit code -9"]
    assert list(tmp_path.iterdir()) == []


def test_a_report_whose_process_cannot_start_is_logged_and_the_run_continues(
    tmp_path, monkeypatch
):
    said: list[str] = []
    monkeypatch.setattr(live_report.sys, "executable", str(tmp_path / "gone"))
    with closing(
        LiveReport(tmp_path / "h.duckdb", "r", tmp_path / "r.html", said.append, every_s=0.0)
    ) as report:
        report.after_step()
        assert not report.running()
    (told,) = said
    assert (
        f"the live report could not be written: [Errno 2] No such file or directory: '{tmp_path}"
        in told
    )
