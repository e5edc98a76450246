"""Try the newest release of each dependency, one at a time with the others locked, and report what breaks.

    python -m scripts.newest [NAME ...] [--tests PATH ...]

Each release is installed into a folder of build/newest that comes first on Python's path, with those of its
requirements that the environment does not satisfy. Exit code 1 if a release that pyproject.toml allows
breaks a test.
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
PINNED_BY_IMAGE = ("cocotb", "pytest")
"""Packages whose versions decide verdicts; they follow the image of the CVDP benchmark."""
TESTS = [
    "tests/flows/test_train.py",
    "tests/history/test_history_store.py",
    "packages/rtl-grader/tests/grading/test_grader.py",
    "packages/localtinker/tests/localtinker/test_sampling.py",
    "tests/reporting/test_report_page.py",
    "tests/config",
]


def dependencies() -> dict[str, Requirement]:
    """Requirements of the three packages by name, including extras."""
    lines: list[str] = []
    for file in (REPOSITORY / "pyproject.toml", *REPOSITORY.glob("packages/*/pyproject.toml")):
        project = tomllib.loads(file.read_text())["project"]
        lines += project["dependencies"]
        lines += (
            line
            for extra in project.get("optional-dependencies", {}).values()
            for line in extra
        )
    return {re.sub(r"[-_.]+", "-", r.name).lower(): r for r in map(Requirement, lines)}


def pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def install(overlay: Path, name: str, version: str) -> list[str]:
    """Install a release and its missing requirements into `overlay`. Returns the requirements that were missing."""
    missing, added = [f"{name}=={version}"], []
    while missing:
        pip("install", "--quiet", "--no-deps", "--target", str(overlay), *missing)
        lines = set()
        for package in distributions(path=[str(overlay)]):
            lines.update(package.requires or [])
        unmet = {
            f"{requirement.name}{requirement.specifier}"
            for requirement in map(Requirement, lines)
            if not _is_satisfied(overlay, requirement)
        }
        missing = sorted(unmet - set(added))
        added += missing
    return added


def _is_satisfied(overlay: Path, requirement: Requirement) -> bool:
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return True
    first = next(
        iter(distributions(name=requirement.name, path=[str(overlay), *sys.path])), None
    )
    return first is not None and requirement.specifier.contains(first.version, prereleases=True)


def failures(overlay: Path, tests: list[str]) -> list[str]:
    """Failures in pytest's summary with `overlay` first on the path; empty when all tests pass."""
    marks = "not slow and not docker and not cookbook and not clients and not newer_clients and not engines"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", marks]
    environment = {**os.environ, "PYTHONPATH": str(overlay)}
    run = subprocess.run(
        [*command, *tests], cwd=REPOSITORY, env=environment, capture_output=True, text=True
    )
    if run.returncode == 0:
        return []
    summary = re.findall(r"^(?:FAILED|ERROR) .*", run.stdout, re.MULTILINE)
    return summary or (run.stdout + run.stderr).strip().splitlines()[-3:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="dependencies to try (default: all outdated ones)",
    )
    parser.add_argument(
        "--tests", nargs="+", default=TESTS, metavar="PATH", help="tests to run with each"
    )
    arguments = parser.parse_args()
    requirements = dependencies()
    broken = 0
    for package in json.loads(pip("list", "--outdated", "--format", "json")):
        name, newest = package["name"].lower(), package["latest_version"]
        if name not in requirements or (arguments.names and name not in arguments.names):
            continue
        line = f"{name} {package['version']} -> {newest}"
        if name in PINNED_BY_IMAGE:
            print(f"{line}: not tried, it follows CVDP's image", flush=True)
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
        failed = failures(overlay, arguments.tests)
        allowed = requirements[name].specifier.contains(newest)
        line += " (allowed)" if allowed else f" (not allowed: {requirements[name].specifier})"
        print(f"{line}: {'breaks' if failed else 'passes'}", flush=True)
        for failure in failed[:5]:
            print(f"    {failure[:200]}", flush=True)
        broken += bool(failed) and allowed
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
