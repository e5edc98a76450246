"""The bridge to SkyRL 0.4.0 itself, with JAX on the CPU: `make test-engines`."""

import os
import signal

import pytest
import tinker
from tinker import types

from benchmarks.skyrl import SkyRL
from localtinker.bridge import capabilities
from localtinker.certify.bench import Server
from localtinker.certify.examiner import examine
from localtinker.client.failures import kind_of, status_of
from localtinker.process import KeptBridge

pytestmark = pytest.mark.engines
PROMPT = types.ModelInput.from_ints([40, 41, 42, 43, 44])
ADAM = types.AdamParams(learning_rate=1e-3)
REFUSED = {"likeliest tokens", "forward_backward: dro", "ttl", "snapshots are frozen"}
OTHER_ADAPTER = {
    *(f"gradient: {loss}" for loss in ("cross_entropy", "importance_sampling", "ppo", "cispo")),
    "a step of AdamW",
}
"""Options that may differ, because SkyRL's gate and up projections share their A: all else of a step is torch's."""


@pytest.fixture(scope="module")
def skyrl(tmp_path_factory):
    with SkyRL("student", tmp_path_factory.mktemp("skyrl")) as server:
        yield server


@pytest.fixture(scope="module")
def bridge(skyrl, tmp_path_factory):
    log = tmp_path_factory.mktemp("bridge") / "bridge.log"
    models = {"student": skyrl.weights}
    with KeptBridge(skyrl.url, log, models=models, on_restart=print) as running:
        yield running


@pytest.fixture
def service(bridge):
    with tinker.ServiceClient(base_url=bridge.base_url, api_key=bridge.api_key) as client:
        yield client


def batch(seed=0):
    tokens = [40 + seed, 41, 42, 43, 44, 45]
    ones = [1.0] * 5
    inputs = {"target_tokens": tokens[1:], "logprobs": [-3.0] * 5, "advantages": ones}
    return [
        types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)
    ]


def step(trainer):
    trainer.forward_backward(batch(), "importance_sampling")
    trainer.optim_step(ADAM).result()


def scores(sampler):
    return sampler.compute_logprobs(PROMPT).result()[1:]


def test_every_case_that_a_run_needs_passes(bridge, skyrl):
    folders = {"student": skyrl.weights}
    examination = examine(Server(bridge.base_url, bridge.api_key, folders=folders), case_s=600)
    assert examination.fit
    differ = {one.case.name for one in examination.results if one.outcome == "differs"}
    assert REFUSED <= differ <= REFUSED | OTHER_ADAPTER


def test_what_the_engine_lacks_is_told(bridge):
    import httpx

    told = httpx.get(
        f"{bridge.base_url}/api/v1/local/engine", headers={"X-API-Key": bridge.api_key}
    ).json()
    assert (told["engine"], told["version"], told["backend"]) == ("skyrl", "0.4.0", "jax")
    assert told["lacks"] == capabilities.lacks("skyrl", "jax")


def test_a_killed_bridge_loses_clients_but_nothing_that_was_saved(bridge, service):
    trainer = service.create_lora_training_client("student", rank=8, seed=1).result()
    step(trainer)
    state = trainer.save_state("before").result().path
    base = service.create_sampling_client(base_model="student").result()
    restarts = bridge.restarts
    asked = base.sample(PROMPT, 2, types.SamplingParams(max_tokens=24))
    os.kill(bridge.pid, signal.SIGKILL)
    assert len(asked.result().sequences) == 2  # the same promise, through the new process
    assert bridge.restarts == restarts + 1
    with pytest.raises(tinker.NotFoundError) as lost:
        step(trainer)
    assert kind_of(lost.value) == "gone"
    again = service.create_training_client_from_state_with_optimizer(state).result()
    step(again)


def test_a_killed_server_loses_clients_and_the_same_calls_go_on(skyrl, bridge, service):
    trainer = service.create_lora_training_client("student", rank=8, seed=1).result()
    step(trainer)
    state = trainer.save_state("kept").result().path
    sampler = service.create_sampling_client(
        trainer.save_weights_for_sampler("kept").result().path
    ).result()
    before = scores(sampler)
    base = service.create_sampling_client(base_model="student").result()
    sampled = base.sample(PROMPT, 2, types.SamplingParams(max_tokens=24))
    passed = trainer.forward_backward(batch(), "importance_sampling")
    stepped = trainer.optim_step(ADAM)
    saved = trainer.save_state("half")
    skyrl.kill()
    skyrl.start()
    assert len(sampled.result().sequences) == 2
    for lost in (passed, stepped, saved):
        with pytest.raises((ValueError, tinker.TinkerError)) as gone:
            lost.result()
        assert status_of(gone.value) in (404, 410)
    with pytest.raises((ValueError, tinker.TinkerError)) as gone:
        scores(sampler)
    assert status_of(gone.value) in (404, 410)
    # What a run does then: it opens the state, and repeats the step. The lost one moved nothing.
    again = service.create_training_client_from_state_with_optimizer(state).result()
    path = again.save_weights_for_sampler("again").result().path
    assert scores(service.create_sampling_client(path).result()) == pytest.approx(
        before, abs=1e-4
    )


def test_a_second_run_trains_beside_the_first(bridge, service):
    """Each on a client of its own: neither sees the other's gradient."""
    with tinker.ServiceClient(base_url=bridge.base_url, api_key=bridge.api_key) as other:
        mine = service.create_lora_training_client("student", rank=8, seed=1).result()
        theirs = other.create_lora_training_client("student", rank=8, seed=1).result()
        for _ in range(2):
            theirs.forward_backward(batch(3), "importance_sampling").result()
            step(mine)
        step_alone = service.create_lora_training_client("student", rank=8, seed=1).result()
        for _ in range(2):
            step(step_alone)
        found = [
            scores(
                service.create_sampling_client(
                    one.save_weights_for_sampler("end").result().path
                ).result()
            )
            for one in (mine, step_alone)
        ]
    assert found[0] == pytest.approx(found[1], abs=1e-4)
