"""Which saved weights of a run are kept, and how an adapter leaves the service.

A step saves two things: the full state, to go on from, and the frozen copy to sample from. Both are deleted on the service
when nothing may need them any more. What stays: the newest `keep_last` steps, every `keep_every`-th, the `keep_best` with the
best held-out pass@1, and the newest of all, which in the end is the final one and never expires.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import tinker

from rtl_core.errors import PolicyError
from rtl_core.history.records import EvaluationRecord, StepState


@dataclass(frozen=True)
class Retention:
    """What is kept; 0 means none of that kind."""

    keep_last: int = 3
    keep_best: int = 1
    keep_every: int = 0


def kept(trained: Sequence[StepState], evaluations: Sequence[EvaluationRecord], retention: Retention) -> set[int]:
    """Steps whose weights are kept, out of those that are trained.

    An evaluation after n train steps is one of the weights that step n − 1 left. Among equals the earlier is the better.
    """
    steps = sorted(state.step for state in trained)
    if not steps:
        return set()
    keep = {steps[-1], *steps[-retention.keep_last :]} if retention.keep_last else {steps[-1]}
    if retention.keep_every:
        keep |= {step for step in steps if (step + 1) % retention.keep_every == 0}
    scored = [
        (-evaluation.pass_at_1, evaluation.step - 1)
        for evaluation in evaluations
        if evaluation.policy == "student" and evaluation.status == "done" and evaluation.pass_at_1 is not None
    ]
    best = [step for _, step in sorted(scored) if step in set(steps)]
    return keep | set(best[: retention.keep_best])


def superseded(
    trained: Sequence[StepState], evaluations: Sequence[EvaluationRecord], retention: Retention
) -> list[StepState]:
    """Steps whose weights may go, oldest first."""
    keep = kept(trained, evaluations, retention)
    return [state for state in sorted(trained, key=lambda state: state.step) if state.step not in keep]


async def delete(rest: Any, states: Sequence[StepState]) -> int:
    """Delete the weights of those steps on the service; what is gone already is fine. Returns how many were deleted.

    What exists is asked for first, one request per training run, so that a resumed run does not ask for what an earlier
    process deleted.
    """
    by_run: dict[str, set[str]] = defaultdict(set)
    for state in states:
        for path in (state.state_path, state.sampler_path):
            if path:
                by_run[path.removeprefix("tinker://").split("/")[0]].add(path)
    deleted = 0
    for run_id, paths in by_run.items():
        try:
            present = {checkpoint.tinker_path for checkpoint in (await rest.list_checkpoints(run_id)).checkpoints}
        except tinker.NotFoundError:
            continue
        for path in sorted(paths & present):
            try:
                await rest.delete_checkpoint_from_tinker_path(path)
                deleted += 1
            except tinker.NotFoundError:
                continue
    return deleted


async def keep_for_ever(rest: Any, states: Sequence[StepState]) -> None:
    """Take the expiry from the weights of those steps."""
    for state in states:
        for path in (state.state_path, state.sampler_path):
            if path:
                await rest.set_checkpoint_ttl_from_tinker_path(path, None)


async def download_adapter(service: Any, rest: Any, state_path: str, name: str, folder: Path) -> list[Path]:
    """Fetch the adapter saved at `state_path` as files for other programs (peft's format) into `folder`.

    Raises:
        PolicyError: the service does not export weights, or no longer has these.
    """
    try:
        client = await service.create_training_client_from_state(state_path)
        external = await client.save_weights_external(name, ttl_seconds=3600)
        answer = await rest.get_external_weights_urls(external.path)
    except (tinker.NotFoundError, tinker.BadRequestError, tinker.UnprocessableEntityError) as error:
        raise PolicyError(
            f"the service does not hand out the weights at {state_path}: {error}",
            "list what it has with `rtl-distill checkpoints RUN`",
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    return await asyncio.gather(*(_download(url, folder, file) for file, url in answer.urls.items()))


async def _download(url: str, folder: Path, file: str) -> Path:
    """One file of an adapter, whole or not at all. The service names it, so it is kept inside the folder."""
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
