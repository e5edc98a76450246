"""The public CVDP runner beside our grader, on the same answers and the same image: `python -m benchmarks.grading --public CHECKOUT`.

The checkout is of the runner's own repository, with its requirements installed in CHECKOUT/.venv; it needs an engine with the simulation
image, and the client's plugin `docker compose`. It is run as its users run it: its command, golden answers, as many threads.
"""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.answers import golden, graded, grader_on
from benchmarks.common import ROOT, in_turns, show
from rtl_core.errors import InfrastructureError
from rtl_core.grading.executors.docker import IMAGE
from rtl_core.grading.grader import Grader
from rtl_core.problems.cvdp import read_cvdp

LONG = ("cvdp_copilot_digital_dice_roller_0001", "cvdp_copilot_vga_controller_0001")
"""Left out: half a minute of simulation and more, which is the same for everybody and would be all that is measured."""
GOLDENS = ROOT / "tests/fidelity/goldens"
SETTLE_S = 2.0


def compare(checkout: Path, data: Path, names: list[str], count: int, rounds: int, threads: int) -> None:
    """Alternates the runner and our executors over `count` answers and prints one table; the runner's first pass does not count."""
    with tempfile.TemporaryDirectory(prefix="public-runner-") as folder:
        file = Path(folder) / "answers.jsonl"
        file.write_text("".join(json.dumps(record) + "\n" for record in _records(data, count)))
        jobs = [(problem, golden(problem)) for problem in read_cvdp(file).problems]

        def ours(grader: Grader) -> tuple[float, int]:
            started = time.perf_counter()
            passed = sum(verdict.passed for verdict in graded(grader, jobs, threads))
            return time.perf_counter() - started, passed

        with ExitStack() as stack:
            ways = {"public runner": partial(run, checkout.resolve(), file, threads)}
            ways |= {name: partial(ours, stack.enter_context(grader_on(name))) for name in names}
            found = in_turns(ways, rounds, SETTLE_S)
    lines = []
    for name, figures in found.items():
        walls, passed = zip(*figures, strict=True)
        ratio = statistics.median(w / base for w, (base, _) in zip(walls, found["public runner"], strict=True))
        seconds = (statistics.median(walls), min(walls), max(walls))
        right = f"{min(passed)} to {max(passed)}"
        lines.append((name, *(f"{figure:.1f}" for figure in seconds), f"{ratio:.2f}", right))
    columns = ("", "wall s", "least", "most", "runner = 1", "passed")
    show(f"{count} CVDP answers, {threads} threads, {rounds} rounds in turns", columns, lines)


def _records(data: Path, count: int) -> list[dict[str, object]]:
    """`count` records of the open single-turn set with known-good answers, the same ones again under other ids."""
    known: list[dict] = []
    for line in (data / "cvdp-single" / "problems.jsonl").read_text().splitlines():
        record = json.loads(line)
        answer = GOLDENS / f"{record['id']}.sv"
        if answer.is_file() and record["id"] not in LONG:
            (path,) = record["output"]["context"]
            known.append({**record, "output": {"response": "", "context": {path: answer.read_text()}}})
    found = []
    for number in range(count):
        record = known[number % len(known)]
        name, _, last = record["id"].rpartition("_")
        found.append({**record, "id": f"{name}_{number // len(known)}_{last}"})
    return found


def run(checkout: Path, file: Path, threads: int) -> tuple[float, int]:
    """(wall seconds, answers that passed) of one pass of the public runner. Raises InfrastructureError where it reports nothing."""
    work = Path(tempfile.mkdtemp(prefix="public-runner-work-"))
    command = [checkout / ".venv/bin/python", "run_benchmark.py", "-f", file, "-t", str(threads), "-p", work / "run"]
    environment = {**os.environ, "OSS_SIM_IMAGE": IMAGE}
    try:
        started = time.perf_counter()
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        wall = time.perf_counter() - started
        report = work / "run" / "raw_result.json"
        if done.returncode or not report.is_file():
            raise InfrastructureError(f"the public runner failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        results = json.loads(report.read_text())
        return wall, sum(entry.get("errors", 1) == 0 for entry in results.values())
    finally:
        shutil.rmtree(work, ignore_errors=True)
