"""A run's stored configuration, the check that it is still the same run, and the files in its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rtl_core import __version__
from rtl_core.config import RunConfig, to_toml
from rtl_core.errors import ConfigError
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_grader.problems.problem_set import LoadedProblems

# Sections that a resumed run may not change, because the figures of its earlier steps depend on them.
_FIXED = (
    "problems",
    "prompting",
    "sampling",
    "reward",
    "learning",
    "tinker",
    "backend",
    "curriculum",
    "grading",
    "evaluation",
    "episode",
)
_MAY_CHANGE = {
    "grading": {"workers", "retries", "executor", "image"},
    "tinker": {"base_url", "teacher_base_url", "local_threads", "local_device", "local_models"},
    "backend": {"options"},
    "evaluation": {"samples", "k", "every", "teacher"},
    "problems": {"validate_first"},
}
JUDGES = ("iverilog", "verilator", "yosys", "cocotb", "cocotb1", "pytest")
"""The tools whose versions decide verdicts."""


def config_of(history: History, run: str) -> RunConfig:
    """Return the configuration that a run was started with; its `run.history` is the given history.

    Raises:
        HistoryError: there is no such run.
        ConfigError: it cannot be used here, for example because a custom source cannot be imported.
    """
    record = history.existing_run(run)
    try:
        return RunConfig.model_validate(
            {**record.config, "run": {**record.config.get("run", {}), "history": str(history.path)}}
        )
    except ValidationError as error:
        reasons = (
            f"  `{'.'.join(map(str, item['loc']))}`: {item['msg']}" for item in error.errors()
        )
        text = "\n".join([f"the configuration of run {run!r} cannot be used here", *reasons])
        raise ConfigError(text.replace("Value error, ", "")) from None


def has_begun(history: History, run: str) -> bool:
    """Whether a run has its own copy of its weights, so that those it started from may be gone."""
    record = history.run(run)
    return history.last_trained_step(run) is not None or (
        record is not None and record.start_state is not None
    )


def pause_path(config: RunConfig) -> Path:
    """Path of the file whose presence pauses a run."""
    return config.run.folder / "pause"


def write_config(config: RunConfig) -> Path:
    """Write the run's full configuration to its folder, from where `train` can resume it. Returns the path."""
    path = config.run.folder / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_toml(config), encoding="utf-8")
    return path


def check_unchanged(
    config: RunConfig,
    loaded: LoadedProblems,
    history: History,
    tools: Mapping[str, str],
    *,
    accept_changes: bool,
) -> None:
    """Refuse to resume a run with another data set, reward, model or tools than it was started with.

    Raises:
        ConfigError: lists the changes, key by key.
    """
    before = history.run(config.run.name)
    if before is None or accept_changes:
        return
    old, new = _with_defaults(before.config), config.model_dump(mode="json")
    changes = []
    for section in _FIXED:
        free = _MAY_CHANGE.get(section, set())
        if section == "evaluation" and config.run.purpose == "evaluation":
            free = {
                "at_once"
            }  # its only evaluation is the run itself, so other samples make another run
        for key, value in new[section].items():
            if key not in free and old.get(section, {}).get(key) != value:
                changes.append(
                    f"{section}.{key}: was {old.get(section, {}).get(key)!r}, is {value!r}"
                )
    if old.get("run", {}).get("seed") != config.run.seed:
        changes.append(f"run.seed: was {old.get('run', {}).get('seed')}, is {config.run.seed}")
    if (purpose := old.get("run", {}).get("purpose", "train")) != config.run.purpose:
        changes.append(f"run.purpose: was {purpose!r}, is {config.run.purpose!r}")
    if before.problems_hash != loaded.fingerprint:
        changes.append(
            "the problems themselves: the data set is not the one that the run started with"
        )
    for tool in JUDGES:
        was, now = before.versions.get(tool), tools.get(tool)
        if was != now:
            changes.append(
                f"{tool}, which judges answers: was {was or 'missing'}, is {now or 'missing'}"
            )
    if changes:
        raise ConfigError(
            f"run {config.run.name!r} exists and was started with another configuration\n"
            + "\n".join(f"  {c}" for c in changes),
            "choose another run.name, or pass --accept-changes to resume it anyway"
            if config.run.purpose == "train"
            else "choose another --name",
        )


def _with_defaults(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a stored configuration with the defaults of missing keys."""
    try:
        return RunConfig.model_validate(stored).model_dump(mode="json")
    except ValidationError:
        return stored  # keys or values that are no longer valid are shown as differences


def run_record(config: RunConfig, loaded: LoadedProblems, tools: Mapping[str, str]) -> RunRecord:
    """Return the run's row. `tools`: versions of the executor's tools by name."""
    packages = ("tinker", "prefect", "duckdb", "pyslang")
    stored = config.model_dump(mode="json")
    return RunRecord(
        name=config.run.name,
        status="running",
        config=stored,
        config_hash=hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest(),
        seed=config.run.seed,
        student=config.tinker.student,
        teacher=", ".join(dict.fromkeys(config.tinker.named_teachers.values())),
        problems_hash=loaded.fingerprint,
        versions={
            "rtl-distill": __version__,
            **{name: version(name) for name in packages},
            **tools,
        },
    )
