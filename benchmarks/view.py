"""What `rtl-distill view` costs with 100,000 rollouts in the history: seconds a page.

    python -m benchmarks.view [--rollouts 100000] [--folder /tmp/bench-view]

The history is made up (once: it stays in the folder). A server in a process of its own is asked for each page, over HTTP, each
address anew (the server keeps no answer); the median and the slowest of five are wall time.

Not covered: the browser's own time to draw a page (tests/view looks at that in Chromium), and simulators, which want the same cores.
"""

import contextlib
import os
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.common import command, options, show
from benchmarks.history import Row, met
from benchmarks.made_up_history import RUN, fill
from rtl_core.history.store import History
from rtl_core.view.links import link, rollout_link


@contextlib.contextmanager
def served(path: Path) -> Iterator[tuple[str, psutil.Process]]:
    """`rtl-distill view` over a history: its address and its process."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    words = ("view", "--no-browser", "--db", path)
    process = subprocess.Popen(command(*words), stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip().rstrip("/"), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def ask(address: str) -> float:
    """Seconds that an address takes to answer, to the last byte."""
    start = time.perf_counter()
    with urllib.request.urlopen(address) as answer:
        answer.read()
    return time.perf_counter() - start


def clicks(history: History) -> dict[str, str]:
    """Addresses of each kind of page, around the latest failed answer whose tokens are there."""
    (one,) = history.query(
        "SELECT rollout, step, problem_id, family FROM verdicts JOIN tokens USING (rollout) JOIN run_problems USING (run, problem_id)"
        " WHERE outcome = 'tests_failed' AND purpose = 'train' ORDER BY step DESC LIMIT 1"
    ).to_pylist()
    (last,) = history.query(
        "SELECT count(DISTINCT step) // 40 AS steps, count(*) // 120 AS rollouts, max(evaluation) AS evaluation FROM rollouts"
    ).to_pylist()
    key, step = one["rollout"], one["step"]
    return {
        "run": link("/run", run=RUN),
        f"run, page {last['steps'] + 1} of its steps": link("/run", run=RUN, page=last["steps"]),
        "step": link("/step", run=RUN, step=step),
        "evaluation": link("/step", run=RUN, evaluation=last["evaluation"]),
        "group": link("/group", run=RUN, step=step, problem=one["problem_id"]),
        "rollout": rollout_link(key),
        "rollout against golden": rollout_link(key, against="golden", overlay="advantage"),
        "all rollouts": link("/rollouts", run=RUN),
        f"all rollouts, page {last['rollouts'] + 1:,}": link("/rollouts", run=RUN, page=last["rollouts"]),
        "by outcome": link("/rollouts", run=RUN, outcome="tests_failed"),
        "by kind of failing": link("/rollouts", run=RUN, outcome="reset wrong"),
        "by mistake and family": link("/rollouts", run=RUN, mistake="extra_port", family=one["family"]),
        "by check": link("/rollouts", run=RUN, check="reset_value", outcome="tests_failed"),
        "by a word of the text": link("/rollouts", run=RUN, q="line 31", outcome="tests_failed"),
        "what goes wrong": link("/wrong", run=RUN),
        "  and its interface mistakes": link("/mistakes", run=RUN),
    }


def pages(history: History) -> Iterator[Row]:
    """Each page five times, never the same address twice. CPU seconds are the server's, over all its threads."""
    with served(history.path) as (base, server):
        first = ask(f"{base}/")
        yield "the first page after the start", f"{first:.3f} s", met(first, 1.0, "< 1 s")
        for name, address in {"runs": "/?", **clicks(history)}.items():
            before = server.cpu_times()
            seconds = [ask(f"{base}{address}&anew={i}") for i in range(5)]
            middle, after = statistics.median(seconds), server.cpu_times()
            cpu = (after.user + after.system - before.user - before.system) / 5
            words = f"{middle:.3f} s, slowest {max(seconds):.3f} s, CPU {cpu:.2f} s"
            yield f"  {name}", words, met(middle, 0.3, "< 0.3 s")


def main() -> None:
    args = options(__doc__, rollouts=100_000, folder=Path(tempfile.gettempdir()) / "bench-view").parse_args()
    show(None, ("what", "measured", "target"), pages(fill(args.folder, args.rollouts)))


if __name__ == "__main__":
    main()
