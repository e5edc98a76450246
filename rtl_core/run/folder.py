"""A run's stored configuration, the check that it is still the same run, and the files in its folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rtl_core import __version__
from rtl_core.config import RunConfig, to_toml
from rtl_core.errors import ConfigError, UserError
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.run.lock import lock_path, read_holder
from rtl_grader.problems.problem_set import LoadedProblems

# Sections that a resumed run may change. The figures of its earlier steps depend on the others.
_FREE = ("health", "checkpoints", "cost", "tracking")
_MAY_CHANGE = {
    "run": {"name", "epochs", "directory", "history"},
    "grading": {"workers", "retries", "executor", "image"},
    "tinker": {
        "base_url",
        "teacher_base_url",
        "engine",
        "local_threads",
        "local_device",
        "local_models",
    },
    "backend": {"options"},
    "learning": {"warm_start_endpoint"},
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
    section = {**record.config.get("run", {}), "history": str(history.path)}
    try:
        return RunConfig.model_validate({**record.config, "run": section})
    except ValidationError as error:
        lines = [f"the configuration of run {run!r} cannot be used here"]
        for item in error.errors():
            key = ".".join(map(str, item["loc"]))
            lines.append(f"  `{key}`: {item['msg']}")
        text = "\n".join(lines)
        raise ConfigError(text.replace("Value error, ", "")) from None


def flow_run_page(history: History, run: str) -> str | None:
    """Return the address of a run's last flow run on a Prefect server, if it had one there."""
    try:
        config = config_of(history, run)
    except UserError:  # such as a source that cannot be imported here
        return None
    page: str | None = read_holder(lock_path(config)).get("page")
    return page


def report_path(history: History, runs: Sequence[str]) -> Path:
    """Path of the report of a run, in its folder, or of a comparison of several, beside the history. So is that of a
    run whose folder is not on this machine."""
    folder = history.existing_run(runs[0]).setting("run", "directory", "")
    if len(runs) == 1 and Path(folder, runs[0]).is_dir():
        return Path(folder, runs[0], "report.html")
    return history.path.with_name(f"report-{'-'.join(runs)}.html")


def has_begun(history: History, run: str) -> bool:
    """Whether a run has its own copy of its weights, so that those it started from may be gone."""
    record = history.run(run)
    return history.steps_done(run) > 0 or (
        record is not None and record.start_state is not None
    )


def command_for(config: RunConfig, words: str) -> str:
    """The command `rtl-distill WORDS RUN` in backticks, with `--db` unless it finds the run's history without."""
    path = config.run.history
    usual = Path(os.environ.get("RTL_DISTILL_DB") or "runs/history.duckdb")
    where = "" if path.absolute() == usual.absolute() else f" --db {path}"
    return f"`rtl-distill {words} {config.run.name}{where}`"


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
    changes = _changed_keys(_with_defaults(before.config), config)
    if before.problems_hash != loaded.fingerprint:
        changes.append(
            "the problems themselves: the data set is not the one that the run started with"
        )
    for tool in JUDGES:
        was, now = before.versions.get(tool) or "missing", tools.get(tool) or "missing"
        if was != now:
            changes.append(f"{tool}, which judges answers: was {was}, is {now}")
    if changes:
        remedy = "choose another --name"
        if config.run.purpose == "train":
            remedy = "choose another run.name, or pass --accept-changes to resume it anyway"
        first = f"run {config.run.name!r} exists and was started with another configuration"
        raise ConfigError("\n  ".join([first, *changes]), remedy)


def _changed_keys(old: dict[str, Any], config: RunConfig) -> list[str]:
    """Return a line for each key that differs from a stored configuration and may not change."""
    new, changes = config.model_dump(mode="json"), []
    for section in (name for name in new if name not in _FREE):
        free = _MAY_CHANGE.get(section, set())
        if section == "evaluation" and config.run.purpose == "evaluation":
            # Its only evaluation is the run itself, so other samples make another run.
            free = {"at_once"}
        stored = old.get(section, {})
        for key, value in new[section].items():
            if key not in free and stored.get(key) != value:
                changes.append(f"{section}.{key}: was {stored.get(key)!r}, is {value!r}")
    return changes


def _with_defaults(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a stored configuration with the defaults of missing keys."""
    try:
        return RunConfig.model_validate(stored).model_dump(mode="json")
    except ValidationError:
        return stored  # keys or values that are no longer valid are shown as differences


def run_record(
    config: RunConfig, loaded: LoadedProblems, tools: Mapping[str, str]
) -> RunRecord:
    """Return the run's row. `tools`: versions of the executor's tools by name."""
    packages = ("tinker", "prefect", "duckdb", "pyslang")
    stored = config.model_dump(mode="json")
    text = json.dumps(stored, sort_keys=True)
    versions = {name: version(name) for name in packages}
    return RunRecord(
        name=config.run.name,
        status="running",
        config=stored,
        config_hash=hashlib.sha256(text.encode()).hexdigest(),
        seed=config.run.seed,
        student=config.tinker.student,
        teacher=", ".join(dict.fromkeys(config.tinker.named_teachers.values())),
        problems_hash=loaded.fingerprint,
        versions={"rtl-distill": __version__, **versions, **tools},
    )
