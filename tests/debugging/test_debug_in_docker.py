"""Debugging in Docker what Docker graded: the same verdict again, waves, and a shell in a container of the same kind."""

import docker
import pytest

from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.executors.docker import LABEL, is_gone
from rtl_grader.grading.vcd import read_vcd
from tests.debugging.conftest import written
from tests.debugging.test_debug_command import FAILS, NAMES, run

pytestmark = pytest.mark.docker


def test_verdict_waves_and_shell(problems, keys, tmp_path):
    executor = make_executor("docker")
    history = written(tmp_path / "h.duckdb", problems, executor)
    executor.close()
    engine = docker.APIClient(version="auto")
    for name in NAMES:
        file = tmp_path / f"{name}.vcd"
        typed = "pwd; ls /code/rtl; touch /code/src/mine; harness; exit 7\n"
        done = run(history, keys[name], "--waves", str(file), "--shell", typed=typed)
        assert done.returncode == 7, (name, done.stdout, done.stderr)
        assert "again    the same verdict" in done.stdout
        assert "\nsandbox  docker;" in done.stdout
        assert "\n/code/rundir\n" in done.stdout
        assert FAILS[name] in done.stdout[done.stdout.index("\nharness ") :]
        assert "/code/src/mine': Read-only file system" in done.stderr
        assert read_vcd(file.read_bytes()).end > 0
    ours = engine.containers(all=True, filters={"label": LABEL})
    assert not [container for container in ours if is_gone(container["Labels"][LABEL])]
    engine.close()
