"""What a run needs and the engine of its service lacks: found before the first sample, by name.

An engine behind a bridge says what it lacks of Tinker's protocol (localtinker/bridge/capabilities.py). Each row
of `lacking.toml` says which configurations need such a thing. What is lacking and not in the table concerns no
run, or changes no result.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from localtinker.bridge.capabilities import OPTIMIZER
from rtl_core.backend.tinker.services import TinkerService
from rtl_core.config import RunConfig
from rtl_core.types.finding import Finding

PORT = 8000
"""Default port of SkyRL's server."""
DEFAULTS = {
    "trainer.policy.optimizer_config.adam_betas": [0.9, 0.999],
    "trainer.policy.optimizer_config.weight_decay": 0.01,
    "trainer.policy.optimizer_config.max_grad_norm": 1.0,
}
"""Options of SkyRL's AdamW, which its GPU backends fix when a model is created (skyrl/train/config/config.py)."""


def _base_teaches(service: TinkerService) -> bool:
    tinker = service.config.tinker
    return service.part == "all" and service.trains and tinker.teacher == tinker.student


def _start_teaches(service: TinkerService) -> bool:
    learning = service.config.learning
    return service.trains and learning.self_taught and learning.self_weights == "start"


def _asked_for_choices(service: TinkerService) -> bool:
    learning = service.config.learning
    asked = learning.asked_choices > 0 and service.config.run.purpose == "train"
    return asked and service.part != ("teacher" if learning.self_taught else "student")


WHEN: dict[str, Callable[[TinkerService], bool]] = {
    "start teaches": _start_teaches,
    "base teaches": _base_teaches,
    "saved teacher": lambda service: "tinker.teacher" in " ".join(service.weights),
    "several models": lambda service: len(set(service.models.values())) > 1,
    "asked for choices": _asked_for_choices,
    "expires": lambda service: service.trains and bool(service.config.checkpoints.ttl_days),
}
"""Predicates of the table."""


@cache
def table() -> list[dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["row"]  # type: ignore[no-any-return]


def _needed(row: dict[str, Any], service: TinkerService) -> bool:
    if "when" in row:
        return WHEN[row["when"]](service)
    section, name = row["key"].split(".")
    value = getattr(getattr(service.config, section), name)
    fits = value in row["fits"] if "fits" in row else value not in row["unfit"]
    return service.trains and not fits


def refused(service: TinkerService, lacks: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each row that is about what the configuration of a service needs and its engine lacks."""
    for row in table():
        lacking = row["lacking"] in lacks and row.get("unless") not in lacks
        if lacking and _needed(row, service):
            text = f"{row['what']}, but {lacks[row['lacking']]}"
            yield Finding(row["key"], row.get("level", "wrong"), text, row["remedy"])


def engine_findings(service: TinkerService) -> list[Finding]:
    """Return what is said before a run about the engine of a service that is reached through a bridge: its
    name, then everything that the run needs and the engine lacks."""
    assert service.through is not None
    assert service.through.engine is not None
    engine = service.through.engine
    backend = f" ({engine.backend})" if engine.backend else ""
    text = f"{engine.name} {engine.version}{backend} at {service.address}, through a bridge"
    findings = [Finding("engine", "ok", text), *refused(service, engine.lacks)]
    if service.trains and OPTIMIZER in service.lacks:
        findings.append(_optimizer(service))
    return findings


def optimizer_options(config: RunConfig) -> dict[str, Any]:
    """Return SkyRL's options for the optimizer of a configuration. Runs have no weight decay; a norm of 0 turns
    clipping off."""
    learning = config.learning
    betas = [learning.beta1, learning.beta2]
    return dict(zip(DEFAULTS, (betas, 0.0, learning.grad_clip_norm), strict=True))


def _optimizer(service: TinkerService) -> Finding:
    """Compare the optimizer's settings with those that the server was started with, if it runs on this machine."""
    wanted, served = optimizer_options(service.config), _options_of_server(service.address)
    if served == wanted:
        return Finding("engine", "ok", "the server's optimizer is that of the configuration")
    text = f"this configuration needs the server's options {json.dumps(wanted)}"
    if served is not None:
        text += f", and it was started with {json.dumps(served)}"
    remedy = "start the server as `rtl-distill admin engine skyrl --config NAME` says"
    return Finding("engine", "wrong" if served else "warning", text, remedy)


def _options_of_server(url: str) -> dict[str, Any] | None:
    """Return the optimizer's options in the command line of the SkyRL server at `url`; None if there is none on
    this machine."""
    parts = urlsplit(url)
    if parts.hostname not in ("127.0.0.1", "localhost"):
        return None
    server = re.compile(rf"\0skyrl\.tinker\.api\0.*--port[\0=]{parts.port}\0", re.S)
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended
            words = file.read_text(errors="replace")
            if server.search(words):
                given = re.search(r"--backend-config[\0=]([^\0]*)", words)
                options = json.loads(given[1]) if given else {}
                return {key: options.get(key, value) for key, value in DEFAULTS.items()}
    return None
