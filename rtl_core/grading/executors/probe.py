"""What the inside of a root file system is like, found out by its own Python: an image's, or the installed toolchain's."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIM_PYTHON = "/opt/sim/bin/python3"
COCOTB1 = "/opt/cocotb1"
SCRIPT = r"""
import importlib.metadata as m, json, pathlib, re, subprocess, sys
import cocotb_tools.config, find_libpython
found = {"python": ".".join(map(str, sys.version_info[:3])), "cocotb": m.version("cocotb"), "pytest": m.version("pytest")}
for tool, flag in (("iverilog", "-V"), ("verilator", "--version"), ("yosys", "-V")):
    try:
        text = subprocess.run([tool, flag], capture_output=True, text=True).stdout
    except OSError:
        continue
    match = re.search(r"\d+\.\d+(?:\.\d+)?", text)
    found[tool] = match[0] if match else "unknown"
older = list(pathlib.Path("/opt/cocotb1").glob("cocotb-*.dist-info"))
if older:
    found["cocotb1"] = older[0].name[7:-10]
modules = sorted({name.split(".")[0] for name in m.packages_distributions()})
packages = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in m.distributions()}
print(json.dumps({"tools": found, "python": sys.executable, "libraries": str(cocotb_tools.config.libs_dir),
                  "libpython": find_libpython.find_libpython() or "", "modules": modules, "packages": packages}))
"""


@dataclass(frozen=True)
class Inside:
    """A root file system with simulators and a Python of its own, as the probe found it."""

    python: str
    """Its interpreter, as seen inside."""
    libraries: str
    """The directory of cocotb's simulator libraries."""
    libpython: str
    tools: dict[str, str]
    """Name -> version."""
    modules: frozenset[str]
    """First parts of the modules that packages have brought."""
    packages: dict[str, str]
    """What pip calls a package (lower case, hyphens) -> version."""

    @classmethod
    def of(cls, found: dict[str, Any]) -> Inside:
        """From what the probe printed."""
        modules, packages = frozenset(found["modules"]), dict(found["packages"])
        return cls(found["python"], found["libraries"], found["libpython"], dict(found["tools"]), modules, packages)

    @classmethod
    def parse(cls, text: str) -> Inside:
        return cls.of(json.loads(text))

    @property
    def cocotb1(self) -> str | None:
        """Where cocotb 1.9 stands for the older harnesses, if it does."""
        return COCOTB1 if "cocotb1" in self.tools else None

    @property
    def prefixes(self) -> tuple[str, ...]:
        return ()

    @property
    def path(self) -> str:
        return f"{Path(self.python).parent}:/usr/local/bin:/usr/bin:/bin"

    def environment(self) -> dict[str, str]:
        """What every step finds in its environment, before the harness' own settings."""
        return base_environment(self.path, self.libpython)

    def has_module(self, name: str) -> bool:
        """By its first part; `cocotb.runner`, which cocotb 2 has no more, is told apart."""
        return name.split(".")[0] in self.modules and name != "cocotb.runner"

    def has_package(self, requirement: str) -> bool:
        """Whether what a `pip install` names is here: any version of cocotb and pytest, which are ours, else the one it pins."""
        name, _, version = (part.strip() for part in re.split(r"\[.*?\]", requirement, maxsplit=1)[0].partition("=="))
        name = re.split(r"[<>~!]", name)[0].replace("_", "-").lower()
        return name in self.packages and (name in ("cocotb", "pytest") or version in ("", self.packages[name]))


def base_environment(path: str, libpython: str) -> dict[str, str]:
    """The environment that all sandboxes have in common."""
    return {
        "PATH": path,
        "HOME": "/code/rundir",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        # Plugins of this environment are none of the harness' business, and each costs start-up time twice.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "LIBPYTHON_LOC": libpython,
    }
