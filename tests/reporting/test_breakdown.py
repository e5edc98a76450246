"""The detail of an evaluation: rates agree with the counts, and paired comparisons with the shared problems."""

import pytest

from rtl_core.history.records import EvaluationRecord
from rtl_core.learning.passk import pass_at_k_P
from rtl_core.reporting.breakdown import comparisons, in_words, slices, table, view
from rtl_core.reporting.evaluations import counts_of, tokens_in_words
from rtl_core.starter import starter_problems


@pytest.fixture(scope="module")
def problems():
    return {p.id: p for p in starter_problems("heldout", 20, 0)}


def test_each_slice_is_the_mean_over_its_problems(problems):
    counts = {p: (4, index % 5) for index, p in enumerate(problems)}
    found = {(s.kind, s.name): s for s in slices(counts, problems, (1, 2, 8))}
    whole = found["all", "all problems"]
    assert whole.n == 20
    assert whole.pass_at[1].mean == pytest.approx(0.5)
    assert whole.pass_at[2].mean == pytest.approx(pass_at_k_P([4] * 5, range(5), 2).mean())
    assert whole.pass_at[1].lo < 0.5 < whole.pass_at[1].hi
    assert 8 not in whole.pass_at
    easy = [p for p in problems.values() if p.difficulty == "easy"]
    assert found["difficulty", "easy"].n == len(easy)
    mean = sum(counts[p.id][1] for p in easy) / (4 * len(easy))
    assert found["difficulty", "easy"].pass_at[1].mean == pytest.approx(mean)
    assert "category" not in {kind for kind, _ in found}  # all problems have the same one
    assert sum(s.n for (kind, _), s in found.items() if kind == "family") == 20


def test_problems_without_known_faults_are_a_slice(problems):
    faulty, *others = problems
    counts = dict.fromkeys(problems, (1, 1)) | {faulty: (1, 0)}
    found = {(s.kind, s.name): s for s in slices(counts, problems, (1,), {faulty})}
    sound = found["faults", "without known faults"]
    assert (sound.n, sound.pass_at[1].mean) == (len(others), 1)


def test_the_view_has_the_known_faults_of_the_record(demo):
    record = demo.evaluation("demo-student-0")
    faulty, *_ = counts_of(demo, record)
    for errata, shown in (({}, False), ({faulty: "its bench is wrong"}, True)):
        drawing = view(demo, {}, record.model_copy(update={"errata": errata}))
        assert ("without known faults" in map(str, drawing.columns[1].cells)) == shown


def test_tokens_that_no_server_reports_are_unknown():
    assert tokens_in_words({"tokens": 0}) == "unknown tokens"
    assert tokens_in_words({"tokens": 1234.4}) == "1,234 tokens"


def test_an_evaluation_is_compared_with_others_of_its_split(demo):
    done = demo.evaluations("demo")
    last = [e for e in done if e.policy == "student"][-1]
    found = comparisons(demo, last)
    assert len(found) == len(done) - 1
    first = next(test for other, test in found if other.startswith("student after 0 steps"))
    before = counts_of(demo, next(e for e in done if e.policy == "student" and e.step == 0))
    after = counts_of(demo, last)
    gain = sum(after[p][1] / after[p][0] - before[p][1] / before[p][0] for p in before) / len(
        before
    )
    assert first.gain == pytest.approx(gain)
    shown = table(last, slices(after, {}, (1,)), found, "one turn")
    assert len(shown.rows) == 1
    assert shown.caption.count("against ") == len(found)


def test_another_template_is_named():
    record = EvaluationRecord(
        key="k", run="r", policy="student", step=3, split="heldout", template="full", samples=8
    )
    assert in_words(record) == "student after 3 steps (× 8, template full)"
    assert in_words(record.model_copy(update={"step": 1})).startswith("student after 1 step (")
