"""The grading service under load and a SIGKILL, and its throughput compared with the grader in this process.

    python -m benchmarks.grading_service [--grades 10000] [--clients 8] [--batch 4] [--rounds 5] [--block 120]

First a grader in this process and `rtl-distill serve grader` grade the same `rounds` blocks of answers in
turns, each with as many at a time; the ratio is that of the medians. Then clients have `grades` distinct
answers graded, in batches. When half of these are done, the server is killed and started again on the same
file. Clients retry failed requests (no connection, 429, 503). Checks that every answer gets the right
verdict, that the file holds each once and with its seal, that every repeated answer is known, and that the
server's memory is flat after the restart.

Of five answers three are golden ones to starter problems, one ends the simulation early and one does not
compile; a numbered comment makes each distinct. Not covered: several graders at one address, networks that
lose packets.
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
from rtl_core.run.check.machine import problems_of
from rtl_grader.grading.verdict_record import changed_fields
from rtl_grader.problems.sources import override_of
from rtl_grader.settings import executor_of, grader_of, graders_of
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem

TOKEN = "benchmark"
GROWTH = 1.10
"""Largest growth of memory from a tenth of the grades after the restart to the end."""
ENOUGH = 1000
"""Memory is not judged by fewer grades."""
SETTINGS = load_config("demo", [override_of(["starter"])])


def answer(problem: Problem, number: int) -> dict[str, str]:
    """A distinct answer, right for three numbers in five."""
    ((path, text),) = (problem.golden or {}).items()
    if number % 5 == 3:
        text = text.replace("endmodule", "  initial $finish;\nendmodule")
    if number % 5 == 4:
        text = text.replace("endmodule", "")
    return {path: f"{text}\n// {number}\n"}


class Server:
    """`rtl-distill serve grader` as a subprocess, which can be restarted at the same address."""

    def __init__(self, output: Path) -> None:
        self.output, self.port = output, 0
        self.start()

    def start(self) -> None:
        words = (
            "serve",
            "grader",
            "--source",
            "starter",
            "--output",
            self.output,
            "--port",
            self.port,
            "--queue",
            64,
        )
        environment = {**os.environ, "RTL_DISTILL_GRADER_TOKEN": TOKEN}
        self.process = subprocess.Popen(
            command(*words), env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "GRADER_URL=" in line:
                self.address = line.strip().split("=", 1)[1]
                self.port = int(self.address.rsplit(":", 1)[1])
                return
        raise SystemExit("the server did not start")

    def kill_and_restart(self) -> None:
        self.process.kill()
        self.process.wait()
        self.start()

    def metric(self, name: str) -> float:
        """A metric of /metrics, summed over its labels."""
        text = httpx.get(
            f"{self.address}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60
        ).text
        return sum(
            float(line.split()[-1])
            for line in text.splitlines()
            if line.split("{")[0].split()[0] == name
        )

    @property
    def memory_mb(self) -> float:
        return self.metric("process_resident_memory_bytes") / 2**20


class Load:
    """Concurrent clients that have numbered answers to the problems graded, and retry failed requests."""

    def __init__(
        self, problems: list[Problem], server: Server, clients: int, batch: int
    ) -> None:
        self.problems, self.server, self.clients, self.batch = problems, server, clients, batch
        self.outcomes: dict[int, str] = {}
        self.repeats: Counter[str] = Counter()
        self.marks: list[tuple[int, Callable[[], None]]] = []
        """What a client does, while the others go on, when this many answers are graded."""
        self._lock = threading.Lock()
        headers = {"Authorization": f"Bearer {TOKEN}"}
        self._http = httpx.Client(
            base_url=server.address, headers=headers, timeout=httpx.Timeout(600)
        )

    def problem(self, number: int) -> Problem:
        return self.problems[number % len(self.problems)]

    def send(self, numbers: range) -> None:
        """Have the answers of these numbers graded; return when all have a verdict."""
        batches = [numbers[at : at + self.batch] for at in range(0, len(numbers), self.batch)]
        with ThreadPoolExecutor(self.clients) as pool:
            list(pool.map(self._grade, batches))

    def _grade(self, numbers: range) -> None:
        problems = [self.problem(number) for number in numbers]
        answers = [
            {"id": p.id, "files": answer(p, n), "sample": n}
            for n, p in zip(numbers, problems, strict=True)
        ]
        while True:
            try:
                response = self._http.post("/v1/grade", json={"answers": answers})
            except httpx.TransportError as error:
                if self.server.process.poll() is not None and not self._lock.locked():
                    raise  # it died, and nobody starts it again
                self.repeats[type(error).__name__] += 1
                time.sleep(0.5)
                continue
            if response.status_code not in (429, 503):
                break
            self.repeats[str(response.status_code)] += 1
            time.sleep(float(response.headers["Retry-After"]))
        for verdict in response.raise_for_status().json()["verdicts"]:
            self.outcomes[int(verdict["sample"])] = verdict["outcome"]
        with self._lock:
            while self.marks and len(self.outcomes) >= self.marks[0][0]:
                self.marks.pop(0)[1]()


def throughput(load: Load, rounds: int, block: int, first: int) -> dict[str, list[float]]:
    """Answers a second, by round, in this process and by the service."""
    with (
        executor_of(SETTINGS.grading) as executor,
        contextlib.closing(grader_of(SETTINGS.grading, executor)) as grader,
        ThreadPoolExecutor(graders_of(SETTINGS.grading)) as pool,
    ):

        def here(numbers: range) -> None:
            list(
                pool.map(
                    lambda n: grader.grade(
                        load.problem(n), Answer(files=answer(load.problem(n), n))
                    ),
                    numbers,
                )
            )

        def rate(way: Callable[[range], None], starts: Iterator[int]) -> float:
            start, began = next(starts), time.monotonic()
            way(range(start, start + block))
            return block / (time.monotonic() - began)

        ways = {"in process": here, "service": load.send}
        return in_turns(
            {name: partial(rate, way, count(first, block)) for name, way in ways.items()},
            rounds,
        )


def main() -> int:
    asked = options(
        __doc__, grades=10_000, clients=8, batch=4, rounds=5, block=120
    ).parse_args()
    loaded = problems_of(SETTINGS)
    problems = [*loaded.train, *loaded.heldout]
    folder = tempfile.TemporaryDirectory(prefix="grading-service-")
    output = Path(folder.name) / "verdicts.jsonl"
    server = Server(output)
    try:
        load = Load(problems, server, asked.clients, asked.batch)
        rates = throughput(load, asked.rounds, asked.block, asked.grades)
        for name, found in rates.items():
            print(
                f"{name:>10}: {statistics.median(found):6.2f} answers/s, {', '.join(f'{r:.2f}' for r in found)}"
            )
        ratio = statistics.median(rates["service"]) / statistics.median(rates["in process"])
        print(
            f"service against the grader in this process: {ratio:.3f} (medians of {asked.rounds} rounds in turns)"
        )
        before, load.outcomes = sum(1 for _ in output.open("rb")), {}
        memory, half = list[float](), asked.grades // 2
        load.marks = [
            (half, server.kill_and_restart),
            (half + asked.grades // 10, lambda: memory.append(server.memory_mb)),
        ]
        started = time.monotonic()
        load.send(range(asked.grades))
        seconds, first, last = time.monotonic() - started, memory[0], server.memory_mb
        bad = _wrong(load, output, before, asked.grades)
        known = server.metric("rtl_grader_known_total")
        again = range(0, asked.grades, max(1, asked.grades // 100))
        load.send(again)
        known = server.metric("rtl_grader_known_total") - known
        bad += (
            []
            if known == len(again)
            else [f"{known:.0f} of {len(again)} repeated answers were known"]
        )
        print(
            f"{asked.grades} grades from {asked.clients} clients in {seconds:.0f} s; retries: {dict(load.repeats)}"
        )
        print(
            f"memory of the server soon after the restart, at the end, MiB: {first:.0f}, {last:.0f}"
        )
        if last > GROWTH * first and asked.grades >= ENOUGH:
            bad.append(f"memory grew from {first:.0f} to {last:.0f} MiB")
        for complaint in bad:
            print(f"BAD: {complaint}")
        print("none lost, none twice" if not bad else f"{len(bad)} complaints")
        return 1 if bad else 0
    finally:
        server.process.terminate()
        server.process.wait()
        folder.cleanup()


def _wrong(load: Load, output: Path, before: int, grades: int) -> list[str]:
    """Answers that are missing, repeated, without a valid seal, or with a wrong verdict."""
    records = [json.loads(line) for line in output.open("rb")][before:]
    found = [
        f"{number} is {load.outcomes.get(number)}"
        for number in range(grades)
        if (load.outcomes.get(number) == "passed") != (number % 5 < 3)
    ]
    keys = Counter(record["key"] for record in records)
    found += [f"{key} is there {count} times" for key, count in keys.items() if count > 1]
    found += [
        f"{record['id']} has a broken seal" for record in records if changed_fields(record)
    ]
    return found if len(keys) == grades else [*found, f"the file holds {len(keys)} of {grades}"]


if __name__ == "__main__":
    sys.exit(main())
