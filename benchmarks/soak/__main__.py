"""Soak test: a run of many steps under the deployment with random faults, compared with an undisturbed run
of the same seeds.

    python -m benchmarks.soak                        # 200 steps, 30 faults; under an hour on two idle cores
    python -m benchmarks.soak --steps 10 --faults 4  # minutes

Everything is real: Prefect server, work pool and worker, the embedded Tinker service in its deterministic
mode, simulators and DuckDB. Faults (faults.py) and the steps at which they are injected are drawn with
`--seed`.

In the end both runs must be equal: the same rollouts, verdicts, rewards, teacher scores, advantages, steps
and evaluations, each once, and the same final weights and optimizer states to the bit. No process may be
left. Exits with 1 otherwise.
"""

import argparse
import contextlib
import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from benchmarks.common import EVERY_STEP_WITH_TEACHER, ROOT, command, options
from benchmarks.rehearsal.findings import last_saved
from benchmarks.soak.faults import Faults
from rtl_core.errors import HistoryError
from rtl_core.history.store import History
from rtl_distill.operations.local import LocalDeployment, down, up

STEPS_AN_EPOCH = 10
STUCK_S = 900.0
SWEEP_S = 20.0
# What both runs must agree on: name -> query for the rows, with the run's name removed from the keys.
FACTS = {
    "rollouts": """SELECT replace(rollout, run || '/', '') AS key, purpose, epoch, step, problem_id, sample,
        policy_step, stop_reason, text, tokens_T, logprobs_T FROM rollouts JOIN tokens USING (rollout)""",
    "verdicts": """SELECT replace(rollout, run || '/', '') AS key, outcome, tests_passed, tests_total, reasons,
        executor, tools, seed FROM verdicts""",
    "stages": "SELECT replace(rollout, run || '/', '') AS key, position, stage, status, reasons FROM verdict_stages",
    "rewards": "SELECT replace(rollout, run || '/', '') AS key, total FROM rewards",
    "teacher": """SELECT replace(s.rollout, run || '/', '') AS key, k1_mean, k2_mean, k3_mean, n_tokens, logprobs_T
        FROM teacher_scores s JOIN teacher_tokens USING (rollout)""",
    "advantages": "SELECT replace(rollout, run || '/', '') AS key, advantage, reward, counts FROM advantages",
    "steps": "SELECT CAST(step AS VARCHAR) AS key, epoch, status FROM steps",
    "plan": "SELECT step || '/' || position AS key, problem_id FROM step_problems",
    "evaluations": """SELECT replace(evaluation, run || '/', '') AS key, status, n_problems, samples, pass_at_1,
        lo, hi, pass_at_k FROM evaluations""",
}


def overrides(run: str, steps: int) -> list[str]:
    """The demo with the smallest possible steps: two problems with two rollouts each. Each run has its own
    history, so no verdicts are shared."""
    return [
        *EVERY_STEP_WITH_TEACHER,
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
        "sampling.seeded=true",
        "tinker.local_deterministic=true",
        "tinker.local_threads=1",
    ]


class Soak:
    """The deployment and its two runs."""

    def __init__(self, place: LocalDeployment, steps: int) -> None:
        self.place, self.steps = place, steps
        self._http = httpx.Client(
            base_url=place.api, timeout=60, transport=httpx.HTTPTransport(retries=3)
        )
        self._began = time.monotonic()

    def tell(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f} s  {text}", flush=True)

    def up(self) -> None:
        up(self.place, ROOT / "deployments/prefect.yaml", self.tell)

    def start(
        self, deployment: str, key: str, parameters: dict[str, Any], attempts: int
    ) -> bool:
        """Start a deployment's flow run, at most once for each key. A server that is just restarted may not
        answer yet."""
        for attempt in range(attempts):
            with contextlib.suppress(httpx.HTTPError):
                found = (
                    self._http.get(f"/deployments/name/{deployment}").raise_for_status().json()
                )
                body = {"parameters": parameters, "idempotency_key": key}
                self._http.post(
                    f"/deployments/{found['id']}/create_flow_run", json=body
                ).raise_for_status()
                return True
            time.sleep(attempt)
        return False

    def history(self, run: str) -> History:
        return History(self.place.home / f"runs/{run}.duckdb", read_only=True)

    def value(self, run: str, sql: str) -> Any:
        """The result of a query for one value; None if the history does not exist yet."""
        try:
            rows = self.history(run).query(sql).to_pylist()
        except HistoryError:
            return None
        return next(iter(rows[0].values())) if rows else None

    def trained(self, run: str) -> int:
        return self.value(run, "SELECT count(*) FROM steps WHERE status = 'trained'") or 0

    def finish(self, run: str, faults: Faults) -> float:
        """Start a run, inject faults until it has finished, and return its duration in seconds. Where the
        run dies, the flow `resume`, which is called more often than its schedule says, starts it again."""
        began = last = told = swept = time.monotonic()
        settings = overrides(run, self.steps)
        parameters = {"config": "demo", "overrides": settings, "options": {"run_name": run}}
        if not self.start("train/nightly", f"soak/{run}", parameters, attempts=20):
            raise SystemExit("the server does not accept runs")
        done = -1
        while (status := self.value(run, "SELECT status FROM runs")) != "finished":
            now = time.monotonic()
            if status == "failed":
                raise SystemExit(f"{run} failed: {self.value(run, 'SELECT message FROM runs')}")
            if (trained := self.trained(run)) != done:
                done, last = trained, now
            if now - last > STUCK_S:
                raise SystemExit(
                    f"{run} has trained no step for {STUCK_S:.0f} s (at {done} of {self.steps})"
                )
            if now - told > 60:
                told = now
                self.tell(f"{run}: {done} of {self.steps} steps")
            if faults.due(done):
                faults.inject(run, done)
                last = time.monotonic()
            if now - swept > SWEEP_S:
                swept = now
                self.start(
                    "resume/every-five-minutes",
                    f"soak/{now}",
                    {"history": f"runs/{run}.duckdb"},
                    attempts=1,
                )
            time.sleep(0.3)
        seconds = time.monotonic() - began
        self.tell(f"{run}: {self.trained(run)} steps in {seconds:.0f} s")
        return seconds


def undisturbed(test: Soak, stack: ExitStack) -> subprocess.Popen[bytes]:
    """Start the run without faults as a plain command with its own temporary server. It ends when the stack unwinds."""
    home = test.place.home
    settings = [*overrides("calm", test.steps), "run.name=calm"]
    environment = {
        name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"
    }
    environment |= {"DO_NOT_TRACK": "1"}
    log = stack.enter_context((home / "calm.log").open("wb"))
    process = subprocess.Popen(
        command("train", "demo", sets=settings),
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    stack.callback(process.wait, 120)
    stack.callback(process.terminate)
    return process


def soak(home: Path, arguments: argparse.Namespace) -> list[str]:
    """Make both runs and compare them. Returns the differences, in words."""
    with ExitStack() as stack:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        place = LocalDeployment(home=home, folder=home / "deployment", port=port)
        os.environ["PREFECT_API_URL"] = place.api
        test = Soak(place, arguments.steps)
        test.up()
        try:
            calm = undisturbed(test, stack)
            chance = random.Random(arguments.seed)
            at = chance.sample(
                range(1, arguments.steps), min(arguments.faults, arguments.steps - 1)
            )
            faults = Faults(place, chance, at, up_again=test.up, tell=test.tell)
            storm = test.finish("storm", faults)
            total = sum(faults.injected.values())
            test.tell(f"calm: {test.trained('calm')} of {test.steps} steps")
            calm.wait()
            if test.value("calm", "SELECT status FROM runs") != "finished":
                raise SystemExit(f"the undisturbed run did not finish; see {home / 'calm.log'}")
            calm_s = test.value("calm", "SELECT epoch(heartbeat_at - created_at) FROM runs")
            test.tell(
                f"{total} faults ({', '.join(f'{n} {kind}' for kind, n in sorted(faults.injected.items()))}), "
                f"{calm_s:.0f} s undisturbed, {storm:.0f} s with faults"
            )
            found = differences({run: test.history(run) for run in ("calm", "storm")}, home)
            if faults.waiting:
                found.append(f"only {total} of {arguments.faults} faults could be injected")
        finally:
            left = down(place, test.tell)
        if left:
            found.append(f"processes had to be ended by force: {left}")
    return found


def differences(histories: dict[str, History], home: Path) -> list[str]:
    """The differences of the second run from the first, in words."""
    found = []
    one, other = histories
    for fact, sql in FACTS.items():
        query = f"SELECT * FROM ({sql} WHERE run = ?) ORDER BY ALL"
        left, right = (
            history.query(query, [run]).to_pylist() for run, history in histories.items()
        )
        for run, rows in ((one, left), (other, right)):
            # A stage's key includes its position.
            keys = Counter((row["key"], row.get("position")) for row in rows)
            if repeated := [key for key, n in keys.items() if n > 1]:
                found.append(
                    f"{fact}: {run} holds {len(repeated)} keys more than once, such as {repeated[0]}"
                )
        missing = {row["key"] for row in left} ^ {row["key"] for row in right}
        if missing:
            found.append(
                f"{fact}: {len(missing)} keys are in one run only, such as {min(missing)}"
            )
        elif left != right:
            bad = next(a["key"] for a, b in zip(left, right, strict=True) if a != b)
            n = sum(a != b for a, b in zip(left, right, strict=True))
            found.append(f"{fact}: {n} of {len(left)} rows differ, such as {bad}")
        print(
            f"  {fact:12} {len(left):6} rows",
            "equal" if left == right else "DIFFERENT",
            flush=True,
        )
    weights = [final_weights(history, home, run) for run, history in histories.items()]
    for name in weights[0]:
        same = weights[0][name] == weights[1].get(name)
        print(
            f"  {name}: {weights[0][name][:16]}",
            "equal" if same else f"DIFFERENT {weights[1].get(name, '')[:16]}",
        )
        if not same:
            found.append(f"{name} of the last step differs")
    return found


def final_weights(history: History, home: Path, run: str) -> dict[str, str]:
    """File name -> SHA-256 of the last step's adapter and optimizer."""
    saved = last_saved(history, run, home / "runs" / run / "tinker")
    assert saved is not None, f"{run} has no saved state"
    files = sorted(saved.glob("*.safetensors"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def main() -> int:
    parser = options(__doc__, steps=200, faults=30, seed=(0, "of the faults"))
    arguments = parser.parse_args()
    if arguments.steps < STEPS_AN_EPOCH or arguments.steps % STEPS_AN_EPOCH:
        parser.error(f"--steps must be a multiple of {STEPS_AN_EPOCH}")
    # Both signals end the deployment, even if a shell started this in the background, where Ctrl-C is ignored.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(130))
    with tempfile.TemporaryDirectory(prefix="rtl-distill-soak-") as temporary:
        found = soak(Path(temporary).resolve(), arguments)
    for line in found:
        print(f"FAILED  {line}")
    print("the two runs are equal" if not found else f"{len(found)} differences")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
