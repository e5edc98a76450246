"""Nouns to Arrow tables and back: the only place that knows both a noun's fields and a table's columns."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from rtl_core.history.columns import Place, table
from rtl_core.history.records import AuditRecord, StepState, TeacherRecord, ValidationRecord
from rtl_core.learning.reward import Reward
from rtl_core.types.problem import Problem
from rtl_core.types.rollout import Rollout
from rtl_core.types.verdict import InterfaceMismatch, Stage, StageResult, Verdict


def naive(moment: datetime | None) -> datetime | None:
    """For the database: UTC without saying so. A naive moment is taken as UTC already."""
    if moment is None or moment.tzinfo is None:
        return moment
    return moment.astimezone(UTC).replace(tzinfo=None)


def aware(moment: Any) -> Any:
    """From the database: UTC, and saying so; None stays None."""
    return None if moment is None else moment.replace(tzinfo=UTC)


def dumps(value: Any) -> str:
    """JSON as DuckDB takes it. ValueError for NaN and infinities, which JSON cannot hold."""
    return storable(json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False))


def place_of(rollout: Rollout) -> Place:
    return (rollout.run, rollout.purpose, rollout.evaluation, rollout.epoch, rollout.step, rollout.problem_id)


def prompt_key(prompt_P: Sequence[int]) -> str:
    """128 bits over the tokens: prompts are stored once."""
    return hashlib.sha256(np.asarray(prompt_P, dtype=np.int32).tobytes()).hexdigest()[:32]


def rollout_tables(rollouts: Sequence[Rollout], now: datetime) -> dict[str, pa.Table]:
    """Rollouts as `prompts`, `rollouts` and `tokens`."""
    prompts: dict[str, Sequence[int]] = {}
    heads, tokens = [], []
    for r in rollouts:
        if len(r.tokens_T) != len(r.logprobs_T):
            raise ValueError(f"rollout {r.key}: {len(r.tokens_T)} tokens but {len(r.logprobs_T)} log-probabilities")
        prompt = prompt_key(r.prompt_P)
        prompts.setdefault(prompt, r.prompt_P)
        heads.append(
            (
                r.key,
                *place_of(r),
                r.sample,
                r.policy_step,
                r.stop_reason,
                prompt,
                len(r.prompt_P),
                len(r.tokens_T),
                storable(r.text),
                naive(now),
            )
        )
        # `array` takes a tuple three times as fast as numpy does.
        tokens.append((r.key, np.array(array("i", r.tokens_T)), np.array(array("f", r.logprobs_T))))
    return {
        "prompts": table("prompts", [(k, np.asarray(v, dtype=np.int32)) for k, v in prompts.items()]),
        "rollouts": table("rollouts", heads),
        "tokens": table("tokens", tokens),
    }


def storable(text: str) -> str:
    """Text as UTF-8 can hold it: a lone surrogate, which a decoder may leave behind, becomes U+FFFD."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def verdict_tables(
    rows: Sequence[tuple[str, Verdict, Reward | None]], places: Mapping[str, Place], now: datetime
) -> dict[str, pa.Table]:
    """Verdicts and rewards as their five tables."""
    verdicts, stages, mismatches, rewards, terms = [], [], [], [], []
    for key, v, reward in rows:
        place = (key, *places[key])
        verdicts.append(
            (
                *place,
                v.outcome.value,
                *(v.stage(stage).status == "passed" for stage in (Stage.FORMAT, Stage.INTERFACE, Stage.SYNTAX)),
                v.tests_passed,
                v.tests_total,
                _texts(v.reasons),
                v.executor,
                dumps(v.tools),
                v.seed,
                v.wall_s,
                v.cached,
                naive(now),
            )
        )
        for i, s in enumerate(v.stages):
            stages.append((*place, i, s.stage.value, s.status, _texts(s.reasons), s.wall_s))
        for i, m in enumerate(v.mismatches):
            mismatches.append((*place, i, m.kind.value, storable(m.name), _text(m.expected), _text(m.got)))
        if reward is not None:
            rewards.append((*place, reward.total))
            terms += [(*place, term, weight, value) for term, (weight, value) in reward.terms.items()]
    return {
        "verdicts": table("verdicts", verdicts),
        "verdict_stages": table("verdict_stages", stages),
        "interface_mismatches": table("interface_mismatches", mismatches),
        "rewards": table("rewards", rewards),
        "reward_terms": table("reward_terms", terms),
    }


def _text(value: str | None) -> str | None:
    return None if value is None else storable(value)


def _texts(values: Iterable[str]) -> list[str]:
    return [storable(v) for v in values]


def teacher_tables(rows: Sequence[TeacherRecord], places: Mapping[str, Place]) -> dict[str, pa.Table]:
    """Teacher scores as `teacher_tokens` and `teacher_scores`."""
    return {
        "teacher_tokens": table(
            "teacher_tokens", [(r.rollout, np.asarray(r.logprobs_T, dtype=np.float32)) for r in rows]
        ),
        "teacher_scores": table(
            "teacher_scores",
            [(r.rollout, *places[r.rollout], r.k1_mean, r.k2_mean, r.k3_mean, r.n_tokens) for r in rows],
        ),
    }


def problem_tables(run: str, rows: Sequence[tuple[Problem, str, int | None]], now: datetime) -> dict[str, pa.Table]:
    """Problems as `problems` (once per fingerprint) and `run_problems`."""
    problems, placed = {}, {}
    for p, split, position in rows:
        interface = p.interface.model_dump_json() if p.interface is not None else None
        problems[p.fingerprint] = (p.fingerprint, p.id, p.prompt, interface, p.model_dump_json(), naive(now))
        labels = (p.source, p.category, p.difficulty, p.family)
        placed[p.id] = (run, p.id, p.fingerprint, split, position, *labels)
    return {"problems": table("problems", problems.values()), "run_problems": table("run_problems", placed.values())}


def validation_table(run: str, rows: Sequence[ValidationRecord]) -> pa.Table:
    """What validation found as `validations`."""
    found = []
    for v in rows:
        head = (v.fingerprint, v.tools_key, run, v.problem_id, v.status)
        found.append((*head, dumps(v.evidence), dumps(v.tools), v.wall_s, naive(v.checked_at)))
    return table("validations", found)


def regrade_table(
    label: str, rows: Sequence[tuple[str, Verdict]], places: Mapping[str, Place], now: datetime
) -> pa.Table:
    """Verdicts by other tools as `regrades`."""
    found = []
    for key, v in rows:
        run, *_, problem_id = places[key]
        head = (label, key, run, problem_id, v.outcome.value, v.tests_passed, v.tests_total, v.executor)
        found.append((*head, dumps(v.tools), v.seed, dumps(v.model_dump(mode="json")), naive(now)))
    return table("regrades", found)


def audit_table(rows: Sequence[AuditRecord]) -> pa.Table:
    """What an audit found as `audits`."""
    found = []
    for a in rows:
        head = (a.rollout, a.run, a.problem_id, a.result, storable(a.detail), a.key, a.executor)
        found.append((*head, dumps(a.tools), naive(a.audited_at)))
    return table("audits", found)


def to_verdict(
    row: Mapping[str, Any], stages: Sequence[Mapping[str, Any]], misses: Sequence[Mapping[str, Any]]
) -> Verdict:
    """A `verdicts` row with its stage and mismatch rows (each in order of `position`) as the noun it was."""
    return Verdict(
        outcome=row["outcome"],
        stages=tuple(
            StageResult(stage=s["stage"], status=s["status"], reasons=tuple(s["reasons"]), wall_s=s["wall_s"])
            for s in stages
        ),
        tests_passed=row["tests_passed"],
        tests_total=row["tests_total"],
        reasons=tuple(row["reasons"]),
        mismatches=tuple(
            InterfaceMismatch(kind=m["kind"], name=m["name"], expected=m["expected"], got=m["got"]) for m in misses
        ),
        executor=row["executor"],
        tools=json.loads(row["tools"]),
        seed=row["seed"],
        wall_s=row["wall_s"],
        cached=row["cached"],
    )


def to_step_state(row: Mapping[str, Any]) -> StepState:
    return StepState(
        run=row["run"],
        epoch=row["epoch"],
        step=row["step"],
        status=row["status"],
        problem_ids=tuple(row["problem_ids"] or ()),
        state_path=row["state_path"],
        sampler_path=row["sampler_path"],
        trained_at=aware(row["trained_at"]),
        examples=row["examples"],
        train_tokens=row["train_tokens"],
    )
