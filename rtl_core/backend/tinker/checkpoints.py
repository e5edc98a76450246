"""Saved weights on a Tinker service: describe them, and copy or download their adapter."""

from __future__ import annotations

import shutil
from pathlib import Path

import tinker

from localtinker.client.weights import ADAPTER_FILES, download_external
from localtinker.errors import DownloadError
from rtl_core.backend.base import Saved
from rtl_core.backend.tinker.embedded import service_errors
from rtl_core.backend.tinker.marks import Marks
from rtl_core.backend.tinker.services import services_of
from rtl_core.config import RunConfig
from rtl_core.errors import PolicyError, WeightsGoneError


def missing_weights(path: str) -> PolicyError:
    """Return the error for saved weights that a remote service does not have."""
    return PolicyError(
        f"the service does not have {path}: it was deleted, has expired, or belongs to another account",
        "`rtl-distill admin checkpoints RUN` lists the weights of a run",
    )


async def describe(rest: tinker.RestClient, path: str) -> Saved:
    """Return the service's description of saved weights. Raises PolicyError if it does not have them."""
    try:
        info = await rest.get_weights_info_by_tinker_path(path)
    except tinker.NotFoundError as error:
        raise missing_weights(path) from error
    return Saved(info.base_model, info.lora_rank)


@service_errors()
def copy_adapter(config: RunConfig, state_path: str, folder: Path) -> list[Path]:
    """Copy the adapter saved at `state_path` from the folder of the embedded service, which need not be
    running. Raises WeightsGoneError if it no longer exists."""
    from localtinker.registry import live_checkpoints

    state = services_of(config)[0].state
    checkpoint = live_checkpoints(state).get(state_path)
    if checkpoint is None:
        raise WeightsGoneError(
            f"the weights at {state_path} no longer exist",
            "see `rtl-distill admin checkpoints RUN`",
        )
    folder.mkdir(parents=True, exist_ok=True)
    return [
        Path(shutil.copyfile(checkpoint.folder(state) / name, folder / name))
        for name in ADAPTER_FILES
    ]


async def download_adapter(
    service: tinker.ServiceClient,
    rest: tinker.RestClient,
    state_path: str,
    name: str,
    folder: Path,
    marks: Marks,
) -> list[Path]:
    """Download the adapter saved at `state_path` to `folder` in peft's format. Raises PolicyError if the
    service does not export it."""
    try:
        client = await service.create_training_client_from_state(
            state_path, user_metadata=marks
        )
        external = await client.save_weights_external(name, ttl_seconds=3600)
        return await download_external(rest, external.path, folder)
    except DownloadError as error:
        raise PolicyError(error.message) from error
    except (
        tinker.NotFoundError,
        tinker.BadRequestError,
        tinker.UnprocessableEntityError,
    ) as error:
        raise PolicyError(
            f"the service does not export the weights at {state_path}: {error}",
            "`rtl-distill admin checkpoints RUN` lists the weights of a run",
        ) from error
