"""A made-up run in a history, as large as asked for: what `benchmarks.history` and `benchmarks.view` measure."""

from pathlib import Path
from string import Template

import numpy as np

from rtl_core.history import connection, schema
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.problems.starter import Split, starter_problems
from rtl_core.types.problem import Problem
from rtl_core.types.rollout import Rollout

RUN = "bench"
TRAIN, HELDOUT = 400, 40
"""Problems of each split."""
ALIKE = 20
"""How many problems have the same text: to make a starter problem takes some milliseconds."""
PER_STEP, SAMPLES = 25, 8
PLACE = "rollout, run, purpose, evaluation, epoch, step, problem_id"
_FILL = Template(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def fill(folder: Path, n: int) -> History:
    """A run of `n` training rollouts with an evaluation every 100 steps (made_up_history.sql), unless the file is there already."""
    path = folder / f"made-up-{n}-{schema.current_version()}.duckdb"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".part")
        half.unlink(missing_ok=True)
        history = History(half)
        history.start_run(RunRecord(name=RUN, status="running", student="student", teacher="teacher"))
        history.record_problems(RUN, [(p, "train", i) for i, p in enumerate(_problems("train", TRAIN))])
        history.record_problems(RUN, [(p, "heldout", None) for p in _problems("heldout", HELDOUT)])
        sizes = {"n": n, "train": TRAIN, "heldout": HELDOUT, "samples": SAMPLES, "per_step": PER_STEP}
        with connection.connect(half, read_only=False) as con:
            con.execute(_FILL.substitute(sizes, run=RUN, step=PER_STEP * SAMPLES, place=PLACE))
        half.rename(path)
    return History(path)


def _problems(split: Split, count: int) -> list[Problem]:
    made = starter_problems(split, -(-count // ALIKE), 0)
    return [
        p.model_copy(update={"id": f"{split}_{number:02d}_{p.id}", "prompt": f"{p.prompt} ({number})"})
        for p in made
        for number in range(ALIKE)
    ]


def rollouts(step: int, problems: int = 12, samples: int = 6, tokens: int = 60, characters: int = 500) -> list[Rollout]:
    """The rollouts of a step."""
    rng = np.random.default_rng(step)
    line = "assign q = a ^ b; // made up\n"
    return [
        Rollout(
            run=RUN,
            purpose="train",
            epoch=step // 100,
            step=step,
            problem_id=f"starter_problem_{p:05d}",
            sample=s,
            prompt_P=tuple(range(p, p + 30)),
            tokens_T=tuple(rng.integers(0, 600, tokens).tolist()),
            logprobs_T=tuple((-rng.exponential(0.3, tokens)).tolist()),
            stop_reason="stop",
            text=f"{step} {p} {s} " + (line * (characters // len(line) + 1))[:characters],
            policy_step=step,
        )
        for p in range(problems)
        for s in range(samples)
    ]
