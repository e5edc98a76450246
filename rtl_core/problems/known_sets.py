"""Published problem sets that `rtl-distill problems fetch` knows by a short name. What is listed here is all that there is to add."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
"""Short name -> set."""


def remedy(path: Path) -> str:
    """What to do where there is nothing at `path`: the command that gets a known set, there where it is one of its files."""
    for name, known in KNOWN_SETS.items():
        if path.name in known.files or path == known.folder:
            folder = path if path == known.folder else path.parent
            into = "" if folder == known.folder else f" --into {folder}"
            return f"get it with `rtl-distill problems fetch {name}{into}`"
    return "check the path; `rtl-distill problems fetch cvdp` gets the public set"
