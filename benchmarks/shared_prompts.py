"""What sharing a prompt saves the embedded service with a real model on this machine's CPU: answers in groups, against answers apart.

    python -m benchmarks.shared_prompts --model PATH                       # a transformers folder, such as SmolLM2-135M's
    python -m benchmarks.shared_prompts --model PATH --prompt 1500 --group 8

The same lengths twice: a prompt for each group, and prompts whose first tokens differ, so that nothing is shared. Training passes,
scores of the answers, and a token for every answer are measured in seconds of the processor, which other work on the machine
changes less than those of the clock; each is done once before it is measured.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the service has it
os.environ.setdefault("GOMP_SPINCOUNT", "0")


def sequences(args: argparse.Namespace, *, shared: bool) -> list[np.ndarray]:
    """Prompt and answer of each: groups one after the other."""
    rng = np.random.default_rng(0)
    drawn: list[np.ndarray] = []
    for _ in range(args.groups):
        prompt = rng.integers(10, 400, args.prompt)
        for _ in range(args.group):
            answer = rng.integers(10, 400, rng.integers(args.answer // 2, 3 * args.answer // 2))
            own = prompt if shared else np.r_[400 + len(drawn), prompt[1:]]
            drawn.append(np.r_[own, answer])
    return drawn


def processor_s(work: Callable[[], Any]) -> float:
    work()
    began = time.process_time()
    work()
    return time.process_time() - began


def training_s(model: Any, args: argparse.Namespace, *, shared: bool) -> float:
    from rtl_core.localtinker.lora import LoraSpec
    from rtl_core.localtinker.models import room_on
    from rtl_core.localtinker.trainer import TrainingModel
    from rtl_core.localtinker.wire import TrainDatum, TrainRequest

    data = []
    for tokens in sequences(args, shared=shared):
        advantages = np.r_[np.zeros(args.prompt - 1), np.ones(len(tokens) - args.prompt)].astype(np.float32)
        q = np.full(len(tokens) - 1, -6.0, np.float32)
        inputs = {"target_tokens": tokens[1:], "logprobs": q, "advantages": advantages}
        data.append(TrainDatum(tokens[:-1], inputs))
    name = f"shared {shared}"
    training = TrainingModel(name, model, LoraSpec(rank=32, seed=1), micro_tokens=room_on("cpu", [model]).micro_tokens)
    request = TrainRequest(name, 1, "importance_sampling", {}, False, data)
    seconds = processor_s(lambda: training.forward_backward(request))
    training.release()
    return seconds


def batch_of(model: Any, prompts: list[np.ndarray], count: int, max_tokens: int, *, scored: bool) -> Any:
    """A batch with `count` rows for each prompt."""
    from rtl_core.localtinker.batching import GenerationBatch
    from rtl_core.localtinker.sampling import PromptOptions, SampleRequest, SamplingOptions

    def fail(error: BaseException) -> None:
        raise error

    batch = GenerationBatch(model.decoder(None), model.decode)
    rows = []
    for number, prompt in enumerate(prompts):
        asked = PromptOptions(logprobs=scored)
        options = SamplingOptions(max_tokens)
        rows += SampleRequest(prompt.tolist(), count, number, options, asked, lambda *_: None, fail).make_rows()
    batch.admit(rows)
    return batch


def scoring_s(model: Any, args: argparse.Namespace, *, shared: bool) -> float:
    """Log-probabilities of every token of every text."""
    texts = sequences(args, shared=shared)
    return processor_s(lambda: batch_of(model, texts, 1, 1, scored=True))


def decoding_s(model: Any, args: argparse.Namespace, *, shared: bool) -> float:
    """A token for every answer."""
    prompts = [tokens[: args.prompt] for tokens in sequences(args, shared=shared)]
    count = args.group if shared else 1
    batch = batch_of(model, prompts[:: args.group] if shared else prompts, count, 64, scored=False)
    steps = 20

    def decode() -> None:
        for _ in range(steps):
            batch.step()

    return processor_s(decode) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a transformers folder")
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--group", type=int, default=4, help="answers of a prompt")
    parser.add_argument("--prompt", type=int, default=200, help="tokens of a prompt")
    parser.add_argument("--answer", type=int, default=90, help="tokens of an answer, on average")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    import torch

    from rtl_core.localtinker.models import load_model

    torch.set_num_threads(args.threads)
    longest = args.prompt + 2 * args.answer + 64
    model = load_model("model", args.model, dtype="float32", device="cpu", max_context=longest)

    print(
        f"{args.groups} prompts of {args.prompt} tokens, {args.group} answers each, of {args.answer} tokens on average"
    )
    print(f"{'seconds of the processor':28} {'apart':>8} {'in groups':>10} {'ratio':>7}")
    measured = {"a training pass": training_s, "scoring": scoring_s, "a token for every answer": decoding_s}
    for name, measure in measured.items():
        apart, grouped = measure(model, args, shared=False), measure(model, args, shared=True)
        print(f"{name:28} {apart:8.2f} {grouped:10.2f} {apart / grouped:7.2f}")


if __name__ == "__main__":
    main()
