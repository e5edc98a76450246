"""SDK sessions: closing, replacement, and pauses."""

import asyncio
import logging
import platform
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import httpx
import pytest
import tinker

from localtinker.process import LocalTinker
from rtl_core import __version__
from rtl_core.backend.base import Checkpoint, SamplingParams, Trainer, Weights
from rtl_core.backend.tinker import marks, pauses
from rtl_core.backend.tinker.connect import Endpoint, tinker_session
from rtl_core.backend.tinker.marks import run_id
from rtl_core.config import load_config
from rtl_core.errors import BackendUnavailableError, PolicyError, WeightsGoneError
from rtl_core.tinymodels import model_path
from tests.backend.test_teacher_apart import opened
from tests.localtinker.localtinker_helpers import sampling_processes
from tests.sdk import sdk_loops, wait_until_no_sdk_loop_runs
from tests.waiting import wait_for


@pytest.fixture
def service(tmp_path):
    with LocalTinker({"student": model_path("student")}, tmp_path / "tinker") as running:
        yield running


async def open_and_leave(
    service: LocalTinker, before_the_end: BaseException | None = None, *, kill: bool = False
) -> None:
    async with tinker_session(Endpoint(service.base_url, service.api_key)) as client:
        await client.create_sampling_client(base_model="student")
        assert "_session_heartbeat" in sdk_loops()
        if kill:
            service.kill()
        if before_the_end is not None:
            raise before_the_end


def test_closing_a_session_ends_its_heartbeats_even_if_the_service_is_dead(
    service, monkeypatch
):
    asyncio.run(open_and_leave(service))
    assert sdk_loops() == []  # immediately: the service has answered
    with pytest.raises(ValueError, match="in the middle"):
        asyncio.run(open_and_leave(service, ValueError("in the middle")))
    assert sdk_loops() == []
    monkeypatch.setattr("localtinker.client.session.CLOSING_S", 0.2)
    asyncio.run(open_and_leave(service, kill=True))
    wait_until_no_sdk_loop_runs()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """A service whose models are named by their folders, so that tokenizers are found as with a cloud."""
    models = {str(model_path(role)): model_path(role) for role in ("student", "teacher")}
    with LocalTinker(models, tmp_path_factory.mktemp("cloud")) as running:
        yield running


@pytest.fixture
def remote(cloud, tmp_path, monkeypatch):
    """A backend on a separate service: (runner, backend, reported lines)."""
    monkeypatch.setenv("TINKER_API_KEY", cloud.api_key)
    names = {role: f"tinker.{role}={model_path(role)}" for role in ("student", "teacher")}
    overrides = [
        f"run.directory={tmp_path}",
        f"tinker.base_url={cloud.base_url}",
        "tinker.lora_rank=8",
        *names.values(),
    ]
    with opened(load_config("demo", overrides, environment={})) as opened_backend:
        yield opened_backend


def retried(runner: asyncio.Runner, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Return the result of `work`, retried once as a task would."""
    with suppress(BackendUnavailableError):
        return runner.run(work())
    return runner.run(work())


def test_a_backend_opens_a_new_session_after_the_service_ended_its_own(cloud, remote):
    headers = {"X-API-Key": cloud.api_key}
    runner, backend, told = remote
    old = runner.run(backend.open_trainer(None))
    saved = runner.run(save(old))
    session, *earlier = httpx.get(f"{cloud.base_url}/api/v1/sessions", headers=headers).json()[
        "sessions"
    ]
    httpx.post(
        f"{cloud.base_url}/api/v1/sessions/{session}/finish", headers=headers
    ).raise_for_status()

    async def sample():
        return await backend.sample(
            Weights(path=saved.sampler_path), [2, 3], 2, SamplingParams(2, 1.0, [0])
        )

    assert len(retried(runner, sample)) == 2
    with pytest.raises(BackendUnavailableError):  # the old session is over
        runner.run(save(old))
    runner.run(save(runner.run(backend.open_trainer(saved.state_path))))
    assert told[0] == "Tinker ended the session; the run goes on in a new one"
    assert "the trainer was opened again from the last saved state" in told[1]
    sessions = httpx.get(f"{cloud.base_url}/api/v1/sessions", headers=headers).json()[
        "sessions"
    ]
    assert sessions[1:] == [session, *earlier]


def test_sessions_trainings_and_weights_name_their_run(cloud, remote, tmp_path):
    runner, backend, told = remote
    trainer = runner.run(backend.open_trainer(None))
    saved = runner.run(trainer.save("demo-000012", None))
    headers = {"X-API-Key": cloud.api_key}

    def get(path: str) -> dict[str, Any]:
        return httpx.get(f"{cloud.base_url}/api/v1/{path}", headers=headers).json()

    session = get(f"sessions/{get('sessions')['sessions'][0]}")
    marks = session["user_metadata"]
    assert marks == {
        "rtl_distill": __version__,
        "run": "demo",
        "run_id": (tmp_path / "demo" / "id").read_text().strip(),
        "purpose": "train",
        "host": platform.node(),
    }
    (training,) = session["training_run_ids"]
    assert get(f"training_runs/{training}")["user_metadata"] == marks
    listed = {one["tinker_path"]: one for one in get("checkpoints")["checkpoints"]}
    for path in (saved.state_path, saved.sampler_path):
        assert listed[path]["user_metadata"] == {**marks, "step": "12"}
    # Weights and trainers that replace lost ones are marked, too.
    runner.run(backend.delete([saved.sampler_path]))

    async def sample():
        weights = Weights(path=saved.sampler_path)
        return await backend.sample(weights, [2, 3], 1, SamplingParams(2, 1.0, [0]))

    retried(runner, sample)
    runner.run(backend.open_trainer(saved.state_path))
    runner.run(backend.open_trainer(saved.state_path, weights_only=True))
    runs = get(f"sessions/{get('sessions')['sessions'][0]}")["training_run_ids"]
    assert len(runs) == 3  # the trainer that saved weights again is taken over
    assert [get(f"training_runs/{run}")["user_metadata"] for run in runs] == [marks] * 3
    (again,) = {one["tinker_path"] for one in get("checkpoints")["checkpoints"]} - set(listed)
    assert again.endswith("/sampler_weights/demo-000012")
    assert not any("console" in line for line in told)


def test_a_run_keeps_its_id_and_another_of_its_name_has_another(tmp_path):
    def id_in(folder: str) -> str:
        return run_id(
            load_config("demo", [f"run.directory={tmp_path / folder}"], environment={})
        )

    assert id_in("a") == id_in("a") != id_in("b")
    (tmp_path / "a" / "demo" / "id").write_text("")  # as a crash could leave it
    assert len(id_in("a")) == 16


def test_pages_in_the_console_are_named_on_the_cloud_alone(cloud, remote, monkeypatch):
    runner, backend, told = remote
    monkeypatch.setattr(marks, "DEFAULT_BASE_URL", cloud.base_url)
    trainer = runner.run(backend.open_trainer(None))
    console = "https://tinker.thinkingmachines.ai"
    training = trainer.console_url.removeprefix(f"{console}/training_runs/")
    assert told == [
        f"the session in Tinker's console: {console}/sessions/{training.partition(':')[0]}",
        f"the training run in Tinker's console: {trainer.console_url}",
    ]
    monkeypatch.undo()
    assert runner.run(backend.open_trainer(None)).console_url is None
    assert len(told) == 3  # the trainer was opened again


def test_answers_say_how_much_of_their_prompt_was_cached(remote):
    runner, backend, _ = remote

    def cached(seeds=None):
        asked = backend.sample(
            Weights(), [2, 3, 4], 3, SamplingParams(2, 1.0, [0]), seeds=seeds
        )
        return [answer.n_cached for answer in runner.run(asked)]

    assert cached() == [0, 3, 3]  # one request, which reads the prompt once
    # Three requests, of which those share the prompt that begin in one pass.
    assert set(cached(seeds=[1, 2, 3])) <= {0, 3}


def test_lost_sampler_weights_are_saved_again_from_their_state(remote):
    runner, backend, told = remote
    saved = runner.run(save(runner.run(backend.open_trainer(None))))

    async def sample():
        params = SamplingParams(4, 1.0, [0])
        return await backend.sample(
            Weights(path=saved.sampler_path), [2, 3], 1, params, seeds=[5]
        )

    before = runner.run(sample())
    assert runner.run(backend.delete([saved.sampler_path])) == 1
    assert retried(runner, sample) == before
    assert "were saved again from the state" in told[-1]
    assert (
        runner.run(backend.delete([saved.state_path, saved.sampler_path])) == 2
    )  # including the replacement
    with pytest.raises(WeightsGoneError, match=r"neither .* nor the state"):
        retried(runner, sample)


def test_a_refused_sample_cancels_the_others(cloud, remote, monkeypatch):
    """All samples are retried together, so those still running would be billed twice."""
    headers = {"X-API-Key": cloud.api_key}
    draw, processes = tinker.SamplingClient.sample, sampling_processes(cloud)

    def load():
        return httpx.get(f"{cloud.base_url}/api/v1/local/status", headers=headers).json()

    def one_wrong(client, prompt, number, params, **more):
        if params.seed == 0:
            wait_for(lambda: load()["rows_running"], "the first sample")
            number = 10**6
        return draw(client, prompt, number, params, **more)

    monkeypatch.setattr(tinker.SamplingClient, "sample", one_wrong)
    before = load()["done"].get("sample")
    for process in processes:
        process.suspend()
    runner, backend, _ = remote
    with pytest.raises(PolicyError, match="num_samples"):
        runner.run(
            backend.sample(Weights(), [2, 3], 2, SamplingParams(1000, 1.0, []), seeds=[1, 0])
        )
    for process in processes:
        process.resume()
    wait_for(lambda: not load()["rows_running"], "the end of the first sample")
    assert load()["done"].get("sample") == before


async def save(trainer: Trainer) -> Checkpoint:
    return await trainer.save("one", None)


def test_a_lack_of_credit_and_its_end_are_reported_once(monkeypatch):
    monkeypatch.setattr(pauses, "UNPAID_PAUSE_S", 0.0)
    told: list[str] = []
    unpaid = tinker.BillingError(
        "no credit left",
        response=httpx.Response(402, request=httpx.Request("POST", "http://a")),
        body=None,
    )
    answers: list[Exception | str] = [unpaid, unpaid, "a client"]

    async def make():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    before = time.monotonic()
    with pauses.pauses_reported(told.append) as heard:
        logging.getLogger("tinker.lib.internal_client_holder").warning(
            "The job is paused due to billing status. Error: no credit left"
        )
        assert len(told) == 1
        assert "no credit at Tinker (402): no credit left" in told[0]
        assert asyncio.run(heard.retry_unpaid(make)) == "a client"
        assert len(told) == 1  # the same pause
        heard.note_success(before)  # requested before the refusal
        assert len(told) == 1
        heard.note_success(time.monotonic())
        heard.note_success(time.monotonic())
        assert len(told) == 2
        assert "serves the account again" in told[1]
        logging.getLogger("tinker.lib.retry_handler").error(
            "Request failed"
        )  # is also raised as an error
        logging.getLogger("tinker.lib.public_interfaces.sampling_client").warning(
            "Sampling is paused. Reason: capacity"
        )
        assert told[2:] == ["Tinker: Sampling is paused. Reason: capacity"]

    monkeypatch.setattr(pauses, "UNPAID_PATIENCE_S", -1.0)
    answers[:] = [unpaid]
    with pytest.raises(tinker.BillingError):
        asyncio.run(pauses.Pauses(told.append).retry_unpaid(make))
