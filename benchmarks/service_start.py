"""What a start of the embedded service costs: seconds of the processor and of the clock until it listens and until each model's first answer.

    python -m benchmarks.service_start [--rounds 5]

It serves the shipped student and teacher, as `rtl-distill train demo` has it. Counted are the service and all its
processes, not this client. Medians of the rounds, and beside them what `import torch` alone takes on this machine, in turns with the
starts: that is most of a start, and tells the machine's pace.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

from benchmarks.common import options
from rtl_core.localtinker.process import LocalTinker
from rtl_core.tinymodels import model_path

Cost = tuple[float, float]
"""Seconds of the processor, and of the clock."""


def processor_s(pid: int) -> float:
    """User and system time of a process and all below it, the ended ones that were waited for included."""
    process = psutil.Process(pid)
    return sum(sum(one.cpu_times()[:4]) for one in (process, *process.children(recursive=True)))


def torch_alone() -> Cost:
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - began


def start(models: dict[str, Path]) -> dict[str, Cost]:
    """Of one start: the cost until it listens, and until the first answer of each model, one after the other."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as state, LocalTinker(models, Path(state)) as service:

        def call(path: str, body: dict) -> bytes:
            headers = {"X-API-Key": service.api_key}
            url = f"{service.base_url}/api/v1/{path}"
            with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
                return answer.read()

        def so_far() -> Cost:
            return processor_s(service.pid), time.monotonic() - began

        costs = {"listens": so_far()}
        for name in models:
            options = {"max_tokens": 8, "seed": 1}
            asked = {"base_model": name, "prompt": {"chunks": [{"tokens": [1, 5, 9]}]}, "sampling_params": options}
            call("retrieve_future", {"request_id": json.loads(call("asample", asked))["request_id"]})
            costs[f"first answer of {name}"] = so_far()
        return costs


def main() -> None:
    args = options(__doc__, rounds=5).parse_args()
    models = {role: model_path(role) for role in ("student", "teacher")}
    start(models)  # everything is in the page cache from here on
    rounds = [{"`import torch` alone": torch_alone(), **start(models)} for _ in range(args.rounds)]
    print(f"{'until, medians of ' + str(args.rounds):36} {'processor s':>12} {'clock s':>8}")
    for what in rounds[0]:
        processor, clock = (statistics.median(costs[what][i] for costs in rounds) for i in (0, 1))
        print(f"{what:36} {processor:12.2f} {clock:8.2f}")


if __name__ == "__main__":
    main()
