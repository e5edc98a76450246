"""Conversion between the SDK's protobuf messages and numpy. No other module depends on the wire format."""

from __future__ import annotations

import itertools
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distribution
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import zstandard
from google.protobuf.message import DecodeError

from localtinker.errors import RequestError


def _sdk_messages() -> Any:
    """Load the SDK's `tinker.proto.tinker_public_pb2` from its file, because importing it by name would
    import the whole SDK. Both ways give the same protobuf classes."""
    file = distribution("tinker").locate_file("tinker/proto/tinker_public_pb2.py")
    return SimpleNamespace(**runpy.run_path(str(file)))


if TYPE_CHECKING:
    from tinker.proto import tinker_public_pb2 as pb
else:
    pb = _sdk_messages()

_NUMPY_OF = {pb.DTYPE_FLOAT32: np.float32, pb.DTYPE_INT64: np.int64, pb.DTYPE_INT32: np.int32}
MISSING_LOGPROB = -99999.0  # marks an empty cell of a top-k matrix in the protocol
_MAX_BODY = 256 * 1024 * 1024
TopK = tuple[np.ndarray, np.ndarray]
"""Ids and log-probabilities of the likeliest tokens."""
Cells = tuple[np.ndarray, np.ndarray]
"""The cells of a sparse (CSR) matrix: its row pointers and columns."""


@dataclass(frozen=True)
class TrainDatum:
    """A training sequence: T input tokens and the inputs of the loss, each [T] or [T, K]."""

    tokens_T: np.ndarray
    inputs: dict[str, np.ndarray]

    def matrix(self, name: str) -> np.ndarray:
        """Return an input as [T, K], 1 everywhere if the datum has none."""
        targets = self.inputs["target_tokens"]
        values = self.inputs.get(name, np.ones(targets.shape))
        return values.reshape(len(targets), -1)


@dataclass(frozen=True)
class TrainRequest:
    """A decoded `forward_backward` request."""

    model_id: str
    seq_id: int | None
    loss_fn: str
    config: dict[str, Any]
    forward_only: bool
    data: list[TrainDatum]


@dataclass
class SampledSequence:
    """A sampled answer: tokens, their log-probabilities at temperature 1, and top-k rows if requested."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: bool = False
    topk: list[TopK] = field(default_factory=list)


@dataclass
class PromptScores:
    """Requested scores of the P prompt positions. Positions that are not scored hold NaN or `MISSING_LOGPROB`."""

    logprobs_P: np.ndarray | None = None
    topk: TopK | None = None
    targets: tuple[np.ndarray, Cells | None] | None = None


def decode_train_request(body: bytes, content_encoding: str | None) -> TrainRequest:
    """Parse a `forward_backward` body, zstd-compressed or not. Raises RequestError naming the invalid datum
    and field."""
    if content_encoding == "zstd":
        try:
            # `decompress` ignores its limit if the frame states a size.
            if zstandard.frame_content_size(body) > _MAX_BODY:
                raise RequestError(
                    f"body: more than {_MAX_BODY >> 20} MiB decompressed", status=413
                )
            body = zstandard.ZstdDecompressor().decompress(body, max_output_size=_MAX_BODY)
        except zstandard.ZstdError as error:
            raise RequestError(f"body: not valid zstd ({error})") from error
    message = pb.ForwardBackwardRequest()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise RequestError(f"body: not a ForwardBackwardRequest message ({error})") from error
    config: dict[str, Any] = dict(message.loss_fn_config)  # all that clients before 0.38 write
    for key, value in message.loss_fn_config_v2.items():
        config[key] = getattr(value, value.WhichOneof("value") or "number")
    data = []
    for index, datum in enumerate(message.data):
        where = f"data[{index}]"
        inputs = {
            name: decode_tensor(tensor, f"{where}.loss_fn_inputs[{name!r}]")
            for name, tensor in datum.loss_fn_inputs.items()
        }
        tokens_T = decode_tokens(datum.model_input, f"{where}.model_input")
        data.append(TrainDatum(tokens_T, inputs))
    seq_id = message.seq_id or None  # the SDK counts from 1
    return TrainRequest(
        message.model_id, seq_id, message.loss_fn, config, message.forward_only, data
    )


def decode_tokens(chunks: Sequence[pb.Chunk], where: str) -> np.ndarray:
    """Return the token ids of a chunk list, int64. Raises RequestError for an image or audio chunk."""
    parts = [np.zeros(0, np.int32)]
    for chunk in chunks:
        kind = chunk.WhichOneof("chunk")
        if kind != "encoded_text":
            raise RequestError(f"{where}: only encoded_text chunks are supported, got {kind}")
        if len(chunk.encoded_text.tokens) % 4:
            raise RequestError(f"{where}: tokens must be 32-bit numbers")
        parts.append(np.frombuffer(chunk.encoded_text.tokens, dtype=np.int32))
    return np.concatenate(parts).astype(np.int64)


def decode_tensor(message: pb.Tensor, where: str) -> np.ndarray:
    """Return a dense or CSR tensor as a dense array of its declared shape, 0 in unlisted CSR cells."""
    dtype = _NUMPY_OF.get(message.dtype)
    if dtype is None:
        raise RequestError(f"{where}: unknown dtype {message.dtype}")
    shape = list(message.shape)
    try:
        if message.HasField("sparse_csr"):
            csr = message.sparse_csr
            crow = np.frombuffer(csr.crow_indices, dtype=np.int64)
            col = np.frombuffer(csr.col_indices, dtype=np.int64)
            values = np.frombuffer(csr.values, dtype=dtype)
            return densify(values, crow, col, shape, fill=0)
        flat = np.frombuffer(message.dense, dtype=dtype)
        return flat.reshape(shape) if shape else flat
    except (ValueError, IndexError) as error:
        raise RequestError(f"{where}: data does not fit its shape {shape} ({error})") from error


def densify(
    values: np.ndarray, crow: np.ndarray, col: np.ndarray, shape: Sequence[int], fill: float
) -> np.ndarray:
    """Return a CSR matrix as a dense [rows, columns] array with `fill` in unlisted cells."""
    rows, _ = shape
    dense = np.full(shape, fill, dtype=values.dtype)
    dense[_csr_rows(rows, crow), col] = values
    return dense


def _csr_rows(rows: int, crow: np.ndarray) -> np.ndarray:
    """Return the row of each cell of a CSR matrix."""
    return np.repeat(np.arange(rows), np.diff(crow))


def encode_train_output(
    outputs: Mapping[str, Sequence[np.ndarray]], metrics: Mapping[str, float]
) -> bytes:
    """Encode a ForwardBackwardOutput. `outputs`: field -> an array per datum, float32, [T] or [T, K].

    A record holds arrays with the same trailing shape, so there is one record per run of data with equal K.
    """
    message = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    data = zip(*outputs.values(), strict=True)
    runs = itertools.groupby(data, key=lambda datum: datum[0].shape[1:])
    for trailing, run in runs:
        columns = list(zip(*run, strict=True))
        record = message.loss_fn_outputs.add(num_datums=len(columns[0]))
        for name, arrays in zip(outputs, columns, strict=True):
            entry = record.fields[name]
            entry.dtype = pb.DTYPE_FLOAT32
            values = [np.asarray(array, np.float32).tobytes() for array in arrays]
            entry.data = b"".join(values)
            offsets = np.cumsum([0, *map(len, values)], dtype=np.int64)
            entry.offsets = offsets.tobytes()
            entry.trailing_shape.extend(trailing)
    for name, value in metrics.items():
        message.metrics[name] = value
    return message.SerializeToString()


def encode_sample_response(
    sequences: Sequence[SampledSequence], prompt: PromptScores | None, shared: int = 0
) -> bytes:
    """Encode a SampleResponse of sampled sequences and, if requested, scores of the prompt. `shared`: see
    `SampleRequest`."""
    message = pb.SampleResponse(prompt_cache_hit_tokens=shared)
    for sequence in sequences:
        entry = message.sequences.add()
        entry.stop_reason = pb.STOP_REASON_STOP if sequence.stopped else pb.STOP_REASON_LENGTH
        entry.tokens = np.asarray(sequence.tokens, np.int32).tobytes()
        entry.logprobs = np.asarray(sequence.logprobs, np.float32).tobytes()
        if sequence.topk:
            columns = map(np.stack, zip(*sequence.topk, strict=True))
            _fill_topk(entry.topk_sampled_logprobs, *columns)
    if prompt is not None:
        if prompt.logprobs_P is not None:
            message.prompt_logprobs = prompt.logprobs_P.astype(np.float32).tobytes()
        if prompt.topk is not None:
            _fill_topk(message.topk_prompt_logprobs, *prompt.topk)
        if prompt.targets is not None:
            _fill_targets(message.target_prompt_logprobs, *prompt.targets)
    return message.SerializeToString()


def _fill_topk(message: pb.TopkLogprobs, ids: np.ndarray, logprobs: np.ndarray) -> None:
    message.length, message.k = ids.shape
    message.token_ids = ids.astype(np.int32).tobytes()
    message.logprobs = logprobs.astype(np.float32).tobytes()


def _fill_targets(message: pb.Tensor, values_RK: np.ndarray, cells: Cells | None) -> None:
    """Write scores in the form of the request: dense, or its CSR cells."""
    message.dtype = pb.DTYPE_FLOAT32
    message.shape.extend(values_RK.shape)
    if cells is None:
        message.dense = values_RK.astype(np.float32).tobytes()
        return
    crow, col = cells
    values = values_RK[_csr_rows(len(values_RK), crow), col]
    message.sparse_csr.values = values.astype(np.float32).tobytes()
    message.sparse_csr.crow_indices = crow.tobytes()
    message.sparse_csr.col_indices = col.tobytes()
