"""What makes a run the run that it was begun as: its configuration, its problems, and the versions it was made with."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from typing import Any

from pydantic import ValidationError

from rtl_core import __version__
from rtl_core.config import RunConfig
from rtl_core.errors import ConfigError
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.problems.problem_set import LoadedProblems
from rtl_core.run.folder import as_stored

# What a run may not change when it goes on: anything that the figures of its earlier steps depend on.
_FIXED = (
    "problems", "prompting", "sampling", "reward", "learning", "tinker", "backend", "curriculum", "refinement", "grading",
    "evaluation",
)  # fmt: skip
_MAY_CHANGE = {
    "grading": {"workers", "retries", "executor"},
    "tinker": {"base_url", "teacher_base_url", "local_threads", "local_device", "local_models"},
    "backend": {"options"},
    "evaluation": {"samples", "k", "every", "teacher"},
    "problems": {"validate_first"},
}


def config_hash(config: RunConfig) -> str:
    """SHA-256 (hex) of the whole configuration."""
    return hashlib.sha256(json.dumps(config.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def as_begun(config: RunConfig, history: History) -> RunConfig:
    """The configuration, with the begun run's values where its file is silent and the defaults have changed since.

    These are the split of the problems, and the clip bounds, which earlier versions stored as 0.8 and 1.2 with every loss.
    """
    before = history.run(config.run.name)
    if before is None:
        return config
    problems, learning = config.problems, config.learning
    if "split" not in problems.model_fields_set:
        split = _with_defaults(before.config).get("problems", {}).get("split", "id")
        problems = problems.model_copy(update={"split": split})
    stored = before.config.get("learning", {})
    left_out = [key for key in ("clip_low", "clip_high") if getattr(learning, key) is None]
    bounds = {key: stored[key] for key in left_out if stored.get(key) is not None}
    if bounds:
        learning = learning.model_copy(update=bounds)
    return config.model_copy(update={"problems": problems, "learning": learning})


def check_unchanged(config: RunConfig, loaded: LoadedProblems, history: History, accept_changes: bool) -> None:
    """Refuse to go on with a run under another data set, reward or model than it was begun with.

    Raises:
        ConfigError: what changed, key by key.
    """
    before = history.run(config.run.name)
    if before is None or accept_changes:
        return
    old, new = _with_defaults(before.config), config.model_dump(mode="json")
    changes = []
    for section in _FIXED:
        free = _MAY_CHANGE.get(section, set())
        if section == "evaluation" and config.run.purpose == "evaluation":
            free = set()  # its only evaluation is the run: with other samples it is another one
        for key, value in new[section].items():
            if key not in free and old.get(section, {}).get(key) != value:
                changes.append(f"{section}.{key}: was {old.get(section, {}).get(key)!r}, is {value!r}")
    if old.get("run", {}).get("seed") != config.run.seed:
        changes.append(f"run.seed: was {old.get('run', {}).get('seed')}, is {config.run.seed}")
    if (purpose := old.get("run", {}).get("purpose", "train")) != config.run.purpose:
        changes.append(f"run.purpose: was {purpose!r}, is {config.run.purpose!r}")
    if before.problems_hash != loaded.fingerprint:
        changes.append("the problems themselves: the data set is not the one that the run began with")
    if changes:
        raise ConfigError(
            f"run {config.run.name!r} exists and was begun with another configuration\n"
            + "\n".join(f"  {c}" for c in changes),
            "choose another run.name, or pass --accept-changes to go on all the same"
            if config.run.purpose == "train"
            else "choose another --name",
        )


def _with_defaults(stored: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration with the keys that have come since at their defaults, which is what it was run with."""
    try:
        return as_stored(stored).model_dump(mode="json")
    except ValidationError:
        return stored  # it holds keys or values that are refused today: shown as the differences that they are


def run_record(config: RunConfig, loaded: LoadedProblems) -> RunRecord:
    packages = ("tinker", "prefect", "duckdb", "cocotb", "pyslang")
    return RunRecord(
        name=config.run.name,
        status="running",
        config=config.model_dump(mode="json"),
        config_hash=config_hash(config),
        seed=config.run.seed,
        student=config.tinker.student,
        teacher=", ".join(dict.fromkeys(config.tinker.named_teachers.values())),
        problems_hash=loaded.fingerprint,
        versions={"rtl-distill": __version__, **{name: version(name) for name in packages}},
    )
