"""Every DuckDB version that the package allows can open a history, whichever of them wrote it."""

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from rtl_core.history.connection import unreadable
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from tests.places import REPOSITORY

STORAGE_OF_1_5 = 68
"""Storage version that DuckDB 1.5 can read."""

WRITE = """\
import sys
from pathlib import Path
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
history = History(Path(sys.argv[1]))
history.start_run(RunRecord(name=sys.argv[2]))
print(sorted(run.name for run in history.runs()))
"""


def storage_version(path: Path) -> int:
    return struct.unpack_from("<Q", path.read_bytes()[:64], 12)[0]


def test_the_oldest_allowed_version_can_read_our_files(tmp_path):
    history = History(tmp_path / "h.duckdb")
    history.start_run(RunRecord(name="r"))
    history.heartbeat("r")
    assert storage_version(history.path) <= STORAGE_OF_1_5
    oldest = re.search(r'"duckdb>=([\d.]+)', (REPOSITORY / "pyproject.toml").read_text())
    assert oldest[1] == "1.5", "another minimum version has another storage version"


def test_a_file_of_a_newer_version_is_refused_with_a_hint(tmp_path):
    said = "IO Error: Trying to read a database file with version number 69, but we can only read versions between 64 and 68."
    refused = unreadable(tmp_path / "h.duckdb", said)
    assert "another version of DuckDB" in refused.message
    assert "pip install --upgrade duckdb" in (refused.hint or "")


@pytest.mark.slow
def test_duckdb_1_5_and_the_locked_version_alternate_on_one_history(tmp_path):
    older = tmp_path / "older"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(older),
        "duckdb==1.5.*",
    ]
    subprocess.run(pip, check=True)

    def start(name, path, file="h.duckdb"):
        environment = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, "-c", WRITE, str(tmp_path / file), name]
        done = subprocess.run(
            command,
            env=environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() or done.stderr

    start("first", "")
    assert start("second", str(older)) == "['first', 'second']"
    assert start("third", "") == "['first', 'second', 'third']"
    assert start("fourth", str(older)) == "['first', 'fourth', 'second', 'third']"

    duckdb.connect(
        str(tmp_path / "newest.duckdb"), config={"storage_compatibility_version": "latest"}
    ).close()
    assert "was written by another version of DuckDB than 1.5" in start(
        "fifth", str(older), "newest.duckdb"
    )
