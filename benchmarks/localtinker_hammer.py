"""Many clients hammer one embedded Tinker service: no error, and memory flat once it is warm.

    python -m benchmarks.localtinker_hammer [--requests 3000] [--clients 8] [--warm-up 800] [--allowed-mb 24]

Each client is a session of its own that goes round all a training pipeline does, at random: groups of samples, scores, forward
passes, training steps with several losses, states saved, loaded, listed and deleted, new sampling clients, cancelled requests, a
bad request that must be refused, and now and then a goodbye and a new session. The memory of the service and its sampling
processes is read once a second, pages that they share counted once. How long it lasts, and when the service is warm, is counted in
requests, so that a slow machine measures the same.

Exit code 1 when a call failed that should not have, or when memory after the warm-up grew: the median of the second half may lie
at most 3 % and --allowed-mb above that of the first. What the requests under way need varies by some 25 MB (one standard deviation),
so a short run has to allow more.
"""

import logging
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

os.environ.setdefault("TINKER_TELEMETRY", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import tinker
from tinker import types
from transformers import AutoTokenizer

from benchmarks.common import options
from rtl_core.localtinker.process import LocalTinker
from rtl_core.tinymodels import model_path

ALLOWED_SHARE = 0.03


class Hammerer(threading.Thread):
    """One client. `errors` holds what should not have happened, `done` how often each action succeeded."""

    def __init__(self, number: int, connect: Any, vocabulary: int, requests: int) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self._random = random.Random(number)
        self._connect = connect
        self._vocabulary = vocabulary
        self._requests = requests
        self.errors: list[str] = []
        self.done: Counter[str] = Counter()

    def run(self) -> None:
        while self.done.total() < self._requests:
            try:
                self._one_session()
            except Exception as error:
                self.errors.append(f"{self.name}: {type(error).__name__}: {error}")
                return

    def _one_session(self) -> None:
        with self._connect() as client:
            training = client.create_lora_training_client("student", rank=self._random.choice((4, 8, 32))).result()
            samplers = [client.create_sampling_client(base_model="student").result()]
            for _ in range(self._random.randint(20, 60)):
                if self.done.total() >= self._requests:
                    break
                action = self._random.choice(
                    (self._sample, self._sample, self._score, self._forward, self._train, self._train, self._snapshot,
                     self._state, self._cancel, self._bad_request)
                )  # fmt: skip
                action(client, training, samplers)
                self.done[action.__name__.strip("_")] += 1
        self.done["session"] += 1

    def _tokens(self, low: int = 5, high: int = 60) -> list[int]:
        return [self._random.randrange(3, self._vocabulary) for _ in range(self._random.randint(low, high))]

    def _sample(self, client: Any, training: Any, samplers: list[Any]) -> None:
        sampler = self._random.choice(samplers)
        settings = types.SamplingParams(
            max_tokens=self._random.randint(1, 80), temperature=self._random.choice((0.0, 1.0))
        )
        futures = [sampler.sample(types.ModelInput.from_ints(self._tokens()), 4, settings) for _ in range(4)]
        assert all(len(future.result().sequences) == 4 for future in futures)

    def _score(self, client: Any, training: Any, samplers: list[Any]) -> None:
        sampler = self._random.choice(samplers)
        sequences = [self._tokens(2, 120) for _ in range(8)]
        futures = [sampler.compute_logprobs(types.ModelInput.from_ints(s)) for s in sequences]
        assert [len(future.result()) for future in futures] == [len(s) for s in sequences]

    def _batch(self, loss: str) -> list[Any]:
        data = []
        for _ in range(8):
            tokens = self._tokens(4, 100)
            inputs: dict[str, Any] = {"target_tokens": tokens[1:]}
            if loss == "cross_entropy":
                inputs["weights"] = [1.0] * (len(tokens) - 1)
            else:
                inputs["logprobs"] = [-6.0] * (len(tokens) - 1)
                inputs["advantages"] = [0.01] * (len(tokens) - 1)
            data.append(types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs))
        return data

    def _forward(self, client: Any, training: Any, samplers: list[Any]) -> None:
        done = training.forward(self._batch("cross_entropy"), "cross_entropy").result()
        assert len(done.loss_fn_outputs) == 8

    def _train(self, client: Any, training: Any, samplers: list[Any]) -> None:
        loss = self._random.choice(("cross_entropy", "importance_sampling", "ppo", "cispo", "dro"))
        passed = training.forward_backward(self._batch(loss), loss)
        stepped = training.optim_step(types.AdamParams(learning_rate=1e-4, grad_clip_norm=1.0))
        assert len(passed.result().loss_fn_outputs) == 8
        stepped.result()

    def _snapshot(self, client: Any, training: Any, samplers: list[Any]) -> None:
        samplers.append(training.save_weights_and_get_sampling_client().result())
        del samplers[:-3]

    def _state(self, client: Any, training: Any, samplers: list[Any]) -> None:
        path = training.save_state("latest", overwrite=True, ttl_seconds=7200).result().path
        rest = tinker.RestClient(base_url=client.holder._base_url, api_key=client.holder._api_key)
        assert path in [c.tinker_path for c in rest.list_checkpoints(training.model_id).result().checkpoints]
        client.create_training_client_from_state_with_optimizer(path).result()
        rest.delete_checkpoint_from_tinker_path(path).result()

    def _cancel(self, client: Any, training: Any, samplers: list[Any]) -> None:
        future = samplers[0].sample(
            types.ModelInput.from_ints(self._tokens()), 2, types.SamplingParams(max_tokens=900, stop=[])
        )
        time.sleep(0.05)
        future.future().cancel()

    def _bad_request(self, client: Any, training: Any, samplers: list[Any]) -> None:
        try:
            samplers[0].sample(types.ModelInput.from_ints([10**8]), 1, types.SamplingParams(max_tokens=1)).result()
        except tinker.BadRequestError as error:
            if "prompt" in str(error):
                return
        raise AssertionError("a token outside the vocabulary was not refused by name")


def resident_mb(pid: int) -> tuple[float, float]:
    """Resident memory of a process, and of all below it, each shared page counted once (proportional set size)."""

    def own(process: psutil.Process) -> float:
        try:
            return process.memory_full_info().pss / 2**20
        except psutil.NoSuchProcess:  # it has just ended
            return 0.0

    process = psutil.Process(pid)
    return own(process), sum(map(own, process.children(recursive=True)))


def main() -> int:
    args = options(
        __doc__, requests=(3000, "of all clients together"), clients=8, warm_up=(800, "requests before memory is watched"),
        allowed_mb=(24.0, "growth that is no leak, beside 3 %%"),
    ).parse_args()  # fmt: skip

    logging.getLogger("tinker").setLevel(logging.CRITICAL)  # refusals are part of the exercise
    student = model_path("student")
    vocabulary = len(AutoTokenizer.from_pretrained(student))
    with tempfile.TemporaryDirectory() as state, LocalTinker({"student": student}, Path(state)) as service:

        def connect() -> tinker.ServiceClient:
            return tinker.ServiceClient(base_url=service.base_url, api_key=service.api_key)

        began = time.monotonic()
        clients = [Hammerer(n, connect, vocabulary, args.requests // args.clients) for n in range(args.clients)]
        for client in clients:
            client.start()
        samples: list[tuple[int, float, float]] = []
        while any(client.is_alive() for client in clients):
            samples.append((sum(client.done.total() for client in clients), *resident_mb(service.pid)))
            time.sleep(1.0)
        alive = service.alive

    errors = [error for client in clients for error in client.errors]
    if not alive:
        errors.append("the service died")
    done: Counter[str] = sum((client.done for client in clients), Counter())
    warm = [own + processes for at, own, processes in samples if at >= args.warm_up]
    half = max(1, len(warm) // 2)
    first, last = statistics.median(warm[:half]), statistics.median(warm[-half:])
    flat = last <= first * (1 + ALLOWED_SHARE) + args.allowed_mb
    print(
        f"{args.clients} clients, {time.monotonic() - began:.0f} s: "
        + ", ".join(f"{n} {name}" for name, n in done.most_common())
    )
    print("  requests     service   sampling processes")
    for at, own, processes in samples[:: max(1, len(samples) // 15)]:
        print(f"  {at:8d}  {own:7.0f} MB  {processes:7.0f} MB")
    print(
        f"memory after {args.warm_up} requests: {first:.0f} MB, in their second half {last:.0f} MB: {'flat' if flat else 'GROWING'}"
    )
    print(f"errors: {len(errors)}")
    for error in errors[:10]:
        print(f"  {error[:400]}")
    return 0 if flat and not errors else 1


if __name__ == "__main__":
    sys.exit(main())
