"""Rehearsal of a misbehaving service: `python -m benchmarks.rehearsal [--only NAME ...]`.

`rtl-distill train demo` trains the tiny models on the embedded service, through a proxy (proxy.py) that
injects faults from a table (faults.py). Command, Prefect, SDK, simulators and history are real. A run meets
a few faults one after the other. If a fault stops it, it must say so in a sentence, and the same command is
given again to resume, as a user would do.

    python -m benchmarks.rehearsal --list
    python -m benchmarks.rehearsal --only "402, no credit" "a poisoned step"

With `--config NAME` one long run has the shape of that configuration (shape.py): its steps, groups, staleness,
evaluations and checkpoints, with tiny models, a cloud's times divided by `--speed`, and ten faults on its way.

    python -m benchmarks.rehearsal --config verilog-9b --steps 200

The exit code is 1 unless every fault went as the table says, and nothing was done twice or lost.
"""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import EVERY_STEP_WITH_TEACHER, command, options, run_settings, show
from benchmarks.rehearsal.faults import FAULTS, Fault
from benchmarks.rehearsal.findings import broken
from benchmarks.rehearsal.proxy import Met, Proxy
from benchmarks.rehearsal.shape import CHOSEN, CLOUD_S, print_run, shape_of, spread
from localtinker.process import LocalTinker
from rtl_core.tinymodels import ModelName, model_path
from rtl_distill.operations.temporary_server import start_temporary_server

ROLES: tuple[ModelName, ...] = ("student", "teacher")
PATIENCE_S, LONG_S = 900.0, 7200.0
"""A command that takes longer is killed; with `--config`, the second."""


def overrides(steps: int) -> list[str]:
    """Sizes: `steps` steps of two groups of two answers, each with the teacher's scores."""
    return [
        "run.epochs=1",
        *(
            f"tinker.{role}={model_path(role)}" for role in ROLES
        ),  # the proxied service has them under their paths
        "sampling.group_size=2",
        "curriculum.problems_per_step=2",
        f"problems.sources.0.train={2 * steps}",
        "problems.sources.0.heldout=2",
        "evaluation.samples=1",
        "evaluation.k=[1]",
        "evaluation.teacher=false",
        *EVERY_STEP_WITH_TEACHER,
        "learning.kl_on=all",
    ]


@dataclass
class Run:
    """A run, its faults and its output."""

    name: str
    faults: Sequence[Fault]
    met: dict[str, Met] = field(default_factory=dict)
    lines: list[tuple[float, str]] = field(default_factory=list)
    """Lines of output, each with its time on the monotonic clock."""
    wrong: list[str] = field(default_factory=list)

    def row(self, fault: Fault) -> tuple[str, ...]:
        """The fault's row in the table; the last cell says what went wrong with it."""
        met = self.met.get(fault.name)
        if met is None:
            return fault.name, "-", "0", "-", fault.ends, "no call met it"
        seen = not fault.sees or any(
            fault.sees in line for at, line in self.lines if at >= met.at
        )
        after = "-" if met.over_at is None else f"{met.over_at - met.at:.1f} s"
        wrong = (
            "it was not mended"
            if met.over_at is None
            else ""
            if seen
            else f"the output does not say {fault.sees!r}"
        )
        return fault.name, met.call, str(met.times), after, fault.ends, wrong


@dataclass(frozen=True)
class Stage:
    """Shared by all runs of a rehearsal."""

    folder: Path
    service: LocalTinker
    config: str
    """Configuration of each run."""
    sizes: Sequence[str]
    """Overrides for its sizes."""
    seconds: Mapping[str, float]
    """As in `Proxy`."""
    patience_s: float = PATIENCE_S

    def give(self, run: Run, *words: str, sets: Sequence[str] = ()) -> int:
        """Run `rtl-distill`, print and record its output; return its exit code."""
        environment = {
            **os.environ,
            "TINKER_API_KEY": self.service.api_key,
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "160",
        }
        process = subprocess.Popen(
            command(*words, sets=sets),
            env=environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None
        late = threading.Timer(self.patience_s, lambda: os.killpg(process.pid, signal.SIGKILL))
        late.start()
        try:
            for line in process.stdout:
                run.lines.append((time.monotonic(), line.rstrip("\n")))
                print(f"  {line}", end="", flush=True)
            return process.wait()
        finally:
            late.cancel()
            process.kill()
            process.wait()

    def rehearse(self, name: str, faults: Sequence[Fault]) -> Run:
        """Make a run that meets these faults, and resume it with the same command after each that stops it."""
        run = Run(name, faults)
        db = str(self.folder / "history.duckdb")
        with Proxy(self.service.base_url, faults, self.seconds) as proxy:
            run.met = proxy.met
            place = run_settings(name, self.folder / "runs", self.folder / "history.duckdb")
            sets = [*place, f"tinker.base_url={proxy.url}", *self.sizes]
            while (code := self.give(run, "train", self.config, sets=sets)) != 0:
                fault = proxy.open_fault
                if fault is None or fault.ends != "stops" or code != 2:
                    run.wrong.append(
                        f"exit code {code} while it met {fault.name if fault else 'no fault'}"
                    )
                    break
                proxy.end(fault)
                if fault.command and self.give(run, *fault.command, name, "--db", db):
                    run.wrong.append(f"`rtl-distill {' '.join(fault.command)}` fails")
        if any("Traceback" in line for _, line in run.lines):
            run.wrong.append("a traceback reaches the user")
        if not run.wrong:
            run.wrong += broken(Path(db), name, self.service.state)
        return run


def report(runs: Sequence[Run]) -> bool:
    """Print each fault and each run; return whether all went as the table says."""
    rows = [(run, run.row(fault)) for run in runs for fault in run.faults]
    columns = ("fault", "met by", "times", "mended after", "the run", "amiss")
    show("faults", columns, [row for _, row in rows], width=160)
    for run in runs:
        print(
            f"{run.name}: {'; '.join(run.wrong) or 'nothing twice, nothing lost, no traceback'}"
        )
    bad = sum(bool(run.wrong or row[-1]) for run, row in rows)
    print(f"{len(rows) - bad} of {len(rows)} faults went as the table says")
    return not bad


def main() -> int:
    parser = options(
        __doc__,
        overrides=True,
        list=(False, "print the table of faults and exit"),
        faults_a_run=(8, "number of faults in a run"),
        folder=(Path, "keep histories and weights here"),
        config=(str, "rehearse the shape of this configuration"),
        steps=(200, "with --config: number of train steps"),
        divide=(16, "with --config: divisor of the problems in a step"),
        speed=(40.0, "with --config: divisor of the cloud's times"),
    )
    names = [fault.name for fault in FAULTS]
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        default=None,
        metavar="NAME",
        help="these faults alone",
    )
    given = parser.parse_args()
    only = given.only or (CHOSEN if given.config else names)
    faults = [fault for fault in FAULTS if fault.name in only]
    if given.list:
        rows = [(f.name, f.ends, f.sees or "–") for f in faults]
        show("faults", ("fault", "the run", "the user sees"), rows, width=160)
        return 0
    start_temporary_server()
    with tempfile.TemporaryDirectory(prefix="rtl-distill-rehearsal-") as temporary:
        folder = (given.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        models = {str(model_path(role)): model_path(role) for role in ROLES}
        with LocalTinker(models, folder / "service") as service:
            name = f"rehearsal-{secrets.token_hex(2)}"
            if given.config:
                file = shape_of(given.config, given.steps, given.divide, folder)
                seconds = {route: value / given.speed for route, value in CLOUD_S.items()}
                stage = Stage(folder, service, str(file), given.overrides, seconds, LONG_S)
                began = time.monotonic()
                run = stage.rehearse(name, spread(only, given.steps))
                took = time.monotonic() - began
                if not run.wrong:
                    print_run(folder / "history.duckdb", name, service.state, took)
                return 0 if report([run]) else 1
            sizes = [*overrides(3 + given.faults_a_run), *given.overrides]
            stage = Stage(folder, service, "demo", sizes, {})
            starts = range(0, len(faults), given.faults_a_run)
            runs = [
                stage.rehearse(f"{name}-{at}", faults[at : at + given.faults_a_run])
                for at in starts
            ]
        return 0 if report(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
