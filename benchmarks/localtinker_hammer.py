"""Many clients load one embedded Tinker service: there must be no error, and its memory must stay flat
after the warm-up.

    python -m benchmarks.localtinker_hammer [--requests 3000] [--clients 8] [--warm-up 800] [--allowed-mb 24]

Each client has its own session and makes random cases of `rtl-distill admin check-service`: groups of samples,
scores, forward passes, train steps with every loss, saving, loading, listing and deleting states, new
sampling clients, bad requests that must be refused; also samples of random prompts and cancelled requests.
Now and then it closes its session and opens a new one. The memory of the service and its sampling processes
is read once a second, with shared pages counted once. Duration and warm-up are counted in cases, so that
slow machines measure the same.

The exit code is 1 if a case failed, or memory grew: after the warm-up, the median of the second half may be
at most 3 % and --allowed-mb above that of the first. The memory of pending requests varies by some 25 MB
(one standard deviation), so a short run must allow more.
"""

import asyncio
import logging
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil

os.environ.setdefault("TINKER_TELEMETRY", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from benchmarks.common import options, show
from localtinker.certify import test_calls, test_faults, test_saved_weights
from localtinker.certify.bench import Bench, Server
from localtinker.certify.data import PROMPT, VOCABULARY, params, prompt
from localtinker.losses import LOSSES
from localtinker.process import LocalTinker
from rtl_core.tinymodels import model_path

ALLOWED_SHARE = 0.03
STUCK_S = 600.0
"""A case that takes longer counts as unanswered."""
Case = Callable[[Bench], Awaitable[object]]


async def random_samples(bench: Bench) -> None:
    """Sample groups of answers to random prompts concurrently, and score them."""
    sampler = await bench.base_sampler()
    prompts = [random.choices(range(3, VOCABULARY), k=random.randint(5, 60)) for _ in range(4)]
    asked = (sampler.sample(prompt(one), 4, params(random.randint(1, 80))) for one in prompts)
    groups = [answer.sequences for answer in await asyncio.gather(*asked)]
    texts = [
        [*one, *answer.tokens]
        for one, group in zip(prompts, groups, strict=True)
        for answer in group
    ]
    assert len(await bench.score(sampler, texts)) == 16


async def cancelled(bench: Bench) -> None:
    """Cancel a long request."""
    asked = (await bench.base_sampler()).sample(prompt(PROMPT), 2, params(900, stop=[]))
    await asyncio.sleep(0.05)
    asked.future().cancel()


CASES: tuple[Case, ...] = (
    random_samples,
    random_samples,
    cancelled,
    test_calls.test_sample,
    test_calls.test_forward,
    test_calls.test_in_flight,
    *(partial(test_calls.test_loss, loss=loss) for loss in LOSSES),
    test_saved_weights.test_overwrite,
    test_saved_weights.test_save_for_sampler,
    test_saved_weights.test_save_and_get,
    test_saved_weights.test_resume,
    test_saved_weights.test_list_and_delete,
    test_faults.test_bad_sampling,
    test_faults.test_bad_training,
)


def name_of(case: Case) -> str:
    return (
        case.keywords["loss"]
        if isinstance(case, partial)
        else case.__name__.removeprefix("test_")
    )


async def client(server: Server, cases: int, done: Counter[str], errors: list[str]) -> None:
    """Run `cases` cases, some in each session; count those that succeed, and stop at the first failure."""
    mine = 0
    while mine < cases:
        bench = Bench(replace(server, rank=random.choice((4, 8, 32))))
        async with bench.opened(with_session=True):
            for case in random.choices(CASES, k=min(random.randint(5, 20), cases - mine)):
                try:
                    await asyncio.wait_for(case(bench), STUCK_S)
                except Exception as error:
                    errors.append(f"{name_of(case)}: {type(error).__name__}: {error}")
                    return
                done[name_of(case)] += 1
                mine += 1
        done["session"] += 1


def resident_mb(pid: int) -> tuple[float, float]:
    """Memory in MB (proportional set size) of a process, and of all its descendants."""

    def own(process: psutil.Process) -> float:
        try:
            return process.memory_full_info().pss / 2**20
        except psutil.NoSuchProcess:  # it has just ended
            return 0.0

    process = psutil.Process(pid)
    return own(process), sum(map(own, process.children(recursive=True)))


async def hammer(
    service: LocalTinker, clients: int, cases: int
) -> tuple[Counter[str], list[str], list[tuple[int, float, float]]]:
    """Return counts of cases, errors, and once a second (cases done, memory in MB of the service and of its
    processes)."""
    done, errors, samples = Counter[str](), list[str](), []
    server = Server(service.base_url, service.api_key, "student")
    await test_calls.test_capabilities(Bench(server))  # other cases need what it finds
    work = asyncio.gather(
        *(client(server, cases // clients, done, errors) for _ in range(clients))
    )
    while not work.done():
        samples.append((done.total(), *resident_mb(service.pid)))
        await asyncio.sleep(1.0)
    await work
    if not service.alive:
        errors.append("the service died")
    return done, errors, samples


def main() -> int:
    args = options(
        __doc__,
        requests=(3000, "cases of all clients together"),
        clients=8,
        warm_up=(800, "cases before memory is watched"),
        allowed_mb=(24.0, "allowed growth, besides 3 %%"),
    ).parse_args()
    random.seed(0)
    logging.getLogger("tinker").setLevel(
        logging.CRITICAL
    )  # some requests are meant to be refused
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as state,
        LocalTinker({"student": model_path("student")}, Path(state)) as service,
    ):
        done, errors, samples = asyncio.run(hammer(service, args.clients, args.requests))
    warm = [own + processes for at, own, processes in samples if at >= args.warm_up]
    half = max(1, len(warm) // 2)
    first, last = statistics.median(warm[:half]), statistics.median(warm[-half:])
    flat = last <= first * (1 + ALLOWED_SHARE) + args.allowed_mb
    print(
        f"{args.clients} clients, {time.monotonic() - began:.0f} s: "
        + ", ".join(f"{n} {name}" for name, n in done.most_common())
    )
    rows = samples[:: max(1, len(samples) // 15)]
    show(
        "memory",
        ("requests", "service MB", "sampling processes MB"),
        [(n, f"{a:.0f}", f"{b:.0f}") for n, a, b in rows],
    )
    verdict = "flat" if flat else "GROWING"
    print(
        f"memory after {args.warm_up} requests: {first:.0f} MB, in their second half {last:.0f} MB: {verdict}"
    )
    print("\n".join([f"errors: {len(errors)}", *(f"  {error[:400]}" for error in errors[:10])]))
    return 0 if flat and not errors else 1


if __name__ == "__main__":
    sys.exit(main())
