"""Executors for episodes, beside those of graders, and the published agentic problems."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rtl_core.tinymodels
from rtl_core.config.episode import Bounds
from rtl_core.episodes.tools import Result, Toolbox
from rtl_core.grading.executors import make_executor
from rtl_core.grading.executors.base import Executor
from rtl_core.problems.cvdp import read_cvdp
from rtl_core.prompting.calls import Call
from rtl_core.types.problem import Problem

Tell = Callable[..., Result]
TEMPLATE = "Qwen-Qwen2.5-7B-Instruct.jinja"
AGENTIC = "cvdp_v1.0.2_agentic_code_generation_no_commercial.jsonl"


@pytest.fixture(scope="session")
def agentic(cvdp: Path) -> list[Problem]:
    return read_cvdp(cvdp / AGENTIC).problems


@pytest.fixture(scope="session")
def arbiter(cvdp: Path) -> Problem:
    """The published agentic example, with its solution."""
    (problem,) = read_cvdp(
        cvdp / "cvdp_v1.1.0_example_agentic_code_generation_no_commercial_with_solutions.jsonl"
    ).problems
    return problem


@pytest.fixture(scope="session", params=["bubblewrap", pytest.param("docker", marks=pytest.mark.docker)])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """What runs the programs of episodes."""
    with make_executor(request.param) as started:
        yield started


@pytest.fixture
def open_tools(executor: Executor) -> Callable[..., tuple[Toolbox, Tell]]:
    """Opens the tools of a problem; `tell(name, argument=...)` calls one."""

    def opened(problem: Problem, **bounds: Any) -> tuple[Toolbox, Tell]:
        tools = Toolbox(problem, executor, Bounds(**bounds))
        return tools, lambda name, **arguments: tools.call(Call(name, json.dumps(arguments)))

    return opened


@pytest.fixture(scope="session")
def knows_tools(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tiny student, with a published chat template that knows tools and room for what that renders."""
    folder = tmp_path_factory.mktemp("models") / "student"
    shutil.copytree(Path(rtl_core.tinymodels.__file__).parent / "student", folder)
    shutil.copy(data / "chat-templates" / TEMPLATE, folder / "chat_template.jinja")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 16384}))
    return folder
