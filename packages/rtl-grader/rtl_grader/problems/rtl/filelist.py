"""The RTL files of a folder, a filelist, a FuseSoC core, or a glob of them.

A filelist (`.f`, `.flist`) names files, `+incdir+DIR`, `+define+NAME=VALUE` and other filelists (`-f`, `-F`), all
relative to itself. Of a core (`.core`, CAPI2) the files of all filesets in Verilog or SystemVerilog are read, and the
defaults of parameters of the type `vlogdefine`. No link out of a folder is followed.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rtl_grader.hdl.interface import HDL_SUFFIXES

MAX_FILE_BYTES = 1 << 20
_VHDL = (".vhd", ".vhdl")
_LISTS = (".f", ".flist")
_ENTRY = re.compile(r"[^\s\"]+|\"[^\"]*\"")
_COMMENT = re.compile(r"(?:^|(?<=\s))(?://|#)[^\n]*", re.M)
_ROWS = ".jsonl"
_INCLUDE = re.compile(r'`include[ \t]*"([^"\n]+)"')
_COMPILED = re.compile(r"(?i)(?:system)?verilogSource")


@dataclass
class Listing:
    """Files to read, in the order in which their source names them."""

    files: dict[Path, None] = field(default_factory=dict)
    """RTL and headers."""
    rows: list[Path] = field(default_factory=list)
    """JSONL files of designs."""
    include: list[Path] = field(default_factory=list)
    """Folders that are searched for included files."""
    define: dict[str, str] = field(default_factory=dict)
    name: str = ""
    """Name of a core."""
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """(file or line, why it is not read)"""

    @property
    def root(self) -> Path:
        """The folder that holds all files."""
        folders = [file.parent for file in (*self.files, *self.rows)]
        return Path(os.path.commonpath([*folders, *self.include]))


def listing_of(path: Path) -> Listing:
    """List the files of a folder, filelist, core or RTL file, or of all that a glob matches."""
    listing = Listing()
    matches = (
        [path] if path.exists() else map(Path, sorted(glob.glob(str(path), recursive=True)))
    )
    for match in matches:
        _add(listing, Path(os.path.abspath(match)))
    if listing.files and not path.is_dir():
        _add_headers(listing)
    return listing


def _add_headers(listing: Listing) -> None:
    """Add what the listed files include from their own folders and from those to search, within the root."""
    root = listing.root.resolve()
    waiting = list(listing.files)
    while waiting:
        file = waiting.pop()
        try:
            names = _INCLUDE.findall(text_of(file))
        except ValueError:
            continue  # named when the files are read
        for name in names:
            places = (_below(folder, name) for folder in (file.parent, *listing.include))
            header = next(filter(Path.is_file, places), None)
            if header and header not in listing.files and header.resolve().is_relative_to(root):
                listing.files[header] = None
                waiting.append(header)


def text_of(path: Path) -> str:
    """Read a file. Raises ValueError with the reason why it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"it is larger than {MAX_FILE_BYTES >> 20} MiB")
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from None
    return normal(text)


def normal(text: str) -> str:
    """The text with plain line ends, without blank lines around it, as it is extracted from a response."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return plain.strip("\n").rstrip() + "\n"


def _add(listing: Listing, path: Path) -> None:
    suffix = path.suffix.lower()
    if path.is_dir():
        _add_folder(listing, path)
    elif suffix in _LISTS:
        _add_filelist(listing, path, ())
    elif suffix == ".core":
        _add_core(listing, path)
    elif suffix == _ROWS:
        listing.rows.append(path)
    else:
        _add_file(listing, path)


def _add_file(listing: Listing, path: Path, *, named: bool = True) -> None:
    """Add an RTL file. `named`: whether the user named it, so that another file is left out with a reason."""
    suffix = path.suffix.lower()
    if suffix in _VHDL:
        listing.left_out.append((str(path), "VHDL is not read"))
    elif suffix in HDL_SUFFIXES and path.is_file():
        listing.files[path] = None
    elif named:
        reason = "is no Verilog" if path.exists() else "there is no such file"
        listing.left_out.append((str(path), reason))


def _add_folder(listing: Listing, root: Path) -> None:
    real = root.resolve()
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_symlink() and not path.resolve().is_relative_to(real):
                listing.left_out.append((str(path), "it is a link out of the folder"))
            elif path.suffix == _ROWS:
                listing.rows.append(path)
            else:
                _add_file(listing, path, named=False)
        for name in folders:
            if Path(folder, name).is_symlink():
                listing.left_out.append(
                    (str(Path(folder, name)), "links to folders are not followed")
                )


def _add_filelist(listing: Listing, path: Path, within: tuple[Path, ...]) -> None:
    if path in within:
        listing.left_out.append((str(path), "the filelist includes itself"))
        return
    try:
        text = text_of(path)
    except ValueError as error:
        listing.left_out.append((str(path), str(error)))
        return
    words = iter(_ENTRY.findall(_COMMENT.sub("", text)))
    for word in words:
        word = word.strip('"')
        if "$" in word:
            listing.left_out.append(
                (f"{path}: {word}", "environment variables are not expanded")
            )
        elif word in ("-f", "-F"):
            _add_filelist(listing, _below(path.parent, next(words, "")), (*within, path))
        elif word == "-v":
            _add_file(listing, _below(path.parent, next(words, "")))
        elif word.startswith("+incdir+"):
            folders = word.removeprefix("+incdir+").split("+")
            listing.include += [_below(path.parent, folder) for folder in folders if folder]
        elif word.startswith("+define+"):
            _define(listing, word.removeprefix("+define+").split("+"))
        elif word.startswith(("-", "+")):
            listing.left_out.append((f"{path}: {word}", "the option is not read"))
        else:
            _add(listing, _below(path.parent, word))


def _define(listing: Listing, definitions: Iterable[str]) -> None:
    for definition in filter(None, definitions):
        name, _, value = definition.partition("=")
        listing.define[name] = value or "1"


def _below(folder: Path, name: str) -> Path:
    return Path(os.path.normpath(folder / name))


def _add_core(listing: Listing, path: Path) -> None:
    try:
        core = yaml.safe_load(text_of(path))
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        listing.left_out.append((str(path), f"the core cannot be read: {error}"[:200]))
        return
    if not isinstance(core, dict) or "CAPI=2" not in core:
        listing.left_out.append((str(path), "it is no core of CAPI2"))
        return
    vendor, *others = _word(core.get("name")).split(":")
    listing.name = others[1] if len(others) > 1 else vendor
    for fileset in _tables(core.get("filesets")).values():
        for file, about in _core_files(fileset):
            _add_core_file(listing, path.parent, file, about)
    for name, parameter in _tables(core.get("parameters")).items():
        value = parameter.get("default")
        if parameter.get("paramtype") == "vlogdefine" and value not in (None, False):
            listing.define[name] = "1" if value is True else _word(value)


def _add_core_file(listing: Listing, folder: Path, file: str, about: dict[str, Any]) -> None:
    is_compiled = _COMPILED.match(_word(about.get("file_type")))
    if is_compiled or file.lower().endswith(_VHDL):
        _add_file(listing, _below(folder, file))
    if include_path := _word(about.get("include_path")):
        listing.include.append(_below(folder, include_path))


def _word(value: Any) -> str:
    """A scalar as text; empty for anything else, which may be huge."""
    return str(value) if isinstance(value, (str, int, float)) else ""


def _tables(value: Any) -> dict[str, dict[str, Any]]:
    entries = value.items() if isinstance(value, dict) else ()
    return {_word(key): entry for key, entry in entries if isinstance(entry, dict)}


def _core_files(fileset: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the files of a fileset with their attributes, except those under a condition (`tool_x? (file)`)."""
    shared = {"file_type": fileset.get("file_type")}
    files = fileset.get("files")
    for entry in files if isinstance(files, list) else ():
        names = entry if isinstance(entry, dict) else {_word(entry): None}
        for name, own in names.items():
            if "?" not in _word(name):
                yield _word(name), {**shared, **(own if isinstance(own, dict) else {})}
