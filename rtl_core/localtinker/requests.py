"""The JSON requests of the SDK, and the checks that turn a bad one into a message that names its field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rtl_core.learning.losses import LOSSES
from rtl_core.localtinker import RequestError
from rtl_core.localtinker.lora import MAX_RANK
from rtl_core.localtinker.models import ServedModel
from rtl_core.localtinker.registry import MAX_TTL, MIN_TTL
from rtl_core.localtinker.sampling import PromptOptions, SamplingOptions
from rtl_core.localtinker.wire import Cells, TrainDatum, TrainRequest, densify

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,127}")
MAX_SAMPLES = 1024
MAX_TOPK = 100
T = TypeVar("T", bound=BaseModel)


class _Request(BaseModel):
    # Unknown fields are ignored: a newer SDK may send hints that an answer does not depend on.
    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class CreateSession(_Request):
    user_metadata: dict[str, Any] | None = None
    display_name: str | None = None


class LoraConfig(_Request):
    rank: int = Field(ge=1, le=MAX_RANK)
    seed: int | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True


class OptimizerConfig(_Request):
    type: Literal["adamw"] = "adamw"


class CreateModel(_Request):
    session_id: str
    model_seq_id: int
    base_model: str
    lora_config: LoraConfig
    optimizer_config: OptimizerConfig = OptimizerConfig()
    user_metadata: dict[str, Any] | None = None


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


class SaveWeights(_Request):
    model_id: str
    path: str | None = None
    seq_id: int | None = None
    ttl_seconds: int | None = Field(None, ge=MIN_TTL, le=MAX_TTL)
    overwrite: bool = False
    user_metadata: dict[str, str] | None = None


class SaveWeightsForSampler(SaveWeights):
    sampling_session_seq_id: int | None = None


class SaveWeightsExternal(SaveWeights):
    path: str = Field(min_length=1)
    age_encryption_recipients: list[str] | None = None


class LoadWeights(_Request):
    model_id: str | None = None
    seq_id: int | None = None
    session_id: str | None = None
    model_seq_id: int | None = None
    base_model: str | None = None
    user_metadata: dict[str, Any] | None = None
    path: str
    optimizer: bool


class Sampled(_Request):
    """What is sampled: a base model, or saved weights."""

    base_model: str | None = None
    model_path: str | None = None


class CreateSamplingSession(Sampled):
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


class Sample(Sampled):
    num_samples: int = Field(1, ge=1, le=MAX_SAMPLES)
    prompt: Prompt
    sampling_params: SamplingParams
    sampling_session_id: str | None = None
    seq_id: int | None = None
    prompt_logprobs: bool | None = None
    topk_prompt_logprobs: int = Field(0, ge=0, le=MAX_TOPK)
    topk_sample_logprobs: int = Field(0, ge=0, le=MAX_TOPK)
    target_prompt_logprobs: TensorData | None = None
    prompt_alt_tokens_k: int = Field(0, ge=0, le=MAX_TOPK)
    prompt_logprobs_last_n: int | None = Field(None, ge=1)


class CopyWeights(_Request):
    source_path: str
    session_id: str | None = None
    model_seq_id: int | None = None
    ttl_seconds: int | None = Field(None, ge=MIN_TTL, le=MAX_TTL)


class Ttl(_Request):
    ttl_seconds: int | None = Field(None, ge=MIN_TTL, le=MAX_TTL)


class Heartbeat(_Request):
    session_id: str


class TinkerPath(_Request):
    tinker_path: str


class RequestId(_Request):
    request_id: str


def parse(kind: type[T], body: bytes) -> T:
    """Validate a JSON body. Raises RequestError (422) that names the first field that is wrong."""
    try:
        return kind.model_validate_json(body or b"{}")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise RequestError(f"{where}: {first['msg']}", status=422) from error


def number(query: Mapping[str, str], name: str, otherwise: str = "") -> int:
    """A whole number of a request's query. Raises RequestError (422) for anything else."""
    text = query.get(name, otherwise)
    if not text.isdecimal():
        raise RequestError(f"{name}: {text!r} is no whole number", status=422)
    return int(text)


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        message = "letters, digits, '.', '_' and '-', at most 128, starting with a letter or digit"
        raise RequestError(f"path: {name!r} is no checkpoint name ({message})")
    return name


def check_prompt(prompt: Prompt, model: ServedModel) -> list[int]:
    """The tokens of a prompt, all within the vocabulary, at least one, and short enough to be followed by one more."""
    tokens = [token for chunk in prompt.chunks for token in chunk.tokens]
    if not tokens:
        raise RequestError("prompt: needs at least one token")
    if min(tokens) < 0 or max(tokens) >= model.vocab_size:
        raise RequestError(f"prompt: token ids must be in [0, {model.vocab_size}) for {model.name!r}")
    if len(tokens) > model.max_context:
        raise RequestError(f"prompt: {len(tokens)} tokens, but {model.name!r} takes at most {model.max_context}")
    return tokens


def sampling_options(request: Sample, prompt_length: int, model: ServedModel) -> SamplingOptions:
    """Checked options; without max_tokens a sample may fill the context."""
    params = request.sampling_params
    room = model.max_context - prompt_length
    # A scoring request asks for one token that nobody reads, even where the prompt fills the context.
    max_tokens = max(room, 1) if params.max_tokens is None else params.max_tokens
    if max_tokens > max(room, 1):
        raise RequestError(
            f"sampling_params.max_tokens: {max_tokens} after a prompt of {prompt_length} tokens exceeds the context of "
            f"{model.max_context} tokens"
        )
    stop = params.stop
    if stop is None:
        ids: frozenset[int] = model.eos_ids
        strings: tuple[str, ...] = ()
    else:
        items = [stop] if isinstance(stop, str) else stop
        ids = frozenset(item for item in items if isinstance(item, int))
        strings = tuple(item for item in items if isinstance(item, str))
        if "" in strings:
            raise RequestError("sampling_params.stop: an empty stop string would stop at once")
        if strings:
            ids = ids | model.eos_ids
    if params.top_k == 0:
        raise RequestError("sampling_params.top_k: must be at least 1, or -1 for no limit")
    if request.topk_sample_logprobs > model.vocab_size:
        raise RequestError(f"topk_sample_logprobs: at most the vocabulary, {model.vocab_size}")
    return SamplingOptions(
        max_tokens, params.temperature, params.top_k, params.top_p, ids, strings, request.topk_sample_logprobs
    )


def prompt_options(request: Sample, prompt_length: int, model: ServedModel) -> PromptOptions:
    last_n = request.prompt_logprobs_last_n
    if last_n is not None:
        if not request.prompt_logprobs:
            raise RequestError("prompt_logprobs_last_n: requires prompt_logprobs")
        if last_n > prompt_length - 1:
            raise RequestError(f"prompt_logprobs_last_n: must be between 1 and len(prompt) - 1 = {prompt_length - 1}")
    if request.topk_prompt_logprobs > model.vocab_size:
        raise RequestError(f"topk_prompt_logprobs: at most the vocabulary, {model.vocab_size}")
    targets, cells = None, None
    if request.target_prompt_logprobs is not None:
        targets, cells = _targets(request.target_prompt_logprobs, prompt_length, model)
    return PromptOptions(
        bool(request.prompt_logprobs),
        request.topk_prompt_logprobs,
        last_n,
        targets,
        cells,
        request.prompt_alt_tokens_k if prompt_length > 1 else 0,
    )


def _targets(tensor: TensorData, prompt_length: int, model: ServedModel) -> tuple[np.ndarray, Cells | None]:
    field = "target_prompt_logprobs"
    shape = tensor.shape
    if tensor.dtype != "int64" or shape is None or len(shape) != 2 or shape[0] != prompt_length - 1:
        raise RequestError(
            f"{field}: must be int64 of shape [len(prompt) - 1, K] = [{prompt_length - 1}, K], got {shape}"
        )
    cells = None
    try:
        values = np.asarray(tensor.data, np.int64)
        if tensor.sparse_crow_indices is not None and tensor.sparse_col_indices is not None:
            cells = np.asarray(tensor.sparse_crow_indices, np.int64), np.asarray(tensor.sparse_col_indices, np.int64)
            values = densify(values, *cells, shape, fill=-1)
        else:
            values = values.reshape(shape)
    except (ValueError, IndexError, OverflowError) as error:
        raise RequestError(f"{field}: data does not fit its shape ({error})") from error
    if values.size and (values.min() < -1 or values.max() >= model.vocab_size):
        raise RequestError(f"{field}: token ids must be in [0, {model.vocab_size}), or -1 for no request")
    return values, cells


def check_train_request(request: TrainRequest, model: ServedModel) -> None:
    """Everything about a training batch that can be known before it runs."""
    loss = LOSSES.get(request.loss_fn)
    if loss is None:
        raise RequestError(f"loss_fn: {request.loss_fn!r} is not served here; have {', '.join(LOSSES)}")
    for key, value in request.config.items():
        if key not in loss.parameters:
            known = ", ".join(loss.parameters) or "none"
            raise RequestError(f"loss_fn_config: {request.loss_fn} knows no key {key!r} (known: {known})")
        if isinstance(value, str) or not np.isfinite(value):
            raise RequestError(f"loss_fn_config[{key!r}]: must be a finite number, got {value!r}")
    if not request.data:
        raise RequestError("data: needs at least one datum")
    names = set(request.data[0].inputs)
    for index, datum in enumerate(request.data):
        _check_datum(f"data[{index}]", datum, request.loss_fn, model)
        if set(datum.inputs) != names:
            raise RequestError(f"data[{index}].loss_fn_inputs: has other keys than data[0] ({sorted(names)})")


def _check_datum(where: str, datum: TrainDatum, loss_fn: str, model: ServedModel) -> None:
    loss = LOSSES[loss_fn]
    length = len(datum.tokens_T)
    if length == 0:
        raise RequestError(f"{where}.model_input: needs at least one token")
    if length > model.max_context:
        raise RequestError(
            f"{where}.model_input: {length} tokens, but {model.name!r} takes at most {model.max_context}"
        )
    if datum.tokens_T.min() < 0 or datum.tokens_T.max() >= model.vocab_size:
        raise RequestError(f"{where}.model_input: token ids must be in [0, {model.vocab_size}) for {model.name!r}")
    for name in ("target_tokens", *loss.required):
        if name not in datum.inputs:
            raise RequestError(f"{where}.loss_fn_inputs: {loss_fn} needs {name!r}")
    targets = datum.inputs["target_tokens"]
    if targets.ndim not in (1, 2) or targets.shape[0] != length or targets.size == 0:
        raise RequestError(
            f"{where}.loss_fn_inputs['target_tokens']: shape {list(targets.shape)} does not fit a model_input of {length} tokens"
        )
    if targets.dtype.kind != "i" or targets.min() < 0 or targets.max() >= model.vocab_size:
        raise RequestError(f"{where}.loss_fn_inputs['target_tokens']: must be token ids in [0, {model.vocab_size})")
    for name, value in datum.inputs.items():
        if name not in ("target_tokens", *loss.required, *loss.optional):
            known = ", ".join(("target_tokens", *loss.required, *loss.optional))
            raise RequestError(f"{where}.loss_fn_inputs: {loss_fn} knows no input {name!r} (known: {known})")
        if value.shape != targets.shape:
            raise RequestError(
                f"{where}.loss_fn_inputs[{name!r}]: shape {list(value.shape)} differs from target_tokens' {list(targets.shape)}"
            )
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise RequestError(f"{where}.loss_fn_inputs[{name!r}]: holds a number that is not finite")
