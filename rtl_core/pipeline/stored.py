"""A run as its history and its folder know it, for commands that steer it from outside."""

from __future__ import annotations

from pathlib import Path

from rtl_core.config import RunConfig, to_toml
from rtl_core.history.store import History
from rtl_core.pipeline.lock import run_folder


def config_of(history: History, run: str) -> RunConfig:
    """The configuration that a run was begun with, writing to the history that it was found in.

    Raises:
        HistoryError: there is no such run.
    """
    record = history.existing_run(run)
    return RunConfig.model_validate({**record.config, "run": {**record.config["run"], "history": str(history.path)}})


def pause_path(config: RunConfig) -> Path:
    """The file whose presence pauses a run."""
    return run_folder(config) / "pause"


def write_config(config: RunConfig) -> Path:
    """Put the run's whole configuration into its folder, from where `train` takes it to go on. Returns its path."""
    path = run_folder(config) / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_toml(config), encoding="utf-8")
    return path
