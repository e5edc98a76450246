"""Each row of the bridge's table, against recorded answers of SkyRL 0.4.0 (bridge_recorded.py)."""

import numpy as np
import pytest
from bridge_recorded import FOLDER, KEY, Sdk, connected, skyrl
from tinker import types
from tinker.proto import tinker_public_pb2 as pb
from tinker.proto.request_conv import forward_backward_request_to_proto

from localtinker.bridge import promises, training
from localtinker.bridge.table import handlers
from localtinker.settings import API

COVERED: set[str] = set()
PROMPT = [40, 41, 42, 43, 44]
RATE = {"learning_rate": 0.001}


def covers(*calls):
    """Mark a test with the rows whose translation it shows."""
    COVERED.update(calls)
    return lambda test: test


@pytest.fixture
def sdk(request, monkeypatch):
    monkeypatch.setattr(training, "PLACE_S", 0.0)
    limits = not request.node.name.endswith("without_the_models_folder")
    http, engine = connected(FOLDER / f"{request.node.name}.json", skyrl(), limits=limits)
    with http:
        sdk = Sdk(http, engine)
        yield sdk
        if sdk.session:
            sdk.ask(f"POST /sessions/{sdk.session}/finish")
    engine.save()


def asked(tokens=PROMPT, max_tokens=4, **more):
    chunks = [{"type": "encoded_text", "tokens": tokens}]
    shape = {"max_tokens": max_tokens, "temperature": 1.0, "seed": 3}
    return {
        "base_model": "student",
        "prompt": {"chunks": chunks},
        "sampling_params": shape,
        **more,
    }


def sampled(response):
    assert response.status_code == 200, response.text
    return pb.SampleResponse.FromString(response.content)


def scores(response):
    return np.frombuffer(sampled(response).prompt_logprobs, np.float32)


def batch(model, seq_id=1, loss="importance_sampling", tokens=PROMPT, **inputs):
    ones = [1.0] * (len(tokens) - 1)
    inputs = {"target_tokens": tokens[1:], "logprobs": ones, "advantages": ones, **inputs}
    datum = types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={name: value for name, value in inputs.items() if value is not None},
    )
    request = types.ForwardBackwardRequest(
        forward_backward_input=types.ForwardBackwardInput(data=[datum], loss_fn=loss),
        model_id=model,
        seq_id=seq_id,
    )
    return forward_backward_request_to_proto(request).SerializeToString()


def forward_backward(sdk, *args, **more):
    headers = {"X-API-Key": KEY, "content-type": "application/x-protobuf"}
    return sdk.http.post(
        f"{API}/forward_backward", content=batch(*args, **more), headers=headers
    )


def test_every_row_of_the_table_has_a_test():
    assert set(handlers()) == COVERED


@covers("POST /asample")
def test_each_sample_of_a_request_has_a_sequence_id(sdk):
    answer = sdk.post("/asample", **asked(num_samples=2))
    assert len(set(answer["sample_sequence_ids"])) == 2
    sequences = sampled(sdk.wait(answer["request_id"])).sequences
    assert [len(one.tokens) // 4 for one in sequences] == [4, 4]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"tokens": []}, "at least one"),
        ({"tokens": [10**8]}, "vocabulary"),
        ({"tokens": [40] * 1025}, "1025 tokens"),
        ({"num_samples": 0}, "num_samples"),
        ({"topk_prompt_logprobs": 3}, "top k"),
        (
            {"target_prompt_logprobs": {"data": [1], "dtype": "int64", "shape": [1, 1]}},
            "target_prompt_logprobs",
        ),
        ({"prompt": {"chunks": 3}}, "cannot be read"),
    ],
)
def test_a_request_that_the_engine_would_misread_is_refused_by_name(wrong, words):
    http, engine = connected(FOLDER / "none.json", skyrl())
    with http:
        refused = Sdk(http, engine).ask("POST /asample", **asked(**wrong))
    assert 400 <= refused.status_code < 500
    assert words in refused.json()["detail"]
    assert engine.sent == []


@covers("POST /retrieve_future")
def test_only_the_requested_scores_are_numbers(sdk):
    whole = sdk.post("/asample", **asked(max_tokens=1, prompt_logprobs=True))["request_id"]
    last = asked(max_tokens=1, prompt_logprobs=True, prompt_logprobs_last_n=2)
    last = sdk.post("/asample", **last)["request_id"]
    all_scores = scores(sdk.wait(whole))
    assert np.isnan(all_scores).tolist() == [True, False, False, False, False]
    last_scores = scores(sdk.wait(last))
    assert np.isnan(last_scores).tolist() == [True, True, True, False, False]
    assert last_scores[3:] == pytest.approx(all_scores[3:])


def test_a_token_beyond_the_vocabulary_is_a_mistake_without_the_models_folder(sdk):
    answer = sdk.post("/asample", **asked([40, 10**8], max_tokens=1, prompt_logprobs=True))
    failed = sdk.wait(answer["request_id"]).json()
    assert failed["category"] == "user"
    assert "vocabulary" in failed["error"]


def test_work_that_failed_is_a_result_and_not_asked_for_again(sdk):
    answer = sdk.post("/asample", **asked() | {"base_model": "other"})
    failed = sdk.wait(answer["request_id"]).json()
    assert "configured for 'student'" in failed["error"]
    assert failed["category"] == "user"


@pytest.mark.parametrize("promise", ["00000000-no-such-request", "b.1234", "s.3.4", "17"])
def test_a_promise_of_nobody_is_gone(promise):
    http, engine = connected(FOLDER / "none.json", skyrl())
    with http:
        assert (
            Sdk(http, engine).ask("POST /retrieve_future", request_id=promise).status_code
            == 410
        )


def test_a_result_that_the_engine_lost_is_gone(sdk):
    assert sdk.ask("POST /retrieve_future", request_id="t.99999999").status_code == 410


@covers("POST /forward_backward", "POST /optim_step", "POST /load_weights", "POST /get_info")
def test_a_client_opened_from_a_state_has_the_id_that_the_sdk_derives(sdk):
    first = sdk.open()
    state = sdk.done("/save_weights", model_id=first, path="state", seq_id=1)["path"]
    fields = {"session_id": sdk.session, "model_seq_id": 1, "path": state, "optimizer": True}
    assert sdk.done("/load_weights", **fields)["type"] == "load_weights"
    model = f"{sdk.session}:train:1"
    info = sdk.post("/get_info", model_id=model)
    assert (info["model_id"], info["lora_rank"], info["is_lora"]) == (model, 8, True)
    assert info["model_data"]["tokenizer_id"].endswith("student")
    passed = sdk.wait(forward_backward(sdk, model).json()["request_id"])
    output = pb.ForwardBackwardOutput.FromString(passed.content)
    (record,) = output.loss_fn_outputs
    logprobs = np.frombuffer(record.fields["logprobs"].data, np.float32)
    assert len(logprobs) == len(PROMPT) - 1
    # The sum of -exp(logp - 1) * 1, although the engine's loss is a mean.
    assert output.metrics["loss:sum"] == pytest.approx(-np.exp(logprobs - 1.0).sum(), rel=1e-4)
    assert sdk.done("/optim_step", model_id=model, adam_params=RATE, seq_id=2)["metrics"]
    *_, stepped = [body for call, body in sdk.engine.sent if call == "POST /optim_step"]
    assert stepped["adam_params"]["eps"] == pytest.approx(1e-12 * promises.SHARE)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"loss": "dro"}, "no loss dro"),
        ({"advantages": None}, "needs 'advantages'"),
        ({"advantages": [1.0]}, "shape [1] differs from target_tokens' [4]"),
        ({"advantages": [float("nan")] * 4}, "not finite"),
        ({"target_tokens": [10**8] * 4}, "vocabulary"),
    ],
)
def test_a_batch_that_the_engine_would_compute_with_is_refused(wrong, words):
    http, engine = connected(FOLDER / "none.json", skyrl())
    with http:
        refused = forward_backward(Sdk(http, engine), "model_1", **wrong)
    assert refused.status_code == 400
    assert words in refused.json()["detail"]
    assert engine.sent == []


def test_jax_refuses_to_clip():
    http, engine = connected(FOLDER / "none.json", skyrl())
    clipped = {"model_id": "model_1", "adam_params": RATE | {"grad_clip_norm": 1.0}}
    with http:
        refused = Sdk(http, engine).ask("POST /optim_step", **clipped)
    assert refused.status_code == 400
    assert "not clipped" in refused.json()["detail"]


@covers("POST /create_sampling_session", "POST /save_weights_for_sampler")
def test_only_weights_that_the_engine_would_sample_are_sampled(sdk):
    model = sdk.open()
    first, second = (
        sdk.save_sampler(model, name, seq) for seq, name in enumerate(("one", "two"), 1)
    )
    assert first == f"tinker://{model}/sampler_weights/one"

    def opened(path):
        return sdk.ask(
            "POST /create_sampling_session",
            session_id=sdk.session,
            sampling_session_seq_id=1,
            model_path=path,
        )

    assert opened(f"tinker://{model}/sampler_weights/none").status_code == 404
    assert "no longer" in opened(first).json()["detail"]
    session = opened(second).json()["sampling_session_id"]
    request = asked(sampling_session_id=session, seq_id=1) | {"base_model": None}
    sampled(sdk.wait(sdk.post("/asample", **request)["request_id"]))
    sdk.done("/optim_step", model_id=model, adam_params=RATE, seq_id=3)
    passed = sdk.ask("POST /asample", **request | {"seq_id": 2})
    assert passed.status_code == 400
    assert "sampled only while" in passed.json()["detail"]


def test_models_that_are_not_served_are_not_found(sdk):
    sdk.open()
    wrong = {"session_id": sdk.session, "base_model": "other"}
    for answer in (
        sdk.ask("POST /create_sampling_session", **wrong, sampling_session_seq_id=1),
        sdk.ask("POST /create_model", **wrong, model_seq_id=1, lora_config={"rank": 8}),
    ):
        assert answer.status_code == 404
        assert "served is student" in answer.json()["detail"]


@covers("POST /create_model", "POST /unload_model")
def test_a_client_is_opened_once_in_a_place_without_gradients(sdk):
    model = sdk.open()
    assert sdk.open() == model  # the same request again
    opening = [
        "POST /create_model",
        "POST /optim_step",
        "POST /unload_model",
        "POST /create_model",
    ]
    assert sdk.engine.calls() == ["POST /create_session", *opening]
    (cleared,) = [body for call, body in sdk.engine.sent if call == "POST /optim_step"]
    assert cleared["adam_params"] == {"learning_rate": 0.0}
    assert sdk.done("/unload_model", model_id=model)["status"] == "unloaded"


def test_an_adapter_of_some_layers_is_refused(sdk):
    sdk.open()
    some = {"rank": 8, "seed": 0, "train_mlp": False}
    fields = {"session_id": sdk.session, "base_model": "student", "model_seq_id": 1}
    refused = sdk.ask("POST /create_model", **fields, lora_config=some)
    assert refused.status_code == 400
    assert "adapters of all layers" in refused.json()["detail"]


def test_a_full_engine_says_so(sdk):
    sdk.open()
    fields = {"session_id": sdk.session, "base_model": "student", "lora_config": {"rank": 8}}
    results = [sdk.done("/create_model", model_seq_id=number, **fields) for number in (1, 2, 3)]
    assert "model_id" in results[0]
    assert "places for training clients are taken" in results[-1]["error"]


@covers("POST /save_weights")
def test_a_save_with_overwrite_replaces_and_one_without_is_refused(sdk):
    model = sdk.open()
    path = f"tinker://{model}/weights/again"
    assert sdk.done("/save_weights", model_id=model, path="again", seq_id=1)["path"] == path
    sent_twice = {"model_id": model, "path": "again", "seq_id": 2, "overwrite": True}
    assert sdk.done("/save_weights", **sent_twice)["path"] == path
    assert sdk.done("/save_weights", **sent_twice)["path"] == path
    refused = sdk.ask("POST /save_weights", model_id=model, path="again", seq_id=3)
    assert refused.status_code == 400  # 409 would be sent again for minutes
    assert "already exists" in refused.json()["detail"]


EXTERNAL = (
    "GET /training_runs/{run_id}/checkpoints/external_weights/{name}/external_weights_urls"
)


@covers(
    "POST /save_weights_external",
    EXTERNAL,
    "GET /local/external/{run_id}/{name}/{file:path}",
)
def test_an_adapter_is_downloaded_without_the_key_by_its_signed_url(sdk):
    model = sdk.open(rank=1)
    saved = sdk.done("/save_weights_external", model_id=model, path="out", seq_id=1)
    assert saved == {
        "type": "save_weights_external",
        "path": f"tinker://{model}/external_weights/out",
    }
    urls = sdk.ask(EXTERNAL.format(run_id=model, name="out")).json()["urls"]
    assert set(urls) >= {"adapter_model.safetensors", "adapter_config.json"}
    config = sdk.http.get(urls["adapter_config.json"])
    assert config.json()["r"] == 1
    assert (
        sdk.http.get(urls["adapter_config.json"].replace(model, "model_x")).status_code == 404
    )


@covers("POST /weights_info", "GET /checkpoints")
def test_saved_weights_are_listed_and_described(sdk):
    model = sdk.open()
    sdk.done("/save_weights", model_id=model, path="both", seq_id=1)
    path = sdk.save_sampler(model, "both", 2)
    info = sdk.post("/weights_info", tinker_path=path)
    assert (info["base_model"], info["lora_rank"]) == ("student", 8)
    page = sdk.ask("GET /checkpoints?limit=2&offset=0").json()
    newest = [row["tinker_path"] for row in page["checkpoints"]]
    assert newest == [path, f"tinker://{model}/weights/both"]
    assert page["cursor"]["total_count"] >= 2


@covers("PUT /training_runs/{run}/checkpoints/{path:path}/ttl")
def test_an_expiry_is_not_set_and_none_is_there_to_remove():
    http, _ = connected(FOLDER / "none.json", skyrl())
    place = f"{API}/training_runs/model_1/checkpoints/weights/one/ttl"
    with http:
        headers = {"X-API-Key": KEY}
        assert http.put(place, json={"ttl_seconds": None}, headers=headers).status_code == 204
        refused = http.put(place, json={"ttl_seconds": 7200}, headers=headers)
    assert refused.status_code == 400
    assert "do not expire" in refused.json()["detail"]


@covers("POST /sessions/{session}/finish", "POST /session_heartbeat")
def test_a_finished_session_gives_its_places_back(sdk):
    model = sdk.open()
    beat = {"session_id": sdk.session, "type": "session_heartbeat"}
    assert sdk.ask("POST /session_heartbeat", **beat).status_code == 200
    assert sdk.ask(f"POST /sessions/{sdk.session}/finish").status_code == 200
    assert sdk.engine.sent[-1] == ("POST /unload_model", {"model_id": model})
    assert sdk.ask("POST /session_heartbeat", **beat).status_code == 410


@covers(
    "POST /cancel_future",
    "POST /client/config",
    "POST /client/dynamic_config",
    "GET /get_server_capabilities",
    "GET /local/engine",
)
def test_what_the_bridge_answers_itself():
    http, engine = connected(FOLDER / "none.json", skyrl())
    with http:
        sdk = Sdk(http, engine)
        assert sdk.post("/cancel_future", request_id="t.1") == {}
        assert (
            sdk.post("/client/config", sdk_version="0.38.0")["parallel_fwdbwd_chunks"] is False
        )
        assert sdk.post("/client/dynamic_config", sdk_version="0.38.0") == {}
        (model,) = sdk.ask("GET /get_server_capabilities").json()["supported_models"]
        assert model == {"model_name": "student", "max_context_length": 1024}
        told = sdk.ask("GET /local/engine").json()
    assert (told["engine"], told["version"], told["backend"]) == ("skyrl", "0.4.0", "jax")
    assert "frozen_samplers" in told["lacks"]
    assert promises.OUTAGE_S >= 300
