"""The embedded Tinker service with a model of billions of parameters on a GPU: does it serve, agree with itself, and how fast?

    python -m benchmarks.localtinker_large                     # a random Qwen3 of 4 billion parameters, cuda, bfloat16
    python -m benchmarks.localtinker_large --size tiny --device cpu --dtype float32     # the same on any machine
    python -m benchmarks.localtinker_large --model ~/models/Qwen3-4B

Random weights cost what trained ones do, and need no download. Printed: seconds from start to ready, tokens a second of sampling
(groups of 8 over prompts of 512 tokens), scoring and training through the SDK, the service's memory on the device, and how far
the sampler's log-probabilities are from the trainer's (in bfloat16 about 0.02 on average; in float32 under 1e-4). The other side
is transformers' `generate` for the same prompts, in this process, after the service has ended. Exits 1 when they disagree.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TINKER_TELEMETRY", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

SIZES = {
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128},
    "0.6b": {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "intermediate_size": 3072},
    "1.7b": {"hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16, "intermediate_size": 6144},
    "4b": {"hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32, "intermediate_size": 9728},
    "8b": {"hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "intermediate_size": 12288},
}
"""Shapes of the Qwen3 family."""
MEAN_DIFFERENCE = {"float32": 1e-4, "bfloat16": 0.05}
"""Largest mean absolute difference between the sampler's and the trainer's log-probability of a token, in nats."""


def make_random_model(size: str, folder: Path, device: str, dtype: str) -> None:
    """Save a Qwen3 with random weights and the shipped student's tokenizer."""
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    from rtl_core.tinymodels import model_path

    shape = SIZES[size]
    small = size == "tiny"
    tokenizer = AutoTokenizer.from_pretrained(model_path("student"))
    config = Qwen3Config(
        **shape,
        num_key_value_heads=2 if small else 8,
        head_dim=16 if small else 128,
        vocab_size=len(tokenizer) if small else 151_936,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3ForCausalLM._from_config(config, dtype=getattr(torch, dtype))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(f"a random Qwen3 of {sum(p.numel() for p in model.parameters()) / 1e9:.2f} billion parameters", flush=True)


def through_the_service(model: Path, args: argparse.Namespace) -> tuple[dict[str, float], float]:
    """(figures, mean difference) of sampling, scoring and training through the SDK."""
    import tinker
    from tinker import types

    from rtl_core.localtinker.process import LocalTinker

    figures: dict[str, float] = {}
    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as state,
        LocalTinker({"large": model}, Path(state), device=args.device, dtype=args.dtype, timeout_s=900) as service,
    ):
        figures["ready, s"] = time.perf_counter() - began
        client = tinker.ServiceClient(base_url=service.base_url, api_key=service.api_key)
        training = client.create_lora_training_client("large", rank=32, seed=1).result()
        sampler = training.save_weights_and_get_sampling_client().result()
        prompts = [types.ModelInput.from_ints(row) for row in prompts_of(args)]
        settings = types.SamplingParams(max_tokens=args.tokens, temperature=1.0, stop=[])

        def sample() -> list[tuple[list[int], list[int], list[float]]]:
            futures = [sampler.sample(prompt, args.group, settings) for prompt in prompts]
            return [
                (prompt.to_ints(), list(s.tokens), list(s.logprobs or []))
                for prompt, future in zip(prompts, futures, strict=True)
                for s in future.result().sequences
            ]

        sample()
        began = time.perf_counter()
        drawn = sample()
        figures["sampling, tokens/s"] = sum(len(tokens) for _, tokens, _ in drawn) / (time.perf_counter() - began)

        sequences = [types.ModelInput.from_ints(p + t) for p, t, _ in drawn]
        began = time.perf_counter()
        scores = [future.result() for future in [sampler.compute_logprobs(s) for s in sequences]]
        figures["scoring, tokens/s"] = sum(s.length for s in sequences) / (time.perf_counter() - began)

        data = [
            types.Datum(
                model_input=types.ModelInput.from_ints((p + t)[:-1]),
                loss_fn_inputs={
                    "target_tokens": (p + t)[1:],
                    "logprobs": [0.0] * (len(p) - 1) + q,
                    "advantages": [0.0] * (len(p) - 1) + [1.0 if i % 2 else -1.0] * len(t),
                },
            )
            for i, (p, t, q) in enumerate(drawn)
        ]
        first = training.forward(data, "importance_sampling").result()
        trained = [np.array(out["logprobs"].tolist()[-len(t) :]) for out, (_, t, _) in zip(
            first.loss_fn_outputs, drawn, strict=True)]  # fmt: skip
        began = time.perf_counter()
        passed = training.forward_backward(data, "importance_sampling")
        stepped = training.optim_step(types.AdamParams(learning_rate=1e-5))
        passed.result(), stepped.result()
        figures["training, tokens/s"] = sum(d.model_input.length for d in data) / (time.perf_counter() - began)
        if args.device.startswith("cuda"):
            figures["device memory in use, GB"] = device_memory_gb()
        sampled = [np.array(q) for _, _, q in drawn]
        scored = [np.array(s[-len(t) :], dtype=float) for s, (_, t, _) in zip(scores, drawn, strict=True)]
        differences = np.abs(np.concatenate(sampled) - np.concatenate(trained))
        figures["sampler against trainer, mean"] = float(differences.mean())
        figures["sampler against trainer, most"] = float(differences.max())
        figures["sampler against scorer, mean"] = float(np.abs(np.concatenate(sampled) - np.concatenate(scored)).mean())
    return figures, float(differences.mean())


def prompts_of(args: argparse.Namespace) -> list[list[int]]:
    """Prompts of 512 random tokens that every vocabulary here has."""
    return np.random.default_rng(0).integers(10, 400, (args.prompts, args.prompt_tokens)).tolist()


def device_memory_gb() -> float:
    """What is taken on the device, by whoever."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return (total - free) / 1e9


def plain_generate(model: Path, args: argparse.Namespace) -> float:
    """Tokens a second of transformers' `generate` for the same prompts and groups, as one batch."""
    import torch
    from transformers import AutoModelForCausalLM

    plain: Any = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, args.dtype)).to(args.device).eval()
    ids = torch.tensor([row for row in prompts_of(args) for _ in range(args.group)], device=args.device)
    options = {"do_sample": True, "top_k": 0, "temperature": 1.0, "eos_token_id": None, "pad_token_id": 0}
    plain.generate(ids[:2], max_new_tokens=4, min_new_tokens=4, **options)
    began = time.perf_counter()
    out = plain.generate(ids, max_new_tokens=args.tokens, min_new_tokens=args.tokens, **options)
    out.sum().item()
    return (out.shape[1] - ids.shape[1]) * len(ids) / (time.perf_counter() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a transformers folder; without it a random model is made")
    parser.add_argument("--size", choices=SIZES, default="4b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = args.model or Path(folder)
        if args.model is None:
            make_random_model(args.size, model, args.device, args.dtype)
        figures, difference = through_the_service(model, args)
        figures["transformers' generate, tokens/s"] = plain_generate(model, args)
    for name, value in figures.items():
        print(f"{name:34} {value:12,.4f}" if value < 1 else f"{name:34} {value:12,.1f}")
    limit = MEAN_DIFFERENCE[args.dtype]
    if difference > limit:
        print(f"error: sampler and trainer differ by {difference:.4f} nats a token, more than {limit}", file=sys.stderr)
    return int(difference > limit)


if __name__ == "__main__":
    sys.exit(main())
