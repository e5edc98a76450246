"""Checks of tokens and training data, before a server computes with them. An error message names the field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from localtinker.errors import RequestError
from localtinker.wire import TrainDatum, TrainRequest


class Limits(Protocol):
    """Of a model: its name, the size of its vocabulary, and its context in tokens."""

    @property
    def name(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def max_context(self) -> int: ...


def check_tokens(where: str, tokens: Sequence[int] | np.ndarray, limits: Limits) -> None:
    """Check for at least one token, no more than the context, and ids within the vocabulary."""
    if len(tokens) == 0:
        raise RequestError(f"{where}: needs at least one token")
    if len(tokens) > limits.max_context:
        raise RequestError(
            f"{where}: {len(tokens)} tokens, but {limits.name!r} takes at most {limits.max_context}"
        )
    ids = np.asarray(tokens)
    if ids.min() < 0 or ids.max() >= limits.vocab_size:
        raise RequestError(
            f"{where}: token ids must be in the vocabulary of {limits.name!r}, [0, {limits.vocab_size})"
        )


def check_data(request: TrainRequest, required: Sequence[str], limits: Limits) -> None:
    """Check that a training batch holds data, each with what its loss requires besides the targets."""
    if not request.data:
        raise RequestError("data: needs at least one datum")
    for index, datum in enumerate(request.data):
        where = f"data[{index}]"
        check_tokens(f"{where}.model_input", datum.tokens_T, limits)
        for name in ("target_tokens", *required):
            if name not in datum.inputs:
                raise RequestError(f"{where}.loss_fn_inputs: {request.loss_fn} needs {name!r}")
        _check_inputs(f"{where}.loss_fn_inputs", datum, limits)


def _check_inputs(where: str, datum: TrainDatum, limits: Limits) -> None:
    """Check that the targets are token ids, one or several a position, and that the other inputs fit them."""
    targets = datum.inputs["target_tokens"]
    length = len(datum.tokens_T)
    fits = targets.ndim in (1, 2) and targets.shape[0] == length
    if not fits or targets.size == 0:
        raise RequestError(
            f"{where}['target_tokens']: shape {list(targets.shape)} does not fit a model_input of {length} tokens"
        )
    whole = targets.dtype.kind == "i"
    if not whole or not 0 <= targets.min() <= targets.max() < limits.vocab_size:
        raise RequestError(
            f"{where}['target_tokens']: must be token ids in the vocabulary, [0, {limits.vocab_size})"
        )
    for name, value in datum.inputs.items():
        if value.shape != targets.shape:
            raise RequestError(
                f"{where}[{name!r}]: shape {list(value.shape)} differs from target_tokens' {list(targets.shape)}"
            )
        if not np.isfinite(value).all():
            raise RequestError(f"{where}[{name!r}]: contains a number that is not finite")
