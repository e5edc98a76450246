"""Saved weights: saving, resuming, describing, deleting, expiry and download."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from localtinker.certify.bench import LEARNING, SAMPLING, Bench
from localtinker.certify.cases import case, option
from localtinker.certify.data import SIGNS
from localtinker.client.weights import ADAPTER_FILES, download_external, of_run
from localtinker.registry import run_of


@case("save_state", needs=LEARNING, without="a run cannot be resumed")
async def test_save_state(bench: Bench) -> str:
    """A state can be saved under a name."""
    return (await bench.save_new("state")).rsplit("/", 2)[-2]


@case(
    "save_state: overwrite",
    needs=("save_state",),
    without="a run that was interrupted while saving a step fails when it saves this step again",
)
async def test_overwrite(bench: Bench) -> str:
    """A state can be saved again under the same name with `overwrite`, as after an interrupted save."""
    trainer = await bench.trainer()
    path = await bench.save(trainer.save_state, "again", overwrite=True)
    again = await bench.save(trainer.save_state, "again", overwrite=True)
    assert path == again, (
        f"when saved again under the same name, the path is {again} instead of {path}"
    )
    return "replaced"


@case(
    "save_weights_for_sampler",
    needs=(*LEARNING, *SAMPLING),
    without="trained weights cannot be sampled",
)
async def test_save_for_sampler(bench: Bench) -> str:
    """Weights can be saved for a sampler, which is opened by their path."""
    trainer = await bench.trainer()
    await bench.sample(await bench.sampler_of(trainer, "sampled"), 2, 4)
    return "sampled"


@option(
    "save_weights_and_get_sampling_client",
    needs=(*LEARNING, *SAMPLING),
    without="only other programs need it; a run saves under a name",
)
async def test_save_and_get(bench: Bench) -> str:
    """Weights can be saved without a name, which returns a sampling client."""
    sampler = await (await bench.trainer()).save_weights_and_get_sampling_client()
    (answer,) = await bench.sample(sampler, 1, 4)
    return f"{len(answer.tokens)} tokens"


@case(
    "resume",
    needs=("save_state", "optim_step"),
    without="a run cannot be resumed, and a step that failed cannot be repeated",
)
async def test_resume(bench: Bench) -> str:
    """Steps from a saved state with its optimizer equal those of an uninterrupted training."""
    first, data = await bench.learner()
    path = await bench.save(first.save_state, "resumed")
    uninterrupted = await bench.step(first, data, 3)
    second = await bench.service.create_training_client_from_state_with_optimizer(path)
    resumed = await bench.step(second, data, 3)
    return bench.compare(resumed, uninterrupted, "resumed and uninterrupted log-probabilities")


@option(
    "start from a state",
    needs=("resume",),
    without="`tinker.start_from` cannot be used, and lost sampler weights cannot be saved again",
)
async def test_start_from(bench: Bench) -> str:
    """A training client opened from a state without its optimizer has its weights and new moments."""
    first, _ = await bench.learner()
    path = await bench.save(first.save_state, "started")
    fresh = await bench.service.create_training_client_from_state(path)
    signs = [-sign for sign in SIGNS]
    opposite = await bench.batch(await bench.trainer(), signs)
    with_moments = await bench.step(first, opposite, 2)
    without = await bench.step(fresh, opposite, 2)
    words = bench.compare(
        without[: len(SIGNS)],
        with_moments[: len(SIGNS)],
        "the weights of a state and of a client started from it give log-probabilities that",
    )
    differences = np.concatenate(without) - np.concatenate(with_moments)
    assert np.abs(differences).max() > 1e-3, (
        "its first step equals that with the state's moments, so these were restored"
    )
    return words


@option(
    "weights_info",
    needs=("save_state",),
    without="`tinker.start_from` and teachers that are saved weights cannot be used",
)
async def test_weights_info(bench: Bench) -> str:
    """The server reports the base model and the rank of saved weights."""
    path = await bench.save_new("described")
    info = await bench.rest.get_weights_info_by_tinker_path(path)
    return bench.demand_described("the description", info.base_model, info.lora_rank)


@case(
    "list and delete",
    needs=("save_state",),
    without="a run cannot delete the weights of older steps",
)
async def test_list_and_delete(bench: Bench) -> str:
    """A training run's saved weights are listed, and deleted ones are not."""
    trainer = await bench.trainer()
    paths = {await bench.save(trainer.save_state, name) for name in ("one", "two")}

    async def listing() -> set[str]:
        weights = await of_run(bench.rest, run_of(min(paths)))
        return paths & weights.keys()

    count = len(await listing())
    assert count == 2, f"of 2 saved weights {count} are listed"
    gone = min(paths)
    await bench.rest.delete_checkpoint_from_tinker_path(gone)
    assert await listing() == paths - {gone}, "deleted weights are still listed"
    return "listed and deleted"


@case(
    "deleted weights are gone",
    needs=("list and delete", "resume", "save_weights_for_sampler"),
    without="a resumed run does not notice that its weights no longer exist, and waits or trains others",
)
async def test_deleted(bench: Bench) -> str:
    """Opening deleted weights is answered with 404 or 410."""
    trainer = await bench.trainer()
    state = await bench.save(trainer.save_state, "gone")
    sampler = await bench.save(trainer.save_weights_for_sampler, "gone")
    for path in (state, sampler):
        await bench.rest.delete_checkpoint_from_tinker_path(path)

    openings = {
        "a sampling client": bench.sample_once(model_path=sampler),
        "a training client": bench.service.create_training_client_from_state_with_optimizer(
            state
        ),
    }
    await bench.demand_no_client("deleted weights", openings, ("gone",))
    return "not found"


@option(
    "ttl",
    needs=("list and delete",),
    without="`checkpoints.ttl_days` has no effect: weights stay until they are deleted",
)
async def test_ttl(bench: Bench) -> str:
    """Weights can be saved with an expiry of two hours, which can be removed."""
    path = await bench.save_new("expiring", ttl_seconds=7200)

    async def expiry() -> datetime | None:
        weights = await of_run(bench.rest, run_of(path))
        expires: datetime | None = weights[path].expires_at
        return expires

    expires = await expiry()
    assert expires is not None, "they have no expiry date"
    expires = expires.replace(tzinfo=expires.tzinfo or UTC)
    left_s = (expires - datetime.now(UTC)).total_seconds()
    assert abs(left_s - 7200) < 900, f"they expire in {left_s:.0f} s instead of 7200"
    await bench.rest.set_checkpoint_ttl_from_tinker_path(path, None)
    assert await expiry() is None, "their expiry cannot be removed"
    await bench.rest.set_checkpoint_ttl_from_tinker_path(path, 7200)
    return f"expires in {left_s:.0f} s"


@option(
    "external download",
    needs=("start from a state",),
    without="the adapter of a run cannot be exported, and gradients cannot be compared with torch",
)
async def test_download(bench: Bench) -> str:
    """The adapter of a saved state can be downloaded in peft's format."""
    path = await bench.save_new("fetched")
    trainer = await bench.service.create_training_client_from_state(path)
    external = await bench.save(trainer.save_weights_external, "fetched")
    with tempfile.TemporaryDirectory() as folder:
        paths = await download_external(bench.rest, external, Path(folder))
        files = {file.name: file.stat().st_size for file in paths}
    missing = ", ".join(sorted(set(ADAPTER_FILES) - files.keys()))
    names = ", ".join(sorted(files)) or "no files"
    assert not missing, f"{missing} missing among {names}"
    return f"{sum(files.values()) / 1e6:.1f} MB"
