"""The SDK's JSON requests, and their validation. An error message names the field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from localtinker.checks import check_data, check_tokens
from localtinker.errors import RequestError
from localtinker.futures import Json
from localtinker.lora import LoraSpec
from localtinker.losses import LOSSES, UNAVAILABLE
from localtinker.models import ServedModel
from localtinker.registry import MAX_TTL, MIN_TTL
from localtinker.sampling import PromptOptions, SamplingOptions
from localtinker.wire import Cells, TrainRequest, densify

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
"""Of a checkpoint."""
MAX_SAMPLES = 1024
MAX_TOPK = 100
_LEAST_TEMPERATURE = 1e-6  # below it, sampling is greedy
T = TypeVar("T", bound=BaseModel)


class _Request(BaseModel):
    # Unknown fields are ignored: a newer SDK may send hints that do not affect the answer.
    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class Ttl(_Request):
    ttl_seconds: int | None = Field(None, ge=MIN_TTL, le=MAX_TTL)


class CreateSession(_Request):
    user_metadata: Json | None = None
    display_name: str | None = None


class OptimizerConfig(_Request):
    type: Literal["adamw"] = "adamw"


class CreateModel(_Request):
    session_id: str
    model_seq_id: int
    base_model: str
    lora_config: LoraSpec
    optimizer_config: OptimizerConfig = OptimizerConfig()
    user_metadata: Json | None = None


class ModelId(_Request):
    model_id: str


class AdamParams(_Request):
    learning_rate: float = Field(1e-4, ge=0, allow_inf_nan=False)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    eps: float = Field(1e-12, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    grad_clip_norm: float = Field(0.0, allow_inf_nan=False)


class OptimStep(_Request):
    model_id: str
    seq_id: int | None = None
    adam_params: AdamParams


class SaveWeights(Ttl):
    """A request to save an adapter: `CALL` is its route, `KIND` what is saved."""

    CALL: ClassVar = "save_weights"
    KIND: ClassVar = "weights"

    model_id: str
    path: Name | None = None
    seq_id: int | None = None
    overwrite: bool = False
    user_metadata: dict[str, str] | None = None
    sampling_session_seq_id: int | None = None
    age_encryption_recipients: list[str] | None = None


class SaveWeightsForSampler(SaveWeights):
    CALL: ClassVar = "save_weights_for_sampler"
    KIND: ClassVar = "sampler_weights"


class SaveWeightsExternal(SaveWeights):
    """For download (listing.py)."""

    CALL: ClassVar = "save_weights_external"
    KIND: ClassVar = "external_weights"

    path: Name


class LoadWeights(_Request):
    model_id: str | None = None
    seq_id: int | None = None
    session_id: str | None = None
    model_seq_id: int | None = None
    base_model: str | None = None
    user_metadata: Json | None = None
    path: str
    optimizer: bool


class WeightsToSample(_Request):
    """The weights to sample from: a base model, or a checkpoint."""

    base_model: str | None = None
    model_path: str | None = None


class CreateSamplingSession(WeightsToSample):
    session_id: str
    sampling_session_seq_id: int


class TextChunk(_Request):
    type: Literal["encoded_text"] = "encoded_text"
    tokens: list[int]


class Prompt(_Request):
    chunks: list[TextChunk]


class SamplingParams(_Request):
    max_tokens: int | None = Field(None, ge=1)
    seed: int | None = None
    stop: str | list[str] | list[int] | None = None
    temperature: float = Field(1.0, ge=0, allow_inf_nan=False)
    top_k: int = Field(-1, ge=-1)
    top_p: float = Field(1.0, gt=0, le=1)


class TensorData(_Request):
    data: list[int] | list[float]
    dtype: Literal["int64", "float32"]
    shape: list[int] | None = None
    sparse_crow_indices: list[int] | None = None
    sparse_col_indices: list[int] | None = None


class Sample(WeightsToSample):
    num_samples: int = Field(1, ge=1, le=MAX_SAMPLES)
    prompt: Prompt
    sampling_params: SamplingParams
    sampling_session_id: str | None = None
    seq_id: int | None = None
    prompt_logprobs: bool | None = None
    topk_prompt_logprobs: int = Field(0, ge=0, le=MAX_TOPK)
    topk_sample_logprobs: int = Field(0, ge=0, le=MAX_TOPK)
    target_prompt_logprobs: TensorData | None = None
    prompt_alt_tokens_k: int = 0
    prompt_logprobs_last_n: int | None = Field(None, ge=1)


class CopyWeights(Ttl):
    source_path: str
    session_id: str | None = None
    model_seq_id: int | None = None


class Heartbeat(_Request):
    session_id: str


class TinkerPath(_Request):
    tinker_path: str


class RequestId(_Request):
    request_id: str


def parse(kind: type[T], body: bytes) -> T:
    """Validate a JSON body. Raises RequestError (422) that names the first invalid field."""
    try:
        return kind.model_validate_json(body or b"{}")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise RequestError(f"{where}: {first['msg']}", status=422) from error


def check_prompt(prompt: Prompt, model: ServedModel) -> list[int]:
    """Return the tokens of a prompt, checked by `check_tokens`."""
    tokens = [token for chunk in prompt.chunks for token in chunk.tokens]
    check_tokens("prompt", tokens, model)
    return tokens


def sampling_options(
    request: Sample, prompt_length: int, model: ServedModel
) -> SamplingOptions:
    """Return validated options. The default of max_tokens fills the context."""
    params = request.sampling_params
    # A scoring request asks for one unused token, even if the prompt fills the context.
    room = max(model.max_context - prompt_length, 1)
    max_tokens = room if params.max_tokens is None else params.max_tokens
    if max_tokens > room:
        raise RequestError(
            f"sampling_params.max_tokens: {max_tokens} after a prompt of {prompt_length} tokens exceeds the context of "
            f"{model.max_context} tokens"
        )
    items: Sequence[int | str] = params.stop or []
    if isinstance(params.stop, str):
        items = [params.stop]
    ids = frozenset(item for item in items if isinstance(item, int))
    strings = tuple(item for item in items if isinstance(item, str))
    if "" in strings:
        raise RequestError("sampling_params.stop: an empty stop string would stop at once")
    if strings or params.stop is None:
        ids |= model.eos_ids
    if params.top_k == 0:
        raise RequestError("sampling_params.top_k: must be at least 1, or -1 for no limit")
    # Logits divided by a tiny temperature overflow.
    temperature = params.temperature if params.temperature >= _LEAST_TEMPERATURE else 0.0
    return SamplingOptions(
        max_tokens,
        temperature,
        params.top_k,
        params.top_p,
        ids,
        strings,
        request.topk_sample_logprobs,
    )


def prompt_options(request: Sample, prompt_length: int, model: ServedModel) -> PromptOptions:
    last_n = request.prompt_logprobs_last_n
    if last_n is not None:
        if not request.prompt_logprobs:
            raise RequestError("prompt_logprobs_last_n: requires prompt_logprobs")
        if last_n > prompt_length - 1:
            raise RequestError(
                f"prompt_logprobs_last_n: must be between 1 and len(prompt) - 1 = {prompt_length - 1}"
            )
    if request.prompt_alt_tokens_k:
        raise RequestError(
            "prompt_alt_tokens_k: alternative tokens of a prompt are not supported"
        )
    targets = request.target_prompt_logprobs
    return PromptOptions(
        bool(request.prompt_logprobs),
        request.topk_prompt_logprobs,
        last_n,
        *(_targets(targets, prompt_length, model) if targets else ()),
    )


def _targets(
    tensor: TensorData, prompt_length: int, model: ServedModel
) -> tuple[np.ndarray, Cells | None]:
    field = "target_prompt_logprobs"
    shape = tensor.shape
    rows = prompt_length - 1
    if tensor.dtype != "int64" or shape is None or shape[:-1] != [rows]:
        raise RequestError(
            f"{field}: must be int64 of shape [len(prompt) - 1, K] = [{rows}, K], got {shape}"
        )
    cells = None
    try:
        values = np.asarray(tensor.data, np.int64)
        if tensor.sparse_crow_indices is None or tensor.sparse_col_indices is None:
            values = values.reshape(shape)
        else:
            crow = np.asarray(tensor.sparse_crow_indices, np.int64)
            cells = crow, np.asarray(tensor.sparse_col_indices, np.int64)
            values = densify(values, *cells, shape, fill=-1)
    except (ValueError, IndexError, OverflowError) as error:
        raise RequestError(f"{field}: data does not fit its shape ({error})") from error
    if values.size and not -1 <= values.min() <= values.max() < model.vocab_size:
        raise RequestError(
            f"{field}: token ids must be in [0, {model.vocab_size}), or -1 for none"
        )
    return values, cells


def check_train_request(request: TrainRequest, model: ServedModel) -> None:
    """Validate a training batch before it runs."""
    loss = LOSSES.get(request.loss_fn)
    if loss is None:
        why = UNAVAILABLE.get(request.loss_fn, "unknown")
        raise RequestError(
            f"loss_fn: {request.loss_fn!r} is not supported: {why}; available: {', '.join(LOSSES)}"
        )
    for key, value in request.config.items():
        if key not in loss.parameters:
            keys = ", ".join(loss.parameters) or "none"
            raise RequestError(
                f"loss_fn_config: {request.loss_fn} has no key {key!r} (known: {keys})"
            )
        if isinstance(value, str) or not np.isfinite(value):
            raise RequestError(
                f"loss_fn_config[{key!r}]: must be a finite number, got {value!r}"
            )
    check_data(request, loss.required, model)
    names = set(request.data[0].inputs)
    known = ("target_tokens", *loss.required, *loss.optional)
    for name in names:
        if name not in known:
            raise RequestError(
                f"data[0].loss_fn_inputs: {request.loss_fn} has no input {name!r} (known: {', '.join(known)})"
            )
    for index, datum in enumerate(request.data):
        if set(datum.inputs) != names:
            raise RequestError(
                f"data[{index}].loss_fn_inputs: keys differ from those of data[0] ({sorted(names)})"
            )
