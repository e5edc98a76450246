"""Evaluation of a model without a training run: a protocol's file, and what a command line adds to it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from rtl_core.config.load import load_config
from rtl_core.config.models import RunConfig
from rtl_core.errors import ConfigError
from rtl_core.problems.sources import SOURCES, override_of


def protocols() -> dict[str, Path]:
    """Name -> path of the protocols that come with the package: configurations without a model and without problems."""
    folder = Path(str(resources.files("rtl_core.config") / "protocols"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def protocol_file(name: str) -> str:
    """The path of a protocol, shipped or of the user's own. ConfigError where there is none."""
    path = protocols().get(name, Path(name))
    if not path.is_file():
        raise ConfigError(
            f"--protocol {name}: no such protocol", f"give a TOML file, or one of: {', '.join(protocols())}"
        )
    return str(path)


def problems_override(texts: Sequence[str]) -> str:
    """`--problems` as a `--set` text: each is a source as `--source` takes it, or a path of CVDP's format."""

    def named(text: str) -> str:
        is_source = not Path(text).exists() and (text in SOURCES.entries or "=" in text)
        return text if is_source else f"cvdp={text}"

    return override_of([named(text) for text in texts], "--problems")


def evaluation_overrides(protocol: str, overrides: Sequence[str], samples: int | None, name: str | None) -> list[str]:
    """The overrides that make a protocol's file the configuration of one evaluation, with a name that tells it from others.

    Without `name` the run's name holds a hash of all that its figures depend on: the same command goes on with the same run, and
    another one never mixes with it.

    Raises:
        ConfigError: as `load_config`, or the file is none of a protocol.
    """
    made = list(overrides)
    if samples is not None:
        section = load_config(protocol, [one for one in made if not one.startswith("evaluation.k=")]).evaluation
        # k of the protocol that so many samples cannot tell would be an error of the user's that he did not make.
        made[:0] = [
            f"evaluation.samples={samples}",
            f"evaluation.k={sorted({1, *(k for k in section.k if k <= samples)})}",
        ]
    config = load_config(protocol, made)
    if config.run.purpose != "evaluation":
        raise ConfigError(
            f"{protocol}: is the configuration of a run that trains", 'a protocol has run.purpose = "evaluation"'
        )
    return [*made, f"run.name={json.dumps(name or _name(config, Path(protocol).stem))}"]


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
