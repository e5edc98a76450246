"""The history for other programs: a copy, Parquet tables, metrics in the format of common tools.

A snapshot is a consistent copy of the file, taken between two transactions of a writer.
Exports read each table, and each step's rollouts, in a separate transaction, so that a running run never waits
long. What the run adds between two of them may be in a later file and not in an earlier one; a snapshot avoids that.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb

from rtl_core.errors import HistoryError, InfrastructureError
from rtl_core.history import connection
from rtl_core.history.columns import columns_of, table_names
from rtl_core.history.store import History
from rtl_grader.files import replacing


def take_snapshot(source: Path, target: Path, *, overwrite: bool = False) -> Path:
    """Copy the history at `source` to `target`, with the views of this release. Returns `target`.

    The source is only read, and locked while the file is copied; a writer waits meanwhile. Raises HistoryError
    when the source cannot be read or the target exists, InfrastructureError when the copy fails.
    """
    source = source.resolve()
    if target.resolve() == source:
        raise HistoryError(f"{target} is the history itself", "name another file")
    if target.exists() and not overwrite:
        raise HistoryError(f"{target} exists", "name another file, or replace it with --force")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
        fresh = Path(scratch) / target.name
        with connection.connect(source, read_only=True):
            _copy(source, fresh)
            # What a killed writer committed but did not move into the file.
            log = Path(f"{source}.wal")
            if log.exists():
                _copy(log, Path(f"{fresh}.wal"))
        compact = fresh.with_name("compact")
        with connection.connect(fresh, read_only=False) as con:
            # Deleted and replaced rows leave room in the file.
            quoted = str(compact).replace("'", "''")
            con.execute(f"ATTACH '{quoted}' AS compact (ROW_GROUP_SIZE {connection.ROW_GROUP})")
            con.execute("COPY FROM DATABASE history TO compact")
            con.execute("DETACH compact")
        os.replace(compact, target)
    return target


def _copy(source: Path, target: Path) -> None:
    """Copy a file in a child process: DuckDB's lock is a POSIX lock, which closing any handle of the file
    in this process releases."""
    program = shutil.which("cp")
    if program is None:
        raise InfrastructureError("there is no `cp` on this machine", "install coreutils")
    done = subprocess.run(
        [program, "--reflink=auto", "--", str(source), str(target)],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise InfrastructureError(
            f"{source} could not be copied: {done.stderr.strip()}",
            "choose a folder with free space",
        )


Line = dict[str, Any]
"""A line of a JSON Lines file."""
# How to select a run's rows in tables that have neither the column `run` nor `rollout`.
_RUN_CONDITIONS = {
    "problems": "fingerprint IN (SELECT fingerprint FROM run_problems WHERE run = $run)",
    "prompts": "prompt IN (SELECT prompt FROM rollouts WHERE run = $run)",
    "verdict_cache": "false",
    "schema_version": "true",
}


def export_parquet(history: History, run: str | None, folder: Path) -> list[Path]:
    """Write every table as `<table>.parquet`, for one run or for all (None). Returns the files."""
    written = []
    for name in sorted(table_names()):
        rollouts = "rollout IN (SELECT rollout FROM rollouts WHERE run = $run)"
        by_column = "run = $run" if "run" in columns_of(name) else rollouts
        condition = "true" if run is None else _RUN_CONDITIONS.get(name, by_column)
        path = folder / f"{name}.parquet"
        with replacing(path) as fresh, connection.connect(history.path, read_only=True) as con:
            target = str(fresh).replace("'", "''")
            sql = f"COPY (SELECT * FROM {name} WHERE {condition}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)"
            try:
                con.execute(sql, {"run": run} if "$run" in condition else None).fetchall()
            except duckdb.IOException as error:
                raise InfrastructureError(
                    f"{path} could not be written: {error}", "is the disk full?"
                ) from error
        written.append(path)
    return written


def metrics(history: History, run: str) -> Iterator[Line]:
    """Yield a mapping of metrics per trained step, in order, with the names that the tools of the tinker-cookbook read.

    An evaluation of weights after n steps is at step n, before the training of that step, as `test/env/all/...`;
    `test/kind` is its kind of figure.
    """
    lines: dict[int, Line] = defaultdict(dict, history.step_metrics(run))
    for row in history.rows("SELECT step, stage, seconds FROM step_times WHERE run = ?", [run]):
        lines[row["step"]][f"time/{row['stage']}"] = row["seconds"]
    for state in history.trained_steps(run):
        lines[state.step]["progress/epoch"] = state.epoch
    # Of several evaluations of the same weights, the run's own.
    chosen = {
        e.step: e
        for e in sorted(history.evaluations(run), key=lambda e: not e.conditions)
        if e.policy == "student" and e.status == "done" and e.pass_at_1 is not None
    }
    for step, e in chosen.items():
        lines[step] |= {f"test/env/all/pass@{k}": v for k, v in e.pass_at_k.items()}
        lines[step] |= {"test/env/all/tests_passed": e.pass_at_1, "test/kind": e.kind}
    for step in sorted(lines):
        yield {"step": step, **lines[step]}


def write_lines(path: Path, records: Iterable[Line]) -> int:
    """Write records as JSON Lines, atomically. Returns how many."""
    count = 0
    with replacing(path) as fresh, fresh.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")
            count += 1
    return count
