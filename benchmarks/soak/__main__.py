"""A soak: a run of many steps under the deployment with random faults, compared with an undisturbed run of the same seeds.

    python -m benchmarks.soak                        # 200 steps, 30 faults; under an hour on two idle cores
    python -m benchmarks.soak --steps 10 --faults 4  # minutes
    python -m benchmarks.soak --postgres             # the server on Postgres, which crashes as well
    python -m benchmarks.soak --docker               # grading in containers, whose engine is killed as well

Everything is real: Prefect server, work pool and worker, the embedded Tinker service in its deterministic mode, simulators,
DuckDB. The faults (faults.py) are drawn with `--seed` and injected when so many steps are trained.

At the end both runs must hold the same (compare.py): every rollout, verdict, reward, teacher score and advantage once and equal, every step
once, the same evaluations, and final weights and optimizer states that are the same to the bit. No process and no container of theirs
may be left. Exits 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from benchmarks.soak.compare import differences
from benchmarks.soak.engine import Engine
from benchmarks.soak.faults import Faults
from benchmarks.soak.postgres import Postgres
from rtl_core.errors import HistoryError
from rtl_core.history.store import History
from rtl_distill.operations.local import LocalDeployment, down, up

ROOT = Path(__file__).parents[2]
STEPS_AN_EPOCH = 10
STUCK_S = 900.0


def overrides(run: str, steps: int, docker: bool) -> list[str]:
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
        "learning.warm_start_steps=0",
        "learning.kl_schedule=constant",
        "learning.replace_with_kl=false",
        "evaluation.every=50",
        "tinker.local_deterministic=true",
        "tinker.local_threads=1",
        *(["grading.executor=docker"] if docker else []),
    ]


class Soak:
    """One deployment and the two runs in it."""

    def __init__(self, place: LocalDeployment, steps: int, docker: bool) -> None:
        self.place, self.steps, self.docker = place, steps, docker
        self.restarts = 0
        self._http = httpx.Client(base_url=place.api, timeout=60, transport=httpx.HTTPTransport(retries=3))
        self._start = time.monotonic()

    def tell(self, text: str) -> None:
        print(f"{time.monotonic() - self._start:7.1f} s  {text}", flush=True)

    def up(self) -> None:
        up(self.place, ROOT / "deployments/prefect.yaml", self.tell)

    def trigger(self, run: str) -> None:
        parameters = {
            "config": "demo",
            "overrides": overrides(run, self.steps, self.docker),
            "options": {"run_name": run},
        }
        for attempt in range(20):
            # A busy server on SQLite says 503 now and then; the key makes the repeat harmless.
            with contextlib.suppress(httpx.HTTPError):
                found = self._http.get("/deployments/name/train/nightly").raise_for_status().json()
                body = {"parameters": parameters, "idempotency_key": f"soak/{run}"}
                self._http.post(f"/deployments/{found['id']}/create_flow_run", json=body).raise_for_status()
                return
            time.sleep(1 + attempt)
        raise SystemExit("the server takes no runs")

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

    def finish(self, run: str, faults: Faults) -> float:
        """Trigger a run and see it to its end, injecting faults on the way. Returns its seconds."""
        started = last = told = time.monotonic()
        done = -1
        self.trigger(run)
        while (status := self.status(run)) != "finished":
            if status == "failed":
                raise SystemExit(f"{run} failed: {self.rows(run, 'SELECT message FROM runs')}")
            now = self.trained(run)
            if now != done:
                done, last = now, time.monotonic()
            if time.monotonic() - told > 60:
                told = time.monotonic()
                self.tell(f"{run}: {done} of {self.steps} steps")
            if time.monotonic() - last > STUCK_S:
                raise SystemExit(f"{run} has trained no step for {STUCK_S:.0f} s (at {done} of {self.steps})")
            if faults.due(done):
                faults.inject(run, done)
                last = time.monotonic()
            self.sweep(run)
            time.sleep(0.3)
        seconds = time.monotonic() - started
        self.tell(f"{run}: {self.trained(run)} steps in {seconds:.0f} s")
        return seconds

    def sweep(self, run: str) -> None:
        """What the scheduled flow `resume` does, without waiting for its minute."""
        from prefect import get_client

        from rtl_core.run import folder
        from rtl_core.run.lock import lock_path, read_holder
        from rtl_distill.flows.resume import start_again, wants_to_run

        here = Path.cwd()
        os.chdir(self.place.home)
        try:
            reader = History(Path(f"runs/{run}.duckdb"), read_only=True)
            record = reader.run(run) if self.status(run) else None
            if record is None:
                return
            config = folder.config_of(reader, run)
            holder = read_holder(lock_path(config))
            if not wants_to_run(record, config, holder):
                return

            async def start() -> bool:
                async with get_client() as client:
                    return await start_again(client, config, holder)

            with contextlib.suppress(httpx.HTTPError):
                if asyncio.run(start()):
                    self.restarts += 1
                    self.tell(f"{run}: is dead, started again")
        finally:
            os.chdir(here)


class Calm:
    """The undisturbed run: the plain command, beside the other, with a temporary server of its own."""

    def __init__(self, test: Soak) -> None:
        self._test, self._started = test, time.monotonic()
        home = test.place.home
        sets = [part for one in overrides("calm", test.steps, test.docker) for part in ("--set", one)]
        command = [
            sys.executable,
            "-c",
            "from rtl_distill.cli import main; main()",
            "train",
            "demo",
            "--set",
            "run.name=calm",
        ]
        mine = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
        with (home / "calm.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, *sets], cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**mine, "PREFECT_HOME": str(home / "calm-prefect"), "DO_NOT_TRACK": "1"},
            )  # fmt: skip

    def wait(self) -> float:
        """Until it has finished; returns the seconds that it took."""
        while self._process.poll() is None:
            self._test.tell(f"calm: {self._test.trained('calm')} of {self._test.steps} steps")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(60)
        if self._test.status("calm") != "finished":
            raise SystemExit(f"the undisturbed run did not finish; see {self._test.place.home / 'calm.log'}")
        (row,) = self._test.rows("calm", "SELECT epoch(heartbeat_at - created_at) AS s FROM runs")
        return row["s"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(120)


def soak(home: Path, arguments: argparse.Namespace) -> list[str]:
    """Both runs and their comparison. Returns the differences, in words."""
    with ExitStack() as stack:
        postgres = stack.enter_context(Postgres()) if arguments.postgres else None
        engine = stack.enter_context(Engine(home / "docker")) if arguments.docker else None
        if engine is not None:
            os.environ["DOCKER_HOST"] = engine.host
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        place = LocalDeployment(
            home=home, folder=home / "deployment", port=port, database=postgres.url if postgres else None
        )
        os.environ["PREFECT_API_URL"] = place.api
        test = Soak(place, arguments.steps, arguments.docker)
        test.up()
        try:
            calm = stack.enter_context(Calm(test))
            faults = Faults(
                place, random.Random(arguments.seed), steps=arguments.steps, number=arguments.faults,
                up_again=test.up, tell=test.tell, database=postgres, engine=engine,
            )  # fmt: skip
            storm = test.finish("storm", faults)
            total = sum(faults.injected.values())
            calm_s = calm.wait()
            test.tell(
                f"{total} faults ({', '.join(f'{n} {kind}' for kind, n in sorted(faults.injected.items()))}), "
                f"{test.restarts} restarts of the run; {calm_s:.0f} s undisturbed, {storm:.0f} s with faults"
            )
            found = differences({run: test.history(run) for run in ("calm", "storm")}, home)
            if faults.waiting:
                found.append(f"only {total} of {arguments.faults} faults could be injected")
        finally:
            left = down(place, test.tell)
        if left:
            found.append(f"processes had to be ended by force: {left}")
        if engine is not None and (containers := engine.containers()):
            found.append(f"containers are left: {containers}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the faults: which, and when")
    parser.add_argument("--home", type=Path, help="folder to work in; default: a temporary one")
    parser.add_argument("--postgres", action="store_true", help="Prefect's server on a Postgres of its own")
    parser.add_argument("--docker", action="store_true", help="grade in containers of a Docker engine of its own")
    arguments = parser.parse_args()
    if arguments.steps % STEPS_AN_EPOCH:
        parser.error(f"--steps must be a multiple of {STEPS_AN_EPOCH}")
    # Both end the deployment, also where a shell started us in the background and so ignores Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(130))
    with tempfile.TemporaryDirectory(prefix="rtl-distill-soak-") as temporary:
        home = arguments.home or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        found = soak(home.resolve(), arguments)
    for line in found:
        print(f"FAILED  {line}")
    print("the two runs hold the same" if not found else f"{len(found)} differences")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
