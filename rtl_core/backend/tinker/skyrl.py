"""What `rtl-distill admin engine skyrl` prints: the commands of SkyRL's servers, and what a run on them must know."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader

from localtinker.bridge import capabilities
from rtl_core.backend.base import SAVED
from rtl_core.backend.tinker.lacking import PORT, optimizer_options, refused
from rtl_core.backend.tinker.services import TinkerService, folder_of, services_of
from rtl_core.config import RunConfig
from rtl_core.errors import ConfigError

VERSION = "0.4.0"
HERE, ELSEWHERE = "http://127.0.0.1", ("local", "cloud")


def server_script(
    config: RunConfig, name: str, backend: Literal["megatron", "fsdp", "jax"], gpus: int
) -> str:
    """Return a shell script that starts the servers for a configuration, called `name`, each on `gpus` GPUs of
    one node (0: on a CPU, with jax).

    Raises ConfigError if no server with one base model can be the student's, or the teacher's.
    """
    if not gpus and backend != "jax":
        raise ConfigError(f"--gpus 0: the backend {backend} needs GPUs", "give --backend jax")
    apart = config.tinker.teacher_base_url or f"{HERE}:{PORT + 1}"
    base = config.tinker.base_url
    at = base if base and base != "local" else f"{HERE}:{PORT}"
    services = services_of(config.but("tinker", base_url=at, teacher_base_url=apart))
    if apart in ELSEWHERE:
        services = services[:1]
    lacks = capabilities.lacks("skyrl", "jax" if backend == "jax" else "gpu")
    templates = Environment(loader=PackageLoader(__package__, "."), keep_trailing_newline=True)
    templates.filters["quote"] = lambda value: shlex.quote(str(value))
    return templates.get_template("skyrl.sh.jinja").render(
        config=config,
        name=name,
        version=VERSION,
        backend=backend,
        gpus=gpus,
        place=config.run.directory.resolve() / "skyrl",
        optimizer=optimizer_options(config),
        servers=dict(map(_server, services)),
        refused=[one for service in services for one in refused(service, lacks)],
    )


def _server(service: TinkerService) -> tuple[str, tuple[str, Path | None, int]]:
    """Return "student" or "teacher", and base model, its folder on this machine and port of this server."""
    tinker, of_teacher = service.config.tinker, service.part == "teacher"
    models = set(tinker.named_teachers.values()) if of_teacher else {tinker.student}
    model, *others = sorted(models)
    if others or model.startswith(SAVED):
        raise ConfigError(
            f"tinker.teacher: a server has one base model, not {', '.join([model, *others])}",
            "name one model; saved weights become one by `rtl-distill admin checkpoints RUN --export DIR --merged`",
        )
    port = urlsplit(service.address).port or PORT
    return "teacher" if of_teacher else "student", (
        model,
        folder_of(service.config, model),
        port,
    )
