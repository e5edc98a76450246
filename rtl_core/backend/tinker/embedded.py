"""The embedded service before a run opens it: its models, its folder, and the saved weights of other runs that it takes over."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtl_core.backend.base import Readiness, Saved
from rtl_core.backend.tinker.services import TinkerService
from rtl_core.errors import ConfigError, PolicyError
from rtl_core.types.finding import Finding

if TYPE_CHECKING:
    from rtl_core.localtinker.registry import SavedWeights


def local_models(service: TinkerService) -> dict[str, Path]:
    """Name -> folder of the models that the embedded service of this run serves."""
    from rtl_core.pretrained import MODELS, model_folder
    from rtl_core.tinymodels import MODEL_NAMES, model_path

    names = {*service.models.values(), *adopted_bases(service)}
    folders = service.config.tinker.local_models
    # Of two services each has its own models alone.
    models = {name: folder for name, folder in folders.items() if service.part == "all" or name in names}
    for name in sorted(names - set(models)):
        if name in MODELS:
            models[name] = model_folder(name)
        elif name in MODEL_NAMES:
            models[name] = model_path(name)
        else:
            known = ", ".join([*MODEL_NAMES, *MODELS])
            raise PolicyError(
                f"the embedded service knows no model {name!r}",
                f'add `[tinker.local_models]` with `"{name}" = "/path/to/folder"`, or use one of: {known}',
            )
    return models


def embedded_readiness(service: TinkerService) -> Readiness:
    """What the embedded service will say of the models that a run wants, from their folders. See `Provider.check`."""
    from transformers import AutoConfig

    from rtl_core.localtinker.devices import device_for
    from rtl_core.localtinker.settings import context_of

    try:
        folders = local_models(service)
    except PolicyError as error:
        return Readiness([Finding("models", "wrong", error.message, error.hint)])
    findings, context, checkpoint_bytes = [], {}, 0
    for key, name in service.models.items():
        try:
            found = AutoConfig.from_pretrained(folders[name], local_files_only=True)
        except (OSError, ValueError) as error:
            words = f"{folders[name]} is no model: {str(error).splitlines()[0]}"
            findings.append(Finding(key, "wrong", words, f"correct tinker.local_models[{name!r}]"))
            continue
        context[name] = context_of(found)
        findings.append(Finding(key, "ok", f"{name}: embedded, up to {context[name]:,} tokens"))
        if key == "tinker.student":
            checkpoint_bytes = _checkpoint_bytes(found.get_text_config(), service.config.tinker.lora_rank)
    section = service.config.tinker
    try:
        device = device_for(section.local_device, folders.values())
        findings.append(Finding("tinker.local_device", "ok", f"{device}, {section.local_dtype}"))
    except ConfigError as error:
        findings.append(Finding("tinker.local_device", "wrong", error.message, error.hint))
    return Readiness(findings, context, checkpoint_bytes, found_here(service))


def _checkpoint_bytes(model: Any, rank: int) -> int:
    """At most what a saved adapter takes: A and B of every layer in float32, with Adam's two moments, and the sampler's copy."""
    hidden, inner = model.hidden_size, getattr(model, "intermediate_size", 4 * model.hidden_size)
    attention, mlp = 4 * 2 * hidden, 3 * (hidden + inner)
    numbers = rank * (model.num_hidden_layers * (attention + mlp) + hidden + model.vocab_size)
    return int(4 * numbers * (1 + 2 + 1))


@contextmanager
def own_folder(folder: Path) -> Iterator[None]:
    """A folder of this process alone, gone with it; those beside it that killed processes left (of the same name up to the last `-`) go, too.

    Its lock, which ends with its process, tells that it is in use: process ids do not, since a container counts its own.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    for other in folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*"):
        with suppress(OSError), _locked(other):
            shutil.rmtree(other)
    fresh = folder.with_name(f".{folder.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    with _locked(fresh):
        fresh.rename(folder)
        try:
            yield
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """BlockingIOError where a process holds it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _find(service: TinkerService, path: str, key: str) -> tuple[Path, SavedWeights]:
    """Where an embedded service has, or would find, saved weights that a configuration names: the state folder and what it knows of them.

    Raises:
        PolicyError: neither the run nor another one of its `run.directory` has them.
    """
    from rtl_core.localtinker.registry import find_checkpoint

    directory = service.config.run.directory
    for folder in (service.state, *sorted(directory.glob("*/tinker"))):
        if found := find_checkpoint(folder, path):
            return folder, found
    raise PolicyError(
        f"{key}: no run in {directory} has {path}",
        "`rtl-distill checkpoints RUN` lists what a run has; the embedded service knows the runs of one run.directory",
    )


def found_at(service: TinkerService, path: str, key: str) -> Saved:
    """What saved weights are that `key` names and an embedded service would find. PolicyError: there are none."""
    from rtl_core.localtinker.lora import LoraSpec

    _, saved = _find(service, path, key)
    return Saved(saved.base_model, LoraSpec.from_json(saved.lora).rank)


def found_here(service: TinkerService) -> dict[str, Saved | PolicyError]:
    """Key of the configuration -> what the saved weights that it names are, or why the embedded service will not have them. Nothing is copied."""
    found: dict[str, Saved | PolicyError] = {}
    for key, path in service.weights.items():
        try:
            found[key] = found_at(service, path, key)
        except PolicyError as error:
            found[key] = error
    return found


def adopt(service: TinkerService) -> None:
    """Copy the saved weights that a run names, and does not have in the state folder of its embedded service, from the other runs of its
    `run.directory`. They keep their path.

    Raises:
        PolicyError: none of them has such weights.
    """
    from rtl_core.localtinker.registry import Registry, parse_path

    sources = {(key, path): _find(service, path, key) for key, path in service.weights.items()}
    wanted = {names: found for names, found in sources.items() if found[0] != service.state}
    if not wanted:
        return
    registry = Registry(service.state)
    try:
        for (key, path), (folder, saved) in wanted.items():
            copy = partial(shutil.copytree, saved.folder(folder), dirs_exist_ok=True)
            blob, size = registry.write_blob(copy)
            registry.add_checkpoint(*parse_path(path, key), replace(saved, blob=blob, size_bytes=size))
    finally:
        registry.close()


def adopted_bases(service: TinkerService) -> set[str]:
    """The models that the named saved weights in the state folder of an embedded service are adapters of."""
    from rtl_core.localtinker.registry import find_checkpoint

    found = (find_checkpoint(service.state, path) for path in service.weights.values())
    return {saved.base_model for saved in found if saved is not None}
