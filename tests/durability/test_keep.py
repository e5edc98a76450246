"""A kept command is restarted when it dies, and ends with its keeper."""

import signal
import subprocess
import sys

import psutil

from tests.waiting import lives, wait_for


def test_a_command_ends_with_its_keeper_however_that_dies_so_that_no_second_one_starts_beside_it(
    tmp_path,
):
    pid_file, log = tmp_path / "pid", tmp_path / "log"
    command = ["sh", "-c", "echo started; sleep 600 & wait"]
    keeper = [
        sys.executable,
        "-m",
        "rtl_distill.operations.keep",
        str(pid_file),
        str(log),
        *command,
    ]
    with subprocess.Popen(keeper) as process:
        wait_for(lambda: log.exists() and log.read_text() == "started\n", "the command")
        (kept,) = psutil.Process(process.pid).children()
        (run,) = wait_for(kept.children, "its child")
        process.kill()
        process.wait()
        wait_for(lambda: not lives(kept), "the end of the command")
        assert lives(run), "like the runs of a worker that crashed"
        run.kill()


def test_a_command_is_restarted_when_it_dies_and_ends_with_its_keeper(tmp_path):
    pid_file, log = tmp_path / "pid", tmp_path / "log"
    command = ["sh", "-c", "echo started; sleep 600 & wait"]
    keeper = [
        sys.executable,
        "-m",
        "rtl_distill.operations.keep",
        str(pid_file),
        str(log),
        *command,
    ]
    left: list[psutil.Process] = []
    with subprocess.Popen(keeper) as process:
        try:
            wait_for(lambda: log.exists() and log.read_text() == "started\n", "the command")
            assert int(pid_file.read_text()) == process.pid
            (first,) = psutil.Process(process.pid).children()
            left += wait_for(first.children, "its child")
            first.kill()
            wait_for(lambda: log.read_text() == "started\n" * 2, "the second start")
            assert all(map(lives, left)), "like the runs of a worker that crashed"
            (second,) = psutil.Process(process.pid).children()
            (other,) = wait_for(second.children, "its child")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            wait_for(
                lambda: not lives(second) and not lives(other),
                "the end of the command and its child",
            )
            assert not pid_file.exists()
        finally:
            process.kill()
            for child in left:
                child.kill()
