"""Which programs a sandbox sees, where they come from, and which versions they are."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path

from rtl_core.errors import ToolMissingError
from rtl_core.grading.executors.probe import base_environment

_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "passwd", "group", "nsswitch.conf")
_SIMULATORS = ("iverilog", "vvp", "verilator", "yosys")
_OLDER = ("cocotb==1.9.2",)
IMAGE_ICARUS = 12
"""Major version of Icarus in the simulation image (Debian trixie)."""
DESIGN_SLOT, SLOT, SLOTS = 1000, 250, 16
_VERSION_FLAGS = {"iverilog": "-V", "verilator": "--version", "yosys": "-V"}


def tools_home() -> Path:
    """Where `rtl-distill toolchain install` puts what is no part of this environment; RTL_DISTILL_TOOLS moves it."""
    given = os.environ.get("RTL_DISTILL_TOOLS")
    return Path(given) if given else Path.home() / ".local" / "share" / "rtl-distill" / "tools"


@dataclass(frozen=True)
class Toolbox:
    """The read-only part of a sandbox: this machine's system directories and the running Python environment."""

    python: str
    prefixes: tuple[str, ...]
    """Directories bound read-only at their own place, besides the system's."""
    tool_directories: tuple[str, ...] = field(default=())
    """Directories of simulators outside /usr, for PATH."""
    cocotb1: str | None = None
    """A directory that holds cocotb 1.9 for the older harnesses, or None where it is not installed."""

    @classmethod
    def of_this_machine(cls, *, warn: bool = False) -> Toolbox:
        """The tools on PATH. `warn` says so, once a process, when Icarus is older than the simulation image's.

        Raises ToolMissingError when no simulator is installed or cocotb is not importable.
        """
        if shutil.which("iverilog") is None or shutil.which("vvp") is None:
            raise ToolMissingError("Icarus Verilog is not installed", "apt-get install iverilog")
        own = (sys.prefix, sys.base_prefix)
        prefixes = dict.fromkeys((*own, *map(os.path.realpath, own)))
        cocotb = importlib.util.find_spec("cocotb")  # with --user or --system-site-packages it lies elsewhere
        if cocotb is not None and cocotb.origin is not None:
            site = Path(os.path.realpath(cocotb.origin)).parents[1]
            if not any(site.is_relative_to(prefix) for prefix in prefixes):
                prefixes[str(site)] = None
        directories: dict[str, None] = {}
        for tool in _SIMULATORS:
            found = shutil.which(tool)
            if found and not os.path.realpath(found).startswith("/usr/"):
                directories[str(Path(found).parent)] = None
                prefixes[str(Path(os.path.realpath(found)).parent.parent)] = None
        older = tools_home() / "cocotb1"
        if (older / "cocotb").is_dir():
            prefixes[str(older)] = None
        toolbox = cls(
            cocotb1=str(older) if str(older) in prefixes else None,
            python=sys.executable,
            prefixes=tuple(p for p in prefixes if p not in ("/usr", "/") and not p.startswith("/usr/")),
            tool_directories=tuple(directories),
        )
        if warn:
            _warn_of_older(toolbox.versions().get("iverilog", "unknown"))
        return toolbox

    @property
    def path(self) -> str:
        """PATH inside."""
        parts = (str(Path(self.python).parent), *self.tool_directories, "/usr/local/bin", "/usr/bin", "/bin")
        return ":".join(dict.fromkeys(parts))

    def binds(self) -> list[str]:
        """bwrap arguments that make up the root."""
        arguments = system_binds()
        for parent in sorted({str(p) for prefix in self.prefixes for p in Path(prefix).parents if str(p) != "/"}):
            # bwrap makes missing parents for root alone; the steps run as somebody else.
            arguments += ["--perms", "0755", "--dir", parent]
        for prefix in self.prefixes:
            arguments += ["--ro-bind", prefix, prefix]
        return arguments

    def environment(self) -> dict[str, str]:
        """What every step finds in its environment, before the harness' own settings."""
        return base_environment(self.path, self._libpython)

    def has_module(self, name: str) -> bool:
        """Whether this environment's Python can import a module."""
        try:
            return importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            return False

    @cached_property
    def cocotb_libraries(self) -> str:
        """The directory of cocotb's simulator libraries."""
        try:
            import cocotb_tools.config
        except ImportError as error:
            raise ToolMissingError(
                "cocotb 2 is not installed in this environment", "pip install cocotb==2.0.1"
            ) from error
        return str(cocotb_tools.config.libs_dir)

    def versions(self) -> dict[str, str]:
        """Name -> version of each tool there is."""
        return dict(self._versions)

    @cached_property
    def _libpython(self) -> str:
        try:
            import find_libpython
        except ImportError as error:
            raise ToolMissingError(
                "cocotb is not installed in this environment", "pip install cocotb==2.0.1"
            ) from error
        found = find_libpython.find_libpython()
        if not found:
            version = "{}.{}".format(*sys.version_info[:2])
            raise ToolMissingError(
                f"Python {version} is here without its shared library, which simulators load to run cocotb",
                f"apt-get install libpython{version}",
            )
        return found

    @cached_property
    def _versions(self) -> dict[str, str]:
        found = {"python": ".".join(str(part) for part in sys.version_info[:3])}
        for package in ("cocotb", "pytest"):
            try:
                found[package] = metadata.version(package)
            except metadata.PackageNotFoundError as error:
                raise ToolMissingError(f"{package} is not installed in this environment", "make setup") from error
        if self.cocotb1:
            older = next(Path(self.cocotb1).glob("cocotb-*.dist-info"), None)
            found["cocotb1"] = older.name.removeprefix("cocotb-").removesuffix(".dist-info") if older else "unknown"
        for tool, flag in _VERSION_FLAGS.items():
            path = shutil.which(tool)
            if path:
                text = subprocess.run([path, flag], capture_output=True, text=True, timeout=60, check=False).stdout
                match = re.search(r"\d+\.\d+(?:\.\d+)?", text)
                found[tool] = match[0] if match else "unknown"
        return found


@cache
def _warn_of_older(icarus: str) -> None:
    """Once for each version: the tools decide verdicts."""
    if icarus.split(".")[0].isdigit() and int(icarus.split(".")[0]) < IMAGE_ICARUS:
        logging.getLogger("rtl_distill").warning(
            "Icarus Verilog %s of this machine is older than the simulation image's %d and judges some answers otherwise "
            "(versions are kept with each verdict); for the same tools: rtl-distill toolchain install",
            icarus,
            IMAGE_ICARUS,
        )


def system_binds(root: str = "") -> list[str]:
    """bwrap arguments for the system directories of a root file system, and the few files of /etc that programs need."""
    arguments = ["--ro-bind", f"{root}/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        if os.path.islink(f"{root}/{name}"):
            arguments += ["--symlink", os.readlink(f"{root}/{name}"), f"/{name}"]
        elif os.path.isdir(f"{root}/{name}"):
            arguments += ["--ro-bind", f"{root}/{name}", f"/{name}"]
    arguments += ["--perms", "0755", "--dir", "/etc"]
    for name in _ETC:
        arguments += ["--ro-bind-try", f"{root}/etc/{name}", f"/etc/{name}"]
    return arguments


def warm_command(vvp: str, libraries: str) -> list[str]:
    """The command line of a warm vvp, with room for a design and plusargs; rtl_core/grading/inside/warm.py writes there."""
    slots = ["d" * DESIGN_SLOT, *["+" + "p" * (SLOT - 1)] * SLOTS]
    return [vvp, "-M", libraries, "-m", "libcocotbvpi_icarus", *slots]


def install_older_cocotb() -> Path:
    """Installs cocotb 1.9 beside this environment with its own pip; returns where. Raises ToolMissingError if pip fails."""
    target = tools_home() / "cocotb1"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--no-deps", "--target", str(target)]
    done = subprocess.run([*command, *_OLDER], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolMissingError(
            f"pip could not install {' '.join(_OLDER)}: {done.stderr.strip()[-300:]}", "check the network"
        )
    return target
