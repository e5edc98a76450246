"""What the service tells clients about itself, and how it refuses bad requests."""

import asyncio
import time

import httpx
import pytest
import tinker
import zstandard
from localtinker_helpers import PROMPT, connect, cross_entropy_data, datum, params, prompt
from tinker import types
from tinker.proto import tinker_public_pb2 as pb
from tinker.proto.request_conv import forward_backward_request_to_proto

from rtl_core.localtinker import RequestError
from rtl_core.localtinker.futures import FutureStore


@pytest.fixture
def sampler(client):
    return client.create_sampling_client(base_model="student").result()


@pytest.fixture
def training(client):
    return client.create_lora_training_client("student", rank=2, seed=1).result()


def test_capabilities_name_the_served_models(rest):
    models = rest.get_server_capabilities().result().supported_models
    assert {m.model_name for m in models} == {"student", "teacher"}
    assert all(m.trainable and m.sampleable and m.max_context_length == 2048 for m in models)


def test_sessions_tell_their_runs_and_samplers(tinker_service, rest):
    with connect(tinker_service, display_name="a run", user_metadata={"k": "v"}) as client:
        training = client.create_lora_training_client("student", rank=2).result()
        client.create_sampling_client(base_model="student").result()
        session_id = client.holder.get_session_id()
        session = rest.get_session(session_id).result()
        assert session.training_run_ids == [training.model_id]
        assert len(session.sampler_ids) == 1
        assert (session.display_name, session.user_metadata) == ("a run", {"k": "v"})
        assert rest.get_sampler(session.sampler_ids[0]).result().base_model == "student"
    assert session_id in rest.list_sessions(limit=1000).result().sessions


def refused(submit, match: str, kind: type[Exception] = tinker.APIStatusError) -> None:
    """The request fails at once, below 500, with a message that names the field."""
    started = time.monotonic()
    with pytest.raises(kind, match=match) as caught:
        submit()
    assert time.monotonic() - started < 200  # the SDK repeats a 5xx for five minutes
    if isinstance(caught.value, tinker.APIStatusError):
        assert 400 <= caught.value.status_code < 500


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"prompt": prompt([])}, "prompt"),
        ({"prompt": prompt([5, 100000])}, "prompt"),
        ({"prompt": prompt([5, -1])}, "prompt"),
        ({"prompt": prompt([5] * 3000)}, "prompt"),
        ({"num_samples": 0}, "num_samples"),
        ({"sampling_params": params(0)}, "max_tokens"),
        ({"sampling_params": params(5000)}, "max_tokens"),
        ({"sampling_params": params(temperature=-1.0)}, "temperature"),
        ({"sampling_params": params(top_p=1.5)}, "top_p"),
        ({"sampling_params": params(top_k=0)}, "top_k"),
        ({"sampling_params": params(stop=[""])}, "stop"),
        ({"topk_prompt_logprobs": -1}, "topk_prompt_logprobs"),
        ({"include_prompt_logprobs": True, "prompt_logprobs_last_n": 7}, "prompt_logprobs_last_n"),
        (
            {"target_prompt_logprobs": types.TensorData(data=[1, 2], dtype="int64", shape=[2, 1])},
            "target_prompt_logprobs",
        ),
        (
            {"target_prompt_logprobs": types.TensorData(data=[9999] * 6, dtype="int64", shape=[6, 1])},
            "target_prompt_logprobs",
        ),
    ],
)
def test_a_bad_sampling_request_is_refused_with_the_field_named(sampler, arguments, field):
    request = {"prompt": prompt(), "num_samples": 1, "sampling_params": params(4)} | arguments
    refused(lambda: sampler.sample(**request).result(), field)


def raw_datum(**changes) -> types.Datum:
    values = {"model_input": prompt(PROMPT), "loss_fn_inputs": {"target_tokens": list(PROMPT)}} | changes
    return types.Datum(**values)


@pytest.mark.parametrize(
    ("data", "loss", "config", "field"),
    [
        ([raw_datum()], "gspo", None, "loss_fn"),
        ([raw_datum()], "cross_entropy", {"beta": 1.0}, "loss_fn_config"),
        ([raw_datum()], "ppo", None, r"data\[0\].loss_fn_inputs: ppo needs 'logprobs'"),
        ([raw_datum(), raw_datum(model_input=prompt([]))], "cross_entropy", None, r"data\[1\].model_input"),
        ([raw_datum(model_input=prompt([1, 2, 3, 4, 5, 6, 99999]))], "cross_entropy", None, r"data\[0\].model_input"),
        ([raw_datum(loss_fn_inputs={"target_tokens": [1, 2, 3]})], "cross_entropy", None, "target_tokens"),
        ([raw_datum(loss_fn_inputs={"target_tokens": [99999] * 7})], "cross_entropy", None, "target_tokens"),
        ([raw_datum(loss_fn_inputs={"target_tokens": [1] * 7, "weights": [1.0] * 6})], "cross_entropy", None, "weights"),
        ([raw_datum(loss_fn_inputs={"target_tokens": [1] * 7, "weights": [float("nan")] * 7})], "cross_entropy", None, "weights"),
        ([raw_datum(loss_fn_inputs={"target_tokens": [1] * 7, "advantages": [1.0] * 7})], "cross_entropy", None, "advantages"),
        ([datum(PROMPT, weights=[1.0] * 6), datum(PROMPT)], "cross_entropy", None, r"data\[1\].loss_fn_inputs"),
    ],
)  # fmt: skip
def test_a_bad_training_batch_is_refused_with_the_datum_and_field_named(training, data, loss, config, field):
    refused(lambda: training.forward_backward(data, loss, config).result(), field)


def test_a_refused_batch_leaves_the_client_usable(training):
    refused(lambda: training.forward_backward([raw_datum()], "gspo").result(), "loss_fn")
    assert training.forward_backward(cross_entropy_data(), "cross_entropy").result().metrics["loss:sum"] > 0


def test_bad_settings_of_clients_are_refused_with_the_field_named(client, training, rest):
    refused(lambda: client.create_lora_training_client("nobody").result(), "base_model")
    refused(lambda: client.create_lora_training_client("student", rank=0).result(), "rank")
    refused(lambda: client.create_lora_training_client("student", rank=10**6).result(), "rank")
    refused(lambda: client.create_sampling_client(base_model="nobody").result(), "base_model")
    refused(lambda: client.create_sampling_client(model_path="tinker://a/weights/b").result(), "path")
    refused(lambda: client.create_sampling_client(model_path="tinker://nonsense").result(), "model_path")
    refused(lambda: training.save_state("../../etc/passwd").result(), "path")
    refused(lambda: training.optim_step(types.AdamParams(learning_rate=-1.0)).result(), "learning_rate")
    refused(lambda: rest.get_training_run("nobody").result(), "training_run_id")
    refused(lambda: client.create_lora_training_client("student", optimizer=types.DimuonOptimizerConfig()).result(), "optimizer_config")  # fmt: skip


def test_sampler_weights_hold_no_optimizer_to_resume(client, training):
    path = training.save_weights_for_sampler("x").result().path
    refused(lambda: client.create_training_client_from_state_with_optimizer(path).result(), "optimizer")


def test_no_route_answers_5xx_to_nonsense(tinker_service):
    """Raw HTTP: a 5xx would make the SDK repeat the request for minutes."""
    headers = {"X-API-Key": tinker_service.api_key}
    posts = ["create_session", "create_model", "get_info", "forward_backward", "optim_step", "save_weights", "asample",
             "save_weights_for_sampler", "load_weights", "create_sampling_session", "retrieve_future", "cancel_future",
             "weights_info", "unload_model", "session_heartbeat", "nothing_here"]  # fmt: skip
    bodies = [b"", b"{}", b"[1]", b"not json", b"\xff\xfe\x00", b'{"prompt": {"chunks": [{"tokens": ["x"]}]}}']
    with httpx.Client(base_url=f"{tinker_service.base_url}/api/v1/", headers=headers) as http:
        for route in posts:
            for body in bodies:
                assert http.post(route, content=body).status_code < 500, (route, body)
        assert http.post("forward_backward", content=b"x", headers={"Content-Encoding": "zstd"}).status_code == 400
        torn = pb.ForwardBackwardRequest(data=[pb.Datum(model_input=[pb.Chunk(encoded_text={"tokens": b"abc"})])])
        assert http.post("forward_backward", content=torn.SerializeToString()).status_code == 400
        huge = {"data": [2**70], "dtype": "int64", "shape": [1, 1]}
        asked = {"base_model": "student", "prompt": {"chunks": [{"tokens": [5, 6]}]}, "sampling_params": {}}
        assert http.post("asample", json={**asked, "target_prompt_logprobs": huge}).status_code == 400
        for route in ("training_runs?limit=x", "checkpoints?offset=-", "samplers/none", "sessions/none"):
            assert 400 <= http.get(route).status_code < 500


def training_request(training, seq_id: int | None) -> bytes:
    inputs = types.ForwardBackwardInput(data=cross_entropy_data(), loss_fn="cross_entropy")
    request = types.ForwardBackwardRequest(forward_backward_input=inputs, model_id=training.model_id, seq_id=seq_id)
    return forward_backward_request_to_proto(request).SerializeToString()


def test_a_compressed_training_request_is_understood(tinker_service, training):
    """The SDK compresses when the service asks it to; the wire format must be read either way."""
    body = zstandard.ZstdCompressor().compress(training_request(training, 1))
    headers = {"X-API-Key": tinker_service.api_key, "Content-Encoding": "zstd"}
    answer = httpx.post(f"{tinker_service.base_url}/api/v1/forward_backward", content=body, headers=headers)
    assert answer.status_code == 200
    assert "request_id" in answer.json()


def test_a_request_that_is_sent_twice_is_done_once_where_it_has_a_number(tinker_service, training):
    headers = {"X-API-Key": tinker_service.api_key}

    def promised(seq_id: int | None) -> list[str]:
        answers = [http.post("forward_backward", content=training_request(training, seq_id)) for _ in range(2)]
        return [answer.json()["request_id"] for answer in answers]

    with httpx.Client(base_url=f"{tinker_service.base_url}/api/v1/", headers=headers) as http:
        assert len(set(promised(7))) == 1
        assert len(set(promised(None))) == 2


def test_an_answer_once_given_stays():
    """A batch that fails tells the error to every request in it, also to those that were answered before."""

    async def answered(*answers):
        store, released = FutureStore(asyncio.get_running_loop()), []
        future = store.create(on_done=lambda: released.append(1))
        for answer in answers:
            await asyncio.to_thread(store.resolve, future, answer)
        await future.event.wait()
        return future.answer, len(released)

    assert asyncio.run(answered(b"tokens", RuntimeError("later"))) == (b"tokens", 1)
    refusal = {"error": "cancelled", "category": "user"}
    assert asyncio.run(answered(RequestError("cancelled"), b"tokens")) == (refusal, 1)
