"""The history survives kill -9, a second process, and files that are damaged or not histories."""

import contextlib
import linecache
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np
import pytest

from rtl_core.errors import HistoryError, InfrastructureError
from rtl_core.history import connection, schema, undo
from rtl_core.history.connection import HistoryBusyError
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from tests import synthetic
from tests.history.writer_child import holding, writing
from tests.waiting import wait_for


@pytest.mark.slow
def test_kill_minus_nine_loses_no_acknowledged_batch_and_leaves_no_partial_one(tmp_path):
    """Start a writer on the same file several times, kill it at a random moment, and check the file."""
    path, chance, times = tmp_path / "h.duckdb", random.Random(11), 4
    acknowledged: set[int] = set()
    for attempt in range(times):
        with writing(path, attempt * 1_000_000) as process:
            acknowledged.add(int(process.stdout.readline()))
            time.sleep(chance.uniform(0.0, 0.25))
            process.kill()
            acknowledged |= {int(line) for line in process.stdout.read().split()}
        history = History(path, read_only=attempt % 2 == 0)
        found = history.query(
            "SELECT r.step, count(*) AS rollouts, count(v.rollout) AS verdicts, count(t.rollout) AS tokens,"
            " count(s.rollout) AS scores FROM rollouts r LEFT JOIN verdicts v USING (rollout)"
            " LEFT JOIN tokens t USING (rollout) LEFT JOIN teacher_tokens s USING (rollout) GROUP BY r.step"
        ).to_pylist()
        stored = {row["step"] for row in found}
        assert acknowledged <= stored, (
            f"lost after kill {attempt}: {sorted(acknowledged - stored)}"
        )
        torn = [
            r
            for r in found
            if not r["rollouts"] == r["verdicts"] == r["tokens"] == r["scores"] == 20
        ]
        assert torn == []
        stages = history.query("SELECT count(*) AS n FROM verdict_stages").to_pylist()[0]["n"]
        assert stages == len(stored) * 20 * 4
    assert len(acknowledged) >= times


def torn_files(before: bytes, after: bytes) -> list[bytes]:
    """`before` with some blocks of `after`: all blocks up to one, and half of that one. The headers come last."""
    block, files, whole = 262_144, [], bytearray(before.ljust(len(after), b"\0"))
    for at in range(undo.HEADERS, len(after), block):
        if whole[at : at + block] != after[at : at + block]:
            whole[at : at + block // 2] = after[at : at + block // 2]
            files.append(bytes(whole))
            whole[at : at + block] = after[at : at + block]
    return [*files, bytes(whole)]


def test_an_incomplete_commit_is_undone(tmp_path, monkeypatch):
    path, shape = tmp_path / "h.duckdb", synthetic.Shape(steps=2, train=6, heldout=3)
    history = synthetic.write_run(path, name="first", shape=shape, at_once=False)
    before = path.read_bytes()
    monkeypatch.setattr(undo, "drop", lambda history: None)
    history.start_run(RunRecord(name="second"))
    monkeypatch.undo()
    kept = undo.path_of(path).read_bytes()
    rollouts = history.query("SELECT count(*) AS n FROM rollouts")
    torn, unreadable = torn_files(before, path.read_bytes()), 0
    for number, content in enumerate(torn):
        for read_only in (True, False):
            damaged = tmp_path / f"torn-{number}-{read_only}.duckdb"
            damaged.write_bytes(content)
            try:
                History(damaged, read_only=True).runs()
            except HistoryError:
                unreadable += 1
            undo.path_of(damaged).write_bytes(kept)
            assert [r.name for r in History(damaged, read_only=read_only).runs()] == ["first"]
            assert History(damaged).query("SELECT count(*) AS n FROM rollouts") == rollouts
            assert not undo.path_of(damaged).exists()
    assert unreadable > 0, (
        "DuckDB survives this by itself: rtl_core/history/undo.py is no longer needed"
    )


def test_an_incomplete_commit_through_a_link_is_undone_at_the_file(tmp_path, monkeypatch):
    path, link = tmp_path / "disk" / "h.duckdb", tmp_path / "h.duckdb"
    path.parent.mkdir()
    link.symlink_to(path)
    History(link).start_run(RunRecord(name="r"))
    monkeypatch.setattr(undo, "drop", lambda history: None)
    History(link).heartbeat("r")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["disk", "h.duckdb"]
    kept = undo.path_of(path)
    assert kept.exists()
    header = kept.read_bytes()[: undo.HEADERS]
    with path.open("r+b") as file:
        file.write(header)  # as if the commit had not come to its end
    monkeypatch.undo()
    assert History(link, read_only=True).run("r") is not None
    assert not kept.exists()


@pytest.mark.slow
def test_another_process_reads_while_one_writes(tmp_path):
    path = tmp_path / "h.duckdb"
    History(path).start_run(RunRecord(name="r"))
    with writing(path) as process:
        process.stdout.readline()
        reader, counts = History(path, read_only=True), []
        deadline = time.monotonic() + 300
        while len(counts) < 15 or counts[-1] == counts[0]:
            assert time.monotonic() < deadline, counts
            counts.append(
                reader.query("SELECT count(*) AS n FROM rollouts").to_pylist()[0]["n"]
            )
            time.sleep(0.01)
        assert counts == sorted(counts)
        assert counts[-1] > counts[0] > 0
        assert all(n % 20 == 0 for n in counts)


@pytest.mark.slow
def test_threads_of_one_process_share_the_file(tmp_path):
    history = synthetic.write_run(
        tmp_path / "h.duckdb", shape=synthetic.Shape(steps=1, train=6, heldout=3)
    )
    errors: list[BaseException] = []

    def work(number):
        try:
            for i in range(6):
                history.start_run(RunRecord(name=f"r{number}-{i}"))
                assert History(history.path, read_only=True).run(f"r{number}-{i}") is not None
                history.rollouts_of("demo", 0)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(history.runs()) == 1 + 24


def test_the_error_for_a_locked_file_names_the_process_that_holds_it(history, monkeypatch):
    history.start_run(RunRecord(name="r"))
    monkeypatch.setattr(connection, "READ_PATIENCE_S", 0.2)
    reader = History(history.path, read_only=True)
    with (
        holding(history.path) as holder,
        pytest.raises(HistoryBusyError, match=f"PID {holder.pid}"),
    ):
        reader.runs()
    assert reader.run("r") is not None


def test_a_run_waits_for_another_program_that_has_its_history_open_and_logs_which(
    history, monkeypatch, caplog
):
    history.start_run(RunRecord(name="r"))
    monkeypatch.setattr(connection, "READ_PATIENCE_S", 0.0)
    monkeypatch.setattr(connection, "WARN_AFTER_S", 0.0)
    with ThreadPoolExecutor() as pool:
        with holding(history.path) as holder:
            asked = pool.submit(history.runs)
            wait_for(lambda: caplog.messages or asked.done(), "a line")
        assert [record.name for record in asked.result()] == ["r"]
    assert f"PID {holder.pid}" in caplog.text
    assert "close the other program" in caplog.text


@contextlib.contextmanager
def room_for(size: int):
    """No file may be larger than `size` bytes during the block, as on a full disk."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def test_a_run_writes_again_once_a_full_disk_has_room(history):
    history.start_run(RunRecord(name="r"))
    rng, shape = np.random.default_rng(0), synthetic.Shape(tokens=2000)
    problem = synthetic.problem(0, "train")
    rollouts = [
        synthetic.rollout("r", "train", None, 0, 0, problem, s, shape, rng) for s in range(64)
    ]
    with room_for(history.path.stat().st_size):
        for _ in range(2):
            with pytest.raises(InfrastructureError, match="could not be written") as told:
                history.record_rollouts(rollouts)
            assert told.value.hint == "is the disk full?"
        assert history.run("r") is not None
        assert history.rollouts_of("r", 0) == []
    assert history.record_rollouts(rollouts) == 64
    assert len(history.rollouts_of("r", 0)) == 64


def test_a_history_can_be_on_a_file_system_without_links(history, monkeypatch):
    def refuse(*paths):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    history.start_run(RunRecord(name="r"))
    connection.create_file(history.path)  # as by a process that looked for the file too early
    assert history.run("r") is not None
    assert list(history.path.parent.iterdir()) == [history.path]


def test_a_full_disk_leaves_no_half_created_history(tmp_path):
    with room_for(100_000), pytest.raises(HistoryError, match="cannot be created"):
        History(tmp_path / "h.duckdb").runs()
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_not_utf_8_is_refused(tmp_path):
    path = tmp_path / os.fsdecode(b"\xff.duckdb")
    for history in (History(path), History(path, read_only=True)):
        with pytest.raises(HistoryError, match="is not UTF-8"):
            history.runs()
    assert not list(tmp_path.iterdir())


def test_the_error_for_a_path_that_cannot_be_written_says_what_to_check(tmp_path):
    with pytest.raises(
        HistoryError, match=r"/proc/h.duckdb cannot be created: .*No such file"
    ) as told:
        History(Path("/proc/h.duckdb")).runs()
    assert "permissions" in told.value.hint
    error = connection.unreadable(
        tmp_path, f'IO Error: Cannot open file "{tmp_path}": Read-only file system'
    )
    assert "restore" not in error.hint


def write_foreign(path: Path) -> None:
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE mine (x INTEGER)")


def write_newer(path: Path) -> None:
    History(path).start_run(RunRecord(name="r"))
    with connection.connect(path, read_only=False) as con:
        con.execute("INSERT INTO schema_version VALUES (999, '2030-01-01', '9.9', '')")


def write_cut(path: Path) -> None:
    synthetic.write_run(path, shape=synthetic.Shape(steps=1, train=6, heldout=3), at_once=False)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def write_header_only(path: Path) -> None:
    History(path).start_run(RunRecord(name="r"))
    path.write_bytes(path.read_bytes()[:4096])


def write_stray_log(path: Path) -> None:
    code = "import duckdb, os, sys; c = duckdb.connect(sys.argv[1]); c.execute('CREATE TABLE t (x INT)'); os._exit(9)"
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    path.unlink()
    History(path.with_name("other.duckdb")).start_run(RunRecord(name="r"))
    path.with_name("other.duckdb").rename(path)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (write_foreign, "not a history of rtl-distill"),
        (write_newer, "newer rtl-distill"),
        (lambda path: path.write_bytes(b"not a database " * 1000), "cannot be read"),
        (lambda path: path.write_bytes(b""), "cannot be read|not a history"),
        (write_cut, "cannot be read"),
        (write_header_only, "cannot be read"),
        (write_stray_log, "do not belong together"),
    ],
)
def test_a_file_that_is_not_a_readable_history_is_named_and_left_untouched(
    tmp_path, damage, words
):
    path = tmp_path / "h.duckdb"
    damage(path)
    connection.forget_checks()
    before, names = path.read_bytes(), sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(HistoryError, match=words) as writing:
        History(path).start_run(RunRecord(name="x"))
    with pytest.raises(HistoryError, match=words):
        History(path, read_only=True).runs()
    assert str(path) in writing.value.message
    assert "untouched" in str(writing.value)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == names


class Ended(BaseException):
    """What the handler of a signal raises."""


@pytest.fixture
def ending():
    """The handler of SIGTERM raises `Ended`, as Prefect's raises its own exception."""

    def end(_number, _frame):
        raise Ended

    before = signal.signal(signal.SIGTERM, end)
    yield end
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("writes", [False, True])
def test_a_signal_at_any_moment_of_a_connection_is_raised_and_leaves_the_history_usable(
    history, ending, writes
):
    """A cancelled run reads in the main thread, and then stores its status from another one."""
    history.start_run(RunRecord(name="r"))
    left = 0

    def trace(frame, event, arg):
        nonlocal left
        file = frame.f_code.co_filename
        if "/rtl_core/history/" not in file and "contextlib" not in file:
            return None
        # Python handles no signal at `try`, nor between the end of a block and the `__exit__` of its `with`.
        if event == "line" and not linecache.getline(file, frame.f_lineno).strip().startswith(
            ("try:", "with ")
        ):
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGTERM)
        return trace

    errors = []  # they keep the frames of their tracebacks alive
    with ThreadPoolExecutor(1) as other:
        for line in range(1, 1000, 9):
            left = line
            try:
                sys.settrace(trace)
                history.heartbeat("r") if writes else history.runs()
            except Ended as error:
                errors.append(error)
            finally:
                sys.settrace(None)
            assert signal.getsignal(signal.SIGTERM) is ending
            other.submit(history.set_run_status, "r", "cancelled").result(timeout=60)
            if left > 0:
                break
    assert len(errors) == line // 9 > 15


def test_a_signal_ends_a_long_query_and_one_whose_handler_raises_nothing_does_not(
    history, ending
):
    history.start_run(RunRecord(name="r"))
    endless = "SELECT count(*) FROM range(100000000) a, range(100000000) b"
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(Ended):
        history.query(endless)
    told = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    assert (
        history.query(
            "SELECT sum(a.range * b.range) > 0 FROM range(5000) a, range(5000) b"
        ).num_rows
        == 1
    )
    wait_for(lambda: told, "the signal")


def test_a_history_that_this_process_has_open_otherwise_is_not_called_damaged(history):
    history.start_run(RunRecord(name="r"))
    with (
        duckdb.connect(str(history.path)),
        pytest.raises(HistoryBusyError, match="cannot be opened now") as refused,
    ):
        History(history.path, read_only=True).runs()
    assert "snapshot COPY" not in str(refused.value)
    assert "restore" not in str(refused.value)
    assert history.run("r") is not None


@pytest.mark.parametrize(
    "sql", ["SELECT corrupt FROM runs", "SELECT error('checksum')", "FROM corrupt_tokens"]
)
def test_words_of_a_query_do_not_say_that_the_history_is_damaged(history, sql):
    history.start_run(RunRecord(name="r"))
    with pytest.raises(HistoryError) as refused:
        History(history.path, read_only=True).query(sql)
    assert "restore" not in str(refused.value)


def test_the_name_of_a_folder_does_not_say_what_is_wrong_with_a_file(tmp_path):
    path = tmp_path / "WAL-version-interrupted" / "h.duckdb"
    path.parent.mkdir()
    path.write_bytes(b"not a database " * 1000)
    with pytest.raises(HistoryError, match="cannot be read as a DuckDB file") as refused:
        History(path, read_only=True).runs()
    assert "restore it from a snapshot" in str(refused.value)


def test_an_interrupted_creation_leaves_no_file(tmp_path, monkeypatch):
    def fail(con):
        con.execute("BEGIN")
        con.execute("CREATE TABLE half (x INTEGER)")
        raise KeyboardInterrupt

    monkeypatch.setattr(schema, "create", fail)
    with pytest.raises(KeyboardInterrupt):
        History(tmp_path / "h.duckdb").runs()
    assert list(tmp_path.iterdir()) == []
