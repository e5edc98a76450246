"""Executors for episodes, apart from those of graders, and the published agentic problems."""

import json
import shutil
from pathlib import Path

import pytest

import rtl_core.tinymodels
from rtl_core.config.episode import Bounds
from rtl_core.episodes.tools import Toolbox
from rtl_core.prompting.calls import Call
from rtl_grader.grading.executors import make_executor
from rtl_grader.problems.cvdp import read_cvdp
from tests.episodes.endpoint import EXAMPLE, scripted_calls

TEMPLATE = "Qwen-Qwen2.5-7B-Instruct.jinja"
AGENTIC = "cvdp_v1.0.2_agentic_code_generation_no_commercial.jsonl"


@pytest.fixture(scope="session")
def agentic(cvdp):
    return read_cvdp(cvdp / AGENTIC).problems


@pytest.fixture(scope="session")
def arbiter(cvdp):
    """The published agentic example, with its solution."""
    (problem,) = read_cvdp(cvdp / EXAMPLE).problems
    return problem


@pytest.fixture(scope="session")
def calls(cvdp):
    return scripted_calls(cvdp)


@pytest.fixture(
    scope="session", params=["bubblewrap", pytest.param("docker", marks=pytest.mark.docker)]
)
def executor(request):
    """Runs the programs of episodes."""
    with make_executor(request.param) as started:
        yield started


@pytest.fixture
def open_tools(executor):
    """Opens the tools of a problem: returns them, and a function `tell(name, argument=...)` that calls one."""

    def opened(problem, **bounds):
        tools = Toolbox(problem, executor, Bounds(**bounds))
        return tools, lambda name, **arguments: tools.call(Call(name, json.dumps(arguments)))

    return opened


@pytest.fixture(scope="session")
def knows_tools(data, tmp_path_factory):
    """The folder of the tiny student with a published chat template that supports tools, and a context long enough for it."""
    folder = tmp_path_factory.mktemp("models") / "student"
    shutil.copytree(Path(rtl_core.tinymodels.__file__).parent / "student", folder)
    shutil.copy(data / "chat-templates" / TEMPLATE, folder / "chat_template.jinja")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "max_position_embeddings": 16384})
    )
    return folder
