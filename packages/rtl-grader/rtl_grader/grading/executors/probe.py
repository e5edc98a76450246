"""Reports installed simulators and packages. Also run as a program by the Python of another root file
system, so it imports only the standard library, cocotb and its dependencies.
"""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

COCOTB1 = "/opt/cocotb1"
"""Directory of cocotb 1.9 in the simulation image."""
SIMULATORS = {"iverilog": "-V", "verilator": "--version", "yosys": "-V"}


def simulators():
    """Return the versions of the simulators on PATH by name."""
    versions = {}
    for tool, flag in SIMULATORS.items():
        try:
            result = subprocess.run(
                [tool, flag], capture_output=True, text=True, timeout=60, check=False
            )
        except OSError:
            continue
        match = re.search(r"\d+\.\d+(?:\.\d+)?", result.stdout)
        versions[tool] = match[0] if match else "unknown"
    return versions


def probe(cocotb1):
    """Return versions and paths of the tools. `cocotb1` is a directory that may contain cocotb 1.9, or None.

    Raises PackageNotFoundError or ImportError for a missing package.
    """
    tools = {"python": ".".join(map(str, sys.version_info[:3]))}
    tools.update({package: metadata.version(package) for package in ("cocotb", "pytest")})
    tools.update(simulators())
    older = None
    if cocotb1:
        older = next(Path(cocotb1).glob("cocotb-*.dist-info"), None)
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


if __name__ == "__main__":
    modules = sorted({name.split(".")[0] for name in metadata.packages_distributions()})
    packages = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"].lower().replace("_", "-")
        packages[name] = distribution.version
    print(json.dumps({**probe(COCOTB1), "modules": modules, "packages": packages}))
