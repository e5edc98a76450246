"""Saved weights that a configuration names (`tinker.start_from`, a teacher): what they are and, for the embedded service, whence they come."""

from __future__ import annotations

import shutil
from functools import partial

import tinker

from rtl_core.backend.base import Saved
from rtl_core.backend.tinker.places import Place
from rtl_core.errors import PolicyError


async def describe(rest: tinker.RestClient, path: str) -> Saved:
    """What the service knows of saved weights. PolicyError: it does not have them."""
    try:
        found = await rest.get_weights_info_by_tinker_path(path)
    except tinker.NotFoundError as error:
        raise PolicyError(
            f"the service does not have {path}: it was deleted, has expired, or belongs to another account",
            "`rtl-distill checkpoints RUN` lists what a run has",
        ) from error
    return Saved(found.base_model, found.lora_rank)


def adopt(place: Place) -> None:
    """Copy the saved weights that a run names, and does not have in the state folder of its embedded service, from the other runs of its
    `run.directory`. They keep their path.

    Raises:
        PolicyError: none of them has such weights.
    """
    from rtl_core.localtinker.registry import Registry, find_checkpoint, parse_path

    config, state = place.config, place.state
    wanted = {key: path for key, path in place.weights.items() if find_checkpoint(state, path) is None}
    if not wanted:
        return
    registry = Registry(state)
    try:
        for key, path in wanted.items():
            folders = sorted(config.run.directory.glob("*/tinker"))
            found = next(((f, saved) for f in folders if (saved := find_checkpoint(f, path))), None)
            if found is None:
                raise PolicyError(
                    f"{key}: no run in {config.run.directory} has {path}",
                    "`rtl-distill checkpoints RUN` lists what a run has; the embedded service knows the runs of one run.directory",
                )
            folder, saved = found
            copy = partial(shutil.copytree, folder / "blobs" / saved.blob, dirs_exist_ok=True)
            blob, size = registry.write_blob(copy)
            registry.add_checkpoint(
                *parse_path(path, key),
                blob=blob,
                size_bytes=size,
                base_model=saved.base_model,
                lora=saved.lora,
                has_optimizer=saved.has_optimizer,
            )
    finally:
        registry.close()


def adopted_bases(place: Place) -> set[str]:
    """The models that the named saved weights in the state folder of an embedded service are adapters of."""
    from rtl_core.localtinker.registry import find_checkpoint

    found = (find_checkpoint(place.state, path) for path in place.weights.values())
    return {saved.base_model for saved in found if saved is not None}
