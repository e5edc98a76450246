"""How a model that no run trained is evaluated: by a protocol, with the changes that the user asks for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rtl_core.config import load_config
from rtl_core.config.protocol import evaluation_overrides, problems_override, protocol_file
from rtl_core.episodes.endpoint import check_reachable

WEIGHTS = "tinker://"


def model_evaluation(
    model: str,
    problems: Sequence[str],
    *,
    protocol: str,
    samples: int | None,
    history: Path,
    name: str | None,
    settings: Mapping[str, Any],
    overrides: Sequence[str],
) -> tuple[str, list[str]]:
    """Return the configuration of an evaluation: the protocol's file, and the overrides of its keys.

    Args:
        model: its name at the service, or saved weights (`tinker://PATH`), whose base model is then asked for.
        problems: sources or paths, as for `problems_override`.
        protocol: a shipped protocol, or a TOML file.
        samples: answers per problem; None: the protocol's.
        history: file of the history; the run's folder is beside it.
        name: of the run that records the evaluation; None: derived from all that the figures depend on.
        settings: mapping of keys to values; None leaves the protocol's value.
        overrides: further keys as `SECTION.KEY=VALUE`; they take precedence.

    Raises:
        ConfigError: for an unknown protocol or key, a wrong value, or an endpoint that does not answer.
    """
    file = protocol_file(protocol)
    places = {"run.history": str(history), "run.directory": str(history.parent)}
    keys = {"tinker.student": model, **places, **settings}
    changes = [problems_override(problems, file)]
    changes += [_override(key, value) for key, value in keys.items() if value is not None]
    changes += overrides
    if model.startswith(WEIGHTS):
        from rtl_core.backend.tinker import base_model_of

        base = asyncio.run(base_model_of(load_config(file, changes), model))
        changes += [_override("tinker.student", base), _override("evaluation.weights", model)]
    changes = evaluation_overrides(file, changes, samples, name)
    # The endpoint may be from the settings, the file or the overrides.
    endpoint = load_config(file, changes).evaluation.endpoint
    if endpoint:
        check_reachable(endpoint)
    return file, changes


def _override(key: str, value: object) -> str:
    return f"{key}={json.dumps(value)}"
