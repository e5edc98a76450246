"""What a run needs and the engine of its service lacks: found before the first sample, by name.

An engine behind a bridge says what it lacks of Tinker's protocol (localtinker/bridge/capabilities.py). Each row
of `ROWS` says which configurations need such a thing. What is lacking and not in the table concerns no run, or
changes no result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from localtinker.bridge import capabilities as lack
from rtl_core.backend.skyrl import EPS, optimizer_options, options_of_server
from rtl_core.backend.tinker.services import TinkerService
from rtl_core.config.learning import LearningSection
from rtl_core.types.finding import Finding

SECOND_SERVER = "set tinker.teacher_base_url to a second server (`rtl-distill admin engine skyrl` prints its command)"


class Row(NamedTuple):
    """What an engine may lack, the key of the configuration to change, whether the configuration of a service
    needs it, what for, and what to do."""

    lacking: str
    key: str
    needed: Callable[[TinkerService], bool]
    what: str
    remedy: str


def trained(needed: Callable[[LearningSection], bool]) -> Callable[[TinkerService], bool]:
    """Return a predicate of the student's service of a run that trains."""
    return lambda service: service.trains and needed(service.config.learning)


def _saved_teachers(service: TinkerService) -> bool:
    return any(key.startswith("tinker.teacher") for key in service.weights)


def _student_as_teacher(service: TinkerService) -> bool:
    tinker = service.config.tinker
    return service.part == "all" and service.trains and tinker.teacher == tinker.student


def _scores_choices(service: TinkerService) -> bool:
    learning = service.config.learning
    scores = service.part != ("teacher" if learning.self_taught else "student")
    return scores and service.config.run.purpose == "train" and learning.asked_choices > 0


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
        "export them as a model (`rtl-distill admin checkpoints RUN --export DIR --merged`), and serve it as "
        "the base model of a second server",
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
        trained(lambda learning: learning.asked_choices > 0),
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
        lambda service: (
            service.trains
            and service.config.learning.grad_clip_norm > 0
            and lack.OPTIMIZER not in service.lacks
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
)


def engine_findings(service: TinkerService) -> list[Finding]:
    """Return what is said before a run about the engine of a service that is reached through a bridge: its
    name, then everything that the run needs and the engine lacks."""
    assert service.through is not None
    engine = service.through.engine
    name = " ".join(filter(None, (engine.name, engine.version, engine.backend)))
    if engine.name == "skyrl" and engine.backend is None:
        text = f"{name} is busy and does not say with which backend it works"
        return [Finding("engine", "wrong", text, "try again when it is idle", passing=True)]
    about = "engine"
    findings = [Finding(about, "ok", f"{name} at {service.address}, through a bridge")]
    findings += refused(service, name)
    if service.trains:
        findings += _optimizer(service, name)
        if lack.SUMS in service.lacks:
            remedy = "compare runs on one engine only"
            findings.append(
                Finding(about, "warning", f"{name}: {service.lacks[lack.SUMS]}", remedy)
            )
    if lack.EXPIRY in service.lacks and service.config.checkpoints.ttl_s and service.trains:
        text = f"{name}: {service.lacks[lack.EXPIRY]}"
        remedy = "`rtl-distill admin checkpoints RUN` lists the weights of a run"
        findings.append(Finding("checkpoints.ttl_days", "warning", text, remedy))
    return findings


def refused(service: TinkerService, name: str) -> Iterator[Finding]:
    """Yield a finding for everything that the configuration needs from the engine `name` of a service, and it lacks."""
    loss = service.config.learning.loss
    own = Row(
        f"loss:{loss}",
        "learning.loss",
        trained(lambda learning: True),
        f"the loss would be {loss}",
        'set learning.loss = "importance_sampling" or "ppo"',
    )
    for row in (*ROWS, own):
        if row.lacking in service.lacks and row.needed(service):
            text = f"{row.what}, which {name} cannot do ({service.lacks[row.lacking]})"
            yield Finding(row.key, "wrong", text, row.remedy)


def _optimizer(service: TinkerService, name: str) -> Iterator[Finding]:
    """Compare AdamW's settings with those that the server was started with, as far as they are known: those of a
    server on this machine are in its command line."""
    if lack.OPTIMIZER not in service.lacks:
        return
    wanted = optimizer_options(service.config)
    command = "`rtl-distill admin engine skyrl --config NAME`"
    served = options_of_server(service.address)
    if served is None:
        values = ", ".join(f"{key} = {value}" for key, value in wanted.items())
        yield Finding(
            "engine",
            "warning",
            f"{name}: {service.lacks[lack.OPTIMIZER]}; this configuration needs {values}",
            f"start the server with the command that {command} prints",
        )
        return
    for key, value in wanted.items():
        if served[key] != value:
            text = f"the server was started with {key} = {served[key]}, and this configuration needs {value}"
            yield Finding("engine", "wrong", text, f"start it as {command} says")
