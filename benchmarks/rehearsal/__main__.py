"""Rehearsal of a misbehaving service: `python -m benchmarks.rehearsal [--only NAME ...]`.

`rtl-distill train demo` trains the tiny models on the embedded service, through a proxy (proxy.py) that injects faults from a table
(faults.py). Command, Prefect, SDK, simulators and history are real. A run meets a few faults one after the other. If a fault stops it, it must
say so in a sentence, and the same command is given again to resume, as a user would do.

    python -m benchmarks.rehearsal --list
    python -m benchmarks.rehearsal --only "402, no credit" "a poisoned step"
    python -m benchmarks.rehearsal --config cvdp [--problems FILE ...] [--chat-template FILE] [--executor docker]

`--config cvdp` rehearses day one on the cloud: the shipped configuration with other names and sizes, and what the tiny models need.
The exit code is 1 unless every fault went as the table says, and nothing was done twice or lost.
"""

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import DATA, EVERY_STEP_WITH_TEACHER, command, options, run_settings, show
from benchmarks.rehearsal.faults import FAULTS, Fault
from benchmarks.rehearsal.findings import broken
from benchmarks.rehearsal.proxy import Met, Proxy
from rtl_core.config import load_config
from rtl_core.cost.tokens import load_prices
from rtl_core.localtinker.process import LocalTinker
from rtl_core.tinymodels import model_path
from rtl_distill.operations.temporary_server import start_temporary_server

CONTEXT = 16384
"""Context of the tiny models here: larger than in their training, because CVDP's prompts need it."""
PATIENCE_S = 900.0
"""A command that takes longer is killed."""


def every_run(folder: Path, run: str, url: str, models: dict[str, Path]) -> list[str]:
    """Names, address and sizes: two groups of two answers a step."""
    return [
        *run_settings(run, folder / "runs", folder / "history.duckdb"),
        "run.epochs=1",
        f"tinker.base_url={url}",
        f"tinker.student={models['student']}",
        f"tinker.teacher={models['teacher']}",
        "sampling.group_size=2",
        "curriculum.problems_per_step=2",
        "evaluation.samples=1",
        "evaluation.k=[1]",
    ]


def demo(steps: int) -> list[str]:
    """`steps` steps, each with the teacher's scores."""
    return [
        f"problems.sources.0.train={2 * steps}",
        "problems.sources.0.heldout=2",
        "evaluation.teacher=false",
        *EVERY_STEP_WITH_TEACHER,
        "learning.kl_on=all",
    ]


def templated(folder: Path, chat_template: Path) -> dict[str, Path]:
    """Role -> a copy of the tiny model with another chat template."""
    models = {}
    for role in ("student", "teacher"):
        models[role] = Path(shutil.copytree(model_path(role), folder / role, dirs_exist_ok=True))
        shutil.copyfile(chat_template, models[role] / "chat_template.jinja")
        config = models[role] / "config.json"
        settings = {**json.loads(config.read_text()), "max_position_embeddings": CONTEXT}
        config.write_text(json.dumps(settings))
    return models


def priced(folder: Path, models: dict[str, Path]) -> Path:
    """Write a price list in which the tiny models cost as much as those of `cvdp`, whose budget needs prices."""
    real, prices = load_config("cvdp", environment={}, check_files=False).tinker, load_prices().models
    file = folder / "prices.toml"
    with file.open("w") as out:
        out.write('as_of = 2026-01-01\nsource = "the models of the configuration cvdp"\n')
        for path, name in ((models["student"], real.student), (models["teacher"], real.teacher)):
            out.write(f"[models.{json.dumps(str(path))}]\n")
            costs = prices[str(name)].model_dump(exclude_none=True)
            out.writelines(f"{kind} = {value}\n" for kind, value in costs.items())
    return file


def cvdp(folder: Path, models: dict[str, Path], problems: list[Path], steps: int) -> list[str]:
    """At least `steps` steps, each with two starter problems and two of CVDP's."""
    lines = [line for path in problems for line in path.read_text().splitlines() if line]
    (folder / "problems.jsonl").write_text("".join(f"{line}\n" for line in lines[: 2 * steps]))
    return [
        f"cost.prices={priced(folder, models)}",
        f"problems.sources.0.path={folder / 'problems.jsonl'}",
        f"problems.sources.1.train={2 * steps}",
        "problems.sources.1.heldout=2",
        "prompting.max_prompt_tokens=4096",
        "sampling.max_tokens=64",
        # The prompt that the tiny models were trained on, so that they end most answers to starter problems. They do not end those to
        # CVDP's problems, so the shipped safe ranges would end the run.
        "prompting.template=bare",
        "health.accept_up_to_step=1000000",
        # Almost no answer passes, so steps without the teacher would have nothing to train on: it stays until the last one.
        "learning.kl_schedule_part=1.0",
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
        seen = not fault.sees or any(fault.sees in line for at, line in self.lines if at >= met.at)
        after = "-" if met.over_at is None else f"{met.over_at - met.at:.1f} s"
        wrong = (
            "it was not mended" if met.over_at is None else "" if seen else f"the output does not say {fault.sees!r}"
        )
        return fault.name, met.call, str(met.times), after, fault.ends, wrong


@dataclass(frozen=True)
class Stage:
    """Shared by all runs of a rehearsal."""

    folder: Path
    service: LocalTinker
    models: dict[str, Path]
    config: str
    """The shipped configuration."""
    overrides: Sequence[str]
    """Overrides that are applied after those of `every_run`."""

    def give(self, run: Run, *words: str, sets: Sequence[str] = ()) -> int:
        """Run `rtl-distill`, print and record its output; return its exit code."""
        environment = {**os.environ, "TINKER_API_KEY": self.service.api_key, "PYTHONUNBUFFERED": "1", "COLUMNS": "160"}
        process = subprocess.Popen(
            command(*words, sets=sets), env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        assert process.stdout is not None
        late = threading.Timer(PATIENCE_S, lambda: os.killpg(process.pid, signal.SIGKILL))
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
        with Proxy(self.service.base_url, faults) as proxy:
            run.met = proxy.met
            overrides = [*every_run(self.folder, name, proxy.url, self.models), *self.overrides]
            while (code := self.give(run, "train", self.config, sets=overrides)) != 0:
                fault = proxy.open_fault
                if fault is None or fault.ends != "stops" or code != 2:
                    run.wrong.append(f"exit code {code} while it met {fault.name if fault else 'no fault'}")
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
        print(f"{run.name}: {'; '.join(run.wrong) or 'nothing twice, nothing lost, no traceback'}")
    bad = sum(bool(run.wrong or row[-1]) for run, row in rows)
    print(f"{len(rows) - bad} of {len(rows)} faults went as the table says")
    return not bad


def parsed() -> argparse.Namespace:
    template = DATA / "chat-templates" / "Qwen3.5-4B.jinja"
    parser = options(
        __doc__, overrides=True, list=(False, "print the table of faults and exit"), faults_a_run=(8, "number of faults in a run"),
        folder=(Path, "keep histories and weights here"), chat_template=(template, "for cvdp, a model's Jinja template"), executor="bubblewrap",
    )  # fmt: skip
    names = [fault.name for fault in FAULTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help="these faults alone")
    parser.add_argument("--config", choices=("demo", "cvdp"), default="demo")
    parser.add_argument("--problems", type=Path, nargs="+", help="CVDP's files (default: those in RTL_DISTILL_DATA)")
    given = parser.parse_args()
    given.problems = given.problems or sorted((DATA / "cvdp").glob("*code_generation_no_commercial*.jsonl"))
    if given.config == "cvdp" and not (given.problems and given.chat_template.is_file()):
        parser.error(f"no CVDP files, or no chat template, in {DATA}: set RTL_DISTILL_DATA, or name them")
    return given


def main() -> int:
    given = parsed()
    faults = [fault for fault in FAULTS if fault.name in given.only]
    if given.list:
        show(
            "faults",
            ("fault", "the run", "the user sees"),
            [(f.name, f.ends, f.sees or "–") for f in faults],
            width=160,
        )
        return 0
    start_temporary_server()
    with tempfile.TemporaryDirectory(prefix="rtl-distill-rehearsal-") as temporary:
        folder = (given.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        steps = 3 + given.faults_a_run
        if given.config == "demo":
            models = {role: Path(model_path(role)) for role in ("student", "teacher")}
            overrides = demo(steps)
        else:
            models = templated(folder, given.chat_template)
            overrides = cvdp(folder, models, given.problems, steps)
        overrides += [f"grading.executor={given.executor}", *given.overrides]
        with LocalTinker({str(path): path for path in models.values()}, folder / "service") as service:
            stage = Stage(folder, service, models, given.config, overrides)
            name = f"rehearsal-{secrets.token_hex(2)}"
            starts = range(0, len(faults), given.faults_a_run)
            runs = [stage.rehearse(f"{name}-{at}", faults[at : at + given.faults_a_run]) for at in starts]
        return 0 if report(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
