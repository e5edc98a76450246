"""Helpers of the tests of this folder."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import tinker
import torch
from safetensors.torch import load_file
from tinker import types
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedTokenizerFast

from localtinker.models import ServedModel, load_model
from localtinker.process import LocalTinker
from localtinker.registry import live_checkpoints
from localtinker.sampling import SampleRequest
from localtinker.wire import SampledSequence, TrainDatum, TrainRequest
from tests import waiting
from tests.waiting import lives

CORPUS = """module counter(input clk, input rst_n, output reg [7:0] count);
always @(posedge clk) begin if (!rst_n) count <= 8'd0; else count <= count + 1'b1; end endmodule
module mux(input a, input b, input sel, output y); assign y = sel ? a : b; endmodule"""
PROMPT = [40, 41, 42, 43, 44, 45, 46]
SHAPE = {
    "vocab_size": 400,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,
}
"""Sizes of models for `served`."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer with an end token, trained on a few lines of Verilog."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([CORPUS] * 4, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>"
    )


def served(folder: Path, config: PretrainedConfig, dtype: str = "float32") -> ServedModel:
    """Return a model with random weights, written to `folder` and loaded as the service loads it."""
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return load_model("model", folder, dtype=dtype, device="cpu", max_context=256)


def train_request(sequences, *, forward_only=False):
    """A supervised pass over whole sequences."""
    data = [TrainDatum(np.array(s[:-1]), {"target_tokens": np.array(s[1:])}) for s in sequences]
    return TrainRequest("run", 1, "cross_entropy", {}, forward_only, data)


def sampled(row):
    return SampledSequence(row.tokens, row.logprobs, row.stopped, row.topk)


def answered(sampler, jobs):
    """Run concurrent jobs in this process; return their (sequences, prompt scores), and the number of rows of each batch."""
    answers = []
    requests = [SampleRequest(**vars(job), take=answers.append) for job in jobs]
    placed = sampler.place([row for request in requests for row in request.make_rows()], [])
    for batch, rows in placed:
        batch.admit(rows)
    while any(batch.live for batch, _ in placed):
        for batch, _ in placed:
            batch.step()
    assert [type(answer) for answer in answers] == [bytes] * len(jobs)
    results = [([sampled(row) for row in request.rows], request.scores) for request in requests]
    return results, [len(rows) for _, rows in placed]


def prompt(tokens: Sequence[int] = PROMPT) -> types.ModelInput:
    return types.ModelInput.from_ints(list(tokens))


def params(max_tokens: int = 16, **kwargs) -> types.SamplingParams:
    """Return sampling parameters, without stop tokens by default, so that lengths are known."""
    return types.SamplingParams(max_tokens=max_tokens, **{"stop": [], **kwargs})


def random_sequences(
    count: int, *, seed: int = 0, low: int = 8, high: int = 24, vocab: int = 300
) -> list[list[int]]:
    """Return token sequences of different lengths."""
    rng = np.random.default_rng(seed)
    return [rng.integers(2, vocab, rng.integers(low, high)).tolist() for _ in range(count)]


def datum(full: Sequence[int], **inputs: Sequence[float]) -> types.Datum:
    """Return a training datum of a sequence; each extra input has one value per target token."""
    loss_fn_inputs = {
        "target_tokens": list(full[1:]),
        **{k: list(map(float, v)) for k, v in inputs.items()},
    }
    return types.Datum(model_input=prompt(full[:-1]), loss_fn_inputs=loss_fn_inputs)


def cross_entropy_data(count: int = 4, *, seed: int = 0) -> list[types.Datum]:
    return [datum(s, weights=[1.0] * (len(s) - 1)) for s in random_sequences(count, seed=seed)]


def policy_data(count: int = 4, *, seed: int = 0) -> list[types.Datum]:
    """Return data for the policy losses: log-probabilities near the model's, advantages of both signs."""
    rng = np.random.default_rng(seed)
    data = []
    for sequence in random_sequences(count, seed=seed):
        length = len(sequence) - 1
        data.append(
            datum(
                sequence,
                logprobs=rng.normal(-5.0, 0.6, length),
                advantages=rng.normal(0, 1, length),
            )
        )
    return data


def train(
    training_client, steps: int = 1, *, seed: int = 0, learning_rate: float = 1e-3
) -> None:
    """Take cross-entropy steps."""
    for step in range(steps):
        training_client.forward_backward(cross_entropy_data(seed=seed + step), "cross_entropy")
        training_client.optim_step(types.AdamParams(learning_rate=learning_rate)).result()


def score(sampling_client, sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """Return concatenated log-probabilities of all tokens but the first of each sequence."""
    futures = [sampling_client.compute_logprobs(prompt(s)) for s in sequences]
    return np.concatenate([np.array(f.result()[1:], dtype=np.float64) for f in futures])


def saved_folder(service: LocalTinker, path: str) -> Path:
    """Return the folder of a checkpoint's files."""
    return live_checkpoints(service.state)[path].folder(service.state)


def saved_weights(service: LocalTinker, training_client, name: str) -> dict[str, torch.Tensor]:
    """Save a training client under a name and return its adapter's tensors."""
    return load_file(
        saved_folder(service, training_client.save_state(name).result().path)
        / "adapter_model.safetensors"
    )


def connect(service: LocalTinker, **kwargs: Any) -> tinker.ServiceClient:
    """Open a new session on `service`."""
    return tinker.ServiceClient(base_url=service.base_url, api_key=service.api_key, **kwargs)


def raw_http(service: LocalTinker, timeout: float = 300.0) -> httpx.Client:
    """Return an HTTP client with the key of `service`, for requests that the SDK does not send."""
    headers = {"X-API-Key": service.api_key}
    return httpx.Client(
        base_url=f"{service.base_url}/api/v1/", headers=headers, timeout=timeout
    )


def status(service: LocalTinker) -> dict[str, int]:
    with raw_http(service) as http:
        return http.get("local/status").json()


def wait_for(
    service: LocalTinker, condition: Callable[[dict[str, int]], bool], timeout: float = 300.0
) -> None:
    """Wait until the status page fulfils a condition."""
    waiting.wait_for(lambda: condition(status(service)), "a status", timeout)


def sampling_processes(service: LocalTinker) -> list[psutil.Process]:
    """Return the live sampling processes of a service: the children of its only child, the template process."""
    (template,) = psutil.Process(service.pid).children()
    return [process for process in template.children() if lives(process)]
