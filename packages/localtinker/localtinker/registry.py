"""Persistent state: sessions, training runs, samplers and checkpoints, in a SQLite file and a folder of blobs.

A checkpoint's files are written to a new blob folder and flushed; then a row that refers to it is inserted,
which commits the checkpoint. Overwriting a name points the row to a new blob. `collect_garbage` removes
blobs without a row, which a crash between the two steps, a deletion or an expiry leaves behind. SQLite runs
in WAL mode, so that kill -9 loses no committed row.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sqlite3
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Json

from localtinker.errors import NotFoundError, RequestError, SettingsError

_SCHEMA = """
create table if not exists sessions (
    id text primary key, created real not null, last_seen real not null, finished integer not null default 0,
    display_name text, user_metadata text);
create table if not exists runs (
    id text primary key, session_id text not null, base_model text not null, lora text not null,
    created real not null, last_request real not null, user_metadata text);
create table if not exists samplers (
    id text primary key, session_id text not null, base_model text not null, model_path text, created real not null);
create table if not exists checkpoints (
    path text primary key, run_id text not null, kind text not null, name text not null, blob text not null,
    base_model text not null, lora text not null, has_optimizer integer not null, size_bytes integer not null,
    created real not null, expires real, public integer not null default 0, ephemeral_of text, user_metadata text);
create index if not exists checkpoints_by_run on checkpoints (run_id);
"""
_LIVE = "select * from checkpoints where (expires is null or expires > ?1)"
"""The checkpoints that have not expired; its parameter is the time."""
PATH = "tinker://{run_id}/{kind}/{name}"
KINDS = {"weights": "training", "sampler_weights": "sampler", "external_weights": "external"}
_PATH = re.compile(rf"tinker://([^/]*)/({'|'.join(KINDS)})/([^/]*)", re.DOTALL)
MIN_TTL = 3600
MAX_TTL = 10 * 365 * 86400
LOCK_TIMEOUT_S = 10.0  # how long to wait for another service on the same folder to end
SESSION_LIFE = 86400  # seconds without a heartbeat after which a session is over


class Blob(BaseModel):
    """The folder with the files of an adapter, and its base model and configuration."""

    model_config = ConfigDict(frozen=True)

    blob: str
    """Name of the folder."""
    base_model: str
    lora: str
    """A `LoraSpec` as JSON."""
    has_optimizer: bool
    size_bytes: int


class SavedWeights(Blob):
    """A blob under a tinker:// path."""

    path: str
    run_id: str
    kind: str
    name: str
    created: float
    expires: float | None
    public: bool
    ephemeral_of: str | None
    user_metadata: Json[dict[str, str] | None] | None

    def folder(self, state: Path) -> Path:
        """Return the folder of the files, for a service with this state folder."""
        return state / "blobs" / self.blob


def run_of(path: str) -> str:
    """Return the id of the training run that saved the weights at `path`; engines call it a client or a model."""
    return path.removeprefix("tinker://").partition("/")[0]


def lock_folder(state: Path) -> int:
    """Lock a state folder until the returned descriptor is closed or the process ends.

    A second service would delete blobs of the first that have no row yet.

    Raises:
        SettingsError: another service holds the lock for `LOCK_TIMEOUT_S`. A service whose run was killed ends sooner.
    """
    blobs = state / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    handle = os.open(blobs, os.O_RDONLY | os.O_DIRECTORY)
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                os.close(handle)
                raise SettingsError(
                    f"another service uses {state}", "stop it, or choose another --state"
                ) from error
        time.sleep(0.05)


class Registry:
    """The records of a state folder. Thread-safe; every call is a short transaction."""

    def __init__(self, state: Path, clock: Callable[[], float] = time.time) -> None:
        self._blobs = state / "blobs"
        self._blobs.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._holds: Counter[str] = Counter()
        self._clock = clock
        file = state / "registry.sqlite"
        with _usable(file):
            self._db = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
            self._db.row_factory = sqlite3.Row
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = normal")
            self._db.executescript(_SCHEMA)
            self.collect_garbage()

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _run(self, sql: str, *args: Any) -> list[sqlite3.Row]:
        try:
            with self._lock:
                return self._db.execute(sql, args).fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            # Not an internal error, which the SDK would silently retry for minutes.
            raise RequestError(
                f"the service cannot write to {self._blobs.parent}: the disk is full"
            ) from error

    def _insert(self, table: str, *row: Any, otherwise: str = "abort") -> None:
        """Insert a row. `otherwise`: what SQLite does if there is a row with its key."""
        places = ", ".join("?" * len(row))
        self._run(f"insert or {otherwise} into {table} values ({places})", *row)

    def _get(self, table: str, row_id: str, missing: str) -> sqlite3.Row:
        """Return a row by its id. Raises NotFoundError, whose message begins with `missing`."""
        rows = self._run(f"select * from {table} where id = ?", row_id)
        if not rows:
            raise NotFoundError(f"{missing} {row_id!r} on this service")
        return rows[0]

    # Sessions ---------------------------------------------------------------------------------------------------
    def add_session(
        self, session_id: str, display_name: str | None, user_metadata: dict | None
    ) -> None:
        now = self._clock()
        metadata = json.dumps(user_metadata)
        self._insert("sessions", session_id, now, now, False, display_name, metadata)

    def touch_session(self, session_id: str) -> bool:
        """Record a heartbeat. False if the session is unknown or finished."""
        sql = "update sessions set last_seen = ? where id = ? and finished = 0 returning id"
        return bool(self._run(sql, self._clock(), session_id))

    def finish_session(self, session_id: str) -> None:
        self._run("update sessions set finished = 1 where id = ?", session_id)

    def is_over(self, session_id: str) -> bool:
        """Whether a session is finished, unknown, or without a heartbeat for a day."""
        sql = "select 1 from sessions where id = ? and finished = 0 and last_seen >= ?"
        return not self._run(sql, session_id, self._clock() - SESSION_LIFE)

    def session(self, session_id: str) -> sqlite3.Row:
        return self._get("sessions", session_id, "session_id: no session")

    def sessions(self) -> list[str]:
        return [row["id"] for row in self._run("select id from sessions order by created desc")]

    # Training runs ----------------------------------------------------------------------------------------------
    def add_run(
        self,
        run_id: str,
        session_id: str,
        base_model: str,
        lora: str,
        user_metadata: dict | None,
    ) -> None:
        now = self._clock()
        row = run_id, session_id, base_model, lora, now, now, json.dumps(user_metadata)
        self._insert("runs", *row, otherwise="replace")

    def touch_run(self, run_id: str) -> None:
        self._run("update runs set last_request = ? where id = ?", self._clock(), run_id)

    def run(self, run_id: str) -> sqlite3.Row:
        return self._get("runs", run_id, "training_run_id: no training run")

    def runs(self, session_id: str | None = None) -> list[sqlite3.Row]:
        """Return the training runs of a session, or all, the most recently used first."""
        where = "where ?1 is null or session_id = ?1"
        return self._run(
            f"select * from runs {where} order by last_request desc, id", session_id
        )

    # Samplers ---------------------------------------------------------------------------------------------------
    def add_sampler(
        self, sampler_id: str, session_id: str, base_model: str, model_path: str | None
    ) -> None:
        row = sampler_id, session_id, base_model, model_path, self._clock()
        self._insert("samplers", *row, otherwise="ignore")

    def sampler(self, sampler_id: str) -> sqlite3.Row:
        return self._get("samplers", sampler_id, "sampling_session_id: no sampler")

    def samplers(self, session_id: str) -> list[str]:
        sql = "select id from samplers where session_id = ? order by created"
        return [row["id"] for row in self._run(sql, session_id)]

    # Checkpoints ------------------------------------------------------------------------------------------------
    def write_blob(
        self, write: Callable[[Path], None], *, durable: bool = True
    ) -> tuple[str, int]:
        """Let `write` fill a new folder, and return its name and size in bytes.

        A durable blob is flushed to disk and survives a power cut; any blob survives the death of the
        process. `collect_garbage` spares it until `release_blob`, and while a row refers to it. If `write`
        fails, the folder is removed.
        """
        name = uuid.uuid4().hex
        folder = self._blobs / name
        with self._lock:
            self._holds[name] += 1
        try:
            folder.mkdir()
            write(folder)
            files = list(folder.iterdir())
            if durable:
                for path in (*files, folder, self._blobs):
                    _flush(path)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            self.release_blob(name)
            raise
        return name, sum(file.stat().st_size for file in files)

    def hold(self, path: str, field: str = "path") -> SavedWeights:
        """Return `checkpoint`, and protect its blob from deletion until `release_blob`."""
        with self._lock:
            checkpoint = self.checkpoint(path, field)
            self._holds[checkpoint.blob] += 1
            return checkpoint

    def release_blob(self, name: str) -> None:
        """Undo one `hold` or `write_blob`: a row refers to the blob now, or it is not needed any more."""
        with self._lock:
            self._holds[name] -= 1
            if self._holds[name] <= 0:
                del self._holds[name]

    def blob_path(self, name: str) -> Path:
        return self._blobs / name

    def check_free(self, run_id: str, kind: str, name: str) -> None:
        """Raise RequestError if a live checkpoint has this name."""
        try:
            self.checkpoint(PATH.format(run_id=run_id, kind=kind, name=name))
        except NotFoundError:
            return
        # The SDK offers it for states only.
        overwrite = " or pass overwrite=True" if kind == "weights" else ""
        raise RequestError(
            f"path: a checkpoint named {name!r} exists in this run; use another name{overwrite}"
        )

    def add_checkpoint(
        self,
        run_id: str,
        kind: str,
        name: str,
        files: Blob,
        *,
        ttl_seconds: int | None = None,
        user_metadata: dict | None = None,
        ephemeral_of: str | None = None,
    ) -> str:
        """Insert a checkpoint for a held blob, or replace the one of that name. Releases the blob; returns
        the tinker:// path."""
        path = PATH.format(run_id=run_id, kind=kind, name=name)
        now = self._clock()
        expires = None if ttl_seconds is None else now + ttl_seconds
        row = (
            *(path, run_id, kind, name, files.blob, files.base_model, files.lora),
            *(files.has_optimizer, files.size_bytes, now, expires, False, ephemeral_of),
            json.dumps(user_metadata),
        )
        try:
            self._insert("checkpoints", *row, otherwise="replace")
        finally:
            self.release_blob(files.blob)
        return path

    def checkpoint(self, path: str, field: str = "path") -> SavedWeights:
        """Return the live checkpoint at a tinker:// path. Raises RequestError that names `field` if it is no such path,
        and NotFoundError."""
        if not _PATH.fullmatch(path):
            raise RequestError(
                f"{field}: {path!r} is not a tinker path (tinker://RUN/{'|'.join(KINDS)}/NAME)"
            )
        rows = self._run(f"{_LIVE} and path = ?2", self._clock(), path)
        if not rows:
            raise NotFoundError(f"{field}: no checkpoint {path!r} on this service")
        return SavedWeights(**rows[0])

    def checkpoints(self, run_id: str | None = None) -> list[SavedWeights]:
        """Return the live checkpoints of a run, or of all runs, newest first, without snapshots of sampling clients."""
        where = "ephemeral_of is null and (?2 is null or run_id = ?2)"
        sql = f"{_LIVE} and {where} order by created desc, path"
        return [SavedWeights(**row) for row in self._run(sql, self._clock(), run_id)]

    def update_checkpoint(self, path: str, **changes: Any) -> None:
        self.checkpoint(path, "checkpoint_id")
        columns = ", ".join(f"{column} = ?" for column in changes)
        self._run(f"update checkpoints set {columns} where path = ?", *changes.values(), path)

    def delete_checkpoint(self, path: str) -> None:
        self.checkpoint(path, "checkpoint_id")
        self._run("delete from checkpoints where path = ?", path)
        self.collect_garbage()

    def collect_garbage(self) -> None:
        """Delete expired checkpoints, snapshots of sampling clients whose session is over (see `is_over`),
        and unused blobs."""
        now = self._clock()
        with self._lock:
            self._run("delete from checkpoints where expires is not null and expires <= ?", now)
            over = "select id from sessions where finished = 1 or last_seen < ?"
            self._run(
                f"delete from checkpoints where ephemeral_of in ({over})", now - SESSION_LIFE
            )
            used = {row["blob"] for row in self._run("select blob from checkpoints")}
            used.update(self._holds)
            unused = [folder for folder in self._blobs.iterdir() if folder.name not in used]
        for folder in unused:
            shutil.rmtree(folder, ignore_errors=True)


def live_checkpoints(state: Path) -> dict[str, SavedWeights]:
    """Mapping of tinker:// path to live checkpoint of a state folder. Read-only; a service may be using the folder."""
    file = state / "registry.sqlite"
    if not file.is_file():
        return {}
    with _usable(file), closing(sqlite3.connect(file)) as db:
        db.row_factory = sqlite3.Row
        # A service that died at its first start leaves a file without tables.
        if not db.execute("select 1 from sqlite_master where name = 'checkpoints'").fetchall():
            return {}
        rows = db.execute(_LIVE, (time.time(),))
        return {row["path"]: SavedWeights(**row) for row in rows}


@contextmanager
def _usable(file: Path) -> Iterator[None]:
    """Raise SettingsError if SQLite cannot open or read the file of a registry."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise SettingsError(
            f"{file} cannot be used: {error}",
            "check its permissions and the free space; if it is damaged, restore it, or move its "
            "folder away to start without saved weights",
        ) from error


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
