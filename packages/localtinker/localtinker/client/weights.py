"""Saved weights on a server: list, delete, keep and download them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import httpx
import tinker
from tinker import types

from localtinker.errors import DownloadError
from localtinker.registry import run_of

ADAPTER_FILES = ("adapter_model.safetensors", "adapter_config.json")


async def of_run(rest: tinker.RestClient, run_id: str) -> dict[str, types.Checkpoint]:
    """Return the saved weights of a training run, by path. Raises SDK errors."""
    return {
        saved.tinker_path: saved for saved in (await rest.list_checkpoints(run_id)).checkpoints
    }


async def delete(rest: tinker.RestClient, paths: Collection[str]) -> int:
    """Delete saved weights, ignoring those that no longer exist. Returns the number deleted.

    First lists existing weights, with one request per training run, so that a resumed run does not request
    deleted ones again.
    """
    count = 0
    for run_id, run_paths in groupby(sorted(paths), run_of):
        try:
            present = await of_run(rest, run_id)
        except tinker.NotFoundError:
            continue
        for path in sorted(present.keys() & run_paths):
            with suppress(tinker.NotFoundError):
                await rest.delete_checkpoint_from_tinker_path(path)
                count += 1
    return count


async def keep(rest: tinker.RestClient, paths: Collection[str]) -> None:
    """Remove the expiry of saved weights. On a server without expiries (404 or 405) there is none to remove.
    Raises SDK errors, such as NotFoundError for weights that no longer exist."""
    for path in paths:
        try:
            await rest.set_checkpoint_ttl_from_tinker_path(path, None)
        except tinker.APIStatusError as error:
            if error.status_code not in (404, 405):
                raise
            # 404 may be an answer about the weights or about the route.
            if error.status_code == 404 and path not in await of_run(rest, run_of(path)):
                raise


async def download_external(rest: tinker.RestClient, path: str, folder: Path) -> list[Path]:
    """Download the files of weights saved with `save_weights_external`. Raises SDK errors and DownloadError."""
    answer = await rest.get_external_weights_urls(path)
    folder.mkdir(parents=True, exist_ok=True)
    downloads = [_download(url, folder, file) for file, url in answer.urls.items()]
    return await asyncio.gather(*downloads)


async def _download(url: str, folder: Path, file: str) -> Path:
    """Download one file atomically. Raises DownloadError if the name, which the server chose, is outside the folder."""
    target = (folder / file).resolve()
    if not target.is_relative_to(folder.resolve()):
        raise DownloadError(f"the service named a file outside the folder: {file!r}")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.part")
    async with (
        httpx.AsyncClient(timeout=httpx.Timeout(30, read=300), follow_redirects=True) as http,
        http.stream("GET", url) as response,
    ):
        response.raise_for_status()
        with partial.open("wb") as out:
            async for chunk in response.aiter_bytes():
                out.write(chunk)
    partial.replace(target)
    return target
