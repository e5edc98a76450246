"""The cases of `localtinker check-service`: the embedded service passes all, and each broken promise fails its case."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import zstandard
from tinker.proto import tinker_public_pb2 as pb

from benchmarks.rehearsal.faults import Fault
from benchmarks.rehearsal.proxy import Proxy
from benchmarks.rehearsal.strikes import changed, refused, strike_of
from localtinker.certify.bench import Server
from localtinker.certify.examiner import examine
from localtinker.errors import CredentialError, SettingsError
from localtinker.losses import LOSSES
from localtinker.process import LocalTinker
from rtl_core.tinymodels import model_path

slow = pytest.mark.slow
FOLDERS = {"student": model_path("student")}
FLOAT32 = 1e-4
"""Tolerance for computation in float32 throughout."""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with LocalTinker(FOLDERS, tmp_path_factory.mktemp("certified")) as running:
        yield running


@pytest.fixture(scope="module")
def examination(service):
    return examine(
        Server(service.base_url, service.api_key, folders=FOLDERS, tolerance=FLOAT32)
    )


@pytest.mark.slow
def test_the_embedded_service_passes_all_cases(examination):
    assert [
        (one.case.name, one.outcome, one.finding)
        for one in examination.results
        if one.outcome != "OK"
    ] == []
    assert examination.fit
    assert len(examination.results) > 50
    groups = {one.case.group for one in examination.results}
    assert groups == {"calls", "saved weights", "numbers", "against transformers", "faults"}
    for one in examination.results:
        assert one.finding
        assert one.case.promise
        assert one.case.without


@pytest.mark.slow
def test_an_examination_deletes_its_saved_weights(service, examination):
    import tinker

    rest = tinker.RestClient(base_url=service.base_url, api_key=service.api_key)
    assert rest.list_user_checkpoints(limit=1000).result().checkpoints == []


def edited(**fields):
    """Return a strike that changes fields, or nested fields, of a JSON request."""

    async def strike(call):
        values = {
            k: {**call.said.get(k, {}), **v} if isinstance(v, dict) else v
            for k, v in fields.items()
        }
        call.body = json.dumps({**call.said, **values}).encode()
        return await call.send()

    return strike


async def other_logprobs(call):
    """Return log-probabilities of another temperature with sampled tokens."""

    def change(found):
        for sequence in found.sequences:
            sequence.logprobs = (np.frombuffer(sequence.logprobs, np.float32) * 0.8).tobytes()

    return await changed(call, pb.SampleResponse, change)


async def wrong_requests_as_500(call):
    answer = await call.send()
    return answer if answer.status_code < 400 else await refused(call, 500)


class Unfrozen:
    """Samplers of a training run always sample from its newest opened weights."""

    def __init__(self):
        self._run_of, self._newest = {}, {}

    async def __call__(self, call):
        if run := self._run_of.get(call.said.get("sampling_session_id")):
            # Sequence numbers are per sampler.
            return await edited(sampling_session_id=self._newest[run], seq_id=None)(call)
        answer = await call.send()
        if call.route == "open saved weights" and answer.status_code == 200:
            run, sampler = (
                call.said["model_path"].split("/")[2],
                json.loads(answer.body)["sampling_session_id"],
            )
            self._run_of[sampler], self._newest[run] = run, sampler
        return answer


def a_pass(call):
    """Return the message of a pass, and its codec if it is compressed."""
    compressed = call.request.headers.get("content-encoding") == "zstd"
    body = (
        zstandard.ZstdDecompressor().decompress(call.body, max_output_size=1 << 28)
        if compressed
        else call.body
    )
    return pb.ForwardBackwardRequest.FromString(
        body
    ), zstandard.ZstdCompressor().compress if compressed else bytes


async def means(call):
    """Weight sequences by the size of their pass; those of a whole batch of four keep their weight, and so their loss."""
    message, packed = a_pass(call)
    for one in message.data:
        advantages = one.loss_fn_inputs["advantages"]
        advantages.dense = (
            (np.frombuffer(advantages.dense, np.float32) * 4 / len(message.data))
            .astype(np.float32)
            .tobytes()
        )
    call.body = packed(message.SerializeToString())
    return await call.send()


async def unnumbered(call):
    """Forget that a pass was sent before."""
    message, packed = a_pass(call)
    message.seq_id = 0
    call.body = packed(message.SerializeToString())
    return await call.send()


class Foreign:
    """A trainer's first pass also accumulates a pass of another trainer that no step followed."""

    def __init__(self):
        self._last = None

    async def __call__(self, call):
        if call.route == "optim_step":
            self._last = None
            return await call.send()
        (message, packed), last = a_pass(call), self._last
        self._last = message
        if last is not None and last.model_id != message.model_id:
            before = pb.ForwardBackwardRequest()
            before.CopyFrom(last)
            before.model_id, before.seq_id, own = message.model_id, 0, call.body
            call.body = packed(before.SerializeToString())
            await call.send()
            call.body = own
        return await call.send()


def without_rate(fields):
    return {name: 0.0 if name == "learning_rate" else value for name, value in fields.items()}


class Forgetful:
    """A sample ends the accumulation of the last trainer: its gradients are applied with a learning rate of 0."""

    def __init__(self):
        self._trainer, self._step = None, None

    async def __call__(self, call):
        if call.route == "forward_backward":
            self._trainer = call.said["model_id"]
        elif call.route == "optim_step":
            self._step, self._trainer = dict(call.said), None
        elif self._step and self._trainer:
            step = json.loads(json.dumps(self._step), object_hook=without_rate)
            headers = {"x-api-key": call.request.headers["x-api-key"]}
            await call.proxy.http.post(
                "/api/v1/optim_step",
                json={**step, "model_id": self._trainer, "seq_id": None},
                headers=headers,
            )
        return await call.send()


FORWARD_BACKWARD = {
    "refuses bad training batches",
    *(f"forward_backward: {loss}" for loss in LOSSES),
}
BROKEN = {
    "wrong-logprobs": (
        ["answer of sample"],
        other_logprobs,
        {"sampled logprobs are the model's"},
        "differs",
    ),
    "unfrozen": (
        ["open saved weights", "sample", "score"],
        Unfrozen(),
        {"snapshots are frozen", "no snapshot is another"},
        "differs",
    ),
    "5xx": (
        ["forward_backward"],
        wrong_requests_as_500,
        {"refuses bad training batches"},
        "differs",
    ),
    "no-info": (["weights_info"], strike_of("refused", 404), {"weights_info"}, "missing"),
    "always-5xx": (
        ["forward_backward"],
        strike_of("refused", 500),
        FORWARD_BACKWARD,
        "differs",
    ),
    "no-moments": (["load_weights"], edited(optimizer=False), {"resume"}, "differs"),
    "old-moments": (
        ["load_weights"],
        edited(optimizer=True),
        {"start from a state"},
        "differs",
    ),
    "no-ttl": (["save_weights"], edited(ttl_seconds=None), {"ttl"}, "differs"),
    "means": (["forward_backward"], means, {"gradients add up"}, "differs"),
    "foreign": (
        ["forward_backward", "optim_step"],
        Foreign(),
        {"no foreign gradients"},
        "differs",
    ),
    "forgetful": (
        ["forward_backward", "optim_step", "sample"],
        Forgetful(),
        {"samplers leave a trainer alone"},
        "differs",
    ),
    "applied-twice": (["forward_backward"], unnumbered, {"a repeated request"}, "differs"),
    "no-seed": (
        ["sample"],
        edited(sampling_params={"seed": None}),
        {"sample: seed"},
        "differs",
    ),
    "no-choices": (
        ["sample"],
        edited(topk_sample_logprobs=0),
        {"choices of a sample"},
        "differs",
    ),
    "no-stop": (
        ["sample"],
        edited(sampling_params={"stop": []}),
        {"sample: stop tokens"},
        "differs",
    ),
}
"""Mapping of name to affected routes, strike, failing cases and their outcome."""


def broken(service, routes, strike):
    return Proxy(service.base_url, [Fault("broken", routes, strike, ends="stops", after=0)])


QUICK = ("wrong-logprobs", "unfrozen", "5xx", "applied-twice")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else slow) for name in BROKEN]
)
def test_the_case_of_a_broken_promise_fails(service, name):
    routes, strike, cases, outcome = BROKEN[name]
    with broken(service, routes, strike) as proxy:
        found = examine(Server(proxy.url, service.api_key, tolerance=FLOAT32), sorted(cases))
    assert {one.case.name: one.outcome for one in found.lacks} == dict.fromkeys(
        cases, outcome
    ), found.lacks


@slow
def test_only_the_cases_of_a_broken_promise_fail(service):
    routes, strike, cases, outcome = BROKEN["always-5xx"]
    with broken(service, routes, strike) as proxy:
        found = examine(Server(proxy.url, service.api_key, tolerance=FLOAT32))
    assert {one.case.name: one.outcome for one in found.lacks} == dict.fromkeys(
        cases, outcome
    ), found.lacks
    assert not found.fit


@pytest.mark.slow
def test_a_case_times_out_if_the_server_does_not_answer(service):
    with broken(service, ["answer of sample"], strike_of("paused", "active", "")) as proxy:
        found = examine(Server(proxy.url, service.api_key), ["sample"], case_s=15)
    (lacking,) = found.lacks
    assert (lacking.case.name, lacking.finding) == (
        "create_sampling_client",
        "no answer within 15 s",
    )
    assert not found.fit


def test_an_unknown_case_is_refused(service):
    with pytest.raises(SettingsError, match="no case 'nothing'"):
        examine(Server(service.base_url, service.api_key), ["nothing"])


def test_an_invalid_url_and_a_missing_key_are_reported_with_a_fitting_hint(
    monkeypatch, tmp_path
):
    with pytest.raises(SettingsError, match="http://HOST:PORT"):
        Server("127.0.0.1:10610")
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(CredentialError) as refused:
        examine(Server("http://127.0.0.1:10610"))
    assert "TINKER_API_KEY" in refused.value.hint
    assert "--set" not in refused.value.hint


def check_service(url: str, key: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "rtl_distill.cli",
        "admin",
        "check-service",
        url,
        *arguments,
    ]
    environment = {**os.environ, "TINKER_API_KEY": key}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.slow
def test_the_command_prints_and_writes_its_results(service, tmp_path):
    file = tmp_path / "found.json"
    done = check_service(
        service.base_url, service.api_key, "--only", "optim_step", "--json", str(file)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything that each run needs works" in done.stdout
    found = json.loads(file.read_text())
    assert found["fit"]
    assert {result["outcome"] for result in found["results"]} == {"OK"}
    assert found["results"][-1]["case"] == "optim_step"
    wrong = check_service(service.base_url, "tml-somebody-else", "--only", "optim_step")
    assert wrong.returncode == 1
    assert "no run should start on this server" in wrong.stdout
    assert "401" in wrong.stdout
