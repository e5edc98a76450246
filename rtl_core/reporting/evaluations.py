"""What the evaluations of a run say together: each policy's rates with intervals, and paired tests against the start.

A run with problems of several sources has a result for each: a rate over a mixture is comparable with nobody else's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rtl_core.history.records import EvaluationRecord
from rtl_core.history.store import History
from rtl_core.learning.intervals import Interval, PairedResult, mean_interval, paired_test
from rtl_core.learning.passk import pass_at_k_interval
from rtl_core.reporting.text import gain_in_words, p_in_words, rate_in_words

PROBLEMS_SQL = (
    # What was graded in part, as where a harness failed, is in no figure.
    "SELECT p.problem_id, p.samples, p.passed FROM evaluation_problems p JOIN evaluations e USING (evaluation)"
    " WHERE p.run = $run AND p.evaluation = $evaluation AND p.samples = e.samples"
)
INTERFACE_SQL = (
    "SELECT problem_id, avg(CAST(status = 'passed' AS INTEGER)) AS share FROM verdict_stages"
    " WHERE run = $run AND evaluation = $evaluation AND stage = 'interface' GROUP BY problem_id"
)

ROLES = {"student before": "@before", "warm start": "@warm", "student after": "@after", "teacher": "@teacher"}
"""Names of the evaluations that tell how a run went, in reading order, and their colours (theme.py)."""
ALL_SOURCES = "all together"
"""Name of the whole beside those of the sources."""
MIXTURE = "Compare with others by source: all together is a mean over this run's own mixture."


@dataclass(frozen=True)
class EvaluationView:
    """One finished evaluation, ready to be shown."""

    record: EvaluationRecord
    counts: dict[str, tuple[int, int]]
    """Problem -> (samples, passed)."""
    interfaces: dict[str, float]
    """Problem -> share of its samples with the demanded interface."""

    @property
    def rates(self) -> dict[str, float]:
        """Problem -> share of its samples that passed."""
        return rates_of(self.counts)

    @property
    def interface(self) -> Interval | None:
        """Share of answers with the demanded interface; None where no answer got that far."""
        return mean_interval(list(self.interfaces.values())) if self.interfaces else None

    @property
    def pass_at_1(self) -> Interval:
        """As recorded when the evaluation ended; found anew from the rollouts where the record has no interval."""
        r = self.record
        if r.pass_at_1 is None or r.lo is None or r.hi is None:
            return mean_interval(list(self.rates.values()))
        return Interval(r.pass_at_1, r.lo, r.hi, r.n_problems)

    def of(self, problems: Collection[str]) -> EvaluationView:
        """The same evaluation as if it had been of these problems alone, of which it must hold some."""
        counts = {problem: count for problem, count in self.counts.items() if problem in problems}
        least, _ = min(counts.values())
        rates = {k: pass_at_k_interval(counts.values(), k) for k in (1, *self.record.pass_at_k) if k <= least}
        record = self.record.model_copy(
            update={
                "n_problems": len(counts),
                "pass_at_1": rates[1].mean, "lo": rates[1].lo, "hi": rates[1].hi,
                "pass_at_k": {k: rates[k].mean for k in self.record.pass_at_k if k <= least},
            }
        )  # fmt: skip
        return EvaluationView(record, counts, {p: share for p, share in self.interfaces.items() if p in problems})


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
    warm: EvaluationView | None = None
    """The student after the warm start and before any reward, where it was evaluated then."""
    by_source: dict[str, RunResult] = field(default_factory=dict)
    """Source -> the result over its problems alone, in the order of the names."""

    @property
    def mixed(self) -> bool:
        """Whether the problems are of several sources."""
        return len(self.by_source) > 1

    @property
    def parts(self) -> list[tuple[str, RunResult]]:
        """(name, result) of each source and then of all of them together; of a single source the whole, without a name."""
        return [*self.by_source.items(), (ALL_SOURCES, self)] if self.mixed else [("", self)]

    @property
    def shown(self) -> list[tuple[str, EvaluationView]]:
        """(name, evaluation) of those that exist, in reading order."""
        named = zip(ROLES, (self.before, self.warm, self.after, self.teacher), strict=True)
        return [(name, view) for name, view in named if view is not None]

    @property
    def ks(self) -> list[int]:
        """The k above 1 of every pass@k that was recorded."""
        return sorted({k for _, view in self.shown for k in view.record.pass_at_k if k > 1})

    def cells(self, view: EvaluationView, ks: Sequence[int]) -> list[str]:
        """One of `shown` in a table's row: pass@1, pass@k of these k, interface right; gain and p against the student before."""
        test = paired(self.before, view) if self.before and view is not self.before else None
        passes = [f"{100 * view.record.pass_at_k[k]:.1f} %" if k in view.record.pass_at_k else "–" for k in ks]
        gain = [gain_in_words(test), p_in_words(test.p_value)] if test else ["", ""]
        return [rate_in_words(view.pass_at_1), *passes, rate_in_words(view.interface), *gain]


def run_result(history: History, run: str) -> RunResult:
    """Read the finished evaluations of the run's own rhythm; those made later with other samples, another split or prompt
    template are for `rtl-distill query evaluations`. HistoryError when there is no such run."""
    record = history.existing_run(run)
    done = [view_of(history, e) for e in evaluations_of_rhythm(history, run)]
    # Where nothing is trained, the model's only evaluation is the result.
    trains = record.config.get("run", {}).get("purpose", "train") == "train"
    warm = record.config.get("learning", {}).get("warm_start_steps", 0)
    parts = {source: _result(views, trains, warm) for source, views in _by_source(history, run, done).items()}
    return _result(done, trains, warm, parts)


def by_source(history: History, view: EvaluationView) -> dict[str, EvaluationView]:
    """Source -> the evaluation of its problems alone, in the order of the names."""
    return {source: views[0] for source, views in _by_source(history, view.record.run, [view]).items()}


def _by_source(history: History, run: str, done: Sequence[EvaluationView]) -> dict[str, list[EvaluationView]]:
    """Source -> those evaluations that saw problems of it, each of its problems alone."""
    problems: dict[str, set[str]] = defaultdict(set)
    seen = {problem for view in done for problem in view.counts}
    for row in history.query("SELECT problem_id, source FROM run_problems WHERE run = $run", {"run": run}).to_pylist():
        if row["problem_id"] in seen:
            problems[row["source"]].add(row["problem_id"])
    return {
        source: [view.of(problems[source]) for view in done if problems[source] & view.counts.keys()]
        for source in sorted(problems)
    }


def _result(
    done: Sequence[EvaluationView], trains: bool, warm_steps: int, parts: dict[str, RunResult] | None = None
) -> RunResult:
    student = tuple(v for v in done if v.record.policy == "student")
    teachers = [v for v in done if v.record.policy == "teacher"]
    before = student[0] if trains and student and student[0].record.step == 0 else None
    after = student[-1] if student and (student[-1].record.step > 0 or not trains) else None
    gain = paired(before, after) if before and after else None
    warm = next((v for v in student[:-1] if v.record.step == warm_steps > 0), None)
    return RunResult(before, after, teachers[-1] if teachers else None, student, gain, warm, parts or {})


def own_evaluations(history: History, run: str) -> list[EvaluationRecord]:
    """The finished evaluations of a run on its own held-out split and under its own conditions, with any number of samples: only
    these say which of its weights are better. HistoryError when there is no such run."""
    sources = history.existing_run(run).config.get("problems", {}).get("sources", [])
    split = next((source["heldout_split"] for source in sources if "heldout_split" in source), "heldout")
    return [e for e in history.evaluations(run) if e.status == "done" and e.split == split and not e.conditions]


def evaluations_of_rhythm(history: History, run: str) -> list[EvaluationRecord]:
    """Those of its own evaluations that have as many samples as the run's configuration names; all where it names none."""
    samples = history.existing_run(run).config.get("evaluation", {}).get("samples")
    return [e for e in own_evaluations(history, run) if samples is None or e.samples == samples]


def paired(first: EvaluationView, second: EvaluationView) -> PairedResult | None:
    """Second minus first over the problems that both saw; None when they share none."""
    return paired_rates(first.rates, second.rates)


def paired_rates(first: Mapping[str, float], second: Mapping[str, float]) -> PairedResult | None:
    """The same of any share by problem."""
    shared = sorted(first.keys() & second.keys())
    return paired_test([first[p] for p in shared], [second[p] for p in shared]) if shared else None


def same_problems(history: History, first: str, second: str) -> set[str]:
    """Ids of the problems that two runs hold with the same prompt, context and harness: rates on others tell nothing of the runs."""
    sql = "SELECT problem_id FROM run_problems WHERE run IN ($first, $second) GROUP BY ALL HAVING count(*) = 2 AND count(DISTINCT fingerprint) = 1"
    return {row["problem_id"] for row in history.query(sql, {"first": first, "second": second}).to_pylist()}


def over_warm_start(result: RunResult) -> str | None:
    """What came after the warm start, in words: pass@1 and interface of the student after against the warm start alone."""
    if result.warm is None or result.after is None:
        return None
    found = (
        ("pass@1", paired(result.warm, result.after)),
        ("interface right", paired_rates(result.warm.interfaces, result.after.interfaces)),
    )
    parts = [
        f"{name} {100 * test.gain:+.1f} points [{100 * test.lo:.1f}, {100 * test.hi:.1f}], p {p_in_words(test.p_value)}"
        for name, test in found
        if test is not None
    ]
    return f"Over the warm start alone: {'; '.join(parts)}." if parts else None


def view_of(history: History, record: EvaluationRecord) -> EvaluationView:
    """A finished evaluation with what each problem came to."""
    place, counts = {"run": record.run, "evaluation": record.key}, counts_of(history, record)
    rows = history.query(INTERFACE_SQL, place).to_pylist()
    return EvaluationView(record, counts, {r["problem_id"]: r["share"] for r in rows if r["problem_id"] in counts})


def counts_of(history: History, record: EvaluationRecord) -> dict[str, tuple[int, int]]:
    """Problem -> (samples, passed) of an evaluation."""
    place = {"run": record.run, "evaluation": record.key}
    return {r["problem_id"]: (r["samples"], r["passed"]) for r in history.query(PROBLEMS_SQL, place).to_pylist()}


def rates_of(counts: Mapping[str, tuple[int, int]]) -> dict[str, float]:
    """Problem -> share of its samples that passed."""
    return {problem: passed / samples for problem, (samples, passed) in counts.items()}
