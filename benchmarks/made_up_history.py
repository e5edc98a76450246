"""A made-up run in a history, as large as asked for: what `benchmarks.history` and `benchmarks.view` measure.

`fill` writes it by SQL (made_up_history.sql), `write_steps` further steps as the pipeline does, in two transactions.
"""

import time
from pathlib import Path
from string import Template

import numpy as np

from rtl_core.history import connection, schema
from rtl_core.history.records import RunRecord, StepRecord, TeacherRecord
from rtl_core.history.store import History
from rtl_core.learning.credit import Credit
from rtl_core.learning.reward import Reward
from rtl_core.problems.starter import Split, starter_problems
from rtl_core.types.problem import Problem
from rtl_core.types.rollout import Rollout
from rtl_core.types.verdict import Outcome, Stage, StageResult, Verdict

RUN = "bench"
TRAIN, HELDOUT = 400, 40
"""Problems of each split."""
ALIKE = 20
"""How many problems have the same text: to make a starter problem takes some milliseconds."""
PER_STEP, SAMPLES = 25, 8
VERDICT = Verdict(
    outcome=Outcome.PASSED,
    stages=tuple(StageResult(stage=stage, status="passed", wall_s=0.05) for stage in Stage),
    tests_passed=8,
    tests_total=8,
    executor="bubblewrap",
    tools={"iverilog": "11.0"},
    wall_s=0.2,
)
REWARD = Reward(
    total=1.6, terms={"format": (0.1, 1.0), "interface": (0.2, 1.0), "syntax": (0.3, 1.0), "tests": (1.0, 1.0)}
)

PLACE = "rollout, run, purpose, evaluation, epoch, step, problem_id"
_FILL = Template(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def fill(folder: Path, n: int) -> History:
    """A run of `n` training rollouts with an evaluation every 100 steps, unless the file is there already."""
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


def teacher(r: Rollout) -> TeacherRecord:
    """The teacher's scores of a rollout."""
    q_T = np.asarray(r.logprobs_T, np.float32) - 0.1
    return TeacherRecord(r.key, q_T, 0.1, 0.005, 0.0048, len(q_T))


def write_step(history: History, step: int) -> tuple[float, float]:
    """A step of 12 problems x 6 samples in the pipeline's two transactions; the seconds of each: all rows, which are written while the
    optimizer runs, and the step's own record, which is waited for."""
    batch = rollouts(step)
    scores = [teacher(r) for r in batch]
    start = time.perf_counter()
    with history.batch():
        history.record_rollouts(batch)
        history.record_verdicts([(r.key, VERDICT, REWARD) for r in batch])
        history.record_teacher(scores)
        history.record_advantages([(r.key, Credit(1.6, 0.1, True)) for r in batch])
        history.record_trainer_tokens([(s.rollout, s.logprobs_T) for s in scores])
    middle = time.perf_counter()
    history.finish_step(
        StepRecord(
            run=RUN,
            epoch=step // 100,
            step=step,
            state_path="s",
            sampler_path="p",
            examples=len(batch),
            train_tokens=89 * len(batch),
            times={"total": 4.0},
            metrics={f"metric/{i}": 0.5 for i in range(40)},
        )
    )
    return middle - start, time.perf_counter() - middle


def write_steps(path: str, first: str, count: str, every_s: str) -> None:
    """What a process that writes does, with its arguments: a step each `every_s` seconds, and a line with its seconds."""
    history = History(Path(path))
    for step in range(int(first), int(first) + int(count)):
        start = time.monotonic()
        print(*write_step(history, step), flush=True)
        time.sleep(max(0.0, float(every_s) - (time.monotonic() - start)))
