"""`rtl-distill check` checks the saved weights that a configuration names, on the embedded service and on one with a URL."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from localtinker.process import LocalTinker
from rtl_core.backend.registry import backend_of
from rtl_core.backend.tinker import readiness
from rtl_core.config import load_config
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from tests.run.test_check import STUDENT, TEACHER
from tests.run.test_check import check as said_by_check


def check(overrides: list[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code of the command, and its lines by `about`."""
    code, lines = said_by_check(overrides)
    return code, {line["about"]: line for line in lines}


def saved(overrides: list[str]) -> tuple[str, str]:
    """State and sampler weights of a new adapter."""

    async def run() -> tuple[str, str]:
        config = load_config("demo", [*overrides, "run.name=first"], environment={})
        async with backend_of(config).open(config, print) as backend:
            found = await (await backend.open_trainer(None)).save("some", None)
            return found.state_path, found.sampler_path

    return asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("embedded", [True, False])
def test_saved_weights_that_fit_do_not_fit_or_are_missing_have_a_line_each(
    embedded, tmp_path, monkeypatch
):
    for name in ("TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(readiness, "PAGE", 1)
    places = [
        f"run.directory={tmp_path}",
        f"run.history={tmp_path / 'h.duckdb'}",
        "tinker.lora_rank=8",
    ]
    places += ["problems.sources.0.train=3", "problems.sources.0.heldout=2"]
    if embedded:
        ask_for_each(places, "student", tmp_path)
        return
    with LocalTinker(
        {STUDENT: Path(STUDENT), TEACHER: Path(TEACHER)}, tmp_path / "service"
    ) as service:
        monkeypatch.setenv("TINKER_API_KEY", service.api_key)
        models = [f"tinker.student={STUDENT}", f"tinker.teacher={TEACHER}"]
        ask_for_each(
            [*places, *models, f"tinker.base_url={service.base_url}"], STUDENT, tmp_path
        )


def ask_for_each(places: list[str], student: str, folder: Path) -> None:
    state, sampler = saved(places)
    config = load_config("demo", [*places, "run.name=first"], environment={})
    assert asyncio.run(backend_of(config).stored(config)) == {state, sampler}
    named = [*places, f"tinker.start_from={state}", f"tinker.teacher={sampler}"]
    code, lines = check(named)
    assert code == 0, lines
    for key in ("tinker.start_from", "tinker.teacher"):
        assert (lines[key]["level"], lines[key]["text"]) == (
            "ok",
            f"saved weights of {student}, rank 8",
        )
    assert not (folder / "demo").exists()  # nothing was copied

    code, lines = check([*named, "tinker.lora_rank=16"])
    assert (code, lines["tinker.start_from"]["level"]) == (2, "wrong")
    assert lines["tinker.start_from"]["remedy"] == "set tinker.lora_rank = 8"

    missing = [*places, f"tinker.start_from={state}-none", f"tinker.teacher={sampler}-none"]
    code, lines = check(missing)
    assert code == 2
    for key, path in (("tinker.start_from", state), ("tinker.teacher", sampler)):
        assert lines[key]["level"] == "wrong"
        assert f"{path}-none" in lines[key]["text"]
        assert "rtl-distill admin checkpoints" in lines[key]["remedy"]

    # A run that has started has its own copy of its starting weights.
    History(folder / "h.duckdb").start_run(
        RunRecord(name="demo", start_state="tinker://own/weights/start")
    )
    code, lines = check([*places, f"tinker.start_from={state}-none"])
    assert (code, lines["tinker.start_from"]["level"]) == (0, "warning"), lines
