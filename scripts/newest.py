"""Try the newest release of each dependency, one at a time beside the locked others, and say what breaks.

    python -m scripts.newest [NAME ...] [--tests PATH ...]

Each goes into a folder below build/newest that comes first on Python's path, with what it requires in another version than the one
installed. Nothing else changes.
Exit code 1 when a release that pyproject.toml allows breaks a test.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement

REPOSITORY = Path(__file__).resolve().parents[1]
OF_THE_IMAGE = {"cocotb": "CVDP's image", "pytest": "CVDP's image"}
"""Packages whose versions decide verdicts: they follow the benchmark's own image."""
TESTS = [
    "tests/flows/test_train.py", "tests/history/test_history_store.py", "tests/grading/test_grader.py",
    "tests/localtinker/test_sampling.py", "tests/reporting/test_report_page.py", "tests/config",
]  # fmt: skip


def dependencies() -> dict[str, Requirement]:
    """What pyproject.toml asks for, by name, extras included."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    return {re.sub(r"[-_.]+", "-", r.name).lower(): r for r in map(Requirement, lines)}


def pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def install(overlay: Path, name: str, version: str) -> list[str]:
    """Install a release into `overlay`, and what it lacks there and in this environment; returns the requirements that were missing."""
    wanted, added = [f"{name}=={version}"], []
    while wanted:
        pip("install", "--quiet", "--no-deps", "--target", str(overlay), *wanted)
        required = (Requirement(line) for one in distributions(path=[str(overlay)]) for line in one.requires or [])
        used = (r for r in required if r.marker is None or r.marker.evaluate({"extra": ""}))
        wanted = sorted({f"{r.name}{r.specifier}" for r in used if not _is_there(overlay, r)} - set(added))
        added += wanted
    return added


def _is_there(overlay: Path, asked: Requirement) -> bool:
    first = next(iter(distributions(name=asked.name, path=[str(overlay), *sys.path])), None)
    return first is not None and asked.specifier.contains(first.version, prereleases=True)


def failures(overlay: Path, tests: list[str]) -> list[str]:
    """What pytest's summary says of the tests with `overlay` first on the path; empty when all pass."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-m",
        "not slow and not timing and not docker and not cookbook and not clients",
    ]
    environment = {**os.environ, "PYTHONPATH": str(overlay)}
    done = subprocess.run([*command, *tests], cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return []
    found = re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.MULTILINE)
    return found or (done.stdout + done.stderr).strip().splitlines()[-3:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="dependencies to try (default: all that have a newer release)"
    )
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="PATH", help="tests to run with each")
    arguments = parser.parse_args()
    wanted = dependencies()
    outdated = [
        one for one in json.loads(pip("list", "--outdated", "--format", "json")) if one["name"].lower() in wanted
    ]
    broken = 0
    for one in outdated:
        name, newest = one["name"].lower(), one["latest_version"]
        if arguments.names and name not in arguments.names:
            continue
        line = f"{name} {one['version']} -> {newest}"
        if name in OF_THE_IMAGE:
            print(f"{line}: not tried, it follows {OF_THE_IMAGE[name]}", flush=True)
            continue
        overlay = REPOSITORY / "build" / "newest" / name
        shutil.rmtree(overlay, ignore_errors=True)
        try:
            added = install(overlay, name, newest)
        except subprocess.CalledProcessError:
            print(f"{line}: not tried, pip cannot install it here (see above)", flush=True)
            continue
        if added:
            line += f" with {', '.join(added)}"
        found = failures(overlay, arguments.tests)
        allowed = wanted[name].specifier.contains(newest)
        print(
            f"{line} ({'allowed' if allowed else f'not allowed: {wanted[name].specifier}'}): {'breaks' if found else 'passes'}",
            flush=True,
        )
        for failure in found[:5]:
            print(f"    {failure[:200]}", flush=True)
        broken += bool(found) and allowed
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
