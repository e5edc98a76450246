"""Concurrent clients: isolation, fairness, and the release of resources."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import tinker
from localtinker_helpers import (
    connect,
    cross_entropy_data,
    params,
    policy_data,
    prompt,
    random_sequences,
    score,
    status,
    train,
    train_request,
    wait_for,
)
from tinker import types

from localtinker.lora import LoraSpec
from localtinker.process import LocalTinker
from localtinker.registry import Registry
from localtinker.trainer import Clients
from tests import waiting


def test_two_interleaved_training_clients_do_not_touch_each_other(client):
    """Interleaved training must give the same bits as training alone."""

    def make(seed):
        return client.create_lora_training_client("student", rank=4, seed=seed).result()

    def step(training, seed):
        output = training.forward_backward(
            policy_data(4, seed=seed), "importance_sampling"
        ).result()
        training.optim_step(types.AdamParams(learning_rate=2e-3)).result()
        return [x for o in output.loss_fn_outputs for x in o["logprobs"].data]

    alone = []
    for seed in (1, 2):
        training = make(seed)
        alone.append([step(training, 10 * seed + i) for i in range(4)])
    first, second = make(1), make(2)
    interleaved = [(step(first, 10 + i), step(second, 20 + i)) for i in range(4)]
    assert [list(steps) for steps in zip(*interleaved, strict=True)] == alone


def test_clients_with_different_ranks_and_layers_share_a_base(client):
    wide = client.create_lora_training_client("student", rank=16, seed=1).result()
    narrow = client.create_lora_training_client(
        "student", rank=2, seed=1, train_mlp=False, train_unembed=False
    ).result()
    sequences = random_sequences(2, seed=1)
    train(wide, 2)
    before = score(narrow.save_weights_and_get_sampling_client().result(), sequences)
    base = score(client.create_sampling_client(base_model="student").result(), sequences)
    np.testing.assert_allclose(before, base, atol=1e-4)  # `narrow` is untrained
    train(narrow, 2)
    after = score(narrow.save_weights_and_get_sampling_client().result(), sequences)
    assert np.abs(after - before).max() > 1e-3


def test_training_is_not_starved_by_long_samples(client, tinker_service):
    sampler = client.create_sampling_client(base_model="student").result()
    training = client.create_lora_training_client("student", rank=2, seed=1).result()
    long = sampler.sample(prompt(), 256, params(2000))
    wait_for(tinker_service, lambda s: s["rows_running"] >= 256)
    train(training, 1)
    assert not long.future().done()
    long.future().cancel()


def test_submitting_ahead_keeps_the_order(client):
    """forward_backward and optim_step are sent without waiting; each pass must see the previous steps."""
    ahead, careful = (
        client.create_lora_training_client("student", rank=4, seed=1).result() for _ in range(2)
    )
    data, adam = cross_entropy_data(), types.AdamParams(learning_rate=3e-3)
    futures = []
    for _ in range(4):
        futures.append(ahead.forward_backward(data, "cross_entropy"))
        ahead.optim_step(adam)
    fast = [f.result().metrics["loss:sum"] for f in futures]
    slow = []
    for _ in range(4):
        slow.append(
            careful.forward_backward(data, "cross_entropy").result().metrics["loss:sum"]
        )
        careful.optim_step(adam).result()
    assert fast == slow


def test_a_sampling_client_works_after_pickling(deterministic_client):
    sampler = deterministic_client.create_sampling_client(base_model="student").result()
    copy = pickle.loads(pickle.dumps(sampler))
    expected = sampler.sample(prompt(), 1, params(seed=1)).result().sequences[0].tokens
    assert copy.sample(prompt(), 1, params(seed=1)).result().sequences[0].tokens == expected
    copy.holder.close()  # it has its own connections and threads


def test_a_finished_session_releases_its_training_clients(tinker_service):
    before = status(tinker_service)["adapters_in_memory"]
    session = connect(tinker_service)
    training = session.create_lora_training_client("student", rank=2).result()
    assert status(tinker_service)["adapters_in_memory"] == before + 1
    path = training.save_state("kept").result().path
    session.close("success").result()
    wait_for(tinker_service, lambda s: s["adapters_in_memory"] == before)
    with connect(tinker_service) as again:
        again.create_training_client_from_state(path).result()


def test_a_training_client_parked_on_disk_continues_as_if_it_had_stayed(student, tmp_path):
    clients = Clients(Registry(tmp_path), micro_tokens=512)
    adam = types.AdamParams(learning_rate=2e-3)

    def train(name, *, step=True):
        outputs, _ = clients.live(name).forward_backward(train_request(random_sequences(4)))
        if step:
            clients.live(name).optim_step(adam)
        return np.concatenate(outputs["logprobs"])

    for name in ("idle", "witness"):
        clients.create(name, "session", student, LoraSpec(rank=4, seed=3), None)
        train(name)
        train(name)
    last = train("witness", step=False)
    for name in clients.idle(-1.0):
        clients.park(name)
    assert clients.resident == 1, "`witness` holds gradients and stays"
    np.testing.assert_array_equal(train("idle", step=False), last)
    for name in ("idle", "witness"):
        clients.live(name).optim_step(adam)
    np.testing.assert_array_equal(train("idle"), train("witness"))


def test_a_parked_client_without_its_files_does_not_get_fresh_weights(student, tmp_path):
    clients = Clients(Registry(tmp_path), micro_tokens=512)
    clients.create("run", "session", student, LoraSpec(rank=2, seed=0), None)
    clients.park("run")
    (blob,) = (tmp_path / "blobs").iterdir()
    away = blob.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            clients.live("run")
    away.rename(blob)
    assert clients.live("run")


@pytest.mark.slow
def test_housekeeping_continues_after_a_failure(models_by_name, tmp_path):
    models = {"student": models_by_name["student"]}
    with (
        LocalTinker(models, tmp_path, idle_s=0.0, housekeeping_s=0.1) as service,
        connect(service) as client,
    ):
        away = (tmp_path / "blobs").rename(tmp_path / "away")
        waiting.wait_for(
            lambda: "housekeeping failed" in service.log_path.read_text(), "a failure"
        )
        away.rename(tmp_path / "blobs")
        client.create_lora_training_client("student", rank=2).result()
        wait_for(service, lambda s: s["training_clients"] == 1 and s["adapters_in_memory"] == 0)


def test_diverged_weights_fail_only_their_own_requests(client):
    training = client.create_lora_training_client("student", rank=2, seed=1).result()
    train(training, 1, learning_rate=1e30)
    broken = training.save_weights_and_get_sampling_client().result()
    healthy = client.create_sampling_client(base_model="student").result()
    bad = broken.sample(prompt(), 1, params(5))
    good = healthy.sample(prompt(), 1, params(5))
    with pytest.raises(tinker.RequestFailedError, match="diverged"):
        bad.result()
    assert len(good.result().sequences[0].tokens) == 5


@pytest.mark.slow
def test_eight_clients_at_once_cause_no_error_and_no_growth(tmp_path):
    # A leak of the weights of each loaded state would take 150 MB in the last 250 requests; normal fluctuation is 60 MB.
    sizes = ["--requests", "370", "--warm-up", "120", "--allowed-mb", "80"]
    command = [sys.executable, "-m", "benchmarks.localtinker_hammer", *sizes]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert finished.returncode == 0, finished.stdout + finished.stderr[-2000:]
