"""Writes a folder with a small problem, to be replaced by one's own."""

from __future__ import annotations

import shutil
from pathlib import Path

SKELETON = Path(__file__).parent / "skeleton"


def write_skeleton(folder: Path, bench: str) -> list[Path]:
    """Write the files for a kind of bench (`cocotb`, `verilog`, `none`); returns them."""
    for part in ("common", bench):
        shutil.copytree(SKELETON / part, folder, dirs_exist_ok=True)
    return sorted(path for path in folder.rglob("*") if path.is_file())
