"""The RTL files of a folder, a filelist, a FuseSoC core, or a glob of them.

A filelist (`.f`, `.flist`) names files, `+incdir+DIR`, `+define+NAME=VALUE` and other filelists (`-f`, `-F`), all
relative to itself. Of a core (`.core`, CAPI2) the RTL files of all filesets are read, except those under a condition,
and parameters of the type `vlogdefine`. No link out of a folder is followed.
"""

from __future__ import annotations

import codecs
import glob
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, Field

from rtl_grader.hdl.interface import HDL_SUFFIXES, HEADER_SUFFIXES
from rtl_grader.problems.cvdp import checked
from rtl_grader.problems.faults import FieldError

MAX_FILE_BYTES = 1 << 20
_VHDL = (".vhd", ".vhdl")
_OTHER = (".verilog", ".vlog", ".vp", ".svp", ".va", ".vams")
_LISTS = (".f", ".flist")
_WORD = re.compile(r"[^\s\"]+")
_OF_FILES = ("-f", "-F", "-v")
"""Options before the name of a file, which tells by itself what it is."""
_COMMENT = re.compile(r"(?:^|(?<=\s))(?://|#)[^\n]*", re.M)
_ROWS = ".jsonl"


@dataclass
class Listing:
    """Files to read, in the order in which their source names them."""

    files: dict[Path, None] = field(default_factory=dict)
    """RTL and headers."""
    others: list[Path] = field(default_factory=list)
    """Files that may be data of the RTL."""
    rows: list[Path] = field(default_factory=list)
    """JSONL files of designs."""
    include: list[Path] = field(default_factory=list)
    """Folders that are searched for included files."""
    define: dict[str, str] = field(default_factory=dict)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """(file or line, why it is not read)"""

    @property
    def root(self) -> Path:
        """The folder that holds all files."""
        folders = [file.parent for file in (*self.files, *self.rows)]
        return Path(os.path.commonpath([*folders, *self.include]))

    def leave_out(self, path: Path, reason: str) -> None:
        """Say why something is not read."""
        self.left_out.append((str(path), reason))

    def takes(self, path: Path) -> bool:
        """Take a file if it is RTL or rows, or leave it out if it is other HDL. Return whether it is any."""
        suffix = path.suffix.lower()
        if suffix in HDL_SUFFIXES:
            self.files[path] = None
        elif suffix == _ROWS:
            self.rows.append(path)
        elif suffix in _VHDL:
            self.leave_out(path, "VHDL is not read")
        elif suffix in _OTHER:
            self.leave_out(
                path, "it is read when its name ends in .v or .sv, and is plain Verilog"
            )
        else:
            return False
        return True


def listing_of(path: Path) -> Listing:
    """List the files of a folder, filelist, core or RTL file, or of all that a glob matches."""
    listing = Listing()
    matches = [str(path)] if path.exists() else glob.glob(str(path), recursive=True)
    for match in sorted(matches):
        _add(listing, Path(os.path.abspath(match)))
    if listing.files and not path.is_dir():
        _add_headers(listing)
    return listing


def _add_headers(listing: Listing) -> None:
    """Add the headers in the folders of the listed files and in those to search."""
    folders = [*(file.parent for file in listing.files), *listing.include]
    for folder in dict.fromkeys(folders):
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or path.is_symlink():
                continue
            if path.suffix in HEADER_SUFFIXES:
                listing.files[path] = None
            elif path.suffix.lower() not in HDL_SUFFIXES:
                listing.others.append(path)


def text_of(path: Path) -> str:
    """Read a file. Raises ValueError with the reason why it cannot be read."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"it is larger than {MAX_FILE_BYTES >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from None
    try:
        encoding = "utf-8-sig"
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            encoding = "utf-16"
        text = data.decode(encoding)
    except UnicodeDecodeError:
        if path.suffix.lower() not in HDL_SUFFIXES:
            raise ValueError("it is not UTF-8") from None
        text = data.decode("latin-1")  # comments of another time; every byte is a character
    return normal(text)


def normal(text: str) -> str:
    """The text with plain line ends, without blank lines around it, as it is extracted from a response."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return plain.strip("\n").rstrip() + "\n"


def _add(listing: Listing, path: Path, within: tuple[Path, ...] = ()) -> None:
    """Add what a user names."""
    suffix = path.suffix.lower()
    if path.is_dir():
        _add_folder(listing, path)
    elif not path.is_file():
        listing.leave_out(path, "there is no such file")
    elif suffix in _LISTS:
        _add_filelist(listing, path, within)
    elif suffix == ".core":
        _add_core(listing, path)
    elif not listing.takes(path):
        listing.leave_out(path, "it is no Verilog")


def _add_folder(listing: Listing, root: Path) -> None:
    real = root.resolve()
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(folder, name) for name in (*folders, *sorted(names))):
            if path.is_symlink() and not path.resolve().is_relative_to(real):
                listing.leave_out(path, "it is a link out of the folder")
            elif path.is_file() and not listing.takes(path):
                listing.others.append(path)


def _add_filelist(listing: Listing, path: Path, within: tuple[Path, ...]) -> None:
    if path in within:
        return listing.leave_out(path, "the filelist includes itself")
    try:
        text = text_of(path)
    except ValueError as error:
        return listing.leave_out(path, str(error))
    for word in _WORD.findall(_COMMENT.sub("", text)):
        if "$" in word:
            listing.leave_out(path / word, "environment variables are not expanded")
        elif word.startswith("+incdir+"):
            names = filter(None, word.split("+")[2:])
            listing.include += [_below(path.parent, name) for name in names]
        elif word.startswith("+define+"):
            for definition in filter(None, word.split("+")[2:]):
                name, _, value = definition.partition("=")
                listing.define[name] = value or "1"
        elif word.startswith(("-", "+")) and word not in _OF_FILES:
            listing.leave_out(path / word, "the option is not read")
        elif word not in _OF_FILES:
            _add(listing, _below(path.parent, word), (*within, path))
    return None


def _below(folder: Path, name: str) -> Path:
    return Path(os.path.normpath(folder / name))


class _FileSet(BaseModel):
    files: list[str | dict[str, Any]] = []
    """Each is a name, or a table of names and their settings."""


class _Parameter(BaseModel):
    paramtype: str = ""
    default: Any = None


class _Core(BaseModel):
    """What is read of a FuseSoC core."""

    version: Any = Field(alias="CAPI=2")
    filesets: dict[str, _FileSet] = {}
    parameters: dict[str, _Parameter] = {}


def _add_core(listing: Listing, path: Path) -> None:
    try:
        core = checked(_Core, yaml.safe_load(text_of(path)))
    except FieldError as error:
        return listing.leave_out(path, f"it is no core of CAPI2: {error.message}")
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        return listing.leave_out(path, f"the core cannot be read: {reason}"[:200])
    for fileset in core.filesets.values():
        for entry in fileset.files:
            for name in [entry] if isinstance(entry, str) else entry:
                if name.lower().endswith((*HDL_SUFFIXES, *_VHDL)):
                    _add(listing, _below(path.parent, name))
    for name, parameter in core.parameters.items():
        value = parameter.default
        if parameter.paramtype == "vlogdefine" and isinstance(value, (str, int)):
            listing.define[name] = str(int(value) if value is True else value)
    return None
