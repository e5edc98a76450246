"""Download problem sets from the Hugging Face hub: the known sets, and any data set repository.

`fetched.json` in the target folder records repository, commit, licence, and the size and SHA-256 of every
file. A file counts as fetched when its size and hash match the hub's listing; a truncated or outdated file
is downloaded again. A recorded file that was changed locally is reported, not overwritten.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from rtl_grader.errors import ProblemError
from rtl_grader.problems.errata import table_of
from rtl_grader.words import command, counted

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile

RECORD = "fetched.json"


class KnownSet(BaseModel, frozen=True):
    """A set with a short name: what to fetch, and where configurations look for it."""

    repository: str
    """`OWNER/NAME` on the Hugging Face hub."""
    files: tuple[str, ...]
    """Names or patterns in the repository; configurations of CVDP read the first by default."""
    folder: Path
    """Target folder, relative to the working directory."""
    licence: str | None = None
    """None: as the hub states it."""
    kind: str = "pairs"
    """Kind of source that reads it."""
    revision: str = "main"
    size: tuple[int, float] | None = None
    """(rows, assumed mean prompt tokens), if they were counted."""

    @property
    def path(self) -> Path:
        """The file that configurations read by default."""
        return self.folder / self.files[0]


KNOWN_SETS = {
    name: KnownSet(folder=Path("data", name), **table)
    for name, table in table_of("known_sets").items()
}
"""Short name -> set. To add a set, list it in `known_sets.toml`."""
CVDP = KNOWN_SETS["cvdp"]


def known_set(path: Path) -> str | None:
    """Name of the known set whose folder is, or holds, this path."""
    for name, entry in KNOWN_SETS.items():
        if entry.folder in (path, *path.parents):
            return name
    return None


def remedy(path: Path) -> str:
    """Hint for a missing `path`: the command that fetches the known set it belongs to."""
    fetch = command("problems fetch")
    for name, entry in KNOWN_SETS.items():
        if path.name in entry.files or path == entry.folder:
            folder = path if path == entry.folder else path.parent
            into = "" if folder == entry.folder else f" --into {folder}"
            return f"get it with `{fetch} {name}{into}`"
    return f"check the path; `{fetch} cvdp` gets the public set"


class FileRecord(BaseModel, frozen=True):
    """A file of `fetched.json`: its name in the repository, its size in bytes, and its SHA-256 (hex)."""

    path: str
    bytes: int
    sha256: str


class FetchRecord(BaseModel, frozen=True):
    """Contents of `fetched.json`."""

    repository: str
    revision: str
    """The fetched commit."""
    licence: str | None = None
    """From KNOWN_SETS, else from the hub; None when unknown."""
    fetched_at: datetime
    files: tuple[FileRecord, ...]


def fetch(
    repository: str,
    folder: Path,
    *,
    patterns: Sequence[str] = ("*.jsonl",),
    revision: str = "main",
    endpoint: str | None = None,
    licence: str | None = None,
    announce: Callable[[str], None] = lambda line: None,
) -> tuple[FetchRecord, list[str]]:
    """Fetch the files of a data set repository that match a pattern, and record their checksums.

    `announce` is called with licence and size before anything is downloaded.

    Returns:
        The record, and the names of the downloaded files: those that were missing or incomplete.

    Raises:
        ProblemError: the hub is unreachable or refuses, a pattern matches nothing, a download does not
            match the listing, or a fetched file was changed locally.
    """
    from huggingface_hub import HfApi
    from huggingface_hub import errors as hub_errors
    from huggingface_hub.hf_api import RepoFile

    if changed := changed_files(folder):
        raise ProblemError(
            f"files in {folder} are not what was fetched: {', '.join(changed)}",
            "remove them, or name another folder",
        )
    api = HfApi(endpoint=endpoint)
    downloaded = []
    try:
        info = api.dataset_info(repository, revision=revision)
        listed = api.list_repo_tree(
            repository, repo_type="dataset", revision=info.sha, recursive=True
        )
        every_file = [entry for entry in listed if isinstance(entry, RepoFile)]
        files = _matching(every_file, patterns, repository)
        tags = [tag for tag in info.tags or [] if tag.startswith("license:")]
        if tags and not licence:
            licence = tags[0].removeprefix("license:")
        size = sum(file.size for file in files)
        announce(
            f"{repository}: {counted(len(files), 'file')}, {size / 1e6:,.1f} MB, licence: {licence or 'not stated'}"
        )
        for file in files:
            if _is_whole(folder / file.path, file):
                continue
            _download(file, folder, repo_id=repository, revision=info.sha, endpoint=endpoint)
            downloaded.append(file.path)
    except (hub_errors.HTTPError, OSError, hub_errors.HFValidationError) as error:
        raise _refusal(error, repository, revision) from error
    record = FetchRecord(
        repository=repository,
        revision=str(info.sha),
        licence=licence,
        fetched_at=datetime.now(UTC),
        files=_recorded(folder, repository, info.sha, [file.path for file in files]),
    )
    (folder / RECORD).write_text(record.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return record, downloaded


def _download(file: RepoFile, folder: Path, **source: str | None) -> None:
    """Download a listed file. Raises ProblemError, and removes the file, if it is not the listed one."""
    from huggingface_hub import hf_hub_download

    path = folder / file.path
    download: Any = hf_hub_download
    # Forced: the hub's client trusts its own record of earlier downloads, whatever happened to the file since.
    download(
        filename=file.path, repo_type="dataset", local_dir=folder, force_download=True, **source
    )
    if not _is_whole(path, file):
        path.unlink(missing_ok=True)
        listing = f"the hub's listing ({file.size:,} bytes)"
        message = f"{file.path} does not match {listing}; the download was removed"
        raise ProblemError(message, "fetch again")


def _recorded(
    folder: Path, repository: str, revision: str | None, names: Sequence[str]
) -> tuple[FileRecord, ...]:
    """Records of these files, and of those that earlier calls fetched from the same commit."""
    records: dict[str, FileRecord] = {}
    before = read_record(folder)
    if before and before.repository == repository and before.revision == revision:
        for file in before.files:
            if (folder / file.path).is_file():
                records[file.path] = file
    for name in names:
        records[name] = _describe(folder, name)
    return tuple(records.values())


def _refusal(error: Exception, repository: str, revision: str) -> ProblemError:
    """Translate an error of the hub's client into one with a hint."""
    from huggingface_hub import errors

    match error:
        case errors.GatedRepoError():
            message = f"{repository} requires its terms to be accepted first"
            return ProblemError(
                message, f"accept them on its page, then set HF_TOKEN ({error})"
            )
        case errors.RepositoryNotFoundError():
            message = f"the hub knows no data set {repository}, or not for this token"
            return ProblemError(message, "check the name; a private one needs HF_TOKEN")
        case errors.RevisionNotFoundError():
            return ProblemError(
                f"{repository} has no revision {revision}", "name a branch, a tag or a commit"
            )
        case errors.HFValidationError():
            return ProblemError(
                f"{repository!r} is not a data set name: {error}", "write OWNER/NAME"
            )
        case errors.OfflineModeIsEnabled():
            return ProblemError(
                "HF_HUB_OFFLINE is set, so nothing can be fetched",
                "unset it, or copy the files here",
            )
    details = " ".join(str(error).split())[:200]
    return ProblemError(
        f"the set could not be fetched completely: {type(error).__name__}: {details}",
        "fetch again; if the hub cannot be reached, copy the data set here and give its path",
    )


def read_record(folder: Path) -> FetchRecord | None:
    """Read a folder's `fetched.json`; None if there is none. Raises ProblemError when it is invalid."""
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        return FetchRecord.model_validate_json(path.read_bytes())
    except ValueError as error:
        raise ProblemError(
            f"{path} cannot be read: {error}", "remove it and fetch again"
        ) from error


def changed_files(folder: Path) -> list[str]:
    """Names of fetched files whose content differs from the record; missing files do not count."""
    record = read_record(folder)
    changed = []
    for file in record.files if record else ():
        is_present = (folder / file.path).is_file()
        if is_present and _describe(folder, file.path) != file:
            changed.append(file.path)
    return changed


def _matching(
    files: Sequence[RepoFile], patterns: Sequence[str], repository: str
) -> list[RepoFile]:
    """Return the files that match a pattern, in the hub's order. Raises ProblemError for a pattern without a match."""
    paths = [file.path for file in files]
    for pattern in patterns:
        if not fnmatch.filter(paths, pattern):
            names = ", ".join((fnmatch.filter(paths, "*.jsonl") or paths)[:10])
            raise ProblemError(
                f"{repository} holds no file that matches {pattern}",
                f"it holds {names or 'nothing'}; name some with --pattern",
            )
    matches = {path for pattern in patterns for path in fnmatch.filter(paths, pattern)}
    return [file for file in files if file.path in matches]


def _is_whole(path: Path, listed: RepoFile) -> bool:
    """Whether a local file matches the hub's listing: by size, and by SHA-256 (large files) or git's blob hash."""
    if not path.is_file() or path.stat().st_size != listed.size:
        return False
    if listed.lfs is not None:
        return _digest(path, hashlib.sha256()) == listed.lfs.sha256
    header = f"blob {listed.size}\0".encode()
    blob = hashlib.sha1(header, usedforsecurity=False)
    return _digest(path, blob) == listed.blob_id


def _describe(folder: Path, name: str) -> FileRecord:
    path = folder / name
    digest = _digest(path, hashlib.sha256())
    return FileRecord(path=name, bytes=path.stat().st_size, sha256=digest)


def _digest(path: Path, begun: Any) -> str:
    """Hex digest of `begun` after adding the file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: begun).hexdigest()
