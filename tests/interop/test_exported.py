"""Content of exports, and how clients read them."""

import json
import tomllib
from pathlib import Path

import pytest

from rtl_core.errors import ProblemError
from rtl_core.starter import Spec, problem_of
from rtl_core.starter.source import StarterSource
from rtl_core.synthesis.keeping import write
from rtl_grader.exports.exported import (
    TASKS,
    answer_of,
    export_tasks,
    instruction,
    messages,
    read_tasks,
)
from rtl_grader.exports.writers import WRITERS
from rtl_grader.extraction.answer_to import response_of
from rtl_grader.problems.sources import source_of

ADDER = problem_of(Spec("adder", "add", ("a", "b", "y", "co"), 8, "plain"))
SECRET = [text for text in (*ADDER.harness.values(), *ADDER.golden.values()) if text.strip()]
"""Texts that no policy may see: the harness and the known-good answer."""


@pytest.fixture
def own(tmp_path):
    """A user's own set of one problem, without a licence."""
    (tmp_path / "own").mkdir()
    path = tmp_path / "own/problems.jsonl"
    write([ADDER], path)
    return path


@pytest.fixture
def licensed(own):
    (own.parent / "LICENSE").write_text("MIT")
    return own


def exported(path: Path, folder: Path) -> Path:
    export_tasks([source_of(f"cvdp={path}")], 0, "design", folder)
    return folder


def test_a_problem_without_a_licence_is_read_from_the_clients_copy(tmp_path, own, monkeypatch):
    folder = exported(own, tmp_path / "out")
    assert "module" not in (folder / TASKS).read_text()
    with pytest.raises(
        ProblemError, match=r"was exported without its text.*\n.*RTL_DISTILL_SOURCES=cvdp=PATH"
    ):
        read_tasks(folder)
    monkeypatch.setenv("RTL_DISTILL_SOURCES", f"cvdp={own}")
    (problem,) = read_tasks(folder).values()
    assert problem.harness == ADDER.harness
    own.write_text(own.read_text().replace("Module add", "Module  add"))
    with pytest.raises(ProblemError, match="differs from the exported problem"):
        read_tasks(folder)


def test_a_licence_beside_the_files_is_exported_with_the_problems(tmp_path, licensed):
    folder = exported(licensed, tmp_path / "out")
    (problem,) = read_tasks(folder).values()
    assert problem.harness == ADDER.harness
    assert (folder / "licences/cvdp/LICENSE").read_text() == "MIT"


def test_count_applies_per_source_and_a_non_empty_folder_is_refused(tmp_path, own):
    starter = StarterSource(kind="starter", train=3, heldout=2)
    sources = [starter, source_of(f"cvdp={own}")]
    tasks = export_tasks(sources, 0, "design", tmp_path / "out", count=2)
    assert [task.source for task in tasks] == ["starter", "starter", "cvdp"]
    held = export_tasks(sources, 0, "design", tmp_path / "held", heldout=True)
    assert {task.id for task in held}.isdisjoint(task.id for task in tasks)
    with pytest.raises(ProblemError, match="is not empty"):
        export_tasks(sources, 0, "design", tmp_path / "out")


def test_an_invalid_line_is_reported(tmp_path):
    (tmp_path / TASKS).write_text('{"id": 5}\n')
    with pytest.raises(ProblemError, match=r"tasks\.jsonl:1: id: "):
        read_tasks(tmp_path)


def test_prompts_contain_neither_harness_nor_known_good_answer():
    shown = json.dumps(messages(ADDER)) + instruction(ADDER)
    assert not any(json.dumps(text)[1:-1] in shown for text in SECRET)


def test_an_answer_is_a_response_or_the_targets_among_files():
    golden = ADDER.golden
    assert answer_of(ADDER, response_of(golden)).files == golden
    assert answer_of(ADDER, {**golden, "src/test_runner.py": "pass"}).files == golden
    assert "none of" in (answer_of(ADDER, {"src/test_runner.py": "pass"}).error or "")


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_contains_tasks_and_licences(tmp_path, licensed, name):
    command = WRITERS[name](exported(licensed, tmp_path / "out"))
    (tasks,) = (tmp_path / "out").rglob(TASKS)
    assert (tasks.parent / "licences/cvdp/LICENSE").is_file()
    assert str(tmp_path / "out") in command


def test_harbor_tasks_contain_neither_harness_nor_known_good_answer(tmp_path, licensed):
    WRITERS["harbor"](exported(licensed, tmp_path / "out"))
    task = tmp_path / "out" / ADDER.id
    settings = tomllib.loads((task / "task.toml").read_text())
    assert settings["artifacts"] == [f"/workspace/{path}" for path in ADDER.targets]
    assert settings["verifier"]["environment_mode"] == "separate"
    shown = [
        path.read_text()
        for path in [task / "instruction.md", *(task / "environment").rglob("*")]
        if path.is_file()
    ]
    assert not any(text in file for text in SECRET for file in shown)
    # The verifier has no harness either; only the grading service has it.
    judged = [path.read_text() for path in (task / "tests").iterdir()]
    assert not any(text in file for text in SECRET for file in judged)


def test_an_id_that_is_not_a_folder_name_is_refused_for_harbor(tmp_path, licensed):
    licensed.write_text(licensed.read_text().replace(ADDER.id, "../elsewhere"))
    with pytest.raises(ProblemError, match="cannot name a Harbor task"):
        WRITERS["harbor"](exported(licensed, tmp_path / "out"))
    assert not (tmp_path / "elsewhere").exists()


def test_nemo_gym_lines_contain_neither_harness_nor_known_good_answer(tmp_path, licensed):
    WRITERS["nemo-gym"](exported(licensed, tmp_path / "out"))
    (line,) = (tmp_path / "out/resources_servers/rtl/data/rtl.jsonl").read_text().splitlines()
    assert set(json.loads(line)) == {
        "responses_create_params",
        "id",
        "fingerprint",
        "agent_ref",
    }
    assert json.loads(line)["responses_create_params"] == {"input": messages(ADDER)}
