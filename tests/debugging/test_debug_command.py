"""`rtl-distill show --debug` as a user runs it: the same verdict again, waves in a file, a shell in the sandbox."""

import os
import pty
import select
import sys
import time

import pytest

from rtl_grader.grading.vcd import read_vcd
from tests import command

NAMES = ["starter", "verilog-eval", "cvdp"]
FAILS = {
    "starter": "0 of 2 tests passed",
    "verilog-eval": "0 of 1 tests passed",
    "cvdp": "1 failed",
}
"""Output of each harness in the shell."""
PATIENCE_S = 120


def run(history, *words, typed=""):
    return command.run(
        "show", "--debug", *words, "--db", history.path, input=typed, env={"COLUMNS": "120"}
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_is_the_same_again_and_waves_are_written(name, history, keys, tmp_path):
    before = history.rollout(keys[name])
    file = tmp_path / "w.vcd"
    done = run(history, keys[name], "--waves", str(file))
    assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr
    assert "again    the same verdict" in done.stdout
    assert "verdict  tests failed" in done.stdout
    assert "\ncheck    " in done.stdout
    assert "▼" in done.stdout
    assert read_vcd(file.read_bytes()).end > 0
    assert history.rollout(keys[name]) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_shell_opens_in_the_sandbox_and_runs_the_harness(name, history, keys):
    typed = "pwd; ls /code /code/rtl; touch /code/src/mine; touch /code/rundir/mine; harness; exit 7\n"
    done = run(history, keys[name], "--shell", typed=typed)
    assert done.returncode == 7, done.stderr
    told = done.stdout[done.stdout.index("\nharness ") :]
    assert "/code/rundir\n" in told
    assert {"rtl", "src", "rundir"} <= set(told.split())
    assert FAILS[name] in told
    assert "/code/src/mine': Read-only file system" in done.stderr
    again = run(history, keys[name], "--shell", typed="ls /code/rundir\n")
    assert "mine" not in again.stdout.split()  # nothing persists


def test_a_shell_on_a_terminal_has_ctrl_c_and_job_control(history, keys):
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(
            sys.executable,
            command.command(
                "show", "--debug", keys["starter"], "--shell", "--db", history.path
            ),
        )
    told = b""

    def until(text):
        nonlocal told
        deadline = time.monotonic() + PATIENCE_S
        while text not in told:
            assert time.monotonic() < deadline, told
            if select.select([terminal], [], [], 0.2)[0]:
                told += os.read(terminal, 4096)

    until(b"sandbox:~$ ")
    # Wait until a program is in the foreground; before, Ctrl-C goes to the shell.
    os.write(terminal, b"sh -c 'echo be\"\"gun; exec sleep 1000'\n")
    until(b"begun")
    os.write(terminal, b"\x03")
    os.write(terminal, b"echo code $?; exit 3\n")
    until(b"code 130")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    os.close(terminal)
    assert b"no job control" not in told


def test_errors_are_reported_in_a_sentence(history, keys, tmp_path):
    for words, said in (
        ((keys["starter"], "--waves", tmp_path / "w.fst"), "name a .vcd file"),
        (("no/such/rollout",), "there is no rollout"),
    ):
        assert said in str(
            command.invoke("show", "--debug", *words, "--db", history.path).exception
        )
