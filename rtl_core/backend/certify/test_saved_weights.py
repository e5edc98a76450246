"""Saved weights: kept, found again, described, deleted, expiring, fetched as files."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rtl_core.backend.certify.bench import (
    LEARNING,
    PROMPT,
    SAMPLING,
    SIGNS,
    Bench,
    params,
    policy_data,
    prompt,
    sequences,
)
from rtl_core.backend.certify.plugin import case, option
from rtl_core.backend.tinker.checkpoints import ADAPTER_FILES, download_external
from rtl_core.errors import WeightsGoneError


@case("save_state", needs=LEARNING, without="a run cannot be resumed")
async def test_save_state(bench: Bench) -> str:
    """A state is saved under a name."""
    return (await bench.save_state(await bench.trainer(), "state")).rsplit("/", 2)[-2]


@case(
    "save_state: overwrite",
    needs=("save_state",),
    without="a run that was cut off while it saved a step stops when it saves this step again",
)
async def test_overwrite(bench: Bench) -> str:
    """A state is saved again under the same name with `overwrite`, as after half a save."""
    trainer = await bench.trainer()
    path = await bench.save_state(trainer, "again", overwrite=True)
    again = await bench.save_state(trainer, "again", overwrite=True)
    assert path == again, f"saved again under the same name, the path is {again} instead of {path}"
    return "replaced"


@case("save_weights_for_sampler", needs=(*LEARNING, *SAMPLING), without="what was trained cannot be sampled")
async def test_save_for_sampler(bench: Bench) -> str:
    """Weights are saved for a sampler, which is opened by their path."""
    trainer = await bench.trainer()
    await bench.draw(await bench.sampler_of(trainer, "sampled"), 2, 4)
    return "sampled"


@option(
    "save_weights_and_get_sampling_client",
    needs=(*LEARNING, *SAMPLING),
    without="other programs miss it; a run saves under a name",
)
async def test_save_and_get(bench: Bench) -> str:
    """Weights are saved without a name, and a sampling client of them is returned."""
    sampler = await (await bench.trainer()).save_weights_and_get_sampling_client()
    return f"{len((await bench.draw(sampler, 1, 4))[0].tokens)} tokens"


@case(
    "resume",
    needs=("save_state", "optim_step"),
    without="a run cannot be resumed, and a step that failed cannot be repeated",
)
async def test_resume(bench: Bench) -> str:
    """Two steps from a saved state with its optimizer are the two steps that followed it."""
    first = await bench.trainer()
    q = await bench.own(first, sequences())
    for _ in range(2):
        await bench.step(first, policy_data(SIGNS, q))
    path = await bench.save_state(first, "resumed")
    went_on = [logp for _ in range(3) for logp in await bench.step(first, policy_data(SIGNS, q))]
    second = await bench.service.create_training_client_from_state_with_optimizer(path)
    resumed = [logp for _ in range(3) for logp in await bench.step(second, policy_data(SIGNS, q))]
    return bench.compare(resumed, went_on, "resumed and uninterrupted log-probabilities")


@option(
    "start from a state",
    needs=("resume",),
    without="`tinker.start_from` cannot be used, and lost sampler weights cannot be saved again",
)
async def test_start_from(bench: Bench) -> str:
    """A training client from a state without its optimizer has its weights and fresh moments."""
    first = await bench.trainer()
    q = await bench.own(first, sequences())
    for _ in range(2):
        await bench.step(first, policy_data(SIGNS, q))
    path = await bench.save_state(first, "started")
    opposite = policy_data([-sign for sign in SIGNS], q)
    fresh = await bench.service.create_training_client_from_state(path)
    kept, begun = [[await bench.step(one, opposite) for _ in range(2)] for one in (first, fresh)]
    words = bench.compare(
        begun[0], kept[0], "the weights of a state and of a client started from it give log-probabilities that"
    )
    moved = np.abs(np.concatenate(begun[1]) - np.concatenate(kept[1])).max()
    assert moved > 1e-3, "its first step is the one with the state's moments, so they were taken over"
    return words


@option(
    "weights_info",
    needs=("save_state",),
    without="`tinker.start_from` and teachers that are saved weights cannot be used",
)
async def test_weights_info(bench: Bench) -> str:
    """The server knows the base model and the rank of saved weights."""
    path = await bench.save_state(await bench.trainer(), "described")
    info = await bench.rest.get_weights_info_by_tinker_path(path)
    assert info.base_model == bench.server.student, (
        f"the base model is {info.base_model!r}, not {bench.server.student!r}"
    )
    assert info.lora_rank in (None, bench.server.rank), f"the rank is {info.lora_rank}, not {bench.server.rank}"
    return f"{info.base_model}, rank {info.lora_rank}"


@case("list and delete", needs=("save_state",), without="a run cannot delete the weights of older steps")
async def test_list_and_delete(bench: Bench) -> str:
    """A training run's saved weights are listed, and one that is deleted is gone from the list."""
    trainer = await bench.trainer()
    paths = {await bench.save_state(trainer, "one"), await bench.save_state(trainer, "two")}
    run = next(iter(paths)).removeprefix("tinker://").split("/")[0]

    async def listed() -> set[str]:
        return {saved.tinker_path for saved in (await bench.rest.list_checkpoints(run)).checkpoints} & paths

    assert await listed() == paths, f"of {len(paths)} saved weights {len(await listed())} are listed"
    gone = min(paths)
    await bench.rest.delete_checkpoint_from_tinker_path(gone)
    assert await listed() == paths - {gone}, "deleted weights are still listed"
    return "listed and deleted"


@case(
    "deleted weights are gone",
    needs=("list and delete", "resume", "save_weights_for_sampler"),
    without="a run that resumes does not learn that its weights are gone, and waits or trains on others",
)
async def test_deleted(bench: Bench) -> str:
    """Whoever opens deleted weights is told that they are not found: 404 or 410."""
    trainer = await bench.trainer()
    state, sampler = await bench.save_state(trainer, "gone"), await bench.save_sampler(trainer, "gone")
    for path in (state, sampler):
        await bench.rest.delete_checkpoint_from_tinker_path(path)

    async def opened_sampler() -> None:
        client = await bench.service.create_sampling_client(model_path=sampler)
        await client.sample(prompt(PROMPT), 1, params(1))

    openings = {
        "a sampling client": opened_sampler(),
        "a training client": bench.service.create_training_client_from_state_with_optimizer(state),
    }
    await bench.demand_no_client("deleted weights", openings, WeightsGoneError)
    return "not found"


@option(
    "ttl",
    needs=("list and delete",),
    without="`checkpoints.ttl_days` has no effect: weights stay until somebody deletes them",
)
async def test_ttl(bench: Bench) -> str:
    """Weights that are saved for two hours expire then, and can be kept for good."""
    path = await bench.save_state(await bench.trainer(), "expiring", ttl_seconds=7200)
    run = path.removeprefix("tinker://").split("/")[0]

    async def expiry() -> datetime | None:
        (found,) = (one for one in (await bench.rest.list_checkpoints(run)).checkpoints if one.tinker_path == path)
        expires: datetime | None = found.expires_at
        return expires

    expires = await expiry()
    assert expires is not None, "they have no date of expiry"
    left_s = (expires.replace(tzinfo=expires.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    assert abs(left_s - 7200) < 900, f"they expire in {left_s:.0f} s instead of 7200"
    await bench.rest.set_checkpoint_ttl_from_tinker_path(path, None)
    assert await expiry() is None, "the expiry cannot be taken from them"
    await bench.rest.set_checkpoint_ttl_from_tinker_path(path, 7200)
    return f"expires in {left_s:.0f} s"


@option(
    "external download",
    needs=("start from a state",),
    without="`rtl-distill export` cannot fetch the adapter, and gradients cannot be compared with torch",
)
async def test_download(bench: Bench) -> str:
    """The adapter of a saved state is fetched as files in peft's format."""
    path = await bench.save_state(await bench.trainer(), "fetched")
    begun = await bench.service.create_training_client_from_state(path)
    with tempfile.TemporaryDirectory() as folder:
        fetched = await download_external(bench.rest, await bench.save_external(begun, "fetched"), Path(folder))
        files = {file.name: file.stat().st_size for file in fetched}
    missing = set(ADAPTER_FILES) - files.keys()
    assert not missing, f"{', '.join(sorted(missing))} missing among {', '.join(sorted(files)) or 'no files'}"
    return f"{sum(files.values()) / 1e6:.1f} MB"
