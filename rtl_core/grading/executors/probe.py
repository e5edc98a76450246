"""Which simulators and packages are here. Also run as a program by the Python of another root file system, so it needs
nothing of this project: only the standard library, cocotb and what comes with it.
"""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

COCOTB1 = "/opt/cocotb1"
"""Where cocotb 1.9 stands in the simulation image."""
SIMULATORS = {"iverilog": "-V", "verilator": "--version", "yosys": "-V"}


def probe(cocotb1):
    """What a sandbox has to know of its tools. `cocotb1` is where cocotb 1.9 may stand, or None.

    Raises PackageNotFoundError or ImportError for a package that is missing.
    """
    tools = {"python": ".".join(map(str, sys.version_info[:3]))}
    tools.update({package: metadata.version(package) for package in ("cocotb", "pytest")})
    for tool, flag in SIMULATORS.items():
        try:
            done = subprocess.run([tool, flag], capture_output=True, text=True, timeout=60, check=False)
        except OSError:
            continue
        match = re.search(r"\d+\.\d+(?:\.\d+)?", done.stdout)
        tools[tool] = match[0] if match else "unknown"
    older = next(Path(cocotb1).glob("cocotb-*.dist-info"), None) if cocotb1 else None
    if older:
        tools["cocotb1"] = older.name.removeprefix("cocotb-").removesuffix(".dist-info")
    import cocotb_tools.config
    import find_libpython

    return {
        "tools": tools,
        "python": sys.executable,
        "libraries": str(cocotb_tools.config.libs_dir),
        "libpython": find_libpython.find_libpython() or "",
    }


def packages():
    """The first parts of all modules that packages have brought, and name -> version of the packages as pip writes them."""
    return {
        "modules": sorted({name.split(".")[0] for name in metadata.packages_distributions()}),
        "packages": {d.metadata["Name"].lower().replace("_", "-"): d.version for d in metadata.distributions()},
    }


if __name__ == "__main__":
    print(json.dumps({**probe(COCOTB1), **packages()}))
