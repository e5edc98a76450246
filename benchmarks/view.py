"""What `rtl-distill view` costs with 100,000 rollouts in the history: seconds a page, and how much a run that writes is held up.

    python -m benchmarks.view [pages slowdown] [--rollouts 100000] [--folder /tmp/bench-view]

The history is written by its own writer (some minutes, once: it stays in the folder). `pages` asks a server in a process of its own for
each page, over HTTP, each address anew (the server keeps no answer); the median and the slowest of five are wall time. `slowdown` lets a
process write a step's rollouts every 4 s, as the pipeline does: alone, and with a page that is refreshed as the browser refreshes it.
Its figure is the difference of the seconds spent writing over the seconds of a step.

Not covered: the browser's own time to draw a page (tests/view looks at that in Chromium), and simulators, which want the same cores.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from rtl_core.history import schema
from rtl_core.history.records import EvaluationRecord, RunRecord, StepPlan, StepRecord, TeacherRecord
from rtl_core.history.store import History
from rtl_core.learning.credit import credit
from rtl_core.learning.reward import Graded, Reward, reward
from rtl_core.types.problem import Interface, InterfaceSource, Port, Problem
from rtl_core.types.rollout import Rollout
from rtl_core.types.verdict import InterfaceMismatch, MismatchKind, Outcome, Stage, StageResult, Verdict

RUN = "big"
PER_STEP, SAMPLES, TOKENS, TRAIN, HELDOUT = 12, 8, 100, 400, 40
FAMILIES = ("adder", "mux", "counter", "arbiter", "parity", "gray", "shift_register", "comparator", "fifo", "lfsr")
WEIGHTS = {"format": 0.1, "interface": 0.2, "syntax": 0.3, "tests": 1.0}
TOOLS = {"iverilog": "11.0", "cocotb": "2.0.1"}
FAILURES = (Outcome.INTERFACE_MISMATCH, Outcome.TESTS_FAILED, Outcome.COMPILE_FAILED, Outcome.TIMEOUT)
TARGETS = {"first": 1.0, "click": 0.3, "slower": 0.02}


def problem(index: int, split: str) -> Problem:
    """A made-up problem."""
    family, width = FAMILIES[index % len(FAMILIES)], 2 + index % 7
    top = f"{family}_{index}"
    ports = (
        Port(name="clk", direction="input", width=1),
        Port(name="rst_n", direction="input", width=1),
        Port(name="data", direction="input", width=width),
        Port(name="result", direction="output", width=width),
    )
    return Problem(
        id=f"{split}_{top}",
        source="starter",
        category="cid003",
        difficulty=("easy", "medium", "hard")[index % 3],
        family=family,
        prompt=f"Write module {top} with input data of {width} bits and output result. " * 8,
        targets=(f"rtl/{top}.sv",),
        harness={"docker-compose.yml": "services: {}", "src/test.py": f"# {split} {index}\n" * 40},
        golden={f"rtl/{top}.sv": answer_text(top, 0, 0)},
        interface=Interface(module=top, ports=ports, source=InterfaceSource.GOLDEN),
    )


def answer_text(top: str, step: int, sample: int) -> str:
    """A made-up answer of some 700 characters."""
    lines = [
        f"  assign t{i} = data ^ {{{(step + i) % 8}{{1'b{sample % 2}}}}};  // line {step * 31 + i}" for i in range(9)
    ]
    body = "\n".join(lines)
    return f"module {top} (input clk, input rst_n, input [3:0] data, output reg [3:0] result);\n{body}\n  always @(posedge clk)\n    result <= t{step % 9};\nendmodule\n"


def judge(p: Problem, skill: float, rng: np.random.Generator) -> tuple[Verdict, Reward]:
    """A verdict drawn by skill."""
    draw = rng.random()
    kind = None if draw < skill else FAILURES[int(np.searchsorted([0.5, 0.8, 0.97], rng.random()))]
    at = {None: 4, Outcome.INTERFACE_MISMATCH: 1, Outcome.COMPILE_FAILED: 2}.get(kind, 3)
    outcome = kind or Outcome.PASSED
    check = ("reset_value", "vectors", "corners", "order")[int(rng.integers(4))]
    words = f"test_{p.family}.{check}: AssertionError: after a rising clock edge, data=0x{int(rng.integers(16)):x}: result is {int(rng.integers(16))}, expected 3"
    reasons = (
        ()
        if kind is None
        else (words,)
        if kind is Outcome.TESTS_FAILED
        else (f"{outcome.value}: line {int(rng.integers(30))}",)
    )
    stages = tuple(
        StageResult(
            stage=stage,
            status="passed" if i < at else "failed" if i == at else "skipped",
            reasons=reasons if i == at else (),
        )
        for i, stage in enumerate(Stage)
    )
    missing = InterfaceMismatch(kind=MismatchKind.MISSING_PORT, name="rst_n", expected="input")
    extra = InterfaceMismatch(
        kind=MismatchKind.EXTRA_PORT, name=("reset", "d", "en")[int(rng.integers(3))], got="input"
    )
    verdict = Verdict(
        outcome=outcome,
        stages=stages,
        tests_passed=8 if kind is None else int(rng.integers(8)) if kind is Outcome.TESTS_FAILED else 0,
        tests_total=8 if at >= 3 else 0,
        reasons=reasons,
        mismatches=(missing, extra) if kind is Outcome.INTERFACE_MISMATCH else (),
        executor="bubblewrap",
        tools=TOOLS,
        wall_s=0.2,
    )
    return verdict, reward(Graded(p, verdict, "", (), "stop"), WEIGHTS)


def rollout(
    p: Problem, step: int, sample: int, rng: np.random.Generator, evaluation: str | None = None, run: str = RUN
) -> Rollout:
    """A made-up rollout."""
    return Rollout(
        run=run,
        purpose="train" if evaluation is None else "evaluation",
        evaluation=evaluation,
        epoch=step // 100,
        step=step,
        problem_id=p.id,
        sample=sample,
        prompt_P=tuple(range(30)),
        tokens_T=tuple(rng.integers(0, 600, TOKENS).tolist()),
        logprobs_T=tuple((-rng.exponential(0.3, TOKENS)).tolist()),
        stop_reason="stop",
        text=f"```verilog\n{answer_text(p.interface.module if p.interface else p.id, step, sample)}```",
        policy_step=step,
    )


def write_step(history: History, run: str, step: int, problems: list[Problem], skill: float) -> tuple[float, float]:
    """One step in the pipeline's two transactions; the seconds of each."""
    rng = np.random.default_rng(step)
    rollouts, verdicts, teachers, credits = [], [], [], []
    for p in problems:
        group = [rollout(p, step, sample, rng, run=run) for sample in range(SAMPLES)]
        judged = [judge(p, skill, rng) for _ in group]
        found = credit([earned.total for _, earned in judged], [TOKENS] * SAMPLES, [False] * SAMPLES, limit=999)
        rollouts += group
        verdicts += [(r.key, *one) for r, one in zip(group, judged, strict=True)]
        credits += [(r.key, one) for r, one in zip(group, found.answers(), strict=True)]
        for r in group:
            k_T = rng.normal(0.3 * (1 - skill), 0.3, TOKENS)
            teachers.append(TeacherRecord(r.key, np.asarray(r.logprobs_T) - k_T, float(k_T.mean()), float((k_T**2 / 2).mean()), 0.05, TOKENS))  # fmt: skip
    start = time.perf_counter()
    with history.batch():
        history.record_rollouts(rollouts)
        history.record_verdicts(verdicts)
        history.record_teacher(teachers)
        history.record_advantages(credits)
    middle = time.perf_counter()
    record = StepRecord(
        run=run, epoch=step // 100, step=step, state_path="s", sampler_path="p", examples=len(rollouts), train_tokens=1,
        times={"total": 4.0}, metrics={"learning/kl_weight": 0.05, "optim/entropy": 0.1, "optim/kl_sample_train_v1": 1e-4} | {f"metric/{i}": 0.5 for i in range(30)},
    )  # fmt: skip
    history.finish_step(record)
    return middle - start, time.perf_counter() - middle


def evaluate(history: History, problems: list[Problem], step: int, skill: float) -> None:
    """One held-out evaluation."""
    key, rng = f"{RUN}/student/{step:05d}", np.random.default_rng(step)
    record = EvaluationRecord(key=key, run=RUN, policy="student", step=step, split="heldout", samples=4)
    found = [(rollout(p, step, sample, rng, key), *judge(p, skill, rng)) for p in problems for sample in range(4)]
    history.record_rollouts([r for r, _, _ in found])
    history.record_verdicts([(r.key, verdict, earned) for r, verdict, earned in found])
    rate = float(np.mean([verdict.passed for _, verdict, _ in found]))
    done = {"status": "done", "n_problems": len(problems), "pass_at_1": rate, "lo": rate - 0.05, "hi": rate + 0.05}
    history.record_evaluation(record.model_copy(update=done))


def fill(folder: Path, rollouts: int) -> History:
    """The run of so many rollouts in a file of `folder`, unless it is there already."""
    path = folder / f"h-{rollouts}-{schema.current_version()}.duckdb"
    if path.exists():
        return History(path)
    half = path.with_suffix(".part")
    half.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    history = History(half)
    history.start_run(RunRecord(name=RUN, status="running", student="student", teacher="teacher"))
    train = [problem(i, "train") for i in range(TRAIN)]
    heldout = [problem(i, "heldout") for i in range(HELDOUT)]
    history.record_problems(
        RUN, [(p, "train", i) for i, p in enumerate(train)] + [(p, "heldout", None) for p in heldout]
    )
    steps = -(-rollouts // (PER_STEP * SAMPLES))
    for step in range(steps):
        skill = 0.2 + 0.7 * step / steps
        chosen = [train[(step * PER_STEP + i) % TRAIN] for i in range(PER_STEP)]
        if step % 100 == 0:
            history.plan_epoch(
                RUN, step // 100, [StepPlan(step=s, problem_ids=()) for s in range(step, min(steps, step + 100))]
            )
            evaluate(history, heldout, step, skill)
        history.plan_step(RUN, StepPlan(step=step, problem_ids=tuple(p.id for p in chosen)))
        write_step(history, RUN, step, chosen, skill)
    evaluate(history, heldout, steps, 0.9)
    half.rename(path)
    return History(path)


@contextlib.contextmanager
def served(path: Path) -> Iterator[str]:
    """`rtl-distill view` over a history; its address."""
    command = [sys.executable, "-u", "-m", "rtl_distill.cli", "view", "--no-browser", "--db", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip().rstrip("/")
    finally:
        process.terminate()
        process.wait()


def ask(address: str) -> float:
    """Seconds that an address takes to answer, to the last byte."""
    start = time.perf_counter()
    with urllib.request.urlopen(address) as answer:
        answer.read()
    return time.perf_counter() - start


def pages(history: History) -> list[tuple[str, str, str]]:
    """Each page five times, never the same address twice."""
    one = (
        history.query("SELECT rollout FROM verdicts WHERE outcome = 'tests_failed' ORDER BY step DESC LIMIT 1")
        .column(0)
        .to_pylist()[0]
    )
    r = history.find_rollout(one).rollout
    addresses = {
        "runs": ("/", {}),
        "run": ("/run", {"run": RUN}),
        "run, page 15 of its steps": ("/run", {"run": RUN, "page": 14}),
        "step": ("/step", {"run": RUN, "step": r.step}),
        "evaluation": ("/step", {"run": RUN, "evaluation": f"{RUN}/student/00500"}),
        "group": ("/group", {"run": RUN, "step": r.step, "problem": r.problem_id}),
        "rollout": ("/rollout", {"key": one}),
        "rollout against golden": ("/rollout", {"key": one, "against": "golden", "overlay": "advantage"}),
        "all rollouts": ("/rollouts", {"run": RUN}),
        "all rollouts, page 1,000": ("/rollouts", {"run": RUN, "page": 999}),
        "by outcome": ("/rollouts", {"run": RUN, "outcome": "tests_failed"}),
        "by mistake": ("/rollouts", {"run": RUN, "mistake": "extra_port"}),
        "by family": ("/rollouts", {"run": RUN, "family": "lfsr"}),
        "by check": ("/rollouts", {"run": RUN, "check": "reset_value", "outcome": "tests_failed"}),
        "by a word of the text": ("/rollouts", {"run": RUN, "q": f"line {r.step * 31 + 4}"}),
        "what goes wrong": ("/wrong", {"run": RUN}),
        "  and its interface mistakes": ("/mistakes", {"run": RUN}),
    }
    rows = []
    with served(history.path) as base:
        first = ask(f"{base}/")
        rows.append(("the first page after the start", f"{first:.3f} s", verdict(first, TARGETS["first"], "< 1 s")))
        for name, (path, values) in addresses.items():
            seconds = [ask(f"{base}{path}?{urllib.parse.urlencode({**values, 'anew': i})}") for i in range(5)]
            middle = statistics.median(seconds)
            rows.append(
                (
                    f"  {name}",
                    f"{middle:.3f} s, slowest {max(seconds):.3f} s",
                    verdict(middle, TARGETS["click"], "< 0.3 s"),
                )
            )
    return rows


def follow(base: str, until: float) -> int:
    """Look at a run's page as the browser does (static/view.js): the stamp every 3 s, the page where it changed, and then a rest of 50
    times as long as the page took. Returns how many pages were asked for."""
    last, count = "", 0
    while time.monotonic() < until:
        with urllib.request.urlopen(f"{base}/stamp") as answer:
            stamp = answer.read().decode()
        rest = 3.0
        if stamp != last:
            rest, last, count = max(rest, 50 * ask(f"{base}/run?run={RUN}&look={count}")), stamp, count + 1
        time.sleep(max(0.0, min(rest, until - time.monotonic())))
    return count


WRITER = """
import sys, time
from pathlib import Path
from benchmarks.view import PER_STEP, RUN, TRAIN, problem, write_step
from rtl_core.history.store import History
history, first = History(Path(sys.argv[1])), int(sys.argv[2])
problems = [problem(i, "train") for i in range(PER_STEP)]
write_step(history, RUN, first, problems, 0.9)
print("ready", flush=True)
for step in range(first + 1, first + 1 + int(sys.argv[3])):
    start = time.monotonic()
    print(*write_step(history, RUN, step, problems, 0.9), flush=True)
    time.sleep(max(0.0, float(sys.argv[4]) - (time.monotonic() - start)))
"""


def slowdown(history: History, count: int = 20, every_s: float = 4.0) -> list[tuple[str, str, str]]:
    """How much longer a writer waits for its file while a page follows the run: `count` steps alone, as many watched, twice in turn."""
    copy = history.path.with_name("written.duckdb")
    shutil.copy(history.path, copy)
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    looks, step = 0, 100_000
    with served(copy) as base:
        for watched in (False, True, False, True):
            command = [sys.executable, "-u", "-c", WRITER, str(copy), str(step), str(count // 2), str(every_s)]
            writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert writer.stdout is not None
            writer.stdout.readline()
            if watched:
                looks += follow(base, time.monotonic() + every_s * (count // 2))
            found[watched] += [(float(a), float(b)) for a, b in (line.split() for line in writer.stdout)]
            writer.wait()
            step += count
    copy.unlink()
    rows = []
    for watched, pairs in found.items():
        beside, waited = (1e3 * statistics.mean(part) for part in zip(*pairs, strict=True))
        name = f"watched by a page ({looks} looks)" if watched else "alone"
        rows.append(
            (f"a step's writes, {name}", f"{beside:.0f} ms beside the optimizer, {waited:.0f} ms waited for", "")
        )
    more = statistics.mean(sum(p) for p in found[True]) - statistics.mean(sum(p) for p in found[False])
    rows.append(
        (
            f"  more, of a step of {every_s:.0f} s",
            f"{more / every_s:.2%}",
            verdict(more / every_s, TARGETS["slower"], "≤ 2 %"),
        )
    )
    return rows


def verdict(value: float, limit: float, words: str) -> str:
    """The target, and whether it was met."""
    return f"{words}: {'met' if value <= limit else 'MISSED'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["pages", "slowdown", []], help="which parts (default: both)")
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "bench-view")
    args = parser.parse_args()
    start = time.perf_counter()
    history = fill(args.folder, args.rollouts)
    table = Table(
        box=box.SIMPLE_HEAD, caption=f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    for column in ("what", "measured", "target"):
        table.add_column(column)
    size = history.path.stat().st_size / 1e6
    table.add_row(
        f"history of {args.rollouts:,} rollouts", f"{size:.0f} MB, there after {time.perf_counter() - start:.0f} s", ""
    )
    for name, part in (("pages", pages), ("slowdown", slowdown)):
        if not args.parts or name in args.parts:
            for row in part(history):
                table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
