"""The embedded Tinker service, through the unmodified SDK, against plain transformers and torch on the same work.

    python -m benchmarks.localtinker [--rounds 5] [--problems 16] [--group 6] [--threads 2] [--deterministic]

One run measures both sides in turns, on the shipped student, with the starter set's prompts:

| row | the service | the other side |
|---|---|---|
| sampling | `sample` with num_samples = group, all prompts at once | `model.generate` on the whole batch |
| sampling, one request an answer | the same answers, each a request with its own seed | the same |
| scoring, one request | `forward` of a training client: the whole batch of answers in one request | one padded forward pass, log_softmax |
| scoring, answers | `compute_logprobs`, one request a sequence, as the SDK has it | the same |
| scoring, 300 and 1000 tokens | the same on 32 longer sequences | the same |
| ... against passes of 8 | those of 1000 tokens | the same, cut into passes of 8 sequences, which suits its caches best |
| train step | `forward_backward` (importance sampling) and `optim_step` | a plain peft + AdamW step on one padded batch |

The other side runs in a fresh process of its own with torch's defaults and all threads; its tensors are made beforehand. The
service's times hold everything between the SDK's call and its result: HTTP, JSON and protobuf on both sides, queues, batching.
The number that counts is tokens a second, of answers up to and including their end token; ratios are medians over rounds.
`computing` is the same ratio for the time in which the service computed, in its sampling processes (their mean) and its compute
thread: what is left between the two ratios is SDK, HTTP and waiting, which short requests to a tiny model mostly are.
`requests` is the time that the SDK and HTTP alone take for so many requests, measured with one-token prompts.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TINKER_TELEMETRY", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

MAX_TOKENS = 160
RANK = 32
TARGETS = {"sampling": 3.0, "scoring, one request": 0.9, "scoring, 1000 tokens": 0.9, "train step": 0.9}


# The other side --------------------------------------------------------------------------------------------------
def plain_side() -> None:
    """Read one JSON job a line, do it with transformers and torch, answer seconds and tokens. Runs as a child process."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    jobs: dict[str, Callable[[dict], int]] = {}
    setup = json.loads(sys.stdin.readline())
    torch.set_num_threads(setup["threads"])
    model: Any = AutoModelForCausalLM.from_pretrained(setup["model"], dtype=torch.float32).eval()
    eos = setup["eos"]

    def padded(rows: list[list[int]], *, left: bool = False) -> tuple[Any, Any]:
        length = max(map(len, rows))
        blank = [[0] * (length - len(row)) for row in rows]
        ids = [b + r if left else r + b for b, r in zip(blank, rows, strict=True)]
        mask = [
            ([0] * len(b) + [1] * len(r)) if left else ([1] * len(r) + [0] * len(b))
            for b, r in zip(blank, rows, strict=True)
        ]
        return torch.tensor(ids), torch.tensor(mask)

    def generate(job: dict) -> int:
        out = model.generate(
            job["ids"], attention_mask=job["mask"], max_new_tokens=MAX_TOKENS, do_sample=True, temperature=1.0,
            top_k=0, top_p=1.0, eos_token_id=eos, pad_token_id=eos,
        )[:, job["ids"].shape[1] :]  # fmt: skip
        ended = (out == eos).int()
        return int(((ended.cumsum(1) - ended) == 0).sum())

    def score(job: dict) -> int:
        with torch.inference_mode():
            for ids, mask in zip(job["ids"].split(job["pass"]), job["mask"].split(job["pass"]), strict=True):
                logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1]
                torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])
        return int(job["mask"].sum())

    adapted: list[Any] = []

    def train(job: dict) -> int:
        if not adapted:
            linear = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]
            copy: Any = AutoModelForCausalLM.from_pretrained(setup["model"], dtype=torch.float32)
            lora = get_peft_model(copy, LoraConfig(r=RANK, lora_alpha=32, target_modules=linear))
            adapted.extend([lora, torch.optim.AdamW([p for p in lora.parameters() if p.requires_grad], lr=1e-4)])
        lora, optimizer = adapted
        logits = lora(input_ids=job["ids"], attention_mask=job["mask"], use_cache=False).logits
        logp = torch.log_softmax(logits, -1).gather(-1, job["targets"][..., None])[..., 0]
        (-torch.exp(logp - job["logprobs"]) * job["advantages"]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return int(job["mask"].sum())

    jobs = {"generate": generate, "score": score, "train": train}
    prepared: dict[str, dict] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "prepare":
            rows = request["rows"]
            job: dict[str, Any] = dict(zip(("ids", "mask"), padded(rows, left=request["left"]), strict=True))
            job["pass"] = request.get("pass", len(rows))
            if "logprobs" in request:
                job["targets"] = padded(request["targets"])[0]
                job["logprobs"] = padded(request["logprobs"])[0].float()
                job["advantages"] = padded(request["advantages"])[0].float()
            prepared[request["name"]] = job
            print(json.dumps({}), flush=True)
            continue
        started = time.perf_counter()
        tokens = jobs[request["do"]](prepared[request["name"]])
        print(json.dumps({"seconds": time.perf_counter() - started, "tokens": tokens}), flush=True)


class Plain:
    """The child process of the other side."""

    def __init__(self, model: Path, eos: int, threads: int) -> None:
        command = [sys.executable, "-m", "benchmarks.localtinker", "--plain-side"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._send({"model": str(model), "threads": threads, "eos": eos})

    def _send(self, message: dict) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def ask(self, **message: Any) -> dict:
        assert self._process.stdout is not None
        self._send(message)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


# The comparison --------------------------------------------------------------------------------------------------
def prompts_from_child(model: Path, count: int) -> tuple[list[list[int]], int]:
    """`prompts_of` in a process of its own: what it imports is no part of a client."""
    command = [sys.executable, "-m", "benchmarks.localtinker", "--prompts-of", str(model), "--problems", str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    prompts, eos = json.loads(done.stdout)
    return prompts, eos


def prompts_of(model: Path, count: int) -> tuple[list[list[int]], int]:
    """Chat prompts of held-out starter problems, and the end token."""
    from transformers import AutoTokenizer

    from rtl_core.problems.starter import starter_problems
    from rtl_core.prompting.budget import build_prompt
    from rtl_core.prompting.chat import Chat

    tokenizer = AutoTokenizer.from_pretrained(model)
    problems, chat = starter_problems("heldout", count, seed=0), Chat(tokenizer)
    return [build_prompt(p, chat, "bare", 1024).tokens_P for p in problems], tokenizer.eos_token_id


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--problems", type=int, default=16)
    parser.add_argument("--group", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--plain-side", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--prompts-of", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.prompts_of:
        print(json.dumps(prompts_of(args.prompts_of, args.problems)))
        return 0
    if args.plain_side:
        plain_side()
        return 0

    import httpx
    import tinker
    from tinker import types

    from rtl_core.localtinker.process import LocalTinker
    from rtl_core.tinymodels import model_path

    student = model_path("student")
    prompts, eos = prompts_from_child(student, args.problems)
    started = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as state,
        LocalTinker(
            {"student": student}, Path(state), threads=args.threads, deterministic=args.deterministic
        ) as service,
    ):
        startup = time.perf_counter() - started
        client = tinker.ServiceClient(base_url=service.base_url, api_key=service.api_key)
        training = client.create_lora_training_client("student", rank=RANK, seed=1).result()
        sampler = training.save_weights_and_get_sampling_client().result()
        plain = Plain(student, eos, args.threads)
        text = types.ModelInput.from_ints

        def sample(per_request: int, seed: int) -> list[tuple[list[int], Any]]:
            futures = []
            for i, prompt in enumerate(prompts):
                for j in range(args.group // per_request):
                    number = None if per_request > 1 else seed * 10_000 + 100 * i + j
                    settings = types.SamplingParams(max_tokens=MAX_TOKENS, seed=number, stop=[eos])
                    futures.append((prompt, sampler.sample(text(prompt), per_request, settings)))
            return [(prompt, s) for prompt, future in futures for s in future.result().sequences]

        drawn = sample(args.group, 0)
        answers = [prompt + s.tokens for prompt, s in drawn]
        stream = [token for answer in answers for token in answer]
        long = [stream[i : i + 300] for i in range(0, 300 * 32, 300) if len(stream[i : i + 300]) == 300]
        endless = itertools.cycle(stream)
        longest = [list(itertools.islice(endless, 1000)) for _ in range(32)]
        masks = [[0.0] * (len(p) - 1) + [1.0] * len(s.tokens) for p, s in drawn]
        logprobs = [[0.0] * (len(p) - 1) + list(s.logprobs) for p, s in drawn]
        advantages = [[m * (1.0 if i % 2 else -1.0) for m in mask] for i, mask in enumerate(masks)]
        data = [
            types.Datum(
                model_input=text(full[:-1]),
                loss_fn_inputs={"target_tokens": full[1:], "logprobs": q, "advantages": a},
            )
            for full, q, a in zip(answers, logprobs, advantages, strict=True)
        ]
        scored = [
            types.Datum(
                model_input=text(full[:-1]),
                loss_fn_inputs={"target_tokens": full[1:], "weights": [1.0] * (len(full) - 1)},
            )
            for full in answers
        ]
        plain.ask(do="prepare", name="prompts", rows=[p for p in prompts for _ in range(args.group)], left=True)
        plain.ask(do="prepare", name="answers", rows=answers, left=False)
        plain.ask(do="prepare", name="long", rows=long, left=False)
        plain.ask(do="prepare", name="longest", rows=longest, left=False)
        plain.ask(do="prepare", name="longest, cut", rows=longest, left=False, **{"pass": 8})
        plain.ask(
            do="prepare", name="train", rows=[f[:-1] for f in answers], left=False, targets=[f[1:] for f in answers],
            logprobs=logprobs, advantages=advantages,
        )  # fmt: skip

        def busy_seconds() -> float:
            answer = httpx.get(f"{service.base_url}/api/v1/local/status", headers={"X-API-Key": service.api_key})
            return sum(answer.json().get(key, 0.0) for key in ("busy_s", "sampling_busy_s"))

        def score(sequences: list[list[int]]) -> int:
            futures = [sampler.compute_logprobs(text(s)) for s in sequences]
            return sum(len(future.result()) for future in futures)

        def forward(data: list[types.Datum]) -> int:
            done = training.forward(data, "cross_entropy").result()
            return sum(len(output["logprobs"].data) + 1 for output in done.loss_fn_outputs)

        def step() -> int:
            first = training.forward_backward(data, "importance_sampling")
            second = training.optim_step(types.AdamParams(learning_rate=1e-4))
            first.result()
            second.result()
            return sum(len(d.model_input.to_ints()) for d in data)

        rows: dict[str, tuple[Callable[[int], int], tuple[str, str]]] = {
            "sampling": (lambda n: sum(len(s.tokens) for _, s in sample(args.group, n)), ("generate", "prompts")),
            "sampling, one request an answer": (
                lambda n: sum(len(s.tokens) for _, s in sample(1, n)),
                ("generate", "prompts"),
            ),
            "scoring, one request": (lambda n: forward(scored), ("score", "answers")),
            "scoring, answers": (lambda n: score(answers), ("score", "answers")),
            "scoring, 300 tokens": (lambda n: score(long), ("score", "long")),
            "scoring, 1000 tokens": (lambda n: score(longest), ("score", "longest")),
            "... against passes of 8": (lambda n: score(longest), ("score", "longest, cut")),
            "train step": (lambda n: step(), ("train", "train")),
        }
        gc.collect()
        gc.freeze()  # what this program imported and prepared is no part of a client, nor are collections that walk it
        figures: dict[str, dict[str, list[float]]] = {name: {"ours": [], "computing": [], "plain": []} for name in rows}
        for number in range(args.rounds + 1):  # the first round warms both sides up
            for name, (ours, (do, prepared)) in rows.items():
                busy, began = busy_seconds(), time.perf_counter()
                tokens = ours(number)
                seconds = time.perf_counter() - began
                busy = busy_seconds() - busy
                other = plain.ask(do=do, name=prepared)
                if number:
                    figures[name]["ours"].append(tokens / seconds)
                    figures[name]["computing"].append(tokens / busy)
                    figures[name]["plain"].append(other["tokens"] / other["seconds"])
        bare = []
        for _ in range(args.rounds):
            began = time.perf_counter()
            score([[5, 6]] * len(answers))
            bare.append(time.perf_counter() - began)
        plain.close()
        client.close("success").result()

    report(args, startup, len(answers), statistics.median(bare), figures)
    return 0


def report(args: argparse.Namespace, startup: float, requests: int, bare: float, figures: dict) -> None:
    """Print the table, and write it as JSON if asked."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"tokens/s, {args.threads} threads, medians of {args.rounds} rounds")
    for column in ("", "service", "plain", "ratio", "least .. most", "target", "computing"):
        table.add_column(column, justify="left" if not column else "right")
    summary = {}
    for name, sides in figures.items():
        ratios = [a / b for a, b in zip(sides["ours"], sides["plain"], strict=True)]
        computing = statistics.median(a / b for a, b in zip(sides["computing"], sides["plain"], strict=True))
        ours, plain = statistics.median(sides["ours"]), statistics.median(sides["plain"])
        summary[name] = {"ours": ours, "plain": plain, "ratio": statistics.median(ratios), "computing": computing}
        table.add_row(
            name,
            f"{ours:,.0f}",
            f"{plain:,.0f}",
            f"{statistics.median(ratios):.2f}",
            f"{min(ratios):.2f} .. {max(ratios):.2f}",
            f">= {TARGETS[name]}" if name in TARGETS else "",
            f"{computing:.2f}",
        )
    Console().print(table)
    load = os.getloadavg()[0]
    print(
        f"load average of this machine at the end: {load:.1f} (the figures mean something up to about {args.threads + 1})"
    )
    print(f"service ready in {startup:.1f} s; {requests} requests through SDK and HTTP alone take {1e3 * bare:.0f} ms")
    if args.json:
        args.json.write_text(json.dumps({"startup_s": startup, "requests_s": bare, "rows": summary}, indent=1))


if __name__ == "__main__":
    sys.exit(main())
