"""What a resumed run may not change."""

import asyncio
from pathlib import Path

import pytest

from rtl_core.config import RunConfig, load_config
from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.run.folder import check_unchanged, run_record
from rtl_core.run.opening import open_session
from rtl_grader.problems.problem_set import LoadedProblems
from tests.command import invoke

TOOLS = {"iverilog": "13.0", "cocotb": "2.0.1", "image": "sha256:1"}


def from_older_release(
    path: Path, config: RunConfig, *, without: tuple[str, ...] = ()
) -> History:
    """A history whose run was started when some keys of `[learning]` and all of `[health]` did not exist."""
    record = run_record(config, LoadedProblems(), TOOLS)
    stored = dict(record.config)
    stored["learning"] = {
        key: value for key, value in stored["learning"].items() if key not in without
    }
    del stored["health"]
    history = History(path)
    history.start_run(record.model_copy(update={"config": stored}))
    return history


def check(
    config: RunConfig, history: History, tools: dict[str, str] = TOOLS, *, accept: bool = False
) -> None:
    check_unchanged(config, LoadedProblems(), history, tools, accept_changes=accept)


def test_training_a_paused_run_names_the_command_that_resumes_it(tmp_path, monkeypatch):
    started: list[str] = []
    monkeypatch.setattr(
        "rtl_distill.cli.flow.run_flow", lambda *_, **__: started.append("flow")
    )
    (tmp_path / "nightly").mkdir()
    (tmp_path / "nightly" / "pause").touch()
    sets = ["run.name=nightly", f"run.directory={tmp_path}"]
    with pytest.raises(ConfigError, match="run 'nightly' is paused") as refused:
        raise invoke("train", sets=sets).exception
    assert refused.value.hint == "`rtl-distill resume nightly` continues it"
    own = tmp_path / "h.duckdb"
    there = invoke("train", sets=[*sets, f"run.history={own}"]).exception
    assert there.hint == f"`rtl-distill resume nightly --db {own}` continues it"
    assert not started


def test_keys_added_since_a_run_started_are_a_change_unless_they_have_their_defaults(tmp_path):
    config = load_config("demo", environment={})
    history = from_older_release(
        tmp_path / "h.duckdb", config, without=("staleness", "truncated")
    )
    check(config, history)
    stale = load_config("demo", ["learning.staleness=1"], environment={})
    with pytest.raises(ConfigError, match=r"learning\.staleness: was 0, is 1"):
        check(stale, history)
    check(stale, history, accept=True)
    # Safe ranges may change from start to start.
    check(
        load_config("demo", ['health.ranges={"optim/entropy" = {min = 0.1}}'], environment={}),
        history,
    )


def test_other_tools_are_a_change_but_another_image_with_the_same_tools_is_not(tmp_path):
    config = load_config("demo", environment={})
    history = from_older_release(tmp_path / "h.duckdb", config)
    check(config, history, {**TOOLS, "image": "sha256:2"})
    other = {"iverilog": "12.0", "cocotb": "2.0.1", "yosys": "0.66"}
    with pytest.raises(
        ConfigError, match=r"iverilog, which judges answers: was 13\.0, is 12\.0"
    ) as refused:
        check(config, history, other)
    assert "yosys, which judges answers: was missing, is 0.66" in str(refused.value)
    check(config, history, other, accept=True)


def on_agentic_problems(data: Path, folder: Path, *more: str) -> RunConfig:
    path = data / "cvdp" / "cvdp_v1.0.2_agentic_code_generation_no_commercial.jsonl"
    overrides = [
        f'problems.sources=[{{kind="cvdp", path="{path}"}}]', f"run.directory={folder}", f"run.history={folder}/h.duckdb", *more,
    ]  # fmt: skip
    return load_config("demo", overrides, environment={})


def split_when_opened(config: RunConfig) -> tuple[str, dict[str, str]]:
    """Open the run; returns how it is split, and each problem's side in the history."""

    async def opened() -> str:
        async with open_session(config, with_policy=False) as session:
            return session.config.problems.split

    how = asyncio.run(opened())
    rows = History(config.run.history).query(
        "SELECT problem_id, split FROM run_problems WHERE run = $run", {"run": config.run.name}
    )
    return how, {row["problem_id"]: row["split"] for row in rows.to_pylist()}


@pytest.mark.slow
def test_a_new_run_is_split_by_design_and_resumes_with_that_split(data, tmp_path):
    config = on_agentic_problems(data, tmp_path)
    how, sides = split_when_opened(config)
    assert how == "design"
    assert (
        sides["cvdp_agentic_phase_rotation_0010"] == sides["cvdp_agentic_phase_rotation_0038"]
    )
    assert split_when_opened(config) == (how, sides)
    with pytest.raises(ConfigError, match=r"problems\.split: was 'design', is 'id'"):
        split_when_opened(on_agentic_problems(data, tmp_path, "problems.split=id"))
