"""Forward passes without gradients, on the dense decoder: what a training client's `forward` runs on for float32 models.

For a small model transformers' modules with an adapter beside every layer take twice as long, and passes that two threads share up
to half as long again as passes on a thread each. In lower precisions `forward` stays on the training pass: there the decoder's
rounding would set its log-probabilities apart from those of `forward_backward`.

Shapes: B datums, L positions, K targets a position, H hidden, N = B L.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from rtl_core.localtinker.batching import prefill_tokens
from rtl_core.localtinker.decoder import DenseDecoder
from rtl_core.localtinker.lora import LoraSpec
from rtl_core.localtinker.models import ServedModel
from rtl_core.localtinker.scoring import target_logprobs

In = TypeVar("In")
Out = TypeVar("Out")


class FrozenForward:
    """A model with an adapter as it is now; later steps of the adapter do not reach it."""

    def __init__(self, base: ServedModel, tensors: dict[str, Tensor], spec: LoraSpec) -> None:
        self._decoder: DenseDecoder = base.decoder((tensors, spec))
        self.pass_tokens = prefill_tokens(self._decoder)
        """Padded tokens of one pass."""

    @staticmethod
    def supports(base: ServedModel) -> bool:
        return base.dense and base.model.dtype == torch.float32

    def map(self, run_pass: Callable[[In], Out], passes: Iterable[In]) -> Iterator[Out]:
        """`run_pass` of every pass, in their order; those of a small model side by side."""
        if self._decoder.is_small:
            return _single_threads(torch.get_num_threads()).map(run_pass, passes)
        return map(run_pass, passes)

    @torch.inference_mode()
    def logprobs(self, tokens_BL: Tensor, targets_BLK: Tensor) -> Tensor:
        """log p of the targets, [B, L, K], float32, of right-padded sequences."""
        hidden_NH = self._decoder.hidden(tokens_BL).flatten(0, 1)
        return target_logprobs(self._decoder, hidden_NH, targets_BLK.flatten(0, 1)).view(targets_BLK.shape)


@functools.cache
def _single_threads(count: int) -> ThreadPoolExecutor:
    """Threads on each of which torch computes alone."""
    return ThreadPoolExecutor(count, "localtinker-forward", initializer=torch.set_num_threads, initargs=(1,))
