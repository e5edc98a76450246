"""Saved weights on a Tinker service: describe, delete and download them."""

from __future__ import annotations

import asyncio
import shutil
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import httpx
import tinker
from tinker import types

from rtl_core.backend.base import Saved
from rtl_core.backend.tinker.services import services_of
from rtl_core.config import RunConfig
from rtl_core.errors import PolicyError, WeightsGoneError

ADAPTER_FILES = ("adapter_model.safetensors", "adapter_config.json")


async def of_run(rest: tinker.RestClient, run_id: str) -> dict[str, types.Checkpoint]:
    """Return the saved weights of a training run, by path. Raises SDK errors."""
    return {saved.tinker_path: saved for saved in (await rest.list_checkpoints(run_id)).checkpoints}


def run_of(path: str) -> str:
    """Return the id of the training run that saved the weights at `path`."""
    return path.removeprefix("tinker://").split("/")[0]


async def delete(rest: tinker.RestClient, paths: Collection[str]) -> int:
    """Delete saved weights, ignoring those that no longer exist. Returns the number deleted.

    First lists existing weights, with one request per training run, so that a resumed run does not request deleted ones again.
    """
    by_run: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        by_run[run_of(path)].add(path)
    deleted = 0
    for run_id, wanted in by_run.items():
        try:
            present = (await of_run(rest, run_id)).keys()
        except tinker.NotFoundError:
            continue
        for path in sorted(wanted & present):
            with suppress(tinker.NotFoundError):
                await rest.delete_checkpoint_from_tinker_path(path)
                deleted += 1
    return deleted


def missing_weights(path: str) -> PolicyError:
    """Return the error for saved weights that a remote service does not have."""
    return PolicyError(
        f"the service does not have {path}: it was deleted, has expired, or belongs to another account",
        "`rtl-distill checkpoints RUN` lists the weights of a run",
    )


async def describe(rest: tinker.RestClient, path: str) -> Saved:
    """Return the service's description of saved weights. Raises PolicyError if it does not have them."""
    try:
        found = await rest.get_weights_info_by_tinker_path(path)
    except tinker.NotFoundError as error:
        raise missing_weights(path) from error
    return Saved(found.base_model, found.lora_rank)


def copy_adapter(config: RunConfig, state_path: str, folder: Path) -> list[Path]:
    """Copy the adapter saved at `state_path` from the folder of the embedded service, which need not be running. Raises WeightsGoneError if it
    no longer exists."""
    from rtl_core.localtinker.registry import find_checkpoint

    state = services_of(config)[0].state
    saved = find_checkpoint(state, state_path)
    if saved is None:
        raise WeightsGoneError(f"the weights at {state_path} no longer exist", "see `rtl-distill checkpoints RUN`")
    folder.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copyfile(saved.folder(state) / name, folder / name)) for name in ADAPTER_FILES]


async def download_adapter(
    service: tinker.ServiceClient, rest: tinker.RestClient, state_path: str, name: str, folder: Path
) -> list[Path]:
    """Download the adapter saved at `state_path` to `folder` in peft's format. Raises PolicyError if the service does not export it."""
    try:
        client = await service.create_training_client_from_state(state_path)
        external = await client.save_weights_external(name, ttl_seconds=3600)
        return await download_external(rest, external.path, folder)
    except (tinker.NotFoundError, tinker.BadRequestError, tinker.UnprocessableEntityError) as error:
        raise PolicyError(
            f"the service does not export the weights at {state_path}: {error}",
            "`rtl-distill checkpoints RUN` lists the weights of a run",
        ) from error


async def download_external(rest: tinker.RestClient, path: str, folder: Path) -> list[Path]:
    """Download the files of weights saved with `save_weights_external`. Raises SDK errors."""
    answer = await rest.get_external_weights_urls(path)
    folder.mkdir(parents=True, exist_ok=True)
    return await asyncio.gather(*(_download(url, folder, file) for file, url in answer.urls.items()))


async def _download(url: str, folder: Path, file: str) -> Path:
    """Download one file atomically. Raises PolicyError if the name, which the service chose, is outside the folder."""
    target = (folder / file).resolve()
    if not target.is_relative_to(folder.resolve()):
        raise PolicyError(f"the service named a file outside the folder: {file!r}")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.part")
    timeout = httpx.Timeout(30, read=300)
    async with (
        httpx.AsyncClient(timeout=timeout, follow_redirects=True) as http,
        http.stream("GET", url) as response,
    ):
        response.raise_for_status()
        with partial.open("wb") as out:
            async for chunk in response.aiter_bytes():
                out.write(chunk)
    partial.replace(target)
    return target
