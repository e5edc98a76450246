"""Saving, loading, freezing, listing, expiring and deleting weights through the SDK."""

import httpx
import numpy as np
import pytest
import tinker
from localtinker_helpers import (
    connect,
    params,
    policy_data,
    prompt,
    random_sequences,
    raw_http,
    saved_folder,
    score,
    train,
    wait_for,
)
from tinker import types

from localtinker.errors import NotFoundError, RequestError, SettingsError
from localtinker.registry import SESSION_LIFE, Blob, Registry, live_checkpoints

SEQUENCES = random_sequences(4, seed=12)


def continued(training):
    """Log-probabilities of three more steps, which depend on weights and optimizer state."""
    logprobs = []
    for step in range(3):
        output = training.forward_backward(policy_data(4, seed=step), "importance_sampling")
        training.optim_step(types.AdamParams(learning_rate=2e-3, weight_decay=0.01))
        logprobs += [o["logprobs"].data for o in output.result().loss_fn_outputs]
    return logprobs


def test_a_resumed_training_client_continues_bit_for_bit(client):
    training = client.create_lora_training_client("student", rank=8, seed=1).result()
    train(training, 3)
    path = training.save_state("middle").result().path
    resumed = client.create_training_client_from_state_with_optimizer(path).result()
    assert continued(resumed) == continued(training)


def test_load_state_resets_a_client(client):
    training = client.create_lora_training_client("student", rank=8, seed=1).result()
    train(training, 2)
    path = training.save_state("start").result().path
    first = continued(training)
    with pytest.warns(FutureWarning):
        training.load_state_with_optimizer(path).result()
    assert continued(training) == first


def test_a_load_sees_earlier_saves_that_are_still_queued(client):
    """The SDK sends both without waiting; the requests of a client are executed in order."""
    training = client.create_lora_training_client("student", rank=8, seed=1).result()
    path = training.save_state("moving").result().path
    train(training, 2, learning_rate=5e-3)
    training.save_state("moving", overwrite=True)
    with pytest.warns(FutureWarning):
        loading = training.load_state_with_optimizer(path)
    loading.result()
    resumed = client.create_training_client_from_state_with_optimizer(path).result()
    assert continued(training) == continued(resumed)


def test_a_state_with_damaged_files_gives_an_error_and_no_training_client(
    client, tinker_service
):
    training = client.create_lora_training_client("student", rank=2).result()
    path = training.save_state("damaged").result().path
    (saved_folder(tinker_service, path) / "optimizer.safetensors").write_bytes(b"nothing")
    with pytest.raises(tinker.RequestFailedError):
        client.create_training_client_from_state_with_optimizer(path).result()
    failed = {"model_id": training.model_id.removesuffix("0") + "1"}
    with raw_http(tinker_service) as http:
        assert http.post("get_info", json=failed).status_code == 404


def test_checkpoints_are_listed_with_their_kind_size_and_metadata(client, rest):
    training = client.create_lora_training_client("student", rank=4, seed=1).result()
    state = training.save_state("epoch-1", user_metadata={"epoch": "1"}).result().path
    weights = training.save_weights_for_sampler("epoch-1", ttl_seconds=7200).result().path
    training.save_weights_and_get_sampling_client().result()  # not a checkpoint of its own
    listed = {
        c.tinker_path: c for c in rest.list_checkpoints(training.model_id).result().checkpoints
    }
    assert listed.keys() == {state, weights}
    assert (listed[state].checkpoint_type, listed[weights].checkpoint_type) == (
        "training",
        "sampler",
    )
    assert listed[state].user_metadata == {"epoch": "1"}
    assert listed[state].size_bytes > listed[weights].size_bytes > 1000
    assert listed[state].expires_at is None
    left = listed[weights].expires_at - listed[weights].time
    assert left.total_seconds() == pytest.approx(7200, abs=300)
    everything = rest.list_user_checkpoints(limit=1000).result()
    assert {state, weights} <= {c.tinker_path for c in everything.checkpoints}
    assert everything.cursor.total_count == len(everything.checkpoints)


def test_training_runs_are_listed_newest_first_and_paginated(client, rest):
    made = [
        client.create_lora_training_client(
            "student", rank=r, user_metadata={"n": str(r)}
        ).result()
        for r in (2, 4)
    ]
    page = rest.list_training_runs(limit=1).result()
    assert len(page.training_runs) == 1
    assert page.training_runs[0].training_run_id == made[1].model_id
    second = rest.list_training_runs(limit=1, offset=1).result()
    assert second.training_runs[0].training_run_id == made[0].model_id
    run = rest.get_training_run(made[1].model_id).result()
    assert (run.base_model, run.is_lora, run.lora_rank, run.user_metadata) == (
        "student",
        True,
        4,
        {"n": "4"},
    )
    path = made[1].save_state("one").result().path
    assert (
        rest.get_training_run_by_tinker_path(path).result().last_checkpoint.tinker_path == path
    )


def test_weights_info_describes_the_adapter(client, rest):
    training = client.create_lora_training_client(
        "teacher", rank=4, train_unembed=False
    ).result()
    info = rest.get_weights_info_by_tinker_path(training.save_state("x").result().path).result()
    assert (info.base_model, info.is_lora, info.lora_rank) == ("teacher", True, 4)
    assert (info.train_attn, info.train_mlp, info.train_unembed) == (True, True, False)


def test_a_name_is_overwritten_only_on_request(client):
    training = client.create_lora_training_client("student", rank=4, seed=1).result()
    train(training)
    path = training.save_state("best").result().path
    first = score(client.create_sampling_client(model_path=path).result(), SEQUENCES)
    train(training, 2, seed=5, learning_rate=5e-3)
    with pytest.raises(tinker.RequestFailedError, match="overwrite"):
        training.save_state("best").result()
    again = score(client.create_sampling_client(model_path=path).result(), SEQUENCES)
    np.testing.assert_allclose(again, first, atol=1e-4)
    assert training.save_state("best", overwrite=True).result().path == path
    second = score(client.create_sampling_client(model_path=path).result(), SEQUENCES)
    assert np.abs(second - first).max() > 1e-3


def test_checkpoints_can_be_published_and_unpublished(client, rest):
    training = client.create_lora_training_client("student", rank=2).result()
    path = training.save_state("x").result().path
    rest.publish_checkpoint_from_tinker_path(path).result()
    assert rest.list_checkpoints(training.model_id).result().checkpoints[0].public
    rest.unpublish_checkpoint_from_tinker_path(path).result()
    assert not rest.list_checkpoints(training.model_id).result().checkpoints[0].public


def add_checkpoint(registry, run, kind, name, **options):
    blob, size = registry.write_blob(lambda folder: (folder / "w").write_bytes(b"12345"))
    saved = Blob(blob=blob, size_bytes=size, base_model="m", lora="{}", has_optimizer=True)
    return registry.add_checkpoint(run, kind, name, saved, **options)


def test_an_expired_checkpoint_is_deleted_with_its_files(tmp_path):
    """On the registry with a fake clock, because the SDK's shortest TTL is an hour."""
    now = [1000.0]
    registry = Registry(tmp_path, clock=lambda: now[0])
    short, _ = (
        add_checkpoint(registry, "run", "weights", n, ttl_seconds=ttl)
        for n, ttl in (("short", 3600), ("long", None))
    )
    now[0] += 3599
    assert registry.checkpoint(short).size_bytes == 5
    now[0] += 2
    with pytest.raises(NotFoundError):
        registry.checkpoint(short)
    assert [c.name for c in registry.checkpoints("run")] == ["long"]
    assert len(list((tmp_path / "blobs").iterdir())) == 2
    registry.collect_garbage()
    assert len(list((tmp_path / "blobs").iterdir())) == 1


def test_snapshots_of_sampling_clients_are_deleted_with_their_session(tmp_path):
    now = [1000.0]
    registry = Registry(tmp_path, clock=lambda: now[0])
    for session in ("finished", "silent", "alive"):
        registry.add_session(session, None, None)
        add_checkpoint(registry, session, "sampler_weights", "e", ephemeral_of=session)
    registry.finish_session("finished")
    now[0] += SESSION_LIFE + 1
    registry.touch_session("alive")
    registry.collect_garbage()
    assert registry.checkpoint("tinker://alive/sampler_weights/e")
    for gone in ("finished", "silent"):
        with pytest.raises(NotFoundError):
            registry.checkpoint(f"tinker://{gone}/sampler_weights/e")


def test_a_blob_without_a_row_is_removed_at_the_next_start(tmp_path):
    """A crash between writing the files and the row leaves one."""
    registry = Registry(tmp_path)
    registry.write_blob(lambda folder: (folder / "w").write_bytes(b"1"))
    registry.close()
    assert len(list((tmp_path / "blobs").iterdir())) == 1
    Registry(tmp_path).close()
    assert list((tmp_path / "blobs").iterdir()) == []


def test_a_failed_write_leaves_no_files(tmp_path):
    """Parking a training client is retried while the disk is full."""
    registry = Registry(tmp_path)

    def half(folder):
        (folder / "w").write_bytes(b"1")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        registry.write_blob(half)
    assert list((tmp_path / "blobs").iterdir()) == []


def test_a_full_disk_is_reported_at_once_and_reads_still_work(tmp_path):
    """Reported as a request error, because the SDK would retry an internal error for minutes."""
    registry = Registry(tmp_path)
    registry.add_session("s", None, None)
    registry._db.execute("pragma max_page_count = 1")  # the file cannot grow
    with pytest.raises(RequestError, match=f"{tmp_path}: the disk is full"):
        registry.add_session("t", None, {"long": "x" * 100_000})
    assert registry.sessions() == ["s"]


def test_a_copy_of_a_checkpoint_outlives_the_original(tinker_service, rest):
    with connect(
        tinker_service, project_id="any"
    ) as client:  # required by the SDK, ignored by the service
        training = client.create_lora_training_client("student", rank=4, seed=1).result()
        train(training)
        path = training.save_state("best", user_metadata={"k": "v"}).result().path
        copy = client.copy_weights(path, ttl_seconds=7200).result()
        assert copy != path
        expected = score(client.create_sampling_client(model_path=path).result(), SEQUENCES)
        rest.delete_checkpoint_from_tinker_path(path).result()
        again = score(client.create_sampling_client(model_path=copy).result(), SEQUENCES)
        np.testing.assert_allclose(again, expected, atol=1e-4)
        client.create_training_client_from_state_with_optimizer(copy).result()


def test_an_adapters_files_are_downloaded_only_by_signed_urls(client, rest):
    training = client.create_lora_training_client("student", rank=2).result()
    path = training.save_weights_external("handed-out", ttl_seconds=3600).result().path
    urls = rest.get_external_weights_urls(path).result().urls
    assert urls.keys() == {"adapter_model.safetensors", "adapter_config.json"}
    assert httpx.get(urls["adapter_config.json"]).json()["r"] == 2
    other = urls["adapter_config.json"].replace(
        "adapter_config.json", "adapter_model.safetensors"
    )
    assert httpx.get(other).status_code == 404
    assert httpx.get(urls["adapter_config.json"].split("?")[0]).status_code == 422
    listed = rest.list_checkpoints(training.model_id).result().checkpoints
    assert [saved.checkpoint_type for saved in listed] == ["external"]


@pytest.mark.slow
def test_overwriting_a_checkpoint_does_not_change_running_rows(
    deterministic_client, deterministic_service
):
    client = deterministic_client
    training = client.create_lora_training_client("student", rank=4, seed=1).result()
    path = training.save_state("moving").result().path
    sampler = client.create_sampling_client(model_path=path).result()
    expected = [
        sampler.sample(prompt(), 1, params(600, seed=s)).result().sequences[0].tokens
        for s in (1, 2)
    ]
    running = sampler.sample(prompt(), 1, params(600, seed=1))
    wait_for(deterministic_service, lambda s: s["rows_running"] >= 1 or running.future().done())
    train(training, 3, learning_rate=1e-2)
    training.save_state("moving", overwrite=True).result()
    after = sampler.sample(prompt(), 1, params(600, seed=2))
    assert running.result().sequences[0].tokens == expected[0]
    assert after.result().sequences[0].tokens != expected[1]


def test_a_registry_that_cannot_be_read_is_named_and_an_empty_one_has_no_weights(tmp_path):
    file = tmp_path / "registry.sqlite"
    file.write_text("")  # as after a death at the first start
    assert live_checkpoints(tmp_path) == {}
    file.write_text("not a database, but longer than its header")
    for read in (
        lambda: live_checkpoints(tmp_path),
        lambda: Registry(tmp_path),
    ):
        with pytest.raises(
            SettingsError, match=r"registry\.sqlite cannot be used: file is not a database"
        ):
            read()
