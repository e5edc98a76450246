"""Saved weights that a configuration names (`tinker.start_from`, a teacher): what they are and, for the embedded service, whence they come."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import tinker

from rtl_core.backend.base import Saved
from rtl_core.backend.tinker.places import Place
from rtl_core.errors import PolicyError

if TYPE_CHECKING:
    from rtl_core.localtinker.registry import SavedWeights


def gone(path: str) -> PolicyError:
    """The error of saved weights that a service with a URL does not have."""
    return PolicyError(
        f"the service does not have {path}: it was deleted, has expired, or belongs to another account",
        "`rtl-distill checkpoints RUN` lists what a run has",
    )


async def describe(rest: tinker.RestClient, path: str) -> Saved:
    """What the service knows of saved weights. PolicyError: it does not have them."""
    try:
        found = await rest.get_weights_info_by_tinker_path(path)
    except tinker.NotFoundError as error:
        raise gone(path) from error
    return Saved(found.base_model, found.lora_rank)


def _find(place: Place, path: str, key: str) -> tuple[Path, SavedWeights]:
    """Where an embedded service has, or would find, saved weights that a configuration names: the state folder and what it knows of them.

    Raises:
        PolicyError: neither the run nor another one of its `run.directory` has them.
    """
    from rtl_core.localtinker.registry import find_checkpoint

    directory = place.config.run.directory
    for folder in (place.state, *sorted(directory.glob("*/tinker"))):
        if found := find_checkpoint(folder, path):
            return folder, found
    raise PolicyError(
        f"{key}: no run in {directory} has {path}",
        "`rtl-distill checkpoints RUN` lists what a run has; the embedded service knows the runs of one run.directory",
    )


def found_at(place: Place, path: str, key: str) -> Saved:
    """What saved weights are that `key` names and an embedded service would find. PolicyError: there are none."""
    from rtl_core.localtinker.lora import LoraSpec

    _, saved = _find(place, path, key)
    return Saved(saved.base_model, LoraSpec.from_json(saved.lora).rank)


def found_here(place: Place) -> dict[str, Saved | PolicyError]:
    """Key of the configuration -> what the saved weights that it names are, or why the embedded service will not have them. Nothing is copied."""
    found: dict[str, Saved | PolicyError] = {}
    for key, path in place.weights.items():
        try:
            found[key] = found_at(place, path, key)
        except PolicyError as error:
            found[key] = error
    return found


def adopt(place: Place) -> None:
    """Copy the saved weights that a run names, and does not have in the state folder of its embedded service, from the other runs of its
    `run.directory`. They keep their path.

    Raises:
        PolicyError: none of them has such weights.
    """
    from rtl_core.localtinker.registry import Registry, parse_path

    sources = {(key, path): _find(place, path, key) for key, path in place.weights.items()}
    wanted = {names: found for names, found in sources.items() if found[0] != place.state}
    if not wanted:
        return
    registry = Registry(place.state)
    try:
        for (key, path), (folder, saved) in wanted.items():
            copy = partial(shutil.copytree, folder / "blobs" / saved.blob, dirs_exist_ok=True)
            blob, size = registry.write_blob(copy)
            registry.add_checkpoint(*parse_path(path, key), replace(saved, blob=blob, size_bytes=size))
    finally:
        registry.close()


def adopted_bases(place: Place) -> set[str]:
    """The models that the named saved weights in the state folder of an embedded service are adapters of."""
    from rtl_core.localtinker.registry import find_checkpoint

    found = (find_checkpoint(place.state, path) for path in place.weights.values())
    return {saved.base_model for saved in found if saved is not None}
