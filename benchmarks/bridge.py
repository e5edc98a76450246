"""Own cost of the bridge: a step of a run with an engine that answers at once, directly and through the bridge.

    python -m benchmarks.bridge [--rounds 7] [--answers 64] [--step 10]

A step samples `answers` answers of 256 tokens to prompts of 512, has each scored, trains on all in one pass and
an optimizer step, and saves state and sampler weights, with as many requests in flight as in a run. Both ways in
turns; the cost of the bridge is the difference of the medians. It is compared with `--step` seconds: what the
fastest step of 64 answers takes on SkyRL with JAX on two cores. A step on GPUs takes minutes. Exits with 1 beyond
5 % of that, or 100 MB.
"""

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TINKER_TELEMETRY", "0")

import psutil
import tinker
from tinker import types

from benchmarks.common import options
from benchmarks.instant_engine import LENGTH
from localtinker.process import Bridge

PROMPT = 512
MOST_SHARE = 0.05
MOST_MB = 100


@contextlib.contextmanager
def instant_engine(port: int = 0) -> Iterator[str]:
    """Run the engine in a process of its own. Yields its URL."""
    words = [sys.executable, "-m", "benchmarks.instant_engine", str(port)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["base_url"]
        finally:
            process.kill()


class Run:
    """A run's clients on one server."""

    def __init__(self, url: str, key: str) -> None:
        self.service = tinker.ServiceClient(base_url=url, api_key=key)
        self.trainer = self.service.create_lora_training_client("student", rank=8).result()
        self.steps = 0

    async def step(self, answers: int) -> float:
        """Make one step. Returns its seconds."""
        begun = time.perf_counter()
        self.steps += 1
        saved = await self.trainer.save_weights_for_sampler(f"step-{self.steps}")
        sampler = await self.service.create_sampling_client(model_path=saved.path)
        prompt = list(range(PROMPT))
        shape = types.SamplingParams(max_tokens=LENGTH, temperature=1.0)
        sampled = await asyncio.gather(
            *[
                sampler.sample(types.ModelInput.from_ints(prompt), 1, shape)
                for _ in range(answers)
            ]
        )
        texts = [[*prompt, *answer.sequences[0].tokens] for answer in sampled]
        await asyncio.gather(
            *[
                sampler.compute_logprobs(types.ModelInput.from_ints(text), LENGTH)
                for text in texts
            ]
        )
        data = [datum(text) for text in texts]
        await asyncio.gather(
            self.trainer.forward_backward(data, "importance_sampling"),
            self.trainer.optim_step(types.AdamParams(learning_rate=1e-4)),
        )
        await self.trainer.save_state(f"step-{self.steps}", overwrite=True)
        return time.perf_counter() - begun


def datum(text: list[int]) -> types.Datum:
    zeros = [0.0] * (len(text) - 1)
    inputs: Any = {"target_tokens": text[1:], "logprobs": zeros, "advantages": zeros}
    return types.Datum(model_input=types.ModelInput.from_ints(text[:-1]), loss_fn_inputs=inputs)


def main() -> None:
    args = options(__doc__, rounds=7, answers=64, step=10.0).parse_args()
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(instant_engine())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bridge = stack.enter_context(Bridge(url, folder / "bridge.log"))
        runs = {"directly": Run(url, "tml-any"), "bridge": Run(bridge.base_url, bridge.api_key)}
        seconds: dict[str, list[float]] = {way: [] for way in runs}
        for turn in range(args.rounds + 1):
            for way, run in runs.items():
                took = asyncio.run(run.step(args.answers))
                if turn:  # the first one opens connections
                    seconds[way].append(took)
        process = psutil.Process(bridge.pid)
        megabytes = process.memory_info().rss / 2**20
        cpu_s = process.cpu_times().user / (args.rounds + 1)
    direct, through = (statistics.median(seconds[way]) for way in runs)
    added = through - direct
    print(
        f"a step of {args.answers} answers: {direct:.2f} s directly, {through:.2f} s through the bridge,"
    )
    print(
        f"which adds {added / args.step:.1%} to a step of {args.step:g} s (at most {MOST_SHARE:.0%})"
    )
    print(f"processor time of the bridge: {cpu_s:.2f} s a step, its start included")
    print(f"memory of the bridge: {megabytes:.0f} MB (at most {MOST_MB})")
    sys.exit(added > MOST_SHARE * args.step or megabytes > MOST_MB)


if __name__ == "__main__":
    main()
