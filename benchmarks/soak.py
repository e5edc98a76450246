"""A soak: a run of many steps under the deployment with random faults, compared with an undisturbed run of the same seeds.

    python -m benchmarks.soak                        # 200 steps, 30 faults; about half an hour on two idle cores
    python -m benchmarks.soak --steps 10 --faults 4  # minutes

Everything is real: Prefect server, work pool and worker, the embedded Tinker service in its deterministic mode, simulators,
DuckDB. The faults are kill -9 of the run, the worker, the server, the embedded service, and the graders (sandboxes or the
processes that analyse answers), drawn with `--seed` and injected when so many steps are trained. Server and worker are started
again by their keepers, as systemd or compose would; a dead run by what the scheduled flow `resume` does.

At the end both runs must hold the same: every rollout, verdict, reward, teacher score and advantage once and equal, every step
once, the same evaluations, and final weights and optimizer states that are the same to the bit. Exits 1 when they do not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from rtl_core.errors import HistoryError
from rtl_core.history.store import History
from rtl_core.operations.local import LocalDeployment, down, up

ROOT = Path(__file__).parents[1]
KINDS = ("run", "worker", "server", "tinker", "graders")
STEPS_AN_EPOCH = 10


def overrides(run: str, steps: int) -> list[str]:
    """The demo with steps as small as they can be: two problems, two rollouts each. No run knows the other's verdicts."""
    return [
        f"run.history=runs/{run}.duckdb",
        f"run.epochs={-(-steps // STEPS_AN_EPOCH)}",
        f"problems.sources.0.train={2 * STEPS_AN_EPOCH}",
        "problems.sources.0.heldout=3",
        "problems.validation_mutants=1",
        "curriculum.problems_per_step=2",
        "sampling.group_size=2",
        "evaluation.samples=2",
        "evaluation.k=[1, 2]",
        "evaluation.every=50",
        "tinker.local_deterministic=true",
        "tinker.local_threads=1",
    ]


class Soak:
    """One deployment and the two runs in it."""

    def __init__(self, place: LocalDeployment, steps: int, seed: int) -> None:
        self.place = place
        self.steps = steps
        self.random = random.Random(seed)
        self.injected: Counter[str] = Counter()
        self.restarts = 0
        self._http = httpx.Client(base_url=place.api, timeout=60)
        self._start = time.monotonic()

    def tell(self, text: str) -> None:
        print(f"{time.monotonic() - self._start:7.1f} s  {text}", flush=True)

    def trigger(self, run: str) -> None:
        deployment = self._http.get("/deployments/name/train/nightly").raise_for_status().json()["id"]
        parameters = {"config": "demo", "overrides": overrides(run, self.steps), "options": {"run_name": run}}
        body = {"parameters": parameters}
        self._http.post(f"/deployments/{deployment}/create_flow_run", json=body).raise_for_status()

    def history(self, run: str) -> History:
        return History(self.place.home / f"runs/{run}.duckdb", read_only=True)

    def rows(self, run: str, sql: str) -> list[dict[str, Any]]:
        try:
            return self.history(run).query(sql).to_pylist()
        except HistoryError:  # not created yet
            return []

    def trained(self, run: str) -> int:
        found = self.rows(run, "SELECT count(*) AS n FROM steps WHERE status = 'trained'")
        return found[0]["n"] if found else 0

    def status(self, run: str) -> str | None:
        found = self.rows(run, "SELECT status FROM runs")
        return found[0]["status"] if found else None

    def finish(self, run: str, faults: int) -> float:
        """Trigger a run and see it to its end, injecting faults on the way. Returns its seconds."""
        started = last = time.monotonic()
        done = -1
        self.trigger(run)
        at = sorted(self.random.sample(range(1, self.steps), min(faults, self.steps - 1)))
        kinds = [KINDS[i % len(KINDS)] for i in range(len(at))]
        self.random.shuffle(kinds)
        while self.status(run) != "finished":
            now = self.trained(run)
            if now != done:
                done, last = now, time.monotonic()
            if self.status(run) == "failed":
                raise SystemExit(f"{run} failed: {self.rows(run, 'SELECT message FROM runs')}")
            if time.monotonic() - last > 900:
                raise SystemExit(f"{run} has trained no step for a quarter of an hour (at {done} of {self.steps})")
            if at and done >= at[0]:
                time.sleep(self.random.uniform(0, 1.5))
                if self.inject(kinds[0], run):
                    at.pop(0)
                    kinds.pop(0)
            if faults:
                self.sweep(run)
            time.sleep(0.2)
        seconds = time.monotonic() - started
        self.tell(f"{run}: {self.trained(run)} steps in {seconds:.0f} s")
        return seconds

    def inject(self, kind: str, run: str) -> bool:
        """kill -9 one thing; whether there was one to kill."""
        victims = list(self.victims(kind, run))
        if not victims:
            return False
        victim = self.random.choice(victims)
        with contextlib.suppress(psutil.NoSuchProcess):
            name = " ".join(victim.cmdline()[:4])[-60:]
            victim.send_signal(signal.SIGKILL)
            self.injected[kind] += 1
            self.tell(f"{run} at step {self.trained(run)}: killed the {kind} ({name})")
            return True
        return False

    def victims(self, kind: str, run: str) -> Iterator[psutil.Process]:
        if kind in ("server", "worker"):
            keeper = self.place.pid_of(kind)
            if keeper is not None:
                yield from psutil.Process(keeper).children()
            return
        try:
            process = psutil.Process(json.loads((self.place.home / "runs" / run / "lock").read_text())["pid"])
            children = process.children()
        except (psutil.NoSuchProcess, FileNotFoundError, json.JSONDecodeError):
            return
        if "prefect.engine" not in process.cmdline():
            return
        if kind == "run":
            yield process
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                words = child.cmdline()
                if kind == "tinker" and "rtl_core.localtinker" in words:
                    yield child
                if kind == "graders" and ("rtl_core.grading.analysis" in words or child.name() == "bwrap"):
                    yield child

    def sweep(self, run: str) -> None:
        """What the scheduled flow `resume` does, without waiting for its minute."""
        from prefect import get_client

        from flows.resume import start_again, wants_to_run
        from rtl_core.pipeline import stored
        from rtl_core.pipeline.lock import lock_path, read_holder

        record = self.history(run).run(run) if self.status(run) else None
        if record is None:
            return
        here = Path.cwd()
        os.chdir(self.place.home)
        try:
            config = stored.config_of(History(Path(f"runs/{run}.duckdb"), read_only=True), run)
            holder = read_holder(lock_path(config))
            if not wants_to_run(record, config, holder):
                return

            async def start() -> bool:
                async with get_client() as client:
                    return await start_again(client, config, holder)

            with contextlib.suppress(httpx.HTTPError):
                if asyncio.run(start()):
                    self.restarts += 1
        finally:
            os.chdir(here)


# What both runs must agree on: a name, and the rows with the run's name taken out of the keys.
FACTS = {
    "rollouts": """SELECT replace(rollout, run || '/', '') AS key, purpose, epoch, step, problem_id, sample, policy_step, stop_reason,
        text, tokens_T, logprobs_T FROM rollouts JOIN tokens USING (rollout)""",
    "verdicts": """SELECT replace(rollout, run || '/', '') AS key, outcome, tests_passed, tests_total, reasons, executor, tools, seed
        FROM verdicts""",
    "stages": "SELECT replace(rollout, run || '/', '') AS key, position, stage, status, reasons FROM verdict_stages",
    "rewards": "SELECT replace(rollout, run || '/', '') AS key, total FROM rewards",
    "teacher": """SELECT replace(s.rollout, run || '/', '') AS key, k1_mean, k2_mean, k3_mean, n_tokens, logprobs_T
        FROM teacher_scores s JOIN teacher_tokens USING (rollout)""",
    "advantages": "SELECT replace(rollout, run || '/', '') AS key, advantage FROM advantages",
    "steps": "SELECT CAST(step AS VARCHAR) AS key, epoch, status FROM steps",
    "plan": "SELECT step || '/' || position AS key, problem_id FROM step_problems",
    "evaluations": """SELECT replace(evaluation, run || '/', '') AS key, status, n_problems, samples, pass_at_1, lo, hi, pass_at_k
        FROM evaluations""",
}


def rows_of(history: History, fact: str, run: str) -> list[dict[str, Any]]:
    return history.query(f"SELECT * FROM ({FACTS[fact]} WHERE run = ?) ORDER BY ALL", [run]).to_pylist()


def differences(histories: dict[str, History], home: Path) -> list[str]:
    """What the second run holds otherwise than the first, in words; empty when nothing is."""
    found = []
    one, other = histories
    for fact in FACTS:
        left, right = (rows_of(history, fact, run) for run, history in histories.items())
        for run, rows in ((one, left), (other, right)):
            # A stage has its position in its key.
            keys = Counter((row["key"], row.get("position")) for row in rows)
            if repeated := [key for key, n in keys.items() if n > 1]:
                found.append(f"{fact}: {run} holds {len(repeated)} keys more than once, such as {repeated[0]}")
        missing = {row["key"] for row in left} ^ {row["key"] for row in right}
        if missing:
            found.append(f"{fact}: {len(missing)} keys are in one run only, such as {min(missing)}")
        elif left != right:
            bad = next(a["key"] for a, b in zip(left, right, strict=True) if a != b)
            n = sum(a != b for a, b in zip(left, right, strict=True))
            found.append(f"{fact}: {n} of {len(left)} rows differ, such as {bad}")
        print(f"  {fact:12} {len(left):6} rows", "equal" if left == right else "DIFFERENT", flush=True)
    weights = [final_weights(history, home, run) for run, history in histories.items()]
    for name in weights[0]:
        same = weights[0][name] == weights[1].get(name)
        print(f"  {name}: {weights[0][name][:16]}", "equal" if same else f"DIFFERENT {weights[1].get(name, '')[:16]}")
        if not same:
            found.append(f"{name} of the last step differs")
    return found


def final_weights(history: History, home: Path, run: str) -> dict[str, str]:
    """File -> SHA-256 of the last step's adapter and optimizer, as the embedded service keeps them."""
    from rtl_core.localtinker.registry import Registry

    last = history.last_trained_step(run)
    assert last is not None
    assert last.state_path is not None
    registry = Registry(home / "runs" / run / "tinker")
    folder = registry.blob_path(registry.checkpoint(last.state_path).blob)
    registry.close()
    files = sorted(folder.glob("*.safetensors"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def soak(home: Path, steps: int, faults: int, seed: int, log: Callable[[str], None] = print) -> list[str]:
    """Both runs and their comparison. Returns the differences, in words."""
    place = LocalDeployment(home=home, folder=home / "deployment", port=free_port())
    os.environ["PREFECT_API_URL"] = place.api
    up(place, ROOT / "deployments/prefect.yaml", log)
    try:
        test = Soak(place, steps, seed)
        calm = test.finish("calm", faults=0)
        storm = test.finish("storm", faults=faults)
        total = sum(test.injected.values())
        log(
            f"{total} faults ({', '.join(f'{n} {kind}' for kind, n in sorted(test.injected.items()))}), "
            f"{test.restarts} restarts of the run; {calm:.0f} s undisturbed, {storm:.0f} s with faults"
        )
        found = differences({run: test.history(run) for run in ("calm", "storm")}, home)
        if total < faults:
            found.append(f"only {total} of {faults} faults could be injected")
    finally:
        left = down(place, log)
    if left:
        found.append(f"processes had to be ended by force: {left}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the faults: which, and when")
    parser.add_argument("--home", type=Path, help="folder to work in; default: a temporary one")
    arguments = parser.parse_args()
    if arguments.steps % STEPS_AN_EPOCH:
        parser.error(f"--steps must be a multiple of {STEPS_AN_EPOCH}")
    with tempfile.TemporaryDirectory(prefix="rtl-distill-soak-") as temporary:
        home = arguments.home or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        found = soak(home.resolve(), arguments.steps, arguments.faults, arguments.seed)
    for line in found:
        print(f"FAILED  {line}")
    print("the two runs hold the same" if not found else f"{len(found)} differences")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
