"""Fetch a problem set from the Hugging Face hub, and record what was fetched.

Files land under a folder with `fetched.json` beside them: repository, commit, and size and SHA-256 of every file. A later
fetch compares: a file that changed on this disk is named, not overwritten.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from rtl_core.errors import ProblemError

RECORD = "fetched.json"


class FetchedFile(BaseModel):
    """One file as it was fetched."""

    model_config = ConfigDict(frozen=True)
    path: str
    bytes: int
    sha256: str


class Fetched(BaseModel):
    """What a folder holds, as `fetched.json` records it."""

    model_config = ConfigDict(frozen=True)
    repository: str
    revision: str
    """The commit that `revision` named when it was fetched."""
    fetched_at: datetime
    files: tuple[FetchedFile, ...]


def fetch(
    repository: str,
    folder: Path,
    *,
    patterns: Sequence[str] = ("*.jsonl",),
    revision: str = "main",
    endpoint: str | None = None,
) -> Fetched:
    """Fetch the files of a data set repository that match a pattern, and record their checksums.

    Raises:
        ProblemError: the hub cannot be reached or refuses, nothing matches, or a file on this disk is not the one that
            was fetched.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub import errors as hub_errors

    if changed := changed_files(folder):
        raise ProblemError(
            f"files in {folder} are not what was fetched: {', '.join(changed)}", "remove them, or name another folder"
        )
    api = HfApi(endpoint=endpoint)
    try:
        commit = api.dataset_info(repository, revision=revision).sha
        names = api.list_repo_files(repository, repo_type="dataset", revision=commit)
        wanted = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
        if not wanted:
            raise ProblemError(
                f"{repository} holds no file that matches {', '.join(patterns)}", f"it holds {', '.join(names[:10])}"
            )
        for name in wanted:
            hf_hub_download(repository, name, repo_type="dataset", revision=commit, local_dir=folder, endpoint=endpoint)
    except hub_errors.GatedRepoError as error:
        raise ProblemError(
            f"{repository} asks for its terms to be accepted first",
            f"accept them on its page, then set HF_TOKEN ({error})",
        ) from error
    except hub_errors.RepositoryNotFoundError as error:
        raise ProblemError(
            f"the hub knows no data set {repository}, or not for this token",
            "check the name; a private one needs HF_TOKEN",
        ) from error
    except hub_errors.OfflineModeIsEnabled as error:
        raise ProblemError(
            "HF_HUB_OFFLINE is set, so nothing can be fetched", "unset it, or copy the files here"
        ) from error
    except (hub_errors.HTTPError, OSError) as error:
        raise ProblemError(
            f"the Hugging Face hub cannot be reached: {type(error).__name__}: {' '.join(str(error).split())[:200]}",
            "without a network, copy the data set here and give its path",
        ) from error
    fetched = Fetched(
        repository=repository,
        revision=str(commit),
        fetched_at=datetime.now(UTC),
        files=tuple(_describe(folder, name) for name in wanted),
    )
    (folder / RECORD).write_text(fetched.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return fetched


def read_record(folder: Path) -> Fetched | None:
    """What `fetched.json` of a folder says, or None. Raises ProblemError when it cannot be read."""
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        return Fetched.model_validate(data)
    except ValueError as error:
        raise ProblemError(f"{path} cannot be read: {error}", "remove it and fetch again") from error


def changed_files(folder: Path) -> list[str]:
    """Fetched files whose content is no longer the recorded one; missing ones do not count."""
    record = read_record(folder)
    if record is None:
        return []
    return [f.path for f in record.files if (folder / f.path).is_file() and _describe(folder, f.path) != f]


def _describe(folder: Path, name: str) -> FetchedFile:
    path = folder / name
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return FetchedFile(path=name, bytes=path.stat().st_size, sha256=digest.hexdigest())
