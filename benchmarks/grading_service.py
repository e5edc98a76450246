"""The grading service under clients and a kill -9, and its throughput against the grader in this process.

    python -m benchmarks.grading_service [--grades 10000] [--clients 8] [--batch 4] [--rounds 5] [--block 120]

First `rounds` blocks of answers are graded in turns by a grader of this process and by `rtl-distill serve-grader`, the same answers by
both, each with as many at one time; the ratio is that of the medians. Then the clients have `grades` distinct answers graded, in
batches; when half of them have their verdict, the server is killed with SIGKILL and started again on the same file. A client repeats
what failed (no connection, 429, 503). Asserted: every answer has a verdict and the right one, the file holds each once and with its
seal, every answer asked for again is known, and the server's memory is flat from the restart on.

Three of five answers are golden ones to starter problems, one ends the simulation early and one does not compile; a comment with a
number makes each one distinct. Not covered: several graders behind one address, networks that lose packets.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path

import httpx

from benchmarks.common import command, in_turns, options
from rtl_core.config import load_config
from rtl_core.grading.verdict_record import changed_fields
from rtl_core.problems.sources import override_of
from rtl_core.run.check.machine import problems_of
from rtl_core.run.graders import executor_of, grader_of, graders_of
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem

TOKEN = "benchmark"
GROWTH = 1.10
"""The most that memory may grow from the second fifth of the samples to the last."""
ENOUGH = 50
"""Of fewer samples nothing is said."""
SETTINGS = load_config("demo", [override_of(["starter"])])


def answer(problem: Problem, number: int) -> dict[str, str]:
    """A distinct answer: right for three numbers of five."""
    ((path, text),) = (problem.golden or {}).items()
    if number % 5 == 3:
        text = text.replace("endmodule", "  initial $finish;\nendmodule")
    if number % 5 == 4:
        text = text.replace("endmodule", "")
    return {path: f"{text}\n// {number}\n"}


class Server:
    """`rtl-distill serve-grader` as a process; it can be killed and started again at the same address."""

    def __init__(self, output: Path) -> None:
        self.output, self.port = output, 0
        self.start()

    def start(self) -> None:
        words = ("serve-grader", "--source", "starter", "--output", self.output, "--port", self.port, "--queue", 64)
        environment = {**os.environ, "RTL_DISTILL_GRADER_TOKEN": TOKEN}
        self.process = subprocess.Popen(command(*words), env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "GRADER_URL=" in line:
                self.address = line.strip().split("=", 1)[1]
                self.port = int(self.address.rsplit(":", 1)[1])
                return
        raise SystemExit("the server did not start")

    def metric(self, name: str) -> float:
        """A figure of /metrics, summed over its labels."""
        text = httpx.get(f"{self.address}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60).text
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.split("{")[0].split()[0] == name)


class Load:
    """Numbered answers to the problems in turn, sent by clients side by side, which repeat what failed."""

    def __init__(self, problems: list[Problem], server: Server, clients: int, batch: int) -> None:
        self.problems, self.clients, self.batch = problems, clients, batch
        self.outcomes: dict[int, str] = {}
        self.repeats: Counter[str] = Counter()
        self._http = httpx.Client(
            base_url=server.address, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=httpx.Timeout(600)
        )

    def problem(self, number: int) -> Problem:
        return self.problems[number % len(self.problems)]

    def send(self, numbers: range) -> None:
        """Returns when every number has its verdict."""
        batches = [numbers[at : at + self.batch] for at in range(0, len(numbers), self.batch)]
        with ThreadPoolExecutor(self.clients) as pool:
            list(pool.map(self._grade, batches))

    def _grade(self, numbers: range) -> None:
        problems = {number: self.problem(number) for number in numbers}
        answers = [{"id": p.id, "files": answer(p, number), "sample": number} for number, p in problems.items()]
        while True:
            try:
                response = self._http.post("/v1/grade", json={"answers": answers})
            except httpx.TransportError as error:
                self.repeats[type(error).__name__] += 1
                time.sleep(0.5)
                continue
            if response.status_code not in (429, 503):
                break
            self.repeats[str(response.status_code)] += 1
            time.sleep(float(response.headers["Retry-After"]))
        for verdict in response.raise_for_status().json()["verdicts"]:
            self.outcomes[int(verdict["sample"])] = verdict["outcome"]


def throughput(load: Load, rounds: int, block: int, first: int) -> dict[str, list[float]]:
    """Answers a second, by round, here and by the service: the same answers by both."""
    with (
        executor_of(SETTINGS) as executor,
        contextlib.closing(grader_of(SETTINGS, executor)) as grader,
        ThreadPoolExecutor(graders_of(SETTINGS)) as pool,
    ):

        def here(numbers: range) -> None:
            list(pool.map(lambda n: grader.grade(load.problem(n), Answer(files=answer(load.problem(n), n))), numbers))

        def rate(way: Callable[[range], None], starts: Iterator[int]) -> float:
            start, began = next(starts), time.monotonic()
            way(range(start, start + block))
            return block / (time.monotonic() - began)

        ways = {"in process": here, "service": load.send}
        return in_turns({name: partial(rate, way, count(first, block)) for name, way in ways.items()}, rounds)


@contextlib.contextmanager
def watched(server: Server, every_s: float) -> Iterator[list[tuple[float, float]]]:
    """(verdicts, bytes of resident memory) of the server, sampled while the block runs."""
    samples: list[tuple[float, float]] = []
    ended = threading.Event()

    def look() -> None:
        last = False
        while not last:
            last = ended.wait(every_s)
            with contextlib.suppress(httpx.TransportError):  # killed meanwhile
                found = (server.metric("rtl_grader_graded_total"), server.metric("process_resident_memory_bytes"))
                samples.append(found)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def kill_and_restart(server: Server, at: int) -> None:
    """Kills the server once its file holds so many lines, and starts it again."""
    while sum(1 for _ in server.output.open("rb")) < at:
        time.sleep(0.2)
    server.process.kill()
    server.process.wait()
    server.start()


def main() -> int:
    asked = options(__doc__, grades=10_000, clients=8, batch=4, rounds=5, block=120).parse_args()
    loaded = problems_of(SETTINGS)
    problems = [*loaded.train, *loaded.heldout]
    folder = tempfile.TemporaryDirectory(prefix="grading-service-")
    output = Path(folder.name) / "verdicts.jsonl"
    server = Server(output)
    try:
        load = Load(problems, server, asked.clients, asked.batch)
        rates = throughput(load, asked.rounds, asked.block, asked.grades)
        for name, found in rates.items():
            print(f"{name:>10}: {statistics.median(found):6.2f} answers/s, {', '.join(f'{r:.2f}' for r in found)}")
        ratio = statistics.median(rates["service"]) / statistics.median(rates["in process"])
        print(f"service against the grader in this process: {ratio:.3f} (medians of {asked.rounds} rounds in turns)")
        before, load.outcomes = sum(1 for _ in output.open("rb")), {}
        killer = threading.Thread(target=kill_and_restart, args=(server, before + asked.grades // 2))
        killer.start()
        started = time.monotonic()
        with watched(server, 2.0) as samples:
            load.send(range(asked.grades))
        killer.join()
        seconds = time.monotonic() - started
        bad = _wrong(load, output, before, asked.grades)
        known = server.metric("rtl_grader_known_total")
        again = range(0, asked.grades, max(1, asked.grades // 100))
        load.send(again)
        known = server.metric("rtl_grader_known_total") - known
        bad += [] if known == len(again) else [f"{known:.0f} of {len(again)} repeated answers were known"]
        print(
            f"{asked.grades} grades from {asked.clients} clients in {seconds:.0f} s; repeated requests: {dict(load.repeats)}"
        )
        bad += _memory(samples)
        for complaint in bad:
            print(f"BAD: {complaint}")
        print("none lost, none twice" if not bad else f"{len(bad)} complaints")
        return 1 if bad else 0
    finally:
        server.process.terminate()
        server.process.wait()
        folder.cleanup()


def _wrong(load: Load, output: Path, before: int, grades: int) -> list[str]:
    """What is missing, there twice, unsealed or judged otherwise than it should be."""
    records = [json.loads(line) for line in output.open("rb")][before:]
    found = [
        f"{number} is {load.outcomes.get(number)}"
        for number in range(grades)
        if (load.outcomes.get(number) == "passed") != (number % 5 < 3)
    ]
    keys = Counter(record["key"] for record in records)
    found += [f"{key} is there {count} times" for key, count in keys.items() if count > 1]
    found += [f"{record['id']} has a broken seal" for record in records if changed_fields(record)]
    return found if len(keys) == grades else [*found, f"the file holds {len(keys)} of {grades}"]


def _memory(samples: list[tuple[float, float]]) -> list[str]:
    """Prints the server's memory since the restart; a complaint where it grew."""
    start = max((at for at in range(1, len(samples)) if samples[at][0] < samples[at - 1][0]), default=0)
    after = [size / 2**20 for _, size in samples[start:]]
    fifth = max(1, len(after) // 5)
    first, last = statistics.mean(after[fifth : 2 * fifth] or after), statistics.mean(after[-fifth:])
    print(
        f"memory after the restart: {first:.0f} MiB in the second fifth, {last:.0f} MiB in the last, {max(after):.0f} at most"
    )
    return [f"memory grew from {first:.0f} to {last:.0f} MiB"] if last > GROWTH * first and len(after) >= ENOUGH else []


if __name__ == "__main__":
    sys.exit(main())
