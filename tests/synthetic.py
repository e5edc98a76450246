"""A synthetic run with the shape of a real one, written through the public `History`.

The student learns: its chance of a right interface and a pass rises with the step. Some answers are hostile on purpose.
"""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rtl_core.history.records import (
    EvaluationRecord,
    MessageRecord,
    RunRecord,
    StepPlan,
    StepRecord,
    TeacherRecord,
)
from rtl_core.history.store import History
from rtl_core.learning.credit import Rules, credit
from rtl_core.learning.distributions import Choices
from rtl_core.learning.intervals import mean_interval
from rtl_core.learning.passk import pass_at_k_P
from rtl_core.learning.reward import Graded, Reward, reward
from rtl_core.types.rollout import Rollout
from rtl_grader.types.problem import Interface, InterfaceSource, Port, Problem
from rtl_grader.types.verdict import (
    InterfaceMismatch,
    MismatchKind,
    Outcome,
    Stage,
    StageResult,
    Verdict,
)
from rtl_grader.validation.record import ValidationRecord

FAMILIES = (
    "adder",
    "mux",
    "counter",
    "arbiter",
    "parity",
    "gray",
    "shift_register",
    "comparator",
)
WEIGHTS = {"format": 0.1, "interface": 0.2, "syntax": 0.3, "tests": 1.0}
HOSTILE = '</script><script>window.pwned=1</script><img src=x onerror="window.pwned=2">\u2028\x1b[31mred'
TOOLS = {"iverilog": "11.0", "cocotb": "2.0.1"}

REACHED = {
    Outcome.INTERFACE_MISMATCH: 1, Outcome.TESTS_FAILED: 3, Outcome.COMPILE_FAILED: 2, Outcome.NO_ANSWER: 0, Outcome.TIMEOUT: 3,
    Outcome.PASSED: 4,
}  # fmt: skip
"""Outcome -> number of passed stages; more likely failures come first."""


@dataclass(frozen=True)
class Shape:
    """Size of the synthetic run."""

    steps: int = 12
    per_step: int = 6
    samples: int = 4
    tokens: int = 40
    train: int = 24
    heldout: int = 16
    steps_per_epoch: int = 4
    evaluation_samples: int = 4
    sources: tuple[str, ...] = ("starter",)
    """Sources of the problems, in turn."""
    warm_start: int = 0
    """Number of steps after which the student is evaluated, as after a warm start."""


def problem(index: int, split: str) -> Problem:
    """A problem whose interface depends on `index`."""
    family = FAMILIES[index % len(FAMILIES)]
    width = 2 + index % 7
    ports = (
        Port(name="clk", direction="input", width=1),
        Port(name=f"data_{index % 5}", direction="input", width=width),
        Port(name="result", direction="output", width=width),
    )
    return Problem(
        id=f"{split}_{family}_{index:03d}",
        source="starter",
        category="cid003",
        difficulty=("easy", "medium", "hard")[index % 3],
        family=family,
        prompt=f"Write module {family}_{index} with input data_{index % 5} of {width} bits and output result.",
        targets=(f"rtl/{family}_{index}.sv",),
        harness={"docker-compose.yml": "services: {}", "src/test.py": f"# {split} {index}"},
        golden={f"rtl/{family}_{index}.sv": "module m; endmodule"},
        interface=Interface(
            module=f"{family}_{index}", ports=ports, source=InterfaceSource.GOLDEN
        ),
    )


def episode(key: str) -> list[MessageRecord]:
    """An episode of two turns with hostile texts, a failing compile call, and a submission."""
    fails, submits = (
        {"id": name, "name": name, "arguments": f'{{"top": {json.dumps(HOSTILE)}}}'}
        for name in ("compile", "submit")
    )
    return [
        MessageRecord(key, 0, "model", HOSTILE, True, 1.5, HOSTILE, n_tokens=12),
        MessageRecord(
            key,
            1,
            "tool",
            f"iverilog: failed with exit code 2\n{HOSTILE}",
            False,
            0.5,
            call=fails,
            used_s=0.25,
        ),
        MessageRecord(key, 2, "model", "", True, 0.5, n_tokens=5),
        MessageRecord(key, 3, "tool", "submitted", True, 0.0, call=submits),
    ]


def write_run(
    path: Path,
    name: str = "demo",
    shape: Shape | None = None,
    seed: int = 0,
    gain: float = 0.75,
    *,
    at_once: bool = True,
) -> History:
    """Write a whole run and return its history. `gain` is the rise of the pass rate.

    `at_once` uses one transaction, which takes half the time and makes a smaller file. A real run writes as it goes.
    """
    shape = shape or Shape()
    history = History(path)
    with history.batch() if at_once else contextlib.nullcontext():
        _fill(history, name, shape, seed, gain)
    return history


def _fill(history: History, name: str, shape: Shape, seed: int, gain: float) -> None:
    rng = np.random.default_rng(seed)
    config = {
        "train": {"lambda": 0.1, "learning_rate": 2e-3},
        "learning": {"warm_start_steps": shape.warm_start},
    }
    who = {
        "seed": seed,
        "student": "tiny-student",
        "teacher": "tiny-teacher",
        "versions": {"tinker": "0.38.0"},
    }
    hashes = {"config_hash": "c0ffee", "problems_hash": "abc"}
    history.start_run(RunRecord(name=name, status="running", config=config, **hashes, **who))
    train = [problem(i, "train") for i in range(shape.train)]
    heldout = [problem(i, "heldout") for i in range(shape.heldout)]
    train, heldout = (
        [
            p.model_copy(update={"source": shape.sources[i % len(shape.sources)]})
            for i, p in enumerate(found)
        ]
        for found in (train, heldout)
    )
    rows = [(p, "train", i) for i, p in enumerate(train)] + [
        (p, "heldout", None) for p in heldout
    ]
    history.record_problems(name, rows)
    history.record_validations(
        [(name, validation(p, i)) for i, p in enumerate(train + heldout)]
    )
    evaluate(history, name, shape, heldout, "student", 0, 0.15, rng)
    for epoch in range(-(-shape.steps // shape.steps_per_epoch)):
        numbers = range(
            epoch * shape.steps_per_epoch, min(shape.steps, (epoch + 1) * shape.steps_per_epoch)
        )
        plans = [
            StepPlan(
                step=s,
                problem_ids=[
                    train[(s * shape.per_step + j) % shape.train].id
                    for j in range(shape.per_step)
                ],
            )
            for s in numbers
        ]
        history.plan_epoch(name, epoch, plans)
        by_id = {p.id: p for p in train}
        for plan in plans:
            skill = 0.15 + gain * plan.step / max(1, shape.steps - 1)
            write_step(history, name, epoch, plan, by_id, shape, skill, rng)
            if shape.warm_start == plan.step + 1:
                evaluate(history, name, shape, heldout, "student", plan.step + 1, skill, rng)
    evaluate(history, name, shape, heldout, "student", shape.steps, 0.15 + gain, rng)
    evaluate(history, name, shape, heldout, "teacher", 0, 0.93, rng)
    history.set_run_status(name, "finished")


def validation(p: Problem, index: int) -> ValidationRecord:
    status = (
        "fit",
        "fit",
        "fit_without_golden",
        "fit",
        "fit",
        "weak",
        "fit",
        "flaky",
        "fit",
        "broken",
    )[index % 10]
    reasons = [] if status == "fit" else [f"{status}: see the log"]
    evidence = {"golden": "passed", "empty": "no_answer", "reasons": reasons}
    whose = {
        "fingerprint": p.fingerprint,
        "tools_key": "bubblewrap-iverilog-11",
        "problem_id": p.id,
    }
    return ValidationRecord(**whose, status=status, evidence=evidence, tools=TOOLS, wall_s=0.2)


def write_step(history, name, epoch, plan, problems, shape, skill, rng) -> None:
    """Write a whole step: rollouts, verdicts, teacher scores, advantages and the step record."""
    rollouts, verdicts, teachers, advantages = [], [], [], []
    for problem_id in plan.problem_ids:
        totals = []
        for sample in range(shape.samples):
            r = rollout(
                name, "train", None, epoch, plan.step, problems[problem_id], sample, shape, rng
            )
            rollouts.append(r)
            verdict, earned = judge(problems[problem_id], skill, rng)
            verdicts.append((r.key, verdict, earned))
            totals.append(earned.total)
            teachers.append(teacher(r, skill, rng))
        group = rollouts[-shape.samples :]
        found = credit(
            totals,
            [len(r.tokens_T) for r in group],
            [r.stop_reason == "length" for r in group],
            Rules(99, scale="std"),
        )
        advantages += [(r.key, one) for r, one in zip(group, found.answers(), strict=True)]
    history.record_rollouts(rollouts)
    with history.batch():
        history.record_verdicts(verdicts)
        history.record_teacher(teachers)
        history.record_advantages(advantages)
        history.record_trainer_tokens(
            [(r.key, [value - 0.001 for value in r.logprobs_T]) for r in rollouts]
        )
        history.record_messages(episode(rollouts[0].key))
    kl = sum(t.k1_mean * t.n_tokens for t in teachers) / sum(t.n_tokens for t in teachers)
    reward_mean = float(np.mean([earned.total for _, _, earned in verdicts]))
    pass_rate = float(np.mean([verdict.passed for _, verdict, _ in verdicts]))
    metrics = {
        "env/all/reward/total": reward_mean,
        "env/all/reward/total_equal_difficulty": reward_mean + 0.1,
        **{f"env/all/{name}_valid": 1.0 for name in ("format", "interface", "syntax")},
        "env/all/tests_passed": pass_rate,
        "env/all/ac_tokens_per_turn": float(np.mean([len(r.tokens_T) for r in rollouts])),
        "env/all/tests_passed_equal_difficulty": pass_rate + 0.1,
        "teacher_kl": float(kl),
        "optim/entropy": float(0.9 - 0.5 * skill + 0.02 * rng.standard_normal()),
        "optim/kl_sample_train_v1": float(0.001 + 0.001 * rng.random()),
        "env/all/duplicates": 1
        - len({(r.problem_id, r.text) for r in rollouts}) / len(rollouts),
        "service/loss:sum": 3.0 * len(rollouts) * kl,
        "service/tokens:sum": float(sum(len(r.tokens_T) for r in rollouts)),
        "service/grad_norm:mean": 2.0 - skill,
        "cost/usd": 0.25 * (1 + plan.step),
    }
    times = {
        "sample": 1.1,
        "grade": 2.2,
        "score": 0.3,
        "train": 0.9,
        "store": 0.05,
        "total": 3.4,
    }
    paths = {
        f"{kind}_path": f"tinker://{name}/{kind}/{plan.step}" for kind in ("state", "sampler")
    }
    took = {k: v * float(rng.uniform(0.9, 1.1)) for k, v in times.items()}
    trained = {
        "examples": len(rollouts),
        "train_tokens": sum(len(r.prompt_P) + len(r.tokens_T) - 1 for r in rollouts),
    }
    record = StepRecord(
        run=name, epoch=epoch, step=plan.step, **paths, **trained, times=took, metrics=metrics
    )
    history.finish_step(record)


def rollout(name, purpose, evaluation, epoch, step, p: Problem, sample, shape, rng) -> Rollout:
    n = int(rng.integers(shape.tokens // 2, shape.tokens + 1))
    text = f"```verilog\nmodule {p.family}_{sample} (input clk, output [3:0] result);\n  assign result = 4'd{step % 16};\nendmodule\n```"
    if rng.random() < 0.05:
        text += HOSTILE
    return Rollout(
        run=name,
        purpose=purpose,
        evaluation=evaluation,
        epoch=epoch,
        step=step,
        problem_id=p.id,
        sample=sample,
        prompt_P=tuple(int(t) for t in range(20)),
        tokens_T=tuple(int(t) for t in rng.integers(0, 600, size=n)),
        logprobs_T=tuple(float(v) for v in -rng.exponential(0.4, size=n)),
        stop_reason="stop" if rng.random() < 0.95 else "length",
        text=text,
        policy_step=step,
    )


def judge(p: Problem, skill: float, rng) -> tuple[Verdict, Reward]:
    """A random verdict that depends on `skill`, and its reward with the default weights."""
    chance = skill * (
        1.0 if p.difficulty == "easy" else 0.92 if p.difficulty == "medium" else 0.8
    )
    draw = rng.random()
    outcome = Outcome.PASSED
    if draw > chance:
        share = (draw - chance) / max(1e-9, 1 - chance)
        outcome = list(REACHED)[int(np.searchsorted([0.6, 0.82, 0.92, 0.97], share))]
    reached = REACHED[outcome]
    stages = []
    for i, stage in enumerate(Stage):
        status = "passed" if i < reached else "failed" if i == reached else "skipped"
        if outcome is Outcome.INTERFACE_MISMATCH and stage is Stage.SYNTAX:
            status = "passed"  # wrong ports still compile
        reasons = (f"{stage.value} failed: {HOSTILE}",) if status == "failed" else ()
        stages.append(
            StageResult(
                stage=stage,
                status=status,
                reasons=reasons,
                wall_s=0.05 if status != "skipped" else 0.0,
            )
        )
    mismatches = ()
    if outcome is Outcome.INTERFACE_MISMATCH:
        wrong = p.interface.ports[1]
        mismatches = (
            InterfaceMismatch(
                kind=MismatchKind.MISSING_PORT,
                name=wrong.name,
                expected=f"input [{wrong.width - 1}:0]",
            ),
            InterfaceMismatch(
                kind=MismatchKind.EXTRA_PORT,
                name=("d", "din", "a")[int(rng.integers(3))],
                got="input",
            ),
        )[: 1 + int(rng.random() < 0.6)]
    total = 8
    passed = (
        total
        if outcome is Outcome.PASSED
        else int(rng.integers(0, total))
        if outcome is Outcome.TESTS_FAILED
        else 0
    )
    verdict = Verdict(
        outcome=outcome,
        stages=tuple(stages),
        tests_passed=passed,
        tests_total=total if reached >= 3 else 0,
        reasons=() if outcome is Outcome.PASSED else (f"{outcome.value}: expected 3, got 5",),
        mismatches=mismatches,
        executor="bubblewrap",
        tools=TOOLS,
        seed=0,
        wall_s=0.18,
        cached=bool(rng.random() < 0.1),
    )
    return verdict, reward(Graded(p, verdict, "", (), "stop"), WEIGHTS)


def teacher(r: Rollout, skill: float, rng) -> TeacherRecord:
    """Teacher log-probabilities that differ most early in the answer, and less as `skill` rises."""
    s = np.array(r.logprobs_T)
    gap = (1.2 - skill) * np.exp(-np.arange(len(s)) / 8) * rng.exponential(
        1.0, size=len(s)
    ) + 0.02 * rng.standard_normal(len(s))
    q = np.minimum(s - gap, -1e-4)
    k = s - q
    return TeacherRecord(
        rollout=r.key,
        logprobs_T=q,
        k1_mean=float(k.mean()),
        k2_mean=float((k**2 / 2).mean()),
        k3_mean=float((np.exp(-k) - 1 + k).mean()),
        n_tokens=len(s),
        choices=Choices(
            np.argsort(rng.random((len(s), 5))), np.log(np.full((len(s), 5), 0.19))
        ),
        choices_at=np.flatnonzero(k > 1).tolist(),
    )


def evaluate(history, name, shape, problems, policy, step, skill, rng) -> None:
    """Write an evaluation with its rollouts, verdicts and summary."""
    key = f"{name}-{policy}-{step}"
    record = EvaluationRecord(
        key=key,
        run=name,
        policy=policy,
        step=step,
        split="heldout",
        samples=shape.evaluation_samples,
    )
    history.record_evaluation(record)
    rollouts, verdicts, passes = [], [], {p.id: 0 for p in problems}
    for p in problems:
        for sample in range(shape.evaluation_samples):
            r = rollout(name, "evaluation", key, 0, step, p, sample, shape, rng)
            rollouts.append(r)
            verdicts.append((r.key, *(judged := judge(p, skill, rng))))
            passes[p.id] += judged[0].passed
    history.record_rollouts(rollouts)
    history.record_verdicts(verdicts)
    n_P, c_P = [shape.evaluation_samples] * len(problems), list(passes.values())
    interval = mean_interval(np.array(c_P) / shape.evaluation_samples)
    figures = {
        "status": "done", "n_problems": len(problems), "pass_at_1": interval.mean, "lo": interval.lo, "hi": interval.hi,
        "pass_at_k": {k: float(pass_at_k_P(n_P, c_P, k).mean()) for k in (1, 2, 4) if k <= shape.evaluation_samples},
        "by_difficulty": {
            d: float(np.mean([passes[p.id] / shape.evaluation_samples for p in problems if p.difficulty == d]))
            for d in ("easy", "medium", "hard")
        },
    }  # fmt: skip
    history.record_evaluation(record.model_copy(update=figures))
