"""The tools in a sandbox: where they come from, their versions, and how steps find them."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from rtl_grader.errors import ToolMissingError
from rtl_grader.grading.executors.base import Environment
from rtl_grader.grading.executors.probe import COCOTB1, SIMULATORS, probe
from rtl_grader.words import command

Versions = Mapping[str, str]
"""Name of a tool or package -> its version."""
SIM_PYTHON = "/opt/sim/bin/python3"
"""The Python of the simulation image."""
PROBE = (SIM_PYTHON, "-c", (Path(__file__).parent / "probe.py").read_text())
"""The command that inspects a root file system; `Toolchain.of_root` takes its output."""
MANIFEST = "rtl-distill.json"
"""File in an installed root with its origin and contents."""
_OLDEST = {
    "iverilog": (
        (13,),
        "cannot read some valid SystemVerilog and judges some answers differently than version 13",
    ),
    "verilator": ((5, 26), "cannot run cocotb 2, whose authors test 5.036 and newer"),
}
"""First version without a shortcoming, and the shortcoming; the image's versions are in
packages/rtl-grader/rtl_grader/grading/sim/tools.txt."""
_WORKSPACE = ("/code/", "/src/", "/rundir/")
_PATH = "/usr/local/bin:/usr/bin:/bin"
_ETC = "ld.so.cache ld.so.conf ld.so.conf.d alternatives localtime passwd group nsswitch.conf"
"""Files of /etc that programs need."""


def tools_home() -> Path:
    """Directory of `rtl-grader toolchain install`; RTL_DISTILL_TOOLS overrides it."""
    home = os.environ.get("RTL_DISTILL_TOOLS")
    if home:
        return Path(home)
    return Path.home() / ".local/share/rtl-distill/tools"


@dataclass(frozen=True)
class Toolchain:
    """Simulators and a Python with cocotb: this machine's own, or those of another root file system (an
    image, a directory)."""

    python: str
    """Path of the interpreter in the sandbox."""
    libraries: str
    """Directory of cocotb's simulator libraries."""
    libpython: str
    tools: Versions
    """Name -> version; `image` or `toolchain` -> origin of another root file system."""
    cocotb1: str | None = None
    """Directory of cocotb 1.9 for older harnesses; None if not installed."""
    root: Path | None = None
    """Directory of another root file system, if any."""
    modules: frozenset[str] | None = None
    """Top-level modules of installed packages; None to ask the running Python."""
    packages: Versions = field(default_factory=dict)
    """In another root file system: pip's package name (lower case, hyphens) -> version."""
    prefixes: tuple[str, ...] = ()
    """Directories mounted read-only at the same path, besides the system's."""
    tool_directories: tuple[str, ...] = ()
    """Directories of simulators outside /usr, for PATH."""

    @classmethod
    def of_root(
        cls, report: Mapping[str, Any], origin: Versions, root: Path | None = None
    ) -> Toolchain:
        """The toolchain of another root file system, from the probe's output there. `origin` precedes the
        tools' versions."""
        fields = {
            **report,
            "tools": {**origin, **report["tools"]},
            "modules": frozenset(report["modules"]),
        }
        return cls(
            **fields, cocotb1=COCOTB1 if "cocotb1" in report["tools"] else None, root=root
        )

    @classmethod
    def installed(cls) -> Toolchain | None:
        """The toolchain under `tools_home()`, or None. Raises ToolMissingError if it exists but cannot be used."""
        root = tools_home() / "root"
        if not root.is_dir():
            return None
        try:
            manifest = json.loads((root / MANIFEST).read_text())
            return cls.of_root(manifest["inside"], {"toolchain": manifest["made_of"]}, root)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ToolMissingError(
                f"the toolchain in {root} cannot be used: {error!r}",
                command("toolchain install"),
            ) from error

    @classmethod
    def of_this_machine(cls) -> Toolchain:
        """The tools on PATH and the running Python environment.

        Raises ToolMissingError if a simulator, package or library that grading needs is missing, or the
        sandbox would hide it.
        """
        if not all(map(shutil.which, ("iverilog", "vvp"))):
            raise ToolMissingError(
                "Icarus Verilog is not installed", "apt-get install iverilog"
            )
        prefixes, directories = _places()
        if hidden := [place for place in prefixes if place.startswith(_WORKSPACE)]:
            raise ToolMissingError(
                f"{hidden[0]} is where the sandbox puts a problem's files",
                "move the checkout out of /code, /src and /rundir and run `make setup` again, or "
                "grade with --executor docker",
            )
        older = tools_home() / "cocotb1"
        cocotb1 = None
        if (older / "cocotb").is_dir():
            cocotb1 = str(older)
        try:
            report = probe(cocotb1)
        except PackageNotFoundError as error:
            raise ToolMissingError(
                f"{error.name} is not installed in this environment", "make setup"
            ) from error
        except ImportError as error:
            raise ToolMissingError(
                "cocotb 2 is not installed in this environment", "pip install cocotb==2.0.1"
            ) from error
        if not report["libpython"]:
            version = "{}.{}".format(*sys.version_info[:2])
            raise ToolMissingError(
                f"the shared library of Python {version}, which simulators load to run cocotb, is missing",
                f"apt-get install libpython{version}",
            )
        return cls(
            **report,
            cocotb1=cocotb1,
            prefixes=(*prefixes, cocotb1) if cocotb1 else prefixes,
            tool_directories=directories,
        )

    def binds(self) -> list[str]:
        """bwrap arguments for the root file system."""
        if self.root is not None:
            return root_binds(self.root)
        arguments = system_binds()
        parents = {str(parent) for prefix in self.prefixes for parent in Path(prefix).parents}
        for parent in sorted(parents - {"/"}):
            # bwrap would create missing parents for root only; the steps run as another user.
            arguments += ["--perms", "0755", "--dir", parent]
        for prefix in self.prefixes:
            arguments += ["--ro-bind", prefix, prefix]
        return arguments

    def environment(self) -> Environment:
        """Environment of every step, before the harness' own settings."""
        own = str(Path(self.python).parent)
        places = (own, *self.tool_directories, *_PATH.split(":"))
        return {
            "PATH": ":".join(dict.fromkeys(places)),
            "HOME": "/code/rundir",
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            # Plugins of this environment are not part of the harness, and each costs start-up time twice.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "LIBPYTHON_LOC": self.libpython,
        }

    def has_module(self, name: str) -> bool:
        """Whether the Python can import a module. In another root file system only the first part of the
        name counts, except for `cocotb.runner`, which cocotb 2 lacks.
        """
        if self.modules is not None:
            return name.split(".")[0] in self.modules and name != "cocotb.runner"
        try:
            return importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            return False

    def has_package(self, requirement: str) -> bool:
        """Whether a `pip install` requirement is met: by any version of cocotb and pytest, else by the
        pinned version."""
        without_extras = re.split(r"\[.*?\]", requirement, maxsplit=1)[0]
        name, _, version = map(str.strip, without_extras.partition("=="))
        name = re.split(r"[<>~!]", name)[0].replace("_", "-").lower()
        if name not in self.packages:
            return False
        return name in ("cocotb", "pytest") or version in ("", self.packages[name])


def _places() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Directories of the running Python and the simulators outside the system's: (to mount, for PATH)."""
    own = (sys.prefix, sys.base_prefix)
    prefixes = dict.fromkeys((*own, *map(os.path.realpath, own)))
    cocotb = importlib.util.find_spec(
        "cocotb"
    )  # elsewhere with --user or --system-site-packages
    if cocotb is not None and cocotb.origin is not None:
        site = Path(os.path.realpath(cocotb.origin)).parents[1]
        if not any(site.is_relative_to(prefix) for prefix in prefixes):
            prefixes[str(site)] = None
    directories: dict[str, None] = {}
    for tool in ("vvp", *SIMULATORS):
        path = shutil.which(tool)
        if path is None:
            continue
        program = Path(os.path.realpath(path))
        if not program.is_relative_to("/usr"):
            directories[str(Path(path).parent)] = None
            prefixes[str(program.parent.parent)] = None
    outside = (p for p in prefixes if p != "/" and not Path(p).is_relative_to("/usr"))
    return tuple(outside), tuple(directories)


def shortcomings(tools: Versions) -> dict[str, str]:
    """What tools (name -> version) cannot do because they are too old: name -> sentence."""
    sentences = {}
    for tool, (oldest, shortcoming) in _OLDEST.items():
        numbers = re.findall(r"\d+", tools.get(tool, ""))
        version = tuple(map(int, numbers))
        if () < version < oldest:
            sentences[tool] = f"{tool} {tools[tool]} {shortcoming}"
    return sentences


@cache
def warn_of_older(icarus: str) -> None:
    """Warn, once per version, that another Icarus may give other verdicts."""
    for text in shortcomings({"iverilog": icarus}).values():
        logging.getLogger("rtl_distill").warning(
            "%s (versions are stored with each verdict); to get newer tools: %s",
            text,
            command("toolchain install"),
        )


def root_binds(root: Path) -> list[str]:
    """bwrap arguments for a root file system with our own directory /opt."""
    return [*system_binds(str(root)), "--ro-bind", f"{root}/opt", "/opt"]


def bwrap_path() -> str:
    """The path of bwrap. Raises ToolMissingError if it is not installed."""
    path = shutil.which("bwrap")
    if path is None:
        raise ToolMissingError("bwrap is not installed", "apt-get install bubblewrap")
    return path


def system_binds(root: str = "") -> list[str]:
    """bwrap arguments for the system directories of a root file system and the files of /etc that programs need."""
    arguments = ["--ro-bind", f"{root}/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        place = f"{root}/{name}"
        if os.path.islink(place):
            arguments += ["--symlink", os.readlink(place), f"/{name}"]
        elif os.path.isdir(place):
            arguments += ["--ro-bind", place, f"/{name}"]
    arguments += ["--perms", "0755", "--dir", "/etc"]
    for name in _ETC.split():
        arguments += ["--ro-bind-try", f"{root}/etc/{name}", f"/etc/{name}"]
    return arguments
