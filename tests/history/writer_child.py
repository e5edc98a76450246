"""Child processes of the tests: one writes batches forever and prints the number of each acknowledged one, one holds a history."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from rtl_core.history.store import History
from tests import synthetic
from tests.places import REPOSITORY


@contextlib.contextmanager
def writing(path, start=0):
    """A process that writes batches to a history, numbered from `start`, until the block ends."""
    paths = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(path), str(start)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def holding(path):
    """Another process that keeps the file open during the block."""
    hold = f"import duckdb; c = duckdb.connect({str(path)!r}); print('held', flush=True); import time; time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        try:
            yield holder
        finally:
            holder.kill()


def main() -> None:
    path, start = Path(sys.argv[1]), int(sys.argv[2])
    history, rng, shape = (
        History(path),
        np.random.default_rng(start),
        synthetic.Shape(tokens=30),
    )
    problems = [synthetic.problem(i, "train") for i in range(5)]
    for batch in range(start, start + 100_000):
        rollouts = [
            synthetic.rollout("r", "train", None, 0, batch, p, s, shape, rng)
            for p in problems
            for s in range(4)
        ]
        with history.batch():
            history.record_rollouts(rollouts)
            history.record_verdicts(
                [(r.key, *synthetic.judge(problems[0], 0.5, rng)) for r in rollouts]
            )
            history.record_teacher([synthetic.teacher(r, 0.5, rng) for r in rollouts])
        print(batch, flush=True)


if __name__ == "__main__":
    main()
