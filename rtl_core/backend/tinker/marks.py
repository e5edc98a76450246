"""What a run attaches to its sessions, training runs and saved weights on a service, so that an orphan can be
traced. A project is attached by the SDK (TINKER_PROJECT_ID)."""

from __future__ import annotations

import platform
import secrets
from pathlib import Path

from tinker.lib.base_url import DEFAULT_BASE_URL, resolve_base_url

from rtl_core import __version__
from rtl_core.config import RunConfig

Marks = dict[str, str]
PRODUCT = "rtl_distill"
"""Key of the version of the product. Only weights with this mark were saved by a run of it."""


def known_id(folder: Path) -> str | None:
    """Return the id in the folder of a run, if it has one."""
    path = folder / "id"
    return path.read_text("utf-8").strip() or None if path.is_file() else None


def run_id(config: RunConfig) -> str:
    """Return the random id of a run; it is made and stored in the run's folder at the first call. Runs of one name on
    several machines, or after a history was deleted, have different ids."""
    folder = config.run.folder
    if (known := known_id(folder)) is None:
        known = secrets.token_hex(8)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "id").write_text(f"{known}\n", "utf-8")
    return known


def marks_of(config: RunConfig) -> Marks:
    """Return the marks of a run."""
    return {
        PRODUCT: __version__,
        "run": config.run.name,
        "run_id": run_id(config),
        "purpose": config.run.purpose,
        "host": platform.node(),
    }


def step_of(name: str) -> Marks:
    """Return the mark of weights saved as `RUN-000012` (12 train steps) or `RUN-start`."""
    return {"step": name.rpartition("-")[2].lstrip("0")}


def has_console(url: str | None) -> bool:
    """Whether the service at `url` (None: the SDK's default) is Tinker's cloud, whose console the SDK's URLs name."""
    return resolve_base_url(url) == DEFAULT_BASE_URL
