"""Converts records to Arrow tables where columns and fields do not match by name, and rows back to verdicts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rtl_core.history.columns import columns_of, from_row, table
from rtl_core.history.records import PlacedProblem, TeacherRecord
from rtl_core.learning.reward import Reward
from rtl_core.types.rollout import Rollout
from rtl_grader.types.verdict import InterfaceMismatch, Stage, StageResult, Verdict

PLACE_COLUMNS = ("run", "purpose", "evaluation", "epoch", "step", "problem_id")
"""Columns of a rollout that every table of facts about it repeats."""
STORED_CHOICES = 3
"""Number of the teacher's choices that are stored per token."""
Place = tuple[Any, ...]
"""Values of `PLACE_COLUMNS` for one rollout."""


class _Term(NamedTuple):
    """A row of `reward_terms`."""

    term: str
    weight: float
    value: float


class _Choice(NamedTuple):
    """A row of `teacher_choices`."""

    rollout: str
    position: int
    tokens: np.ndarray
    logprobs: np.ndarray


def prompt_key(prompt_P: Sequence[int]) -> str:
    """128-bit hash of the tokens, under which a prompt is stored once."""
    return hashlib.sha256(np.asarray(prompt_P, dtype=np.int32).tobytes()).hexdigest()[:32]


def rollout_tables(rollouts: Sequence[Rollout], now: datetime) -> dict[str, pa.Table]:
    """Rows of `prompts`, `rollouts` and `tokens`. Raises ValueError when tokens, log-probabilities and mask
    differ in length."""
    for r in rollouts:
        if len(r.tokens_T) != len(r.logprobs_T):
            raise ValueError(
                f"rollout {r.key}: {len(r.tokens_T)} tokens but {len(r.logprobs_T)} log-probabilities"
            )
        if len(r.own_T) not in (0, len(r.tokens_T)):
            raise ValueError(
                f"rollout {r.key}: {len(r.tokens_T)} tokens but a mask of {len(r.own_T)}"
            )
    keys = [r.key for r in rollouts]
    prompts = [prompt_key(r.prompt_P) for r in rollouts]
    once = dict(zip(prompts, rollouts, strict=True))
    read_and_written = [r.counted or (len(r.prompt_P), r.n_own) for r in rollouts]
    counts = {
        "n_prompt": [read for read, _ in read_and_written],
        "n_tokens": [written for _, written in read_and_written],
    }
    return {
        "prompts": table(
            "prompts", [], prompt=list(once), tokens_P=[r.prompt_P for r in once.values()]
        ),
        "rollouts": table(
            "rollouts", rollouts, rollout=keys, prompt=prompts, **counts, recorded_at=now
        ),
        "tokens": table(
            "tokens", rollouts, rollout=keys, own_T=[r.own_T or None for r in rollouts]
        ),
    }


def facts(
    name: str, rows: Sequence[tuple[str, Any]], places: Mapping[str, Place], **explicit: Any
) -> pa.Table:
    """Rows of a table of facts about rollouts, from (rollout key, record) and the rollouts' place columns;
    `explicit` as in `table`."""
    keys, kinds = [key for key, _ in rows], columns_of(name)
    place = {
        column: [places[key][i] for key in keys]
        for i, column in enumerate(PLACE_COLUMNS)
        if column in kinds
    }
    return table(name, [record for _, record in rows], rollout=keys, **place, **explicit)


def verdict_tables(
    rows: Sequence[tuple[str, Verdict, Reward | None]],
    places: Mapping[str, Place],
    now: datetime,
) -> dict[str, pa.Table]:
    """Rows of the five tables of verdicts and rewards."""
    graded = [(key, verdict) for key, verdict, _ in rows]
    stages = [
        (key, i, stage) for key, verdict in graded for i, stage in enumerate(verdict.stages)
    ]
    misses = [
        (key, i, miss) for key, verdict in graded for i, miss in enumerate(verdict.mismatches)
    ]
    rewards = [(key, reward) for key, _, reward in rows if reward is not None]
    terms = [
        (key, _Term(term, *values))
        for key, reward in rewards
        for term, values in reward.terms.items()
    ]
    ok = {
        f"{stage}_ok": [verdict.stage(stage).status == "passed" for _, verdict in graded]
        for stage in (Stage.FORMAT, Stage.INTERFACE, Stage.SYNTAX)
    }
    numbered = {
        name: facts(
            name,
            [(key, part) for key, _, part in parts],
            places,
            position=[i for _, i, _ in parts],
        )
        for name, parts in (("verdict_stages", stages), ("interface_mismatches", misses))
    }
    return {
        "verdicts": facts("verdicts", graded, places, **ok, graded_at=now),
        **numbered,
        "rewards": facts("rewards", rewards, places),
        "reward_terms": facts("reward_terms", terms, places),
    }


def teacher_tables(
    rows: Sequence[TeacherRecord], places: Mapping[str, Place]
) -> dict[str, pa.Table]:
    """Rows of `teacher_tokens`, `teacher_scores`, `teacher_choices` and `teacher_readings`."""
    read = [(r.rollout, r.reading) for r in rows if r.reading is not None]
    chosen = [
        _Choice(
            r.rollout,
            at,
            r.choices.tokens_TK[at, :STORED_CHOICES],
            r.choices.logprobs_TK[at, :STORED_CHOICES],
        )
        for r in rows
        if r.choices is not None
        for at in r.choices_at
    ]
    return {
        "teacher_choices": table("teacher_choices", chosen),
        "teacher_readings": table(
            "teacher_readings",
            [reading for _, reading in read],
            rollout=[key for key, _ in read],
            spans=[reading.spans_S4.ravel() for _, reading in read],
        ),
        "teacher_tokens": table("teacher_tokens", rows),
        "teacher_scores": facts("teacher_scores", [(r.rollout, r) for r in rows], places),
    }


def problem_tables(
    run: str, rows: Sequence[PlacedProblem], now: datetime
) -> dict[str, pa.Table]:
    """Rows of `problems` (one per fingerprint) and `run_problems`; a later entry for a problem replaces an
    earlier one."""
    once = list({p.fingerprint: p for p, _, _ in rows}.values())
    return {
        "problems": table(
            "problems", once, problem_id=[p.id for p in once], record=once, first_seen=now
        ),
        "run_problems": run_problems(run, rows),
    }


def run_problems(run: str, rows: Sequence[PlacedProblem]) -> pa.Table:
    """Rows of `run_problems`; a later entry for a problem replaces an earlier one."""
    placed = {p.id: (p, split, position) for p, split, position in rows}
    problems, splits, positions = [
        list(column) for column in zip(*placed.values(), strict=True)
    ] or [[], [], []]
    return table(
        "run_problems",
        problems,
        run=run,
        problem_id=list(placed),
        split=splits,
        position=positions,
    )


def to_verdict(
    row: Mapping[str, Any],
    stages: Sequence[Mapping[str, Any]],
    misses: Sequence[Mapping[str, Any]],
) -> Verdict:
    """A verdict from its `verdicts` row and its stage and mismatch rows (each ordered by `position`)."""
    return from_row(
        Verdict,
        row,
        stages=tuple(from_row(StageResult, stage) for stage in stages),
        mismatches=tuple(from_row(InterfaceMismatch, miss) for miss in misses),
    )
