"""The embedded service with a real model on this machine's CPU, side by side with plain transformers, peft and torch.

    python -m benchmarks.real_model --model PATH                        # a transformers folder, such as SmolLM2-135M's
    python -m benchmarks.real_model --model PATH --dtype bfloat16
    python -m benchmarks.real_model --model PATH --sequences 8 --tokens 32 --rounds 3      # shorter
    python -m benchmarks.real_model --model PATH --sequences 4 --steps 100                 # does memory grow?

Each round measures the service, through the SDK and HTTP, and then the plain side in this process, so that both meet the same
machine. Sampling: groups of answers to prompts of random tokens, against one `generate` for all of them. Training: forward_backward
and optim_step of a batch of such groups (`--group 1`: of sequences that share nothing), LoRA on all linear layers, against a loop
over the same batch with peft's model, one micro-batch of at most 512 tokens after the other, and AdamW. Printed: the median of each,
the ratios, the most memory that the service had while it did each, and how far the sampler's log-probabilities are from the
trainer's. Nothing else should run: with other work beside it both sides suffer unequally. With `--steps` the service goes on alone for so
many steps, each a sampled group and a train step, and the most memory of each tenth of them is printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TINKER_TELEMETRY", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the service has it

MICRO_TOKENS = 512


def batch(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Sequences whose first half is a prompt, one for each group: tokens, targets, the sampler's log-probabilities and advantages."""
    rng = np.random.default_rng(1)
    tokens = rng.integers(10, 400, (args.sequences, args.length + 1))
    first_of_group = np.arange(args.sequences) // args.group * args.group
    tokens[:, : args.length // 2] = tokens[first_of_group, : args.length // 2]
    advantages = rng.standard_normal((args.sequences, args.length))
    advantages[:, : args.length // 2] = 0.0
    return [
        {"tokens": t[:-1].tolist(), "targets": t[1:].tolist(), "q": [-6.0] * args.length, "advantages": a.tolist()}
        for t, a in zip(tokens, advantages, strict=True)
    ]


class Served:
    """The service's side."""

    def __init__(self, args: argparse.Namespace, state: Path) -> None:
        import tinker

        from rtl_core.localtinker.process import LocalTinker

        self._args = args
        self.service = LocalTinker({"real": args.model}, state, dtype=args.dtype, threads=args.threads, timeout_s=900)
        client = tinker.ServiceClient(base_url=self.service.base_url, api_key=self.service.api_key)
        self._training = client.create_lora_training_client("real", rank=32, seed=1).result()

    def sample(self) -> tuple[float, list[tuple[list[int], list[int], list[float]]]]:
        """Seconds, and (prompt, tokens, log-probabilities) of each answer, of the weights as they are now."""
        from tinker import types

        sampler = self._training.save_weights_and_get_sampling_client().result()
        settings = types.SamplingParams(max_tokens=self._args.tokens, temperature=1.0, stop=[])
        prompts = prompts_of(self._args)
        sampler.sample(types.ModelInput.from_ints(prompts[0]), 1, types.SamplingParams(max_tokens=1)).result()
        began = time.perf_counter()
        futures = [sampler.sample(types.ModelInput.from_ints(p), self._args.group, settings) for p in prompts]
        answers = [future.result() for future in futures]
        seconds = time.perf_counter() - began
        return seconds, [
            (prompt, list(s.tokens), list(s.logprobs or []))
            for prompt, answer in zip(prompts, answers, strict=True)
            for s in answer.sequences
        ]

    def train(self, data: list[dict[str, Any]]) -> float:
        """Seconds of a step."""
        from tinker import types

        data_of = [
            _datum(d["tokens"], target_tokens=d["targets"], logprobs=d["q"], advantages=d["advantages"]) for d in data
        ]
        began = time.perf_counter()
        passed = self._training.forward_backward(data_of, "importance_sampling")
        stepped = self._training.optim_step(types.AdamParams(learning_rate=1e-5))
        passed.result(), stepped.result()
        return time.perf_counter() - began

    def peaks_of_tenths(self, data: list[dict[str, Any]], steps: int) -> list[float]:
        """The most memory, in GB, of each tenth of so many steps: new weights, a group from them, a train step."""
        from tinker import types

        peaks = []
        for step in range(steps):
            sampler = self._training.save_weights_and_get_sampling_client().result()
            settings = types.SamplingParams(max_tokens=8, temperature=1.0, stop=[])
            sampler.sample(types.ModelInput.from_ints(prompts_of(self._args)[0]), self._args.group, settings).result()
            self.train(data)
            if (step + 1) % max(1, steps // 10) == 0:
                peaks.append(self.peak_gb())
        return peaks

    def mismatch(self, drawn: list[tuple[list[int], list[int], list[float]]]) -> np.ndarray:
        """The sampler's log-probability of each sampled token less the trainer's, of weights that sampled `drawn`."""
        data = [_datum((p + t)[:-1], target_tokens=(p + t)[1:]) for p, t, _ in drawn]
        out = self._training.forward(data, "cross_entropy").result().loss_fn_outputs
        parts = [np.array(q) - o["logprobs"].to_numpy()[-len(t) :] for o, (_, t, q) in zip(out, drawn, strict=True)]
        return np.concatenate(parts)

    def peak_gb(self) -> float:
        """The most memory that the service's process has had since the last call (VmHWM)."""
        process = Path(f"/proc/{self.service.pid}")
        status = (process / "status").read_text()
        (process / "clear_refs").write_text("5")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1e6


def _datum(tokens: list[int], **inputs: Any) -> Any:
    from tinker import types

    return types.Datum(model_input=types.ModelInput.from_ints(tokens), loss_fn_inputs=inputs)


class Plain:
    """transformers, peft and torch in this process."""

    def __init__(self, args: argparse.Namespace) -> None:
        import torch
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(args.threads)
        self._args = args
        base: Any = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype)).eval()
        linear = [name for name, module in base.named_modules() if isinstance(module, torch.nn.Linear)]
        self._model: Any = get_peft_model(base, LoraConfig(r=32, lora_alpha=32, target_modules=linear))
        self._optimizer = torch.optim.AdamW([p for p in self._model.parameters() if p.requires_grad], 1e-5, (0.9, 0.95))

    def sample(self) -> float:
        import torch

        ids = torch.tensor([row for row in prompts_of(self._args) for _ in range(self._args.group)])
        options = {"do_sample": True, "top_k": 0, "temperature": 1.0, "eos_token_id": None, "pad_token_id": 0}
        n = self._args.tokens
        began = time.perf_counter()
        with self._model.disable_adapter():  # quicker than with it: the service's samples have an adapter
            self._model.generate(input_ids=ids, max_new_tokens=n, min_new_tokens=n, **options)
        return time.perf_counter() - began

    def train(self, data: list[dict[str, Any]]) -> float:
        import torch

        rows = max(1, MICRO_TOKENS // self._args.length)
        began = time.perf_counter()
        for start in range(0, len(data), rows):
            part = data[start : start + rows]
            tokens, targets = (torch.tensor([d[key] for d in part]) for key in ("tokens", "targets"))
            q, advantages = (torch.tensor([d[key] for d in part], dtype=torch.float32) for key in ("q", "advantages"))
            logits = self._model(input_ids=tokens, use_cache=False).logits.float()
            logp = logits.gather(-1, targets[..., None])[..., 0] - logits.logsumexp(-1)
            (-((logp - q).exp() * advantages).sum()).backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return time.perf_counter() - began


def prompts_of(args: argparse.Namespace) -> list[list[int]]:
    return np.random.default_rng(0).integers(10, 400, (args.prompts, args.prompt_tokens)).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a transformers folder")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=300)
    parser.add_argument("--group", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0)
    args = parser.parse_args()
    data = batch(args)
    seconds: dict[str, list[float]] = {"sampling": [], "generate": [], "train step": [], "plain train step": []}
    with tempfile.TemporaryDirectory() as state:
        served = Served(args, Path(state))
        with served.service:
            peaks = {"ready": [served.peak_gb()], "sampling": [], "forward": [], "training": []}
            plain = Plain(args)
            for _ in range(args.rounds):
                sampled, drawn = served.sample()
                seconds["sampling"].append(sampled)
                peaks["sampling"].append(served.peak_gb())
                seconds["generate"].append(plain.sample())
                difference = served.mismatch(drawn)
                peaks["forward"].append(served.peak_gb())
                seconds["train step"].append(served.train(data))
                peaks["training"].append(served.peak_gb())
                seconds["plain train step"].append(plain.train(data))
            growth = served.peaks_of_tenths(data, args.steps)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    for name, value in median.items():
        print(f"{name:32} {value:10.2f} s")
    print(f"load of the machine              {os.getloadavg()[0]:10.2f}")
    print(f"generate / sampling              {median['generate'] / median['sampling']:10.2f}")
    print(f"train step / plain               {median['train step'] / median['plain train step']:10.2f}")
    for name, values in peaks.items():
        print(f"service's memory, {name:14} {max(values):10.2f} GB at most")
    if growth:
        print(f"the most of each tenth of {args.steps} steps: {', '.join(f'{peak:.2f}' for peak in growth)} GB")
    print(f"sampler less trainer, mean       {difference.mean():10.5f} nats (an estimate of the KL)")
    print(f"half its square, mean            {(difference**2).mean() / 2:10.5f} nats (another)")
    print(f"its size, mean and most          {np.abs(difference).mean():10.5f} {np.abs(difference).max():.5f} nats")


if __name__ == "__main__":
    main()
