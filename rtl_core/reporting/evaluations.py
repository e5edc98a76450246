"""Results of a run's evaluations: rates with intervals for each policy, and paired tests against the start.

A run with problems of several sources has a result for each, since a rate over a mixture is not comparable with others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rtl_core.history.columns import Row
from rtl_core.history.records import EvaluationRecord
from rtl_core.history.store import History
from rtl_core.learning.intervals import Interval, PairedResult, mean_interval, paired_test
from rtl_core.learning.passk import pass_at_k_interval
from rtl_core.reporting.text import gain_in_words, p_in_words, paired_in_words, rate_in_words

# Problems with missing grades, such as after a failed harness, are excluded.
PROBLEMS_SQL = """
SELECT p.problem_id, p.samples, p.passed FROM evaluation_problems p JOIN evaluations e USING (evaluation)
WHERE p.run = $run AND p.evaluation = $evaluation AND p.samples = e.samples
"""
COST_SQL = """
SELECT count(*) AS answers, coalesce(avg(tokens), 0) AS tokens, coalesce(avg(turns), 0) AS turns,
       count_if(refused) AS refused
FROM (SELECT any_value(r.stop_reason) = 'refused' AS refused,
             coalesce(sum(m.n_tokens), any_value(r.n_tokens)) AS tokens,
             coalesce(sum(CAST(m.who = 'model' AS INTEGER)), 1) AS turns
      FROM rollouts r LEFT JOIN messages m USING (rollout)
      WHERE r.evaluation = $evaluation AND r.purpose = 'evaluation' GROUP BY r.rollout)"""
"""The answers of an evaluation: their number, means of the tokens that the model sampled, and of its turns, and how
many an endpoint refused. An answer without messages is one turn."""
INTERFACE_SQL = """
SELECT problem_id, avg(CAST(status = 'passed' AS INTEGER)) AS share FROM verdict_stages
WHERE run = $run AND evaluation = $evaluation AND stage = 'interface' GROUP BY problem_id
"""
_SAME_PROBLEMS = """
SELECT problem_id FROM run_problems WHERE run IN ($first, $second)
GROUP BY ALL HAVING count(*) = 2 AND count(DISTINCT fingerprint) = 1
"""

ROLES = {
    "student before": "@before",
    "warm start": "@warm",
    "student after": "@after",
    "teacher": "@teacher",
}
"""Names of the main evaluations of a run, in reading order, and their colours (theme.py)."""
ALL_SOURCES = "all together"
"""Name of the result over all sources."""
MIXTURE = "Compare results by source; “all together” depends on this run's mixture of problems."


@dataclass(frozen=True)
class EvaluationView:
    """A finished evaluation."""

    record: EvaluationRecord
    counts: dict[str, tuple[int, int]]
    """Problem -> (samples, passed)."""
    interfaces: dict[str, float]
    """Problem -> share of its samples with the required interface."""

    @property
    def rates(self) -> dict[str, float]:
        """Mapping of problem to the share of its samples that passed."""
        return rates_of(self.counts)

    @property
    def interface(self) -> Interval | None:
        """Share of answers with the required interface; None if no answer reached that stage."""
        return mean_interval(list(self.interfaces.values())) if self.interfaces else None

    @property
    def pass_at_1(self) -> Interval:
        """pass@1 as recorded when the evaluation ended; computed from the rollouts if the record has no interval."""
        return self.record.rate or mean_interval(list(self.rates.values()))

    @property
    def faultless(self) -> EvaluationView | None:
        """The evaluation without the problems with known faults; None if there are none, or no others."""
        others = self.counts.keys() - self.record.errata.keys()
        return self.of(others) if others and len(others) < len(self.counts) else None

    def of(self, problems: Collection[str]) -> EvaluationView:
        """The evaluation restricted to these problems, of which it must contain at least one."""
        counts = {
            problem: count for problem, count in self.counts.items() if problem in problems
        }
        interfaces = {p: share for p, share in self.interfaces.items() if p in problems}
        least, _ = min(counts.values())
        ks = [k for k in self.record.pass_at_k if k <= least]
        figures = figures_of(counts.values(), ks)
        return EvaluationView(self.record.model_copy(update=figures), counts, interfaces)


def figures_of(counts: Collection[tuple[int, int]], ks: Iterable[int]) -> dict[str, Any]:
    """Fields of an evaluation's record that follow from (samples, passed) of its problems: pass@1 with its
    95 % interval over problems, and pass@k."""
    rate = mean_interval([passed / samples for samples, passed in counts])
    return {
        "n_problems": len(counts),
        "pass_at_1": rate.mean,
        "lo": rate.lo,
        "hi": rate.hi,
        "pass_at_k": {k: pass_at_k_interval(counts, k).mean for k in ks},
    }


@dataclass(frozen=True)
class RunResult:
    """The main evaluations of a run; None for those that do not exist yet."""

    before: EvaluationView | None
    after: EvaluationView | None
    teacher: EvaluationView | None
    student: tuple[EvaluationView, ...]
    """All evaluations of the student, by step: the learning curve."""
    gain: PairedResult | None
    """Student after minus student before, over the shared problems."""
    warm: EvaluationView | None = None
    """The student after the warm start and before RL, if it was evaluated then."""
    by_source: dict[str, RunResult] = field(default_factory=dict)
    """Source -> the result over its problems, ordered by name."""

    @property
    def mixed(self) -> bool:
        """Whether there are problems of several sources."""
        return len(self.by_source) > 1

    @property
    def parts(self) -> list[tuple[str, RunResult]]:
        """(name, result) of each source and of all together; for a single source only the whole, with an empty name."""
        if not self.mixed:
            return [("", self)]
        return [*self.by_source.items(), (ALL_SOURCES, self)]

    @property
    def views(self) -> list[tuple[str, EvaluationView]]:
        """(name, evaluation) of the existing evaluations, in reading order."""
        named = zip(ROLES, (self.before, self.warm, self.after, self.teacher), strict=True)
        return [(name, view) for name, view in named if view is not None]

    @property
    def ks(self) -> list[int]:
        """All k above 1 for which pass@k was recorded."""
        return sorted({k for _, view in self.views for k in view.record.pass_at_k if k > 1})

    def cells(self, view: EvaluationView, ks: Sequence[int]) -> list[str]:
        """Table cells of an evaluation: pass@1, pass@k for these k, interface right; gain and p compared
        with the student before."""
        test = paired(self.before, view) if self.before and view is not self.before else None
        recorded = view.record.pass_at_k
        passes = [f"{100 * recorded[k]:.1f} %" if k in recorded else "–" for k in ks]
        gain = [gain_in_words(test), p_in_words(test.p_value)] if test else ["", ""]
        return [rate_in_words(view.pass_at_1), *passes, rate_in_words(view.interface), *gain]


def run_result(history: History, run: str) -> RunResult:
    """Read the run's scheduled evaluations that are finished; others, with another number of samples, split
    or template, are listed by `rtl-distill query evaluations`. Raises HistoryError for an unknown run."""
    record = history.existing_run(run)
    done = [view_of(history, e) for e in scheduled_evaluations(history, run)]
    # Without training, the only evaluation of the model is the result.
    trains = record.setting("run", "purpose", "train") == "train"
    warm = record.setting("learning", "warm_start_steps", 0)
    parts = {
        source: _result(views, trains, warm)
        for source, views in _by_source(history, run, done).items()
    }
    return _result(done, trains, warm, parts)


def by_source(history: History, view: EvaluationView) -> dict[str, EvaluationView]:
    """Mapping of source to the evaluation restricted to its problems, ordered by name."""
    parts = _by_source(history, view.record.run, [view])
    return {source: views[0] for source, views in parts.items()}


def _by_source(
    history: History, run: str, done: Sequence[EvaluationView]
) -> dict[str, list[EvaluationView]]:
    """Mapping of source to the evaluations with problems of it, each restricted to those problems."""
    sql = "SELECT source, list(problem_id) AS ids FROM run_problems WHERE run = $run GROUP BY source ORDER BY source"
    views = {}
    for row in history.rows(sql, run=run):
        own = set(row["ids"])
        views[row["source"]] = [view.of(own) for view in done if own & view.counts.keys()]
    return {source: own for source, own in views.items() if own}


def _result(
    done: Sequence[EvaluationView],
    trains: bool,
    warm_steps: int,
    parts: dict[str, RunResult] | None = None,
) -> RunResult:
    student = tuple(v for v in done if v.record.policy == "student")
    *_, teacher = [None, *(v for v in done if v.record.policy == "teacher")]
    before = after = None
    if student and trains and student[0].record.step == 0:
        before = student[0]
    if student and (student[-1].record.step > 0 or not trains):
        after = student[-1]
    gain = paired(before, after) if before and after else None
    warm = next((v for v in student[:-1] if v.record.step == warm_steps > 0), None)
    return RunResult(before, after, teacher, student, gain, warm, parts or {})


def own_evaluations(history: History, run: str) -> list[EvaluationRecord]:
    """The finished evaluations of a run on its own held-out split and with its own settings, with any
    number of samples: only these are comparable. Raises HistoryError for an unknown run."""
    sources = history.existing_run(run).setting("problems", "sources", [])
    splits = (source["heldout_split"] for source in sources if "heldout_split" in source)
    own = ("done", next(splits, "heldout"), list[str]())
    return [e for e in history.evaluations(run) if (e.status, e.split, e.conditions) == own]


def scheduled_evaluations(history: History, run: str) -> list[EvaluationRecord]:
    """The run's own evaluations with the number of samples of its configuration; all of them if it has no
    such setting."""
    samples = history.existing_run(run).setting("evaluation", "samples")
    return [e for e in own_evaluations(history, run) if samples is None or e.samples == samples]


def paired(first: EvaluationView, second: EvaluationView) -> PairedResult | None:
    """Second minus first over shared problems; None if there are none."""
    return paired_rates(first.rates, second.rates)


def paired_rates(
    first: Mapping[str, float], second: Mapping[str, float]
) -> PairedResult | None:
    """Second minus first of shares by problem, over shared problems; None if there are none."""
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return None
    return paired_test([first[p] for p in shared], [second[p] for p in shared])


def same_problems(history: History, first: str, second: str) -> set[str]:
    """Ids of problems with the same prompt, context and harness in both runs; rates on others are not comparable."""
    return set(history.column(_SAME_PROBLEMS, first=first, second=second))


def over_warm_start(result: RunResult) -> str | None:
    """Gains in pass@1 and interface of the student after over the warm start, in words."""
    if result.warm is None or result.after is None:
        return None
    tests = (
        ("pass@1", paired(result.warm, result.after)),
        ("interface right", paired_rates(result.warm.interfaces, result.after.interfaces)),
    )
    parts = [f"{name} {paired_in_words(test)}" for name, test in tests if test is not None]
    return f"Over the warm start alone: {'; '.join(parts)}." if parts else None


def view_of(history: History, record: EvaluationRecord) -> EvaluationView:
    """Load a finished evaluation with its results by problem."""
    counts = counts_of(history, record)
    rows = history.rows(INTERFACE_SQL, run=record.run, evaluation=record.key)
    interfaces = {r["problem_id"]: r["share"] for r in rows if r["problem_id"] in counts}
    return EvaluationView(record, counts, interfaces)


def counts_of(history: History, record: EvaluationRecord) -> dict[str, tuple[int, int]]:
    """Mapping of problem to (samples, passed) for an evaluation."""
    rows = history.rows(PROBLEMS_SQL, run=record.run, evaluation=record.key)
    return {r["problem_id"]: (r["samples"], r["passed"]) for r in rows}


def by_name(record: EvaluationRecord) -> dict[str, str | int]:
    """What an evaluation left out: problem -> why; and why -> how many, for those without a name."""
    entries: dict[str, str | int] = {}
    for why, ids in record.left_out.items():
        entries |= {why: ids} if isinstance(ids, int) else dict.fromkeys(ids, why)
    return entries


def cost_of(history: History, record: EvaluationRecord) -> Row:
    """What an evaluation spent, as the columns of `COST_SQL`."""
    (cost,) = history.rows(COST_SQL, evaluation=record.key)
    return cost


def kind_in_words(record: EvaluationRecord, cost: Row) -> str:
    """What kind of figure an evaluation gives, and the tokens and turns that it spent (`COST_SQL`)."""
    words = f"{record.kind}, {tokens_in_words(cost)} and {cost['turns']:.1f} turns an answer"
    if refused := cost["refused"]:
        words += f"; {refused} of {cost['answers']} answers refused by the endpoint, which count as failed"
    return words


def tokens_in_words(cost: Row) -> str:
    """Mean tokens of an answer (`COST_SQL`). None at all means that the endpoint reports none."""
    return f"{cost['tokens']:,.0f} tokens" if cost["tokens"] else "unknown tokens"


def rates_of(counts: Mapping[str, tuple[int, int]]) -> dict[str, float]:
    """Mapping of problem to the share of its samples that passed."""
    return {problem: passed / samples for problem, (samples, passed) in counts.items()}
