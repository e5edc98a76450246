"""Evaluation of a model without a training run: the configuration from a protocol file and the command line."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rtl_core.config.load import load_config, read_toml, shipped_configs
from rtl_core.config.models import RunConfig
from rtl_core.errors import ConfigError
from rtl_grader.problems.sources import SOURCES, ProblemSource, override_of, source_of
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


def problems_override(texts: Sequence[str], protocol: str) -> str:
    """Return `--problems` as a `--set` text. See `sources_under`."""
    return override_of(sources_under(texts, protocol))


def sources_under(texts: Sequence[str], protocol: str) -> list[ProblemSource]:
    """Return sources that are read as a protocol's own problems are, if they are of that kind. Each entry is a source,
    as for `--source`, or a path of the protocol's kind.

    Raises ConfigError as `load_config`, or if there is nothing at a path.
    """
    own = own_source(protocol)
    return [_problems(own, text) for text in texts]


def own_source(protocol: str) -> ProblemSource:
    """The source of a protocol's problems; CVDP if it names none."""
    section = read_toml(protocol)[2].get("problems")
    if not (isinstance(section, dict) and section.get("sources")):
        return SOURCES.find("cvdp")(kind="cvdp")
    # Any model will do here.
    config = load_config(protocol, ["tinker.student=student"], check_files=False)
    return config.problems.sources[0]


def _problems(own: ProblemSource, text: str) -> ProblemSource:
    kind, equals, _ = text.partition("=")
    is_path = Path(text).exists() or not (equals or kind in SOURCES.entries)
    there = source_of(f"{own.kind}={text}" if is_path else text, "--problems")
    if there.kind != own.kind:
        return there
    return own.model_copy(update=there.model_dump(exclude_defaults=True))


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
