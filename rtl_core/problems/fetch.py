"""Problem sets on the Hugging Face hub: those that `rtl-distill problems fetch` knows by a short name, and how a set is fetched and recorded.

Files land under a folder with `fetched.json` beside them: repository, commit, licence, and size and SHA-256 of every file. A file
counts as fetched when its size and hash are those that the hub lists; whatever else stands in its place (cut short, an older version)
is fetched anew, and one that the record knows and that was changed on this disk is named, not overwritten.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from rtl_core.errors import ProblemError

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile

RECORD = "fetched.json"


@dataclass(frozen=True)
class KnownSet:
    """One set: what is fetched, where it goes, and so where a configuration looks for it."""

    repository: str
    """On the Hugging Face hub."""
    files: tuple[str, ...]
    """Names in the repository, the one that a configuration reads by default first."""
    folder: Path
    """Where they go, relative to the working directory."""
    licence: str

    @property
    def path(self) -> Path:
        """The file that a configuration reads by default."""
        return self.folder / self.files[0]


CVDP = KnownSet(
    repository="nvidia/cvdp-benchmark-dataset",
    files=(
        "cvdp_v1.1.0_nonagentic_code_generation_no_commercial.jsonl",
        "cvdp_v1.1.0_agentic_code_generation_no_commercial.jsonl",
    ),
    folder=Path("data/cvdp"),
    licence="CC BY 4.0, its code Apache-2.0 and as the NOTICE file of the repository lists",
)
KNOWN_SETS = {"cvdp": CVDP}
"""Short name -> set. What is listed here is all that there is to add."""


def remedy(path: Path) -> str:
    """What to do where there is nothing at `path`: the command that gets a known set, there where it is one of its files."""
    for name, known in KNOWN_SETS.items():
        if path.name in known.files or path == known.folder:
            folder = path if path == known.folder else path.parent
            into = "" if folder == known.folder else f" --into {folder}"
            return f"get it with `rtl-distill problems fetch {name}{into}`"
    return "check the path; `rtl-distill problems fetch cvdp` gets the public set"


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
    licence: str | None = None
    """As the project knows it or else the hub tells it; None where neither does."""
    fetched_at: datetime
    files: tuple[FetchedFile, ...]


def fetch(
    repository: str,
    folder: Path,
    *,
    patterns: Sequence[str] = ("*.jsonl",),
    revision: str = "main",
    endpoint: str | None = None,
    licence: str | None = None,
) -> tuple[Fetched, list[str]]:
    """Fetch the files of a data set repository that match a pattern, and record their checksums.

    Returns:
        The record, and the names of the files that were downloaded: those that were not there whole.

    Raises:
        ProblemError: the hub cannot be reached or refuses, a pattern matches nothing, a file arrived cut short or changed, or one on
            this disk is not the one that was fetched.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub import errors as hub_errors
    from huggingface_hub.hf_api import RepoFile

    if changed := changed_files(folder):
        raise ProblemError(
            f"files in {folder} are not what was fetched: {', '.join(changed)}", "remove them, or name another folder"
        )
    api = HfApi(endpoint=endpoint)
    downloaded = []
    try:
        info = api.dataset_info(repository, revision=revision)
        listed = api.list_repo_tree(repository, repo_type="dataset", revision=info.sha, recursive=True)
        wanted = _matching([entry for entry in listed if isinstance(entry, RepoFile)], patterns, repository)
        for file in wanted:
            if _is_whole(folder / file.path, file):
                continue
            # Forced: the hub's client takes a file that it once fetched for whole, whatever has become of it since.
            hf_hub_download(
                repository, file.path, repo_type="dataset", revision=info.sha, local_dir=folder, endpoint=endpoint,
                force_download=True,
            )  # fmt: skip
            if not _is_whole(folder / file.path, file):
                (folder / file.path).unlink(missing_ok=True)
                raise ProblemError(
                    f"{file.path} did not arrive as the hub lists it ({file.size:,} bytes); what arrived was removed",
                    "fetch again",
                )
            downloaded.append(file.path)
    except (hub_errors.HTTPError, OSError, hub_errors.HFValidationError) as error:
        raise _refusal(error, repository, revision) from error
    fetched = Fetched(
        repository=repository,
        revision=str(info.sha),
        licence=licence or _licence_of(info.tags or []),
        fetched_at=datetime.now(UTC),
        files=_recorded(folder, repository, info.sha, [file.path for file in wanted]),
    )
    (folder / RECORD).write_text(fetched.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return fetched, downloaded


def _recorded(folder: Path, repository: str, revision: str | None, names: Sequence[str]) -> tuple[FetchedFile, ...]:
    """What is there now: these files, and those that an earlier call fetched of the same commit by other patterns."""
    before = read_record(folder)
    same = before is not None and (before.repository, before.revision) == (repository, revision)
    others = {file.path: file for file in before.files if (folder / file.path).is_file()} if before and same else {}
    return tuple((others | {name: _describe(folder, name) for name in names}).values())


def _refusal(error: Exception, repository: str, revision: str) -> ProblemError:
    """What the hub's client says, in words that tell what to do."""
    from huggingface_hub import errors

    match error:
        case errors.GatedRepoError():
            return ProblemError(
                f"{repository} asks for its terms to be accepted first",
                f"accept them on its page, then set HF_TOKEN ({error})",
            )
        case errors.RepositoryNotFoundError():
            said = f"the hub knows no data set {repository}, or not for this token"
            return ProblemError(said, "check the name; a private one needs HF_TOKEN")
        case errors.RevisionNotFoundError():
            return ProblemError(f"{repository} has no revision {revision}", "name a branch, a tag or a commit")
        case errors.HFValidationError():
            return ProblemError(f"{repository!r} is no name of a data set: {error}", "write OWNER/NAME")
        case errors.OfflineModeIsEnabled():
            return ProblemError("HF_HUB_OFFLINE is set, so nothing can be fetched", "unset it, or copy the files here")
    return ProblemError(
        f"the set could not be fetched whole: {type(error).__name__}: {' '.join(str(error).split())[:200]}",
        "fetch again; where the hub cannot be reached, copy the data set here and give its path",
    )


def read_record(folder: Path) -> Fetched | None:
    """What `fetched.json` of a folder says, or None. Raises ProblemError when it cannot be read."""
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        return Fetched.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ProblemError(f"{path} cannot be read: {error}", "remove it and fetch again") from error


def changed_files(folder: Path) -> list[str]:
    """Fetched files whose content is no longer the recorded one; missing ones do not count."""
    record = read_record(folder)
    if record is None:
        return []
    return [f.path for f in record.files if (folder / f.path).is_file() and _describe(folder, f.path) != f]


def _matching(files: Sequence[RepoFile], patterns: Sequence[str], repository: str) -> list[RepoFile]:
    """The files that match a pattern, in the hub's order. ProblemError for a pattern that none matches."""
    for pattern in patterns:
        if not any(fnmatch.fnmatch(file.path, pattern) for file in files):
            names = [file.path for file in files if file.path.endswith(".jsonl")] or [file.path for file in files]
            raise ProblemError(
                f"{repository} holds no file that matches {pattern}",
                f"it holds {', '.join(names[:10]) or 'nothing'}; name some with --pattern",
            )
    return [file for file in files if any(fnmatch.fnmatch(file.path, pattern) for pattern in patterns)]


def _is_whole(path: Path, listed: RepoFile) -> bool:
    """Whether a file is there as the hub lists it: by size, and by SHA-256 (large files) or git's hash of its content."""
    if not path.is_file() or path.stat().st_size != listed.size:
        return False
    if listed.lfs is not None:
        return _digest(path, hashlib.sha256()) == listed.lfs.sha256
    return _digest(path, hashlib.sha1(f"blob {listed.size}\0".encode(), usedforsecurity=False)) == listed.blob_id


def _licence_of(tags: Sequence[str]) -> str | None:
    """What the hub's tags say (`license:mit`)."""
    return next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), None)


def _describe(folder: Path, name: str) -> FetchedFile:
    path = folder / name
    return FetchedFile(path=name, bytes=path.stat().st_size, sha256=_digest(path, hashlib.sha256()))


def _digest(path: Path, begun: Any) -> str:
    """The digest (hex) with the file's content added."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: begun).hexdigest()
