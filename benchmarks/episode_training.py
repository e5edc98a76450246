"""Does training on episodes raise held-out pass@1 through a tool? Compares the agent with tools, without `read`, and with shuffled documents.

    python -m benchmarks.episode_training [--seeds 0 1 2] [--arms ...] [--folder build/episode-training] [--set KEY=VALUE ...]

Each run is `rtl-distill train demo-episodes`, whose specifications are in documents; the untrained agent reads them in one episode of ten. Arms:

- *tools*: the configuration as shipped;
- *no read*: the same model and problems with only `write` and `submit`, so that it answers in one shot;
- *shuffled*: in train steps an episode reads the document of another problem; evaluations are unchanged.

Prints held-out pass@1 before and after with 95 % intervals over problems, the share of episodes that called `read`, the model's tokens an
episode, and pass@k of *no read* at as many tokens as an episode with tools takes. The same command resumes interrupted runs. A run takes minutes
on two idle cores.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.common import command, options, run_settings, show
from rtl_core.history.records import EvaluationRecord
from rtl_core.history.store import History
from rtl_core.learning.intervals import mean_interval
from rtl_core.learning.passk import pass_at_k_P
from rtl_core.reporting.evaluations import counts_of, paired_rates
from rtl_core.reporting.text import p_in_words, rate_in_words

ARMS: dict[str, tuple[str, ...]] = {
    "tools": (),
    "no read": ('episode.tools=["write", "submit"]',),
    "shuffled": ("learning.permute_results=true",),
}
CONDUCT = """
SELECT avg(CAST(list_contains(calls, 'read') AS INTEGER)) AS reads, avg(n_tokens) AS tokens
FROM (SELECT r.rollout, any_value(r.n_tokens) AS n_tokens, list(m.call->>'name') AS calls
      FROM rollouts r LEFT JOIN messages m USING (rollout) WHERE r.evaluation = $evaluation GROUP BY r.rollout)"""
"""For the episodes of an evaluation: the share that called `read`, and the mean number of tokens that the model wrote."""


def run_name(arm: str, seed: int) -> str:
    return f"{arm.replace(' ', '-')}-{seed}"


def history_of(folder: Path, seed: int) -> Path:
    """One file a seed, so that seeds can be trained side by side."""
    return folder / f"seed-{seed}.duckdb"


def rates_of(history: History, record: EvaluationRecord, k: int = 1) -> dict[str, float]:
    """pass@k of each problem of an evaluation."""
    counts = counts_of(history, record)
    n_P, c_P = ([pair[place] for pair in counts.values()] for place in (0, 1))
    return dict(zip(counts, pass_at_k_P(n_P, c_P, k), strict=True))


def report(folder: Path, arms: list[str], seeds: list[int]) -> None:
    """Print a table of all finished runs, and compare *tools* with the other arms over their seeds."""
    histories = {seed: History(history_of(folder, seed), read_only=True) for seed in seeds}
    shown = []
    tokens: dict[str, list[float]] = {}
    last: dict[str, list[tuple[History, EvaluationRecord]]] = {}
    for arm in arms:
        for seed in seeds:
            history = histories[seed]
            found = [one for one in history.evaluations(run_name(arm, seed)) if one.status == "done"]
            if len(found) < 2:
                continue
            records = found[0], found[-1]
            conduct = [history.query(CONDUCT, {"evaluation": one.key}).to_pylist()[0] for one in records]
            rates = [rate_in_words(mean_interval(list(rates_of(history, one).values()))) for one in records]
            reads = [f"{100 * one['reads']:.0f} %" for one in conduct]
            shown.append((run_name(arm, seed), *rates, *reads, f"{conduct[-1]['tokens']:.0f}"))
            tokens.setdefault(arm, []).append(conduct[-1]["tokens"])
            last.setdefault(arm, []).append((history, records[-1]))
    show(None, ("run", "pass@1 before", "pass@1 after", "read before", "read after", "tokens"), shown)
    if "tools" not in last:
        return
    best = over_seeds([rates_of(history, one) for history, one in last["tools"]])
    for arm in [one for one in last if one != "tools"]:
        k = min(max(round(np.mean(tokens["tools"]) / np.mean(tokens[arm])), 1), last[arm][0][1].samples)
        other = over_seeds([rates_of(history, one, k) for history, one in last[arm]])
        paired = paired_rates(other, best)
        assert paired is not None, "all arms are evaluated on the same problems"
        print(
            f"tools minus {arm}, after training, pass@1 of one against pass@{k} of the other (as many tokens), means over"
            f" {len(last['tools'])} and {len(last[arm])} seeds, paired by problem: {100 * paired.gain:+.1f} points"
            f" [{100 * paired.lo:+.1f}, {100 * paired.hi:+.1f}], p {p_in_words(paired.p_value)}"
        )


def over_seeds(runs: list[dict[str, float]]) -> dict[str, float]:
    """Problem -> mean of its rates over runs."""
    return {problem: float(np.mean([run[problem] for run in runs])) for problem in runs[0]}


def main() -> int:
    parser = options(__doc__, overrides=True, folder=Path("build/episode-training"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for seed in given.seeds:
        for arm in given.arms:
            sets = [
                *run_settings(run_name(arm, seed), given.folder, history_of(given.folder.resolve(), seed)),
                f"run.seed={seed}",
            ]
            subprocess.run(command("train", "demo-episodes", sets=[*sets, *ARMS[arm], *given.overrides]), check=True)
    report(given.folder, given.arms, given.seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
