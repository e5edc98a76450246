"""What a rehearsal came to: each fault, each step, and the history against the service's own counters."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table
from safetensors import safe_open

from benchmarks.overlap import LIMIT
from benchmarks.rehearsal.faults import Fault
from benchmarks.rehearsal.proxy import Proxy
from rtl_core.history.store import History
from rtl_core.localtinker.process import LocalTinker
from rtl_core.localtinker.registry import Registry

TOLD = {
    "402, no credit": "has no credit at Tinker",
    "queue pause (408, paused_capacity)": "rehearsed: short on capacity",
    "session lost (400 Invalid session_id)": "the run goes on in a new one",
    "sampler weights gone (404)": "were saved again from the state",
    "trainer lost before its step (404)": "the trainer was opened again",
}
"""Fault -> what the run must have told its user."""
STAGES = ("sample", "grade", "score", "train")


@dataclass
class Step:
    """One train step: from the record of the step before to its own."""

    number: int
    wall_s: float | None
    """None for the first."""
    stages: dict[str, float]
    faults: int
    """Faults that were met or mended from the moment on when it may have begun to be sampled."""

    @property
    def longest_s(self) -> float:
        return max(self.stages.values())


@dataclass
class Checked:
    """One rehearsal, looked at."""

    faults: list[Fault]
    steps: list[Step]
    wall_s: float
    began: float
    rollouts: dict[str, int]
    """Rollouts by outcome."""
    passed: dict[str, str]
    """Problem source -> answers that passed, of all."""
    promises: list[tuple[str, bool, str]]
    """(promise, whether it was kept, the figures behind it)."""

    @property
    def clean(self) -> list[Step]:
        """Steps that no fault touched, neither while they were prepared nor while they were trained."""
        return [step for step in self.steps if step.wall_s is not None and not step.faults]

    def overlap(self, steps: list[Step]) -> float | None:
        """Step wall ÷ longest stage, of means; None without steps."""
        timed = [(step.wall_s, step.longest_s) for step in steps if step.wall_s is not None]
        return statistics.fmean(w for w, _ in timed) / statistics.fmean(s for _, s in timed) if timed else None


def check(
    path: Path,
    run: str,
    service: LocalTinker,
    state: Path,
    proxy: Proxy,
    faults: list[Fault],
    code: int,
    lines: list[str],
    began: float,
) -> Checked:
    """Hold a run that ended against what the proxy saw and what the service counted."""
    wall_s = time.monotonic() - began
    history = History(path, read_only=True)
    done = httpx.get(f"{service.base_url}/api/v1/local/status", headers={"X-API-Key": service.api_key}).json()["done"]

    def rows(sql: str) -> list[dict[str, Any]]:
        return history.query(sql, [run]).to_pylist()

    def count(sql: str) -> int:
        return int(next(iter(rows(sql)[0].values())))

    states = history.steps(run)
    trained = [one for one in states if one.status == "trained"]
    sampled = count("SELECT count(*) FROM rollouts WHERE run = ?")
    places = "purpose, coalesce(evaluation, ''), policy, step, problem_id, sample, turn"
    doubles = count(f"SELECT count(*) - count(DISTINCT ({places})) FROM rollouts WHERE run = ?")
    unsampled = count(
        "SELECT count(*) FROM step_problems p JOIN steps s USING (run, step) LEFT JOIN "
        "(SELECT DISTINCT run, step, problem_id FROM rollouts WHERE purpose = 'train') o USING (run, step, problem_id) "
        "WHERE p.run = ? AND s.status = 'trained' AND o.problem_id IS NULL"
    )
    in_steps = count("SELECT count(*) FROM rollouts WHERE run = ? AND purpose = 'train'")
    # A step whose groups all teach nothing has no optimizer step.
    stepped = count("SELECT count(*) FROM steps WHERE run = ? AND status = 'trained' AND examples > 0")
    ungraded = count(
        "SELECT count(*) FROM rollouts o LEFT JOIN verdicts v USING (rollout) LEFT JOIN rewards w USING (rollout) "
        "WHERE o.run = ? AND (v.rollout IS NULL OR w.rollout IS NULL)"
    )
    unscored = count(
        "WITH scored AS (SELECT o.step, t.rollout FROM rollouts o LEFT JOIN teacher_scores t USING (rollout) "
        "WHERE o.run = ? AND o.purpose = 'train') SELECT count(*) FROM scored WHERE rollout IS NULL "
        "AND step IN (SELECT step FROM scored WHERE rollout IS NOT NULL)"
    )
    taken = sum(fault.lost_samples for fault in faults)
    ended = {fault.victim for fault in faults}
    left = sum(one.samples for one in proxy.known.promised.values() if not one.settled and one.owners & ended)
    abandoned = sum(proxy.known.unsaved.values())
    adam = adam_steps(state, trained[-1].state_path) if trained and trained[-1].state_path else 0
    told = "\n".join(lines)
    unmet = [fault.name for fault in faults if not fault.met]
    unmended = [fault.name for fault in faults if fault.met and fault.mended_at is None]
    untold = [name for name, words in TOLD.items() if words not in told and name not in unmet]
    promises = [
        ("the run ends by itself", code == 0, f"exit code {code}"),
        ("every planned step is trained", len(trained) == len(states) > 0, f"{len(trained)} of {len(states)}"),
        ("every fault was met", not unmet, ", ".join(unmet) or f"{len(faults)} kinds"),
        ("every fault was mended", not unmended, ", ".join(unmended) or f"{len(faults)} kinds"),
        ("pauses and what was replaced are told", not untold, ", ".join(untold) or f"{len(TOLD)} lines"),
        ("no traceback reaches the user", "Traceback" not in told, f"{len(lines)} lines of output"),
        ("no rollout twice in the history", doubles == 0, f"{doubles} doubles of {sampled} rollouts"),
        (
            "every sampled answer is recorded, but those a fault took or left with a client that it ended",
            done.get("sample", 0) == sampled + taken + left,
            f"service {done.get('sample', 0)}, history {sampled}, taken by faults {taken}, left with ended clients {left}",
        ),
        ("every planned group was sampled", unsampled == 0, f"{unsampled} are missing, of {in_steps} rollouts in steps"),
        ("every rollout is graded and rewarded", ungraded == 0, f"{ungraded} of {sampled} are not"),
        ("every rollout of a step with a teacher is scored", unscored == 0, f"{unscored} of {in_steps} are not"),
        (
            "no train step twice in the weights",
            adam == stepped > 0,
            f"Adam's own count in the final state is {adam}, of {stepped} steps with examples",
        ),
        (
            "no train step sent twice, but those a lost trainer took with it",
            done.get("optim_step", 0) == stepped + abandoned,
            f"service {done.get('optim_step', 0)}, history {stepped}, lost with a trainer {abandoned}",
        ),
    ]  # fmt: skip
    outcomes = rows("SELECT outcome, count(*) AS n FROM verdicts WHERE run = ? GROUP BY ALL ORDER BY n DESC")
    sources = rows(
        "SELECT split_part(problem_id, '_', 1) AS source, count(*) FILTER (WHERE outcome = 'passed') AS passed, count(*) AS n "
        "FROM verdicts WHERE run = ? GROUP BY ALL ORDER BY source"
    )
    times = {(row["step"], row["stage"]): row["seconds"] for row in rows("SELECT * FROM step_times WHERE run = ?")}
    to_wall = datetime.now(UTC) - timedelta(seconds=time.monotonic())
    moments = [
        [to_wall + timedelta(seconds=at) for at in (*fault.met, fault.mended_at) if at is not None] for fault in faults
    ]
    ends = [one.trained_at for one in trained]
    steps = []
    for place, one in enumerate(trained):
        end = ends[place]
        assert end is not None
        before = ends[place - 1] if place else None
        # With a staleness of 1 a step is sampled while the one before it is trained.
        first = ends[place - 2] if place > 1 else None
        hit = sum(bool(of) and min(of) <= end and (first is None or max(of) > first) for of in moments)
        stages = {stage: times.get((one.step, stage), 0.0) for stage in STAGES}
        steps.append(Step(one.step, None if before is None else (end - before).total_seconds(), stages, hit))
    return Checked(
        faults,
        steps,
        wall_s,
        began,
        {row["outcome"]: row["n"] for row in outcomes},
        {row["source"]: f"{row['passed']} of {row['n']}" for row in sources},
        promises,
    )


def adam_steps(state: Path, path: str) -> int:
    """How many steps Adam has counted in a state that the embedded service saved."""
    registry = Registry(state)
    try:
        blob = registry.blob_path(registry.checkpoint(path).blob)
    finally:
        registry.close()
    with safe_open(blob / "optimizer.safetensors", "pt") as file:
        return int(max(file.get_tensor(name).item() for name in file.keys() if name.endswith(".step")))  # noqa: SIM118


def show(found: Checked, least_steps: int, timing: bool) -> bool:
    """Print all of it. Returns whether every promise was kept."""
    console = Console(width=150)
    table = Table(title="faults")
    for column in ("fault", "at", "at call", "met", "cost", "mended by"):
        table.add_column(column, justify="right" if column in ("at", "met", "cost") else "left")
    for fault in sorted(found.faults, key=lambda fault: fault.met[0] if fault.met else float("inf")):
        at = f"{fault.met[0] - found.began:.0f} s" if fault.met else "never"
        cost = "-" if fault.cost_s is None else f"{fault.cost_s:.1f} s"
        table.add_row(fault.name, at, fault.at_call, str(len(fault.met)), cost, fault.how)
    console.print(table)
    table = Table(title="seconds of each step (a stage: while any of its work was under way)")
    for column in ("step", "from the one before", *STAGES, "÷ longest", "faults near"):
        table.add_column(column, justify="right")
    for step in found.steps:
        ratio = "" if step.wall_s is None else f"{step.wall_s / step.longest_s:.2f}"
        stages = (f"{step.stages[stage]:.1f}" for stage in STAGES)
        wall = "" if step.wall_s is None else f"{step.wall_s:.1f}"
        table.add_row(str(step.number + 1), wall, *stages, ratio, str(step.faults or ""))
    total = sum(step.wall_s or 0.0 for step in found.steps)
    table.add_row(
        "all", f"{total:.1f}", *(f"{sum(step.stages[stage] for step in found.steps):.1f}" for stage in STAGES)
    )
    console.print(table)
    print(f"the run: {found.wall_s:.0f} s; verdicts: {', '.join(f'{n} {name}' for name, n in found.rollouts.items())}")
    print(f"passed, by the first word of the problem's id: {', '.join(f'{k} {v}' for k, v in found.passed.items())}")
    promises = [
        *found.promises,
        (f"at least {least_steps} steps", len(found.steps) >= least_steps, str(len(found.steps))),
    ]
    overall, clean = found.overlap(found.steps), found.overlap(found.clean)
    if timing:
        words = (
            f"{clean:.2f} over the {len(found.clean)} steps that no fault touched"
            if clean
            else "no step without a fault"
        )
        words += f"; {overall:.2f} over all" if overall else ""
        kept = (clean or overall or float("inf")) <= LIMIT
        promises.append((f"step wall ÷ longest stage at most {LIMIT}", kept, words))
    for promise, kept, figures in promises:
        print(f"{'ok    ' if kept else 'BROKEN'}  {promise}: {figures}")
    return all(kept for _, kept, _ in promises)
