"""Evaluation of a model without a training run: the configuration from a protocol file and the command line."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rtl_core.config.load import load_config, shipped_configs
from rtl_core.config.models import RunConfig
from rtl_core.errors import ConfigError
from rtl_grader.problems.sources import SOURCES, override_of
from rtl_grader.words import did_you_mean


def protocol_file(name: str) -> str:
    """Return the path of a protocol: a shipped one or the user's file. Raises ConfigError if there is none."""
    shipped = shipped_configs("protocols")
    path = shipped.get(name, Path(name))
    if not path.is_file():
        raise ConfigError(
            f"--protocol {name}: no such protocol",
            did_you_mean(name, shipped, f"give a TOML file, or one of: {', '.join(shipped)}"),
        )
    return str(path)


def problems_override(texts: Sequence[str]) -> str:
    """Return `--problems` as a `--set` text. Each entry is a source, as for `--source`, or a path in CVDP's format."""

    sources = [
        text
        if not Path(text).exists() and (text in SOURCES.entries or "=" in text)
        else f"cvdp={text}"
        for text in texts
    ]
    return override_of(sources, "--problems")


def evaluation_overrides(
    protocol: str, overrides: Sequence[str], samples: int | None, name: str | None
) -> list[str]:
    """Return the overrides that turn a protocol file into the configuration of one evaluation.

    Without `name` the run's name contains a hash of everything that its figures depend on. The same command
    thus resumes the same run, and different evaluations never mix. Raises ConfigError as `load_config`, or
    if the file is not a protocol.
    """
    changes = list(overrides)
    if samples is not None:
        own = [text for text in changes if not text.startswith("evaluation.k=")]
        section = load_config(protocol, own).evaluation
        # Drop the protocol's k that exceed the number of samples; the user did not choose them.
        ks = sorted({1, *(k for k in section.k if k <= samples)})
        changes[:0] = [f"evaluation.samples={samples}", f"evaluation.k={ks}"]
    config = load_config(protocol, changes)
    if config.run.purpose != "evaluation":
        raise ConfigError(
            f"{protocol}: is the configuration of a training run",
            'a protocol has run.purpose = "evaluation"',
        )
    return [*changes, f"run.name={json.dumps(name or _name(config, Path(protocol).stem))}"]


def _name(config: RunConfig, protocol: str) -> str:
    silent: dict[str, Any] = {"grading": {"workers", "retries"}, "evaluation": {"at_once"}}
    silent |= dict.fromkeys(("run", "cost", "tracking"), True)
    if config.evaluation.endpoint is None:
        silent["evaluation"] = {"at_once", "endpoint", "agentic"}
    if not config.evaluation.agentic:
        silent["episode"] = True
    data = config.model_dump(mode="json", exclude=silent)
    if config.run.seed:
        data["seed"] = config.run.seed
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:6]
    model = config.evaluation.weights or config.tinker.student
    words = re.sub(r"[^A-Za-z0-9_.]+", "-", model.removeprefix("tinker://")).strip("-")
    return f"{protocol[:16]}-{words[:40].strip('-')}-{digest}"
