"""The command that starts a SkyRL server for a configuration, and the options of one that runs on this machine.

Keys are those of SkyRL 0.4.0 (`skyrl/tinker/config.py`, `skyrl/train/config/config.py`, `skyrl/backends`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from rtl_core.backend.base import SAVED
from rtl_core.config import RunConfig
from rtl_core.errors import ConfigError

SkyBackend = Literal["megatron", "fsdp", "jax"]
VERSION = "0.4.0"
MODULE = "skyrl.tinker.api"
PORT = 8000
"""The server's default port; that of the teacher's server is the next one."""
EPS = 1e-8
"""AdamW's epsilon, which no option of the server changes."""
_OPTIMIZER = "trainer.policy.optimizer_config"
_DEFAULTS = {
    f"{_OPTIMIZER}.adam_betas": [0.9, 0.999],
    f"{_OPTIMIZER}.weight_decay": 0.01,
    f"{_OPTIMIZER}.max_grad_norm": 1.0,
}


def optimizer_options(config: RunConfig) -> dict[str, Any]:
    """Return the `--backend-config` entries of AdamW, which GPU backends fix when a model is created. Tinker's
    protocol has no weight decay unless a request asks for it, and no run does. A norm of 0 turns clipping off."""
    learning = config.learning
    values = ([learning.beta1, learning.beta2], 0.0, learning.grad_clip_norm)
    return dict(zip(_DEFAULTS, values, strict=True))


def options_of_server(url: str) -> dict[str, Any] | None:
    """Return the optimizer entries that the server at `url` was started with; None if it is not on this machine
    or its command line cannot be read."""
    parts = urlsplit(url)
    if parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        return None
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # the process has ended, or belongs to another user
            continue
        if MODULE not in words or _option(words, "--port", str(PORT)) != str(parts.port):
            continue
        given = json.loads(_option(words, "--backend-config", "{}"))
        return {key: given.get(key, default) for key, default in _DEFAULTS.items()}
    return None


def _option(words: Sequence[str], name: str, default: str) -> str:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return default


def server_commands(
    config: RunConfig, backend: SkyBackend, gpus: int, folders: Mapping[str, Path]
) -> dict[str, str]:
    """Return "student" and, if the run asks a teacher, "teacher" -> the shell command of its server.

    Args:
        gpus: GPUs of each server, on one node; with `jax` 0 for a CPU.
        folders: mapping of a base model to its folder on this machine, if it is not one of the hub.

    Raises:
        ConfigError: the configuration needs what no pair of servers can be.
    """
    if not gpus and backend != "jax":
        raise ConfigError(f"--gpus 0: the backend {backend} needs GPUs", "give --backend jax")
    tinker = config.tinker
    models = {"student": tinker.student}
    teachers = sorted(set(tinker.named_teachers.values()))
    if len(teachers) > 1:
        raise ConfigError(
            f"tinker.teachers: a server has one base model, and the run asks {len(teachers)} teachers",
            "name one teacher",
        )
    if teachers and tinker.teacher_base_url not in ("local", "cloud"):
        if teachers[0].startswith(SAVED):
            raise ConfigError(
                f"tinker.teacher: a server does not start with saved weights ({teachers[0]})",
                "export them as a model (`rtl-distill admin checkpoints RUN --export DIR --merged`)",
            )
        models["teacher"] = teachers[0]
    return {
        part: _command(config, part, model, backend, gpus, folders.get(model))
        for part, model in models.items()
    }


def port_of(config: RunConfig, part: str) -> int:
    """Return the port that the configuration names for a server, else a default."""
    of_teacher = part == "teacher"
    url = config.tinker.teacher_base_url if of_teacher else config.tinker.base_url
    return urlsplit(url or "").port or PORT + of_teacher


def _command(
    config: RunConfig,
    part: str,
    model: str,
    backend: SkyBackend,
    gpus: int,
    folder: Path | None,
) -> str:
    place = config.run.directory.resolve() / "skyrl" / part
    options = {
        "--base-model": model,
        "--base-model-checkpoint-path": folder and str(folder.resolve()),
        "--backend": backend,
        # JAX knows one role. Without a trainer, a GPU backend can be asked at once.
        "--runtime-role": "inference" if part == "teacher" and backend != "jax" else None,
        "--backend-config": json.dumps(_backend_config(config, part, backend, gpus)),
        "--checkpoints-base": str(place),
        # Without it all servers on a machine share one database.
        "--database-url": f"sqlite:///{place}/skyrl.db",
        "--host": "127.0.0.1",
        "--port": str(port_of(config, part)),
    }
    lines = [f"mkdir -p {shlex.quote(str(place))}"]
    extra = " --extra gpu" if backend == "jax" and gpus else ""
    lines.append(f"uv run --extra tinker --extra {backend}{extra} -m {MODULE}")
    words = [f"{name} {shlex.quote(value)}" for name, value in options.items() if value]
    return lines[0] + "\n" + " \\\n  ".join([lines[1], *words])


def _backend_config(
    config: RunConfig, part: str, backend: SkyBackend, gpus: int
) -> dict[str, Any]:
    rank = config.tinker.lora_rank
    if backend == "jax":
        return {"max_lora_rank": rank, "tensor_parallel_size": max(1, gpus)}
    engines = "generator.inference_engine.num_engines"
    if part == "teacher":
        return {engines: gpus}
    apart = gpus > 1
    trained = gpus // 2 if apart else gpus
    options: dict[str, Any] = {
        "trainer.placement.colocate_all": not apart,
        "trainer.placement.policy_num_gpus_per_node": trained,
        engines: gpus - trained if apart else gpus,
        "trainer.policy.model.lora.rank": rank,
        **optimizer_options(config),
    }
    if backend == "megatron":
        options["trainer.policy.megatron_config.lora_config.merge_lora"] = False
    return options
