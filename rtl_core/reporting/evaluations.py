"""What the evaluations of a run say together: each policy's rates with intervals, and paired tests against the start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rtl_core.history.records import EvaluationRecord, RunRecord
from rtl_core.history.store import History
from rtl_core.learning.intervals import Interval, PairedResult, mean_interval, paired_test

PROBLEMS_SQL = (
    "SELECT problem_id, samples, passed FROM evaluation_problems WHERE run = $run AND evaluation = $evaluation"
)
INTERFACE_SQL = (
    "SELECT problem_id, avg(CAST(status = 'passed' AS INTEGER)) AS share FROM verdict_stages"
    " WHERE run = $run AND evaluation = $evaluation AND stage = 'interface' GROUP BY problem_id"
)


@dataclass(frozen=True)
class EvaluationView:
    """One finished evaluation, ready to be shown. `rates` is problem -> share of its samples that passed."""

    record: EvaluationRecord
    rates: dict[str, float]
    interface: Interval | None

    @property
    def pass_at_1(self) -> Interval:
        """As recorded when the evaluation ended; found anew from the rollouts where the record has no interval."""
        r = self.record
        if r.pass_at_1 is None or r.lo is None or r.hi is None:
            return mean_interval(list(self.rates.values()))
        return Interval(r.pass_at_1, r.lo, r.hi, r.n_problems, "t")


@dataclass(frozen=True)
class RunResult:
    """The evaluations that tell how a run went; None where one has not been made yet."""

    before: EvaluationView | None
    after: EvaluationView | None
    teacher: EvaluationView | None
    student: tuple[EvaluationView, ...]
    """All evaluations of the student, by step: the learning curve."""
    gain: PairedResult | None
    """Student after against student before, over the problems that both saw."""

    @property
    def shown(self) -> list[tuple[str, EvaluationView]]:
        """(name, evaluation) of those that exist, in reading order."""
        named = [("student before", self.before), ("student after", self.after), ("teacher", self.teacher)]
        return [(name, view) for name, view in named if view is not None]


def run_result(history: History, run: str) -> RunResult:
    """Read the finished evaluations of the run's own rhythm; those made later with other samples, another split or prompt
    template are for `rtl-distill query evaluations`. HistoryError when there is no such run."""
    record = history.existing_run(run)
    done = [
        _view(history, e) for e in of_own_rhythm(record, [e for e in history.evaluations(run) if e.status == "done"])
    ]
    student = tuple(v for v in done if v.record.policy == "student")
    teachers = [v for v in done if v.record.policy == "teacher"]
    before = student[0] if student and student[0].record.step == 0 else None
    after = student[-1] if student and student[-1].record.step > 0 else None
    gain = paired(before, after) if before and after else None
    return RunResult(before, after, teachers[-1] if teachers else None, student, gain)


def of_own_rhythm(run: RunRecord, done: list[EvaluationRecord]) -> list[EvaluationRecord]:
    """Those with the split and the number of samples that the run's configuration names; all where it names none."""
    samples = run.config.get("evaluation", {}).get("samples")
    sources = run.config.get("problems", {}).get("sources", [])
    split = next((source["heldout_split"] for source in sources if "heldout_split" in source), "heldout")
    return [e for e in done if samples is None or (e.samples == samples and e.split == split and not e.conditions)]


def paired(first: EvaluationView, second: EvaluationView) -> PairedResult | None:
    """Second minus first over the problems that both saw; None when they share none."""
    shared = sorted(first.rates.keys() & second.rates.keys())
    if not shared:
        return None
    return paired_test([first.rates[p] for p in shared], [second.rates[p] for p in shared])


def _view(history: History, record: EvaluationRecord) -> EvaluationView:
    place = {"run": record.run, "evaluation": record.key}
    rates = {r["problem_id"]: r["passed"] / r["samples"] for r in history.query(PROBLEMS_SQL, place).to_pylist()}
    shares = [r["share"] for r in history.query(INTERFACE_SQL, place).to_pylist()]
    return EvaluationView(record, rates, mean_interval(np.array(shares)) if shares else None)
