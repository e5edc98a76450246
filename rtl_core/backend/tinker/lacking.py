"""What a run needs and the engine of its service lacks: found before the first sample, by name.

An engine behind a bridge says what it lacks of Tinker's protocol (localtinker/bridge/capabilities.py). Each row
of `ROWS` says which configurations need such a thing. What is lacking and not in the table concerns no run, or
changes no result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from localtinker.bridge import capabilities as lack
from rtl_core.backend.tinker.services import TinkerService
from rtl_core.config import RunConfig
from rtl_core.config.learning import LearningSection
from rtl_core.types.finding import Finding, Level

EPS = 1e-8
"""AdamW's epsilon, which no option of SkyRL's server changes."""
PORT = 8000
"""Default port of SkyRL's server."""
DEFAULTS = {
    "trainer.policy.optimizer_config.adam_betas": [0.9, 0.999],
    "trainer.policy.optimizer_config.weight_decay": 0.01,
    "trainer.policy.optimizer_config.max_grad_norm": 1.0,
}
"""Options of SkyRL's AdamW, which its GPU backends fix when a model is created (skyrl/train/config/config.py)."""
COMMAND = "`rtl-distill admin engine skyrl --config NAME`"
SECOND_SERVER = f"set tinker.teacher_base_url to a second server ({COMMAND} prints its command)"


class Row(NamedTuple):
    """What an engine may lack, the key of the configuration to change, whether the configuration of a service
    needs it, what for, and what to do."""

    lacking: str
    key: str
    needed: Callable[[TinkerService], bool]
    what: str
    remedy: str
    level: Level = "wrong"


def trained(
    needed: Callable[[LearningSection], object] = lambda learning: True,
) -> Callable[[TinkerService], bool]:
    """Return a predicate of the student's service of a run that trains."""
    return lambda service: service.trains and bool(needed(service.config.learning))


def _saved_teachers(service: TinkerService) -> bool:
    return any(key.startswith("tinker.teacher") for key in service.weights)


def _student_as_teacher(service: TinkerService) -> bool:
    tinker = service.config.tinker
    return service.part == "all" and service.trains and tinker.teacher == tinker.student


def _scores_choices(service: TinkerService) -> bool:
    learning = service.config.learning
    asked = learning.asked_choices > 0 and service.config.run.purpose == "train"
    return asked and service.part != ("teacher" if learning.self_taught else "student")


ROWS = (
    Row(
        lack.FROZEN_SAMPLERS,
        "learning.staleness",
        trained(lambda learning: learning.staleness > 0),
        "steps would be sampled from older weights than the newest",
        "set learning.staleness = 0",
    ),
    Row(
        lack.FROZEN_SAMPLERS,
        "learning.self_weights",
        trained(lambda learning: learning.self_taught and learning.self_weights == "start"),
        "the self-teacher would be the weights after the warm start",
        'set learning.self_weights = "current"',
    ),
    Row(
        lack.FROZEN_SAMPLERS,
        "tinker.teacher",
        _saved_teachers,
        "the teacher would be saved weights",
        "serve them as the base model of a second server (`rtl-distill admin checkpoints RUN --export DIR "
        "--merged`)",
    ),
    Row(
        lack.FROZEN_SAMPLERS,
        "tinker.teacher",
        _student_as_teacher,
        "the teacher would be the base of the student that is trained there",
        SECOND_SERVER,
    ),
    Row(
        lack.SEVERAL_MODELS,
        "tinker.teacher_base_url",
        lambda service: len(set(service.models.values())) > 1,
        "student and teachers, or several teachers, would be on one server",
        f"{SECOND_SERVER}, and name one teacher",
    ),
    Row(
        lack.TOPK_SCORES,
        "learning.algorithm",
        _scores_choices,
        "the algorithm asks the teacher for its likeliest tokens",
        'set learning.algorithm = "grpo"',
    ),
    Row(
        lack.SEVERAL_TARGETS,
        "learning.algorithm",
        trained(lambda learning: learning.asked_choices),
        "the algorithm trains on several tokens at each position",
        'set learning.algorithm = "grpo"',
    ),
    Row(
        lack.CISPO_BOUNDS,
        "learning.loss",
        trained(lambda learning: learning.loss == "cispo"),
        "cispo would be clipped at other bounds",
        'set learning.loss = "ppo" or "importance_sampling"',
    ),
    Row(
        lack.CLIPPING,
        "learning.grad_clip_norm",
        # With the row below the norm is an option of the server.
        lambda service: (
            lack.OPTIMIZER not in service.lacks
            and trained(lambda learning: learning.grad_clip_norm)(service)
        ),
        "gradients would be clipped",
        "set learning.grad_clip_norm = 0",
    ),
    Row(
        lack.OPTIMIZER,
        "learning.eps",
        trained(lambda learning: learning.eps != EPS),
        f"the epsilon would be {EPS:g}",
        f"set learning.eps = {EPS:g}",
    ),
    Row(
        lack.EXPIRY,
        "checkpoints.ttl_days",
        lambda service: service.trains and service.config.checkpoints.ttl_days is not None,
        "weights stay",
        "`rtl-distill admin checkpoints RUN` lists those of a run",
        "warning",
    ),
)


def refused(service: TinkerService) -> Iterator[Finding]:
    """Yield a finding for each row that is about what the configuration needs and the engine of a service lacks."""
    loss = service.config.learning.loss
    remedy = 'set learning.loss = "importance_sampling" or "ppo"'
    own = Row(f"loss:{loss}", "learning.loss", trained(), f"the loss would be {loss}", remedy)
    for row in (*ROWS, own):
        if row.lacking in service.lacks and row.needed(service):
            text = f"{row.what}, but {service.lacks[row.lacking]}"
            yield Finding(row.key, row.level, text, row.remedy)


def engine_findings(service: TinkerService) -> list[Finding]:
    """Return what is said before a run about the engine of a service that is reached through a bridge: its
    name, then everything that the run needs and the engine lacks."""
    assert service.through is not None
    engine = service.through.engine
    name = f"{engine.name} {engine.version}"
    if engine.name == "skyrl" and engine.backend is None:
        text = f"{name} is busy and does not say with which backend it works"
        return [Finding("engine", "wrong", text, "try again when it is idle", passing=True)]
    text = f"{name} ({engine.backend}) at {service.address}, through a bridge"
    findings = [Finding("engine", "ok", text), *refused(service)]
    if service.trains and lack.OPTIMIZER in service.lacks:
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
    wanted = optimizer_options(service.config)
    served = _options_of_server(service.address)
    remedy = f"start the server as {COMMAND} says"
    if served is None:
        text = f"{service.lacks[lack.OPTIMIZER]}; this configuration needs {json.dumps(wanted)}"
        return Finding("engine", "warning", text, remedy)
    if served != wanted:
        text = f"the server was started with {json.dumps(served)}, and this configuration needs {json.dumps(wanted)}"
        return Finding("engine", "wrong", text, remedy)
    return Finding("engine", "ok", "the server's optimizer is that of the configuration")


def _options_of_server(url: str) -> dict[str, Any] | None:
    """Return the optimizer's options in the command line of the SkyRL server at `url`; None if there is none on
    this machine."""
    parts = urlsplit(url)
    if parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        return None
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended
            words = file.read_text(errors="replace")
            port = re.search(r"\0--port[\0=](\d+)", words)
            if "\0skyrl.tinker.api\0" in words and int(port[1] if port else PORT) == parts.port:
                given = re.search(r"\0--backend-config[\0=]([^\0]*)", words)
                options = json.loads(given[1]) if given else {}
                return {key: options.get(key, value) for key, value in DEFAULTS.items()}
    return None
