"""What `rtl-distill admin engine skyrl` prints: the commands of the servers, and what a run on them must know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from localtinker.bridge import Engine, capabilities
from rtl_core.backend.skyrl import VERSION, SkyBackend, port_of, server_commands
from rtl_core.backend.tinker.lacking import refused
from rtl_core.backend.tinker.services import Reached, services_of
from rtl_core.config import RunConfig
from rtl_core.pretrained import MODELS, model_folder
from rtl_core.tinymodels import MODEL_NAMES, model_path

NOTES = (
    "All clients of a server have one LoRA rank ({rank} here); another rank needs another server.",
    "The servers have no authentication: they listen on this machine only, and the run's bridge has a key.",
    "A model that does not fit on one GPU needs generator.inference_engine.tensor_parallel_size and, with megatron, "
    "trainer.policy.megatron_config.tensor_model_parallel_size in --backend-config.",
)
BACKEND_NOTES = {
    "megatron": "merge_lora false: saved weights are adapters only, and samples read the adapter beside the base.",
    "fsdp": "fsdp holds one training client: a run that was killed can go on after 300 s without its heartbeat.",
    "jax": "jax compiles for each shape of a batch: JAX_COMPILATION_CACHE_DIR=FOLDER keeps what it compiled.",
}


def server_script(
    config: RunConfig, name: str, backend: SkyBackend, gpus: int
) -> Iterator[str]:
    """Yield the lines of a shell script that starts the servers for a configuration, called `name`.

    Raises ConfigError if no pair of servers can serve it.
    """
    urls = {
        part: f"http://127.0.0.1:{port_of(config, part)}" for part in ("student", "teacher")
    }
    commands = server_commands(config, backend, gpus, _folders(config))
    yield f"# SkyRL {VERSION} for {config.run.name}. Run each command in a checkout of SkyRL, in a shell of its own."
    for part, command in commands.items():
        yield from ("", f"# {part}", command)
    addresses = {"base_url": urls["student"]}
    if "teacher" in commands:
        addresses["teacher_base_url"] = urls["teacher"]
    sets = " ".join(f"--set tinker.{key}={url}" for key, url in addresses.items())
    yield from ("", f"# Then: rtl-distill train {name} {sets}")
    for note in (*NOTES, BACKEND_NOTES[backend]):
        yield f"# {note.format(rank=config.tinker.lora_rank)}"
    tinker = config.tinker.model_copy(update=addresses)
    yield from _needed(config.model_copy(update={"tinker": tinker}), backend)


def _folders(config: RunConfig) -> dict[str, Path]:
    """Mapping of name to folder of the models that are on this machine."""
    named = {config.tinker.student, *config.tinker.named_teachers.values()}
    shipped = {name: model_path(name) for name in MODEL_NAMES}
    fetched = {name: model_folder(name) for name in named.intersection(MODELS)}
    return {**shipped, **fetched, **config.tinker.local_models}


def _needed(config: RunConfig, backend: SkyBackend) -> Iterator[str]:
    """What the configuration needs and the engine lacks, as comments."""
    kind = "jax" if backend == "jax" else "gpu"
    engine = Engine("skyrl", VERSION, kind, capabilities.lacks("skyrl", kind))
    through = Reached(engine, "", "", lambda: None)
    for service in services_of(config):
        if service.part == "teacher" and config.tinker.teacher_base_url in ("local", "cloud"):
            continue
        for finding in refused(replace(service, through=through), f"SkyRL with {backend}"):
            yield f"# Not as configured: {finding.about}: {finding.text}; {finding.remedy}."
