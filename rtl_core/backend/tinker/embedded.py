"""Preparation of the embedded service: its models, its folder, and saved weights of other runs."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localtinker.errors import LocalTinkerError, SettingsError
from rtl_core.backend.base import Readiness, Saved
from rtl_core.backend.start import known_folder
from rtl_core.backend.tinker.services import TinkerService
from rtl_core.errors import ConfigError, PolicyError
from rtl_core.types.finding import Finding
from rtl_grader.words import did_you_mean

if TYPE_CHECKING:
    from localtinker.registry import SavedWeights


@contextmanager
def service_errors() -> Iterator[None]:
    """Translate errors of the service's files, such as a damaged registry, into ours."""
    try:
        yield
    except LocalTinkerError as error:
        raise ConfigError(error.message, error.hint) from error


@service_errors()
def local_models(service: TinkerService) -> dict[str, Path]:
    """Return a mapping of name to folder of the models that the run's embedded service serves."""
    from localtinker.registry import live_checkpoints
    from rtl_core.pretrained import MODELS
    from rtl_core.tinymodels import MODEL_NAMES

    names = set(service.models.values())
    checkpoints = live_checkpoints(service.state) if service.weights else {}
    names.update(
        checkpoints[path].base_model for path in service.weights.values() if path in checkpoints
    )
    folders = service.config.tinker.local_models
    # With two services, each serves only its own models.
    models = {
        name: folder
        for name, folder in folders.items()
        if service.part == "all" or name in names
    }
    for name in sorted(names - set(models)):
        folder = known_folder(service.config, name)
        if folder is None:
            shipped = [*MODEL_NAMES, *MODELS]
            others = did_you_mean(name, shipped, f"or use one of: {', '.join(shipped)}")
            raise PolicyError(
                f"the embedded service has no model {name!r}",
                f'add `[tinker.local_models]` with `"{name}" = "/path/to/folder"`; {others}',
            )
        models[name] = folder
    return models


def embedded_readiness(service: TinkerService) -> Readiness:
    """Check the folders of the models that a run needs from the embedded service. See `Provider.check`."""
    from transformers import AutoConfig

    from localtinker.devices import device_for
    from localtinker.settings import context_of

    try:
        folders = local_models(service)
    except PolicyError as error:
        return Readiness([Finding.of("models", error)])
    findings, context, checkpoint_bytes = [], {}, 0
    for key, name in service.models.items():
        try:
            model = AutoConfig.from_pretrained(folders[name], local_files_only=True)
        except (OSError, ValueError) as error:
            words = f"{folders[name]} is not a model: {str(error).splitlines()[0]}"
            findings.append(
                Finding(key, "wrong", words, f"correct tinker.local_models[{name!r}]")
            )
            continue
        context[name] = context_of(model)
        findings.append(Finding(key, "ok", f"{name}: embedded, up to {context[name]:,} tokens"))
        if key == "tinker.student":
            checkpoint_bytes = _checkpoint_bytes(
                model.get_text_config(), service.config.tinker.lora_rank
            )
    section = service.config.tinker
    try:
        device = device_for(section.local_device, folders.values())
        findings.append(
            Finding("tinker.local_device", "ok", f"{device}, {section.local_dtype}")
        )
    except SettingsError as error:
        findings.append(Finding.of("tinker.local_device", error))
    saved: dict[str, Saved | PolicyError] = {}
    for key, path in service.weights.items():
        try:
            saved[key] = describe_saved(service, path, key)
        except PolicyError as error:
            saved[key] = error
    return Readiness(findings, context, checkpoint_bytes, saved)


def _checkpoint_bytes(model: Any, rank: int) -> int:
    """Return an upper bound on a saved adapter's size: A and B of all layers in float32, Adam's two
    moments, and the sampler's copy."""
    hidden, inner = (
        model.hidden_size,
        getattr(model, "intermediate_size", 4 * model.hidden_size),
    )
    attention, mlp = 4 * 2 * hidden, 3 * (hidden + inner)
    numbers = rank * (model.num_hidden_layers * (attention + mlp) + hidden + model.vocab_size)
    return int(4 * numbers * (1 + 2 + 1))


@contextmanager
def temporary_folder(folder: Path) -> Iterator[None]:
    """Create a temporary folder for this process and delete it afterwards. Also deletes sibling folders
    (same name up to the last `-`) left by killed processes.

    A lock on the folder shows that it is in use. Process ids cannot, because each container has its own.
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
    """Lock a folder. Raises BlockingIOError if another process holds the lock."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


@service_errors()
def _find(service: TinkerService, path: str, key: str) -> tuple[Path, SavedWeights]:
    """Find saved weights in the state folder of the run or of another run in its `run.directory`. Raises
    PolicyError if no run has them; its message names the configuration key."""
    from localtinker.registry import live_checkpoints

    directory = service.config.run.directory
    for folder in (service.state, *sorted(directory.glob("*/tinker"))):
        if weights := live_checkpoints(folder).get(path):
            return folder, weights
    raise PolicyError(
        f"{key}: no run in {directory} has {path}",
        "`rtl-distill admin checkpoints RUN` lists the weights of a run; the embedded service knows "
        "only runs in the same run.directory",
    )


def describe_saved(service: TinkerService, path: str, key: str) -> Saved:
    """Describe the saved weights at `path`, which `key` names. Raises PolicyError if there are none."""
    from localtinker.lora import LoraSpec

    _, weights = _find(service, path, key)
    return Saved(weights.base_model, LoraSpec.model_validate_json(weights.lora).rank)


@service_errors()
def copy_saved_weights(service: TinkerService) -> None:
    """Copy saved weights that the run names from other runs in its `run.directory` to its own state folder.
    They keep their path. Raises PolicyError if no run has them."""
    from localtinker.registry import Registry

    sources = [_find(service, path, key) for key, path in service.weights.items()]
    sources = [source for source in sources if source[0] != service.state]
    if not sources:
        return
    registry = Registry(service.state)
    try:
        for folder, saved in sources:
            copy = partial(shutil.copytree, saved.folder(folder), dirs_exist_ok=True)
            blob, size = registry.write_blob(copy)
            checkpoint = saved.model_copy(update={"blob": blob, "size_bytes": size})
            registry.add_checkpoint(saved.run_id, saved.kind, saved.name, checkpoint)
    finally:
        registry.close()
