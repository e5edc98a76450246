"""A run as its history and its folder know it, for commands that steer it from outside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rtl_core.config import RunConfig, to_toml
from rtl_core.errors import ConfigError
from rtl_core.history.store import History


def config_of(history: History, run: str) -> RunConfig:
    """The configuration that a run was begun with, writing to the history that it was found in.

    Raises:
        HistoryError: there is no such run.
        ConfigError: it cannot be used here, for example because a source of the user's own cannot be imported.
    """
    record = history.existing_run(run)
    try:
        return as_stored({**record.config, "run": {**record.config.get("run", {}), "history": str(history.path)}})
    except ValidationError as error:
        reasons = (f"  `{'.'.join(map(str, item['loc']))}`: {item['msg']}" for item in error.errors())
        raise ConfigError("\n".join([f"the configuration of run {run!r} cannot be used here", *reasons])) from None


def as_stored(data: Mapping[str, Any]) -> RunConfig:
    """A configuration that a history holds, with the keys that have come since at what the run was begun with.

    That is their default, but for `problems.split`: before that key problems were held out one by one.
    Raises ValidationError for keys or values that are refused today.
    """
    return RunConfig.model_validate({**data, "problems": {"split": "id", **data.get("problems", {})}})


def pause_path(config: RunConfig) -> Path:
    """The file whose presence pauses a run."""
    return config.run.folder / "pause"


def write_config(config: RunConfig) -> Path:
    """Put the run's whole configuration into its folder, from where `train` takes it to go on. Returns its path."""
    path = config.run.folder / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_toml(config), encoding="utf-8")
    return path
