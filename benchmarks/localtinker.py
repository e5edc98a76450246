"""Compare the embedded Tinker service, through the unmodified SDK, with plain transformers and torch on the same work.

    python -m benchmarks.localtinker [--rounds 5] [--prompts 16] [--group 6] [--threads 2] [--deterministic]
    python -m benchmarks.localtinker --model PATH --group 4               # a transformers folder, such as
    SmolLM2-135M's python -m benchmarks.localtinker --model PATH --sequences 4 --steps 100
    # does memory grow? python -m benchmarks.localtinker --model PATH --dtype bfloat16

Both sides are measured in turns. Rows:

| row | the service | the other side |
|---|---|---|
| sampling | `sample` with num_samples = group, all prompts at once | `model.generate` on the whole batch |
| scoring, one request | `forward` of a training client: the whole batch of answers in one request | one
padded forward pass, log_softmax | | scoring, answers | `compute_logprobs`, one request a sequence, as in
the SDK | the same | | scoring, 1000 tokens | the same on 32 longer sequences | the same | | train step |
`forward_backward` (importance sampling) and `optim_step` | a plain peft + AdamW step |

Without `--model` the shipped student answers starter problems and trains on its answers. Another model gets
`--prompts` of `--prompt-tokens` random tokens and samples `--tokens` for each. It trains on `--sequences`
of `--length` tokens, whose first half is the same within a group, in passes of at most 512 tokens on the
other side. The row of longer sequences is left out.

The other side runs in a fresh process with torch's defaults; its tensors are made in advance. The service's
times include SDK, HTTP, JSON, protobuf, queues and batching. The figure that counts is tokens a second, end
tokens included; ratios are medians over rounds. Run nothing else on the machine. Also printed: the
service's peak memory in each row, and the difference between the sampler's and the trainer's
log-probabilities; the exit code is 1 if it is more than rounding. With `--steps` the service first runs
that many steps alone (a group is sampled, then a train step), and the peak memory of each tenth of them is
printed.
"""

import argparse
import gc
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

os.environ.setdefault("TINKER_TELEMETRY", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import tinker
from tinker import types

from benchmarks.common import options, show
from benchmarks.plain_torch import RANK, PlainProcess
from localtinker.process import LocalTinker
from rtl_core.tinymodels import model_path

TARGETS = {
    "sampling": 3.0,
    "scoring, one request": 0.9,
    "scoring, 1000 tokens": 0.9,
    "train step": 0.9,
}
"""For the shipped student."""
MEAN_DIFFERENCE = {"float32": 1e-4, "bfloat16": 0.05}
"""Largest mean absolute difference between the sampler's and the trainer's log-probability of a token, in nats."""


class Drawn(NamedTuple):
    """A sampled answer."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]

    @property
    def text(self) -> list[int]:
        return self.prompt + self.tokens


class Served:
    """The service's side. `score` and `train` return how many tokens they worked on."""

    def __init__(self, model: Path, state: Path, args: argparse.Namespace) -> None:
        self.service = LocalTinker(
            {"model": model},
            state,
            threads=args.threads,
            deterministic=args.deterministic,
            dtype=args.dtype,
            timeout_s=900,
        )
        self._client = tinker.ServiceClient(
            base_url=self.service.base_url, api_key=self.service.api_key
        )
        self._training = self._client.create_lora_training_client(
            "model", rank=RANK, seed=1
        ).result()
        self.renew()

    def renew(self) -> None:
        """Sample from the current weights from now on."""
        self._sampler = self._training.save_weights_and_get_sampling_client().result()

    def sample(
        self, prompts: Sequence[list[int]], group: int, tokens: int, eos: int | None
    ) -> list[Drawn]:
        """Return a group of answers to each prompt; each group is one request."""
        settings = types.SamplingParams(
            max_tokens=tokens, temperature=1.0, stop=[] if eos is None else [eos]
        )
        asked = [
            (p, self._sampler.sample(types.ModelInput.from_ints(p), group, settings))
            for p in prompts
        ]
        return [
            Drawn(prompt, list(s.tokens), list(s.logprobs or []))
            for prompt, future in asked
            for s in future.result().sequences
        ]

    def score(self, sequences: Sequence[list[int]]) -> int:
        futures = [
            self._sampler.compute_logprobs(types.ModelInput.from_ints(s)) for s in sequences
        ]
        return sum(len(future.result()) for future in futures)

    def forward(self, texts: Sequence[list[int]]) -> list[np.ndarray]:
        """Return the trainer's log-probabilities of all tokens but the first."""
        data = [
            datum(text[:-1], target_tokens=text[1:], weights=[1.0] * (len(text) - 1))
            for text in texts
        ]
        return [
            np.array(out["logprobs"].tolist())
            for out in self._training.forward(data, "cross_entropy").result().loss_fn_outputs
        ]

    def train(self, data: list[Any]) -> int:
        passed = self._training.forward_backward(data, "importance_sampling")
        stepped = self._training.optim_step(types.AdamParams(learning_rate=1e-4))
        passed.result(), stepped.result()
        return sum(one.model_input.length for one in data)

    def peak_gb(self) -> float:
        """Peak memory (VmHWM) of the service's process since the last call."""
        process = Path(f"/proc/{self.service.pid}")
        status = (process / "status").read_text()
        (process / "clear_refs").write_text("5")
        return (
            next(
                int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")
            )
            / 1e6
        )


def datum(tokens: list[int], **inputs: Any) -> Any:
    return types.Datum(model_input=types.ModelInput.from_ints(tokens), loss_fn_inputs=inputs)


def training_batch(
    args: argparse.Namespace, drawn: list[Drawn] | None
) -> dict[str, list[list]]:
    """Rows, targets, sampler's log-probabilities and advantages, from the answers or of random sequences in
    groups with one prompt."""
    if drawn is not None:
        blank = [[0.0] * (len(d.prompt) - 1) for d in drawn]
        return {
            "rows": [d.text[:-1] for d in drawn],
            "targets": [d.text[1:] for d in drawn],
            "logprobs": [b + d.logprobs for b, d in zip(blank, drawn, strict=True)],
            "advantages": [
                b + [1.0 if i % 2 else -1.0] * len(d.tokens)
                for i, (b, d) in enumerate(zip(blank, drawn, strict=True))
            ],
        }
    rng = np.random.default_rng(1)
    tokens = rng.integers(10, 400, (args.sequences, args.length + 1))
    first_of_group = np.arange(args.sequences) // args.group * args.group
    tokens[:, : args.length // 2] = tokens[first_of_group, : args.length // 2]
    advantages = rng.standard_normal((args.sequences, args.length))
    advantages[:, : args.length // 2] = 0.0
    return {
        "rows": tokens[:, :-1].tolist(),
        "targets": tokens[:, 1:].tolist(),
        "logprobs": [[-6.0] * args.length for _ in tokens],
        "advantages": advantages.tolist(),
    }


Work = dict[str, tuple[Callable[[], int], tuple]]
"""Row -> (the service's work, the method and arguments for the other side)."""


def work_of(
    args: argparse.Namespace, served: Served, plain: PlainProcess, shipped: bool
) -> tuple[Work, list[Drawn]]:
    """Return the rows, prepared on both sides, and answers of the untrained weights."""
    prompts = (
        np.random.default_rng(0).integers(10, 400, (args.prompts, args.prompt_tokens)).tolist()
    )
    eos: int | None = None
    if shipped:
        prompts, eos = plain.ask("chat_prompts", args.prompts)[1]
    drawn = served.sample(prompts, args.group, args.tokens, eos)
    texts = [d.text for d in drawn]
    batch = training_batch(args, drawn if shipped else None)
    data = [
        datum(row, target_tokens=t, logprobs=q, advantages=a)
        for row, t, q, a in zip(
            batch["rows"], batch["targets"], batch["logprobs"], batch["advantages"], strict=True
        )
    ]
    plain.ask("prepare", "prompts", [p for p in prompts for _ in range(args.group)], left=True)
    plain.ask("prepare", "answers", texts)
    plain.ask("prepare", "train", **batch)

    work: Work = {
        "sampling": (
            lambda: sum(
                len(d.tokens) for d in served.sample(prompts, args.group, args.tokens, eos)
            ),
            ("generate", "prompts", args.tokens, eos),
        ),
        "scoring, one request": (
            lambda: sum(len(q) + 1 for q in served.forward(texts)),
            ("score", "answers"),
        ),
        "scoring, answers": (lambda: served.score(texts), ("score", "answers")),
    }
    if shipped:
        stream = itertools.cycle(token for text in texts for token in text)
        long = [list(itertools.islice(stream, 1000)) for _ in range(32)]
        plain.ask("prepare", "long", long)
        work["scoring, 1000 tokens"] = (lambda: served.score(long), ("score", "long"))
    work["train step"] = (lambda: served.train(data), ("train", "train", shipped))
    return work, drawn


def measure(
    args: argparse.Namespace, work: Work, served: Served, plain: PlainProcess
) -> tuple[dict, dict[str, float]]:
    """Return (row -> side -> tokens a second by round, row -> the service's peak memory in GB). The first
    round warms up and is dropped."""
    figures: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in work}
    peaks = {"ready": served.peak_gb()}
    gc.collect()
    gc.freeze()  # keep the collector from walking what this program imported and prepared
    for _, (name, (ours, asked)) in itertools.product(range(args.rounds + 1), work.items()):
        began = time.perf_counter()
        tokens = ours()
        figures[name]["ours"].append(tokens / (time.perf_counter() - began))
        peaks[name] = max(peaks.get(name, 0.0), served.peak_gb())
        seconds, tokens = plain.ask(*asked)
        figures[name]["plain"].append(tokens / seconds)
        so_far = ", ".join(
            f"{side} {values[-1]:,.0f}" for side, values in figures[name].items()
        )
        print(
            f"{name}, tokens/s: {so_far}", file=sys.stderr, flush=True
        )  # progress: a large model takes minutes
    return {
        name: {side: values[1:] for side, values in sides.items()}
        for name, sides in figures.items()
    }, peaks


def growth(
    args: argparse.Namespace, served: Served, drawn: list[Drawn], train: Callable[[], int]
) -> list[float]:
    """Peak memory, in GB, in each tenth of `--steps`; a step renews the weights, samples a group and trains."""
    peaks = []
    for step in range(args.steps):
        served.renew()
        served.sample([drawn[0].prompt], args.group, 8, None)
        train()
        if (step + 1) % max(1, args.steps // 10) == 0:
            peaks.append(served.peak_gb())
    return peaks


def report(args: argparse.Namespace, figures: dict, targets: dict[str, float]) -> None:
    """Print the table of medians."""
    rows = []
    for name, sides in figures.items():
        ratios = [a / b for a, b in zip(sides["ours"], sides["plain"], strict=True)]
        ours, plain, ratio = (
            statistics.median(values) for values in (sides["ours"], sides["plain"], ratios)
        )
        target = f">= {targets[name]}" if name in targets else ""
        spread = f"{min(ratios):.2f} .. {max(ratios):.2f}"
        rows.append((name, f"{ours:,.0f}", f"{plain:,.0f}", f"{ratio:.2f}", spread, target))
    columns = ("", "service", "plain", "ratio", "least .. most", "target")
    show(f"tokens/s, {args.threads} threads, medians of {args.rounds} rounds", columns, rows)


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = options(
        __doc__,
        model=(Path, "a transformers folder (the shipped student)"),
        deterministic=False,
        rounds=5,
        threads=2,
        prompts=16,
        prompt_tokens=300,
        group=6,
        tokens=160,
        sequences=32,
        length=512,
        steps=0,
    )
    parser.add_argument("--dtype", choices=tuple(MEAN_DIFFERENCE), default="float32")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        shipped = args.model is None
        model = args.model or model_path("student")
        started = time.perf_counter()
        served = Served(model, folder / "state", args)
        stack.callback(served.service.stop)
        startup = time.perf_counter() - started
        plain = PlainProcess(model, args.dtype, args.threads)
        stack.callback(plain.close)
        work, drawn = work_of(args, served, plain, shipped)
        sampled = [np.array(d.logprobs) for d in drawn]
        trained = [
            q[-len(d.tokens) :]
            for q, d in zip(served.forward([d.text for d in drawn]), drawn, strict=True)
        ]
        began = time.perf_counter()
        served.score([[5, 6]] * len(drawn))
        bare = time.perf_counter() - began
        tenths = growth(args, served, drawn, work["train step"][0])
        figures, peaks = measure(args, work, served, plain)
    report(args, figures, TARGETS if shipped else {})
    print(
        f"load average of this machine: {os.getloadavg()[0]:.1f} (figures are valid up to about {args.threads + 1})"
    )
    print(
        f"service ready in {startup:.1f} s; {len(drawn)} requests through SDK and HTTP alone: {1e3 * bare:.0f} ms"
    )
    print(
        "the service's peak memory, GB: "
        + ", ".join(f"{name} {peak:.2f}" for name, peak in peaks.items())
    )
    if tenths:
        print(
            f"peak memory in each tenth of {args.steps} steps, GB: {', '.join(f'{peak:.2f}' for peak in tenths)}"
        )
    difference = np.concatenate(sampled) - np.concatenate(trained)
    mean, most, kl = (
        np.abs(difference).mean(),
        np.abs(difference).max(),
        (difference**2).mean() / 2,
    )
    print(
        f"sampler against trainer, nats: mean {mean:.6f}, largest {most:.5f}; KL about {kl:.7f}"
    )
    if mean > MEAN_DIFFERENCE[args.dtype]:
        print(
            f"error: sampler and trainer differ by more than {MEAN_DIFFERENCE[args.dtype]} nats",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
