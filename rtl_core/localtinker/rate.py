"""How fast the service computes with a model on this machine's CPU, and in how much memory: from its size and two measured products."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

_PROBE_S = 0.3
_SAMPLING_ROWS, _PASS_ROWS, _INNER, _OUTER = 32, 512, 576, 3072
# Operations of such a product that a parameter costs for each token: two for a multiplication and an addition, times what attention,
# losses and everything between the products add, less what answers of one prompt share. Roughly what SmolLM2-135M takes on two cores
# with four answers of 90 tokens to prompts of 80 tokens, scored behind 190.
_SAMPLED, _SCORED, _TRAINED = 3.0, 1.7, 5.6
_PROCESS_GB, _PASS_GB, _MERGED_GB = 0.45, 0.9, 1.07


@dataclass(frozen=True)
class Rates:
    """Tokens a second, and gigabytes of the service at most while it trains."""

    parameters: int
    sampled: float
    scored: float
    trained: float
    memory_gb: float


def rates_of(folder: Path, dtype: str, threads: int) -> Rates:
    """Of a model folder with safetensors; takes about a second; for a machine that has nothing else to do."""
    from safetensors import safe_open

    parameters = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                size = 1
                for n in tensors.get_slice(name).get_shape():
                    size *= n
                parameters += size
    few, many = (_operations_per_s(rows, dtype, threads) for rows in (_SAMPLING_ROWS, _PASS_ROWS))
    weights = parameters * (4 if dtype == "float32" else 2) / 1e9
    merged = weights if dtype == "float32" and weights <= _MERGED_GB else 0.0
    return Rates(
        parameters,
        sampled=few / parameters / _SAMPLED,
        scored=many / parameters / _SCORED,
        trained=many / parameters / _TRAINED,
        memory_gb=_PROCESS_GB + weights + merged + _PASS_GB,
    )


def _operations_per_s(rows: int, dtype: str, threads: int) -> float:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    x = torch.ones(rows, _INNER, dtype=getattr(torch, dtype))
    weights = [torch.ones(_OUTER, _INNER, dtype=x.dtype) for _ in range(16)]  # more than a core's cache holds
    torch.mm(x, weights[0].t())
    # In seconds of the processor, which other work on the machine changes less than those of the clock.
    count, began = 0, time.process_time()
    latest = time.perf_counter() + 10 * _PROBE_S
    while time.process_time() - began < _PROBE_S * threads and time.perf_counter() < latest:
        torch.mm(x, weights[count % len(weights)].t())
        count += 1
    seconds = (time.process_time() - began) / threads
    torch.set_num_threads(before)
    return 2.0 * rows * _INNER * _OUTER * count / seconds
