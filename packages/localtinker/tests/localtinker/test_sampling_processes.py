"""Sampling processes, whose samples do not depend on the process and whose death clients do not notice, and their template process."""

import contextlib
import signal
import subprocess
import sys
import time
from queue import Queue

import psutil
import pytest
import tinker
from localtinker_helpers import (
    connect,
    params,
    prompt,
    random_sequences,
    sampling_processes,
    status,
    wait_for,
)

from localtinker.process import KeptTinker, LocalTinker


@pytest.fixture(scope="module")
def service(models_by_name, tmp_path_factory):
    models = {"student": models_by_name["student"]}
    folder = tmp_path_factory.mktemp("processes")
    with LocalTinker(models, folder, deterministic=True, sampling_processes=2) as running:
        yield running


@pytest.fixture
def sampler(service):
    with connect(service) as client:
        sampling = client.create_sampling_client(base_model="student").result()
        sampling.sample(
            prompt(), 16, params(2)
        ).result()  # the processes start with the first request
        # The other half of a failed request may still be running.
        wait_for(service, lambda s: s["sampling_processes"] == 2 and not s["rows_running"])
        yield sampling


def drawn(future):
    return [(s.tokens, s.logprobs) for s in future.result().sequences]


def test_a_sample_has_the_same_bits_in_every_process(service, sampler):
    first, second = sampling_processes(service)
    for process in (first, second):
        process.suspend()
    futures = [sampler.sample(prompt(), 1, params(40, seed=5)) for _ in range(2)]
    wait_for(service, lambda s: s["rows_running"] == 2)
    first.resume()
    wait_for(
        service, lambda s: s["rows_running"] == 1
    )  # the other one is in the second process
    second.resume()
    assert drawn(futures[0]) == drawn(futures[1])


def test_a_split_request_gets_one_answer(service, sampler):
    whole = sampler.sample(
        prompt(), 24, params(12, seed=3), include_prompt_logprobs=True
    ).result()
    few = sampler.sample(prompt(), 5, params(12, seed=3)).result()
    assert len({tuple(s.tokens) for s in whole.sequences}) == 24
    assert [(s.tokens, s.logprobs) for s in whole.sequences[:5]] == [
        (s.tokens, s.logprobs) for s in few.sequences
    ]
    assert whole.prompt_logprobs == sampler.compute_logprobs(prompt()).result()


def test_jobs_of_a_killed_process_are_retried(service, sampler):
    requests = [(s, n) for n, s in enumerate(random_sequences(8, seed=6))]
    expected = [drawn(sampler.sample(prompt(s), 2, params(30, seed=n))) for s, n in requests]
    processes = sampling_processes(service)
    for process in processes:
        process.suspend()
    futures = [sampler.sample(prompt(s), 2, params(30, seed=n)) for s, n in requests]
    wait_for(service, lambda s: s["rows_running"] == 16)
    processes[0].send_signal(signal.SIGKILL)
    processes[1].resume()
    assert [drawn(future) for future in futures] == expected
    wait_for(service, lambda s: s["sampling_processes"] == 2)
    assert processes[0] not in sampling_processes(service)


def test_requests_before_a_deletion_are_answered(service, sampler):
    rest = tinker.RestClient(base_url=service.base_url, api_key=service.api_key)
    with connect(service, project_id="any") as client:
        training = client.create_lora_training_client("student", rank=2).result()
        path = training.save_weights_for_sampler("short-lived").result().path
        frozen = client.create_sampling_client(model_path=path).result()
        processes = sampling_processes(service)
        for process in processes:
            process.suspend()
        asked = frozen.sample(prompt(), 1, params(3))
        wait_for(service, lambda s: s["rows_running"] == 1)
        for saved in (path, client.copy_weights(path).result()):
            rest.delete_checkpoint_from_tinker_path(saved).result()
        for process in processes:
            process.resume()
        assert len(drawn(asked)) == 1


def test_a_request_whose_processes_all_die_gets_an_error(service, sampler):
    deadly = sampler.sample(prompt(), 64, params(1900)).future()
    while not deadly.done():
        for process in sampling_processes(service):
            with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended meanwhile
                process.send_signal(signal.SIGKILL)
        time.sleep(0.01)
    with pytest.raises(tinker.RequestFailedError, match="died while working"):
        deadly.result()
    assert len(drawn(sampler.sample(prompt(), 2, params(5)))) == 2
    assert status(service)["rows_waiting"] == 0


@pytest.mark.slow
def test_a_service_that_cannot_fork_ends_and_is_restarted(models_by_name, tmp_path):
    models, told = {"student": models_by_name["student"]}, Queue()
    with (
        KeptTinker(models, tmp_path, on_restart=told.put, sampling_processes=1) as kept,
        connect(kept) as client,
    ):
        sampling = client.create_sampling_client(base_model="student").result()
        sampling.sample(prompt(), 1, params(2)).result()
        (template,) = psutil.Process(kept.pid).children()
        template.kill()
        assert (
            told.get(timeout=300) == "the embedded Tinker service had ended and was restarted"
        )
        assert len(sampling.sample(prompt(), 1, params(5)).result().sequences[0].tokens) == 5
        assert kept.restarts == 1


MANY_DEATHS = """
import os, signal, time
from localtinker.template import Template

template = Template(lambda connection: connection.poll(None))
killed = 0
while killed < 300:
    connections = [template.fork() for _ in range(6)]
    time.sleep(0.01)
    with open(f"/proc/{template.pid}/task/{template.pid}/children") as children:
        copies = [int(pid) for pid in children.read().split()]
    for pid in copies:
        try:
            os.kill(pid, signal.SIGKILL)
            killed += 1
        except ProcessLookupError:
            pass
    for connection in connections:
        connection.close()
pid = template.pid
template.close()
print("left" if os.path.exists(f"/proc/{pid}") else "gone")
"""


def test_the_template_process_survives_the_simultaneous_death_of_copies():
    """In a separate process, because this one has threads."""
    done = subprocess.run(
        [sys.executable, "-c", MANY_DEATHS], capture_output=True, text=True, timeout=600
    )
    assert done.stdout == "gone\n", done.stderr[-2000:]


FAILING_COPY = """
from localtinker.template import Template

template = Template(lambda connection: 1 / 0)
for _ in range(2):
    try:
        template.fork().recv()
    except EOFError:
        print("ended")
template.close()
print("the service goes on")
"""


def test_a_copy_that_fails_ends_without_running_the_parents_code():
    done = subprocess.run(
        [sys.executable, "-c", FAILING_COPY], capture_output=True, text=True, timeout=600
    )
    assert done.stdout.splitlines() == ["ended", "ended", "the service goes on"], done.stderr[
        -2000:
    ]
    assert done.stderr.count("ZeroDivisionError: division by zero") == 2
