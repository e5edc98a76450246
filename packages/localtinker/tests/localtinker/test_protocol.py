"""Metadata of the service, and the rejection of bad requests."""

import asyncio
import time

import pytest
import tinker
import zstandard
from localtinker_helpers import (
    PROMPT,
    connect,
    cross_entropy_data,
    datum,
    params,
    prompt,
    raw_http,
)
from tinker import types
from tinker.proto import tinker_public_pb2 as pb
from tinker.proto.request_conv import forward_backward_request_to_proto

from localtinker import wire
from localtinker.errors import RequestError
from localtinker.futures import FutureStore


@pytest.fixture
def training(client):
    return client.create_lora_training_client("student", rank=2, seed=1).result()


def test_capabilities_list_the_served_models(rest):
    models = rest.get_server_capabilities().result().supported_models
    assert {m.model_name for m in models} == {"student", "teacher"}
    assert all(m.trainable and m.sampleable and m.max_context_length == 2048 for m in models)


def test_sessions_list_their_runs_and_samplers(tinker_service, rest):
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


def refused(submit, match):
    """Assert that a request fails at once with a 4xx whose message names the field."""
    started = time.monotonic()
    with pytest.raises(tinker.APIStatusError, match=match) as caught:
        submit()
    assert time.monotonic() - started < 200  # the SDK retries a 5xx for five minutes
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
        ({"prompt_alt_tokens_k": 3}, "prompt_alt_tokens_k"),
        (
            {"include_prompt_logprobs": True, "prompt_logprobs_last_n": 7},
            "prompt_logprobs_last_n",
        ),
        (
            {
                "target_prompt_logprobs": types.TensorData(
                    data=[1, 2], dtype="int64", shape=[2, 1]
                )
            },
            "target_prompt_logprobs",
        ),
        (
            {
                "target_prompt_logprobs": types.TensorData(
                    data=[9999] * 6, dtype="int64", shape=[6, 1]
                )
            },
            "target_prompt_logprobs",
        ),
    ],
)
def test_a_bad_sampling_request_is_rejected_naming_the_field(sampler, arguments, field):
    request = {"prompt": prompt(), "num_samples": 1, "sampling_params": params(4)} | arguments
    refused(lambda: sampler.sample(**request).result(), field)


def raw_datum(**changes):
    return types.Datum(
        **{"model_input": prompt(), "loss_fn_inputs": {"target_tokens": PROMPT}} | changes
    )


@pytest.mark.parametrize(
    ("data", "loss", "config", "field"),
    [
        ([raw_datum()], "stable_reinforce", None, "loss_fn: .*formula is not published"),
        ([raw_datum()], "cross_entropy", {"beta": 1.0}, "loss_fn_config"),
        ([raw_datum(loss_fn_inputs={"target_tokens": PROMPT, "logprobs": [0.0] * 7, "advantages": [0.0] * 7})], "gspo", None, "gspo needs 'sequence_ratio_mask'"),
        ([raw_datum()], "custom", {"loss_id": "x"}, "loss_fn: .*the SDK runs a custom loss itself"),
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
def test_a_bad_training_batch_is_rejected_naming_datum_and_field(
    training, data, loss, config, field
):
    refused(lambda: training.forward_backward(data, loss, config).result(), field)


def test_a_client_is_usable_after_a_rejected_batch(training):
    refused(lambda: training.forward_backward([raw_datum()], "dimuon").result(), "loss_fn")
    assert (
        training.forward_backward(cross_entropy_data(), "cross_entropy")
        .result()
        .metrics["loss:sum"]
        > 0
    )


def test_an_uploaded_loss_is_refused_and_the_sdk_runs_its_own(client, training, tinker_service):
    with raw_http(tinker_service) as http:
        answer = http.post("create_custom_loss", json={"name": "f", "graph": {"nodes": []}})
    assert answer.status_code == 400
    assert "the SDK runs a custom loss itself" in answer.json()["detail"]
    handle = client.create_custom_loss(
        lambda logprobs: ((logprobs**2).sum(), {}), {"logprobs": 1}
    ).result()
    assert handle.loss_id is None
    data = [datum(PROMPT)]
    (own,) = training.forward(data, "cross_entropy").result().loss_fn_outputs
    squares = (own["logprobs"].to_numpy() ** 2).sum()
    result = training.forward_backward_custom(data, handle).result()
    assert result.metrics["loss:sum"] == pytest.approx(squares, rel=1e-4)


def test_other_bad_requests_are_rejected_naming_the_field(client, training, rest):
    refused(lambda: client.create_lora_training_client("nobody").result(), "base_model")
    refused(lambda: client.create_lora_training_client("student", rank=0).result(), "rank")
    refused(lambda: client.create_lora_training_client("student", rank=10**6).result(), "rank")
    refused(lambda: client.create_sampling_client(base_model="nobody").result(), "base_model")
    refused(
        lambda: client.create_sampling_client(model_path="tinker://a/weights/b").result(),
        "path",
    )
    refused(
        lambda: client.create_sampling_client(model_path="tinker://nonsense").result(),
        "model_path",
    )
    refused(lambda: training.save_state("../../etc/passwd").result(), "path")
    refused(
        lambda: training.optim_step(types.AdamParams(learning_rate=-1.0)).result(),
        "learning_rate",
    )
    refused(lambda: training.save_state("x", ttl_seconds=60).result(), "ttl_seconds")
    path = training.save_weights_for_sampler("x").result().path
    refused(
        lambda: client.create_training_client_from_state_with_optimizer(path).result(),
        "optimizer",
    )
    refused(lambda: rest.get_training_run("nobody").result(), "training_run_id")
    refused(lambda: client.create_lora_training_client("student", optimizer=types.DimuonOptimizerConfig()).result(), "optimizer_config")  # fmt: skip


def test_no_route_answers_5xx_to_invalid_bodies(tinker_service):
    """Raw HTTP; the SDK would retry a 5xx for minutes."""
    posts = ["create_session", "create_model", "get_info", "forward_backward", "optim_step", "save_weights", "asample",
             "save_weights_for_sampler", "load_weights", "create_sampling_session", "retrieve_future", "cancel_future",
             "weights_info", "unload_model", "session_heartbeat", "nothing_here"]  # fmt: skip
    bodies = [
        b"",
        b"{}",
        b"[1]",
        b"not json",
        b"\xff\xfe\x00",
        b'{"prompt": {"chunks": [{"tokens": ["x"]}]}}',
    ]
    with raw_http(tinker_service) as http:
        for route in posts:
            for body in bodies:
                assert http.post(route, content=body).status_code < 500, (route, body)
        assert (
            http.post(
                "forward_backward", content=b"x", headers={"Content-Encoding": "zstd"}
            ).status_code
            == 400
        )
        torn = pb.ForwardBackwardRequest(
            data=[pb.Datum(model_input=[pb.Chunk(encoded_text={"tokens": b"abc"})])]
        )
        assert (
            http.post("forward_backward", content=torn.SerializeToString()).status_code == 400
        )
        huge = {"data": [2**70], "dtype": "int64", "shape": [1, 1]}
        asked = {
            "base_model": "student",
            "prompt": {"chunks": [{"tokens": [5, 6]}]},
            "sampling_params": {},
        }
        assert (
            http.post("asample", json={**asked, "target_prompt_logprobs": huge}).status_code
            == 400
        )
        for route in (
            "training_runs?limit=x",
            "checkpoints?offset=-",
            "samplers/none",
            "sessions/none",
        ):
            assert 400 <= http.get(route).status_code < 500


def training_request(training, seq_id):
    inputs = types.ForwardBackwardInput(data=cross_entropy_data(), loss_fn="cross_entropy")
    request = types.ForwardBackwardRequest(
        forward_backward_input=inputs, model_id=training.model_id, seq_id=seq_id
    )
    return forward_backward_request_to_proto(request).SerializeToString()


def test_a_compressed_training_request_is_accepted(tinker_service, training):
    body = zstandard.ZstdCompressor().compress(training_request(training, 1))
    with raw_http(tinker_service) as http:
        answer = http.post(
            "forward_backward", content=body, headers={"Content-Encoding": "zstd"}
        )
    assert answer.status_code == 200
    assert "request_id" in answer.json()


def test_a_body_that_would_fill_the_memory_is_rejected(monkeypatch):
    monkeypatch.setattr(wire, "_MAX_BODY", 1 << 20)
    body = zstandard.ZstdCompressor().compress(bytes(2 << 20))
    with pytest.raises(RequestError, match="more than 1 MiB"):
        wire.decode_train_request(body, "zstd")


def test_a_retry_with_the_same_sequence_number_is_executed_once(tinker_service, training):
    def request_ids(seq_id):
        answers = [
            http.post("forward_backward", content=training_request(training, seq_id))
            for _ in range(2)
        ]
        return {answer.json()["request_id"] for answer in answers}

    with raw_http(tinker_service) as http:
        assert len(request_ids(7)) == 1
        assert len(request_ids(None)) == 2


def test_the_first_answer_of_a_future_is_final():
    """A failing batch reports its error to all its requests, including those already answered."""

    async def answered(*answers):
        store, released = FutureStore(), []
        future = store.create()
        future.answer.add_done_callback(lambda _: released.append(1))
        for answer in answers:
            await asyncio.to_thread(store.resolve, future, answer)
        return await future.answer, len(released)

    assert asyncio.run(answered(b"tokens", RuntimeError("later"))) == (b"tokens", 1)
    refusal = {"error": "cancelled", "category": "user"}
    assert asyncio.run(answered(RequestError("cancelled"), b"tokens")) == (refusal, 1)
