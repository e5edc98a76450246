"""What a policy learns from harnesses that pay for wrong answers, with `learning.doubtful` set to keep, mask and zero.

    python -m benchmarks.weak_harness [--seeds 0,1,2] [--modes keep,mask,zero] [--epochs 2] [--problems 208] [--share 1.0] [--folder build/weak-harness] [--set KEY=VALUE ...]

Trains the demo on starter problems whose harnesses check only the first outputs of each test (`CHECKS`), and evaluates it on held-out problems
with whole harnesses. Prints for each run the share of passes in the last quarter of its steps that the golden answer refutes (`rtl-distill
audit`), the held-out pass rate, the share of passes that were audited, and the seconds per step. The modes of a seed train side by side, so
that these are comparable. A run that is in the folder is not repeated.
"""

import argparse
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.common import ROOT, command, options, run_settings, show
from rtl_core.history.store import History
from rtl_core.problems.sources.starter import StarterSource
from rtl_core.problems.starter import Split
from rtl_core.types.problem import Problem

CHECKS = 1
"""Number of outputs of each test that are compared."""
_COMPARED = "            if get() != format(value, form):"
BENCH = "src/starter_bench.py"
AUDIT = ("--purpose", "train", "--cycles", "2000", "--parameters", "2")
LAST_SQL = """
SELECT count(*) FILTER (WHERE a.result = 'different') AS doubtful, count(*) FILTER (WHERE a.result <> 'unknown') AS known
FROM audits a JOIN verdicts v USING (rollout)
WHERE a.run = $run AND v.purpose = 'train' AND v.step >= (SELECT .75 * (max(step) + 1) FROM verdicts WHERE run = $run AND purpose = 'train')
"""
COST_SQL = """
SELECT (SELECT avg(value) FROM step_metrics WHERE run = $run AND name = 'passes/looked_at') AS looked_at,
       (SELECT avg(value) FROM step_metrics WHERE run = $run AND name = 'time/total') AS step
"""


class WeakStarter(StarterSource):
    """The starter set with weak harnesses for training problems."""

    def make(self, split: Split, count: int, seed: int) -> list[Problem]:
        problems = super().make(split, count, seed)
        return [weakened(problem) for problem in problems] if split == "train" else problems


def weakened(problem: Problem) -> Problem:
    """The problem with a harness that makes only the first `CHECKS` comparisons."""
    bench = problem.harness[BENCH]
    assert bench.count(_COMPARED) == 1
    bench = bench.replace(_COMPARED, _COMPARED.replace("if ", f"if self.checks <= {CHECKS} and "))
    return Problem(**(dict(problem) | {"harness": {**problem.harness, BENCH: bench}}))


def train(folder: Path, mode: str, seed: int, asked: argparse.Namespace) -> Path:
    """Make a run, if it is missing; return its history."""
    history, home = folder / f"{mode}-{seed}.duckdb", folder / f"{mode}-{seed}"
    changes = [
        *run_settings(mode, home, history), f"run.seed={seed}", f"run.epochs={asked.epochs}",
        "problems.sources.0.kind=benchmarks.weak_harness:WeakStarter", f"problems.sources.0.train={asked.problems}",
        "problems.sources.0.heldout=32", "curriculum.problems_per_step=16", "sampling.group_size=12", "evaluation.every=100",
        "evaluation.teacher=false", f"learning.doubtful={mode}",
    ]  # fmt: skip
    changes += [*([] if mode == "keep" else [f"learning.doubtful_share={asked.share}"]), *asked.overrides]
    # Runs side by side must not share a server's database.
    (home / "prefect").mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PREFECT_HOME": str(home / "prefect")}
    subprocess.run(command("train", "demo", sets=changes), check=True, env=environment)
    return history


def main() -> None:
    arguments = options(
        __doc__, overrides=True, seeds=[0, 1, 2], modes=["keep", "mask", "zero"], epochs=2, problems=(208, "training problems, 16 a step"),
        share=(1.0, "learning.doubtful_share"), folder=ROOT / "build" / "weak-harness",
    ).parse_args()  # fmt: skip
    folder = arguments.folder.resolve()
    rows: list[tuple[object, ...]] = []
    for seed in arguments.seeds:
        with ThreadPoolExecutor(len(arguments.modes)) as pool:
            paths = pool.map(partial(train, folder, seed=seed, asked=arguments), arguments.modes)
        rows += [(mode, seed, *figures(mode, path)) for mode, path in zip(arguments.modes, paths, strict=True)]
    columns = ("undeserved passes, last quarter", "held-out before", "held-out after", "audited", "seconds a step")
    show(None, ("doubtful", "seed", *columns), rows, width=130)


def figures(mode: str, path: Path) -> tuple[str, ...]:
    """Audit the passes of a run, and return its figures."""
    history = History(path)
    (cost,) = history.query(COST_SQL, {"run": mode}).to_pylist()
    subprocess.run(command("audit", mode, "--db", path, *AUDIT), check=True, stdout=subprocess.DEVNULL)
    (last,) = history.query(LAST_SQL, {"run": mode}).to_pylist()
    student = [e for e in history.evaluations(mode) if e.policy == "student"]
    rates = [f"{e.pass_at_1:.3f}" for e in sorted(student, key=lambda e: e.step)]
    undeserved = f"{last['doubtful']} of {last['known']} = {last['doubtful'] / max(last['known'], 1):.3f}"
    looked_at = "–" if mode == "keep" else f"{cost['looked_at']:.2f}"
    return undeserved, rates[0], rates[-1], looked_at, f"{cost['step']:.1f}"


if __name__ == "__main__":
    main()
