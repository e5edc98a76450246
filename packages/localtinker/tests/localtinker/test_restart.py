"""The service as a child process: restarts, kill -9, and the death of its parent."""

import os
import signal
import subprocess
import sys
import threading
from queue import Queue

import numpy as np
import psutil
import pytest
import tinker
from localtinker_helpers import (
    connect,
    cross_entropy_data,
    params,
    prompt,
    random_sequences,
    score,
    train,
    wait_for,
)

from localtinker import registry, service
from localtinker.errors import SettingsError, StartError
from localtinker.process import KeptTinker, LocalTinker
from localtinker.settings import Settings
from tests import waiting

SEQUENCES = random_sequences(3, seed=21)


@pytest.mark.slow
def test_a_restart_after_kill_9_keeps_checkpoints_runs_and_samplers(models_by_name, tmp_path):
    models = {"student": models_by_name["student"]}
    first = LocalTinker(models, tmp_path, sampling_processes=2)
    client = connect(first)
    training = client.create_lora_training_client("student", rank=4, seed=1).result()
    train(training, 2)
    state = training.save_state("state").result().path
    weights = training.save_weights_for_sampler("weights").result().path
    living = training.save_weights_and_get_sampling_client().result()
    before = score(living, SEQUENCES)
    loss = (
        training.forward(cross_entropy_data(seed=5), "cross_entropy")
        .result()
        .metrics["loss:sum"]
    )
    in_flight = living.sample(prompt(), 4, params(1500, seed=1))
    wait_for(first, lambda s: s["rows_running"] == 4)
    children = [process.pid for process in psutil.Process(first.pid).children(recursive=True)]
    assert len(children) == 3  # the sampling processes and their template
    first.kill()
    waiting.wait_for(
        lambda: not any(map(waiting.lives, children)), "the end of all processes of the service"
    )

    with LocalTinker(models, tmp_path, port=first.port, api_key=first.api_key) as second:
        # The SDK resends the lost request.
        assert [len(s.tokens) for s in in_flight.result(timeout=600).sequences] == [1500] * 4
        rest = tinker.RestClient(base_url=second.base_url, api_key=second.api_key)
        assert {c.tinker_path for c in rest.list_user_checkpoints().result().checkpoints} == {
            state,
            weights,
        }
        assert [
            r.training_run_id for r in rest.list_training_runs().result().training_runs
        ] == [training.model_id]
        # The sampling client and its session survive the crash.
        np.testing.assert_allclose(score(living, SEQUENCES), before, atol=1e-4)
        again = client.create_sampling_client(model_path=weights).result()
        np.testing.assert_allclose(score(again, SEQUENCES), before, atol=1e-4)
        resumed = client.create_training_client_from_state_with_optimizer(state).result()
        assert (
            resumed.forward(cross_entropy_data(seed=5), "cross_entropy")
            .result()
            .metrics["loss:sum"]
            == loss
        )
        with pytest.raises(tinker.NotFoundError, match="saved state"):
            training.forward(cross_entropy_data(), "cross_entropy").result()
        client.close("success").result()
        second.stop()
        assert not second.alive  # the end of the block stops it again


def test_the_service_ends_with_its_parent_even_by_kill_9(models_by_name, tmp_path):
    script = (
        "import sys, time; from pathlib import Path; from localtinker.process import LocalTinker\n"
        "service = LocalTinker({'student': Path(sys.argv[1])}, Path(sys.argv[2]))\n"
        "print(service.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(models_by_name["student"]), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    pid = int(parent.stdout.readline())
    os.kill(pid, 0)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    waiting.wait_for(lambda: not waiting.lives(pid), "the end of the service with its parent")


def test_a_second_service_on_the_same_folder_is_rejected(models_by_name, tmp_path, monkeypatch):
    """Each would delete blobs of the other that have no row yet."""
    monkeypatch.setattr(registry, "LOCK_TIMEOUT_S", 0.0)
    settings = Settings(
        models={"student": models_by_name["student"]}, state=tmp_path, sampling_processes=0
    )
    first = service.Service(settings)
    with pytest.raises(SettingsError, match="another service"):
        service.Service(settings)
    first.stop()
    service.Service(settings).stop()


@pytest.mark.slow
def test_a_kept_service_is_restarted_even_if_the_first_attempt_fails(
    models_by_name, tmp_path, monkeypatch
):
    told = Queue()
    with KeptTinker(
        {"student": models_by_name["student"]}, tmp_path, on_restart=told.put
    ) as kept:
        with monkeypatch.context() as broken:
            broken.setattr(sys, "executable", str(tmp_path / "none"))
            os.kill(kept.pid, signal.SIGKILL)
            assert "cannot restart" in told.get(timeout=300)
        while "was restarted" not in told.get(timeout=300):
            continue
        assert kept.alive


@pytest.mark.slow
def test_a_kept_service_can_be_stopped_during_a_restart(models_by_name, tmp_path, monkeypatch):
    kept = KeptTinker({"student": models_by_name["student"]}, tmp_path, on_restart=print)
    starting = tmp_path / "starting"
    (tmp_path / "slow").write_text(
        f"#!/bin/sh\necho $$ > {starting}.new\nmv {starting}.new {starting}\nexec sleep 3000\n"
    )
    (tmp_path / "slow").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "slow"))
    os.kill(kept.pid, signal.SIGKILL)
    pid = int(
        waiting.wait_for(lambda: starting.exists() and starting.read_text(), "a second start")
    )
    stopping = threading.Thread(target=kept.stop, daemon=True)
    stopping.start()
    stopping.join(100)
    assert not stopping.is_alive()
    assert not waiting.lives(pid)


def test_a_service_that_cannot_start_reports_the_reason(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(StartError, match=r"no config\.json"):
        LocalTinker({"student": tmp_path / "empty"}, tmp_path / "state")
