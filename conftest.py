"""Fixtures and hooks for all tests: the published problem sets, executors, Prefect, and checks after each module."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.places import REPOSITORY
from tests.sdk import wait_until_no_sdk_loop_runs

if TYPE_CHECKING:
    from rtl_grader.grading.executors import Executor
    from rtl_grader.grading.grader import Grader
    from rtl_grader.types.problem import Problem

os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")  # as in commands
# Commands keep the prepared database of their Prefect servers in the cache; tests do not touch the user's.
os.environ["XDG_CACHE_HOME"] = str(REPOSITORY / "build" / "cache")
PUBLISHED = Path(os.environ.get("RTL_DISTILL_DATA", REPOSITORY.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of the published problem sets: `cvdp`, `verilog-eval`, `RTLLM`."""
    if not PUBLISHED.is_dir():
        pytest.fail(
            f"{PUBLISHED} is missing: set RTL_DISTILL_DATA to the folder that holds cvdp, verilog-eval and RTLLM"
        )
    return PUBLISHED


@pytest.fixture(scope="session")
def executor() -> Iterator[Executor]:
    """Bubblewrap executor; some rooms override it."""
    from rtl_grader.grading.executors import make_executor

    with make_executor("bubblewrap") as started:
        yield started


@pytest.fixture(scope="session")
def grader(executor: Executor) -> Iterator[Grader]:
    """Grader without a verdict cache; some rooms override it."""
    from rtl_grader.grading.grader import Grader

    with closing(Grader(executor)) as grader:
        yield grader


@pytest.fixture(scope="session")
def examples(cvdp: Path) -> dict[str, Problem]:
    """Mapping of problem id to problem, for the published examples that open tools can grade."""
    from rtl_grader.problems.cvdp import read_cvdp

    found = [read_cvdp(path) for path in cvdp.glob("*v1.1.0_example*no_commercial*.jsonl")]
    return {problem.id: problem for problems in found for problem in problems.problems}


@pytest.fixture(scope="session")
def cvdp(data: Path) -> Path:
    """Folder of CVDP's JSON Lines files."""
    return data / "cvdp"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of SmolLM2-135M-Instruct, in RTL_DISTILL_MODELS or else downloaded once into build/models."""
    from rtl_core.pretrained.fetch import fetch_model

    own = os.environ.get("RTL_DISTILL_MODELS")
    return fetch_model(
        "SmolLM2-135M-Instruct",
        print,
        folder=Path(own) if own else REPOSITORY / "build" / "models",
    )


@pytest.fixture(scope="session")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Prefect server like that of a command, with its own database."""
    from prefect import context
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from rtl_distill.operations import temporary_server

    home = str(tmp_path_factory.mktemp("prefect"))
    _server, url = temporary_server.start(
        {**temporary_server.server_environment(), "PREFECT_HOME": home}
    )
    with (
        temporary_settings({PREFECT_API_URL: url}),
        context._temporary_global_settings_context(context.get_settings_context()),
    ):
        yield  # the server ends with this process, after Prefect has delivered its remaining events


@pytest.fixture(scope="module", autouse=True)
def _no_side_effects_after_a_module() -> Iterator[None]:
    """Open sessions would send heartbeats to a stopped service for minutes, and a log level would silence
    later flows."""
    yield
    wait_until_no_sdk_loop_runs()
    assert logging.getLogger("rtl_distill").level == logging.NOTSET


LONGEST_FIRST = (
    "durability",
    "test_benchmarks.py",
    "flows",
    "learning",
    "pretrained",
    "backend",
    "localtinker",
    "reporting",
    "run",
    "validation",
    "debugging",
    "problems_sources",
    "tinymodels",
)
"""Folders (and a file) whose tests start services. They run first, so that no worker has one of them left
at the end."""


SHARED = ("deployed", "prefect", "tinker_service", "deterministic_service")
"""Fixtures that start a service once: the tests that use one of them run in one worker."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _mark_most_of_a_corpus_slow(items)
    _group_by_worker(items)
    _deselect_without_published_sets(config, items)


def _mark_most_of_a_corpus_slow(items: list[pytest.Item]) -> None:
    """Of a test marked `corpus`, `make test` runs every third case; the other cases become slow tests."""
    seen: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("corpus"):
            function = item.nodeid.split("[")[0]
            if seen[function] % 3:
                item.add_marker(pytest.mark.slow)
            seen[function] += 1


def _group_by_worker(items: list[pytest.Item]) -> None:
    """Run the tests of a module, and all tests that share a server or a browser, in one worker (`--dist loadgroup`)."""
    for item in items:
        shared = [name for name in SHARED if name in getattr(item, "fixturenames", ())]
        if item.path.stem == "test_benchmarks":  # independent commands
            shared.append(item.name)
        if item.path.parent.name == "reporting":
            shared.append("reporting")
        item.add_marker(pytest.mark.xdist_group(next(iter(shared), item.path.stem)))
    ranks = {name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(folder_of(item), len(ranks)))


def folder_of(item: pytest.Item) -> str:
    """The folder (or file) below `tests` that holds a test, in any of the three packages."""
    parts = item.path.relative_to(REPOSITORY).parts
    return parts[parts.index("tests") + 1]


def _deselect_without_published_sets(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without the published sets, deselect their tests and report it; in CI they fail instead."""
    if PUBLISHED.is_dir() or os.environ.get("CI"):
        return
    needing = [
        item for item in items if {"data", "cvdp"} & set(getattr(item, "fixturenames", ()))
    ]
    items[:] = [item for item in items if item not in needing]
    config.hook.pytest_deselected(items=needing)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not PUBLISHED.is_dir() and not os.environ.get("CI"):
        terminalreporter.write_line(
            f"LEFT OUT: tests of the published problem sets, which are not in {PUBLISHED}; set "
            "RTL_DISTILL_DATA to run them",
            yellow=True,
            bold=True,
        )
