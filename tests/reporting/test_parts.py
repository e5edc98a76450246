"""How a report splits a run into periods, and places points on axes."""

from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.learning.reward import Reward
from rtl_core.reporting.blocks import Source
from rtl_core.reporting.figures import learning, mistakes
from rtl_core.reporting.figures.held_out import held_out
from rtl_grader.types.verdict import Outcome
from tests import synthetic
from tests.nouns import a_rollout, a_verdict
from tests.reporting.report_tab import rows


def test_failures_are_shares_of_the_first_and_the_last_quarter(tmp_path):
    history = synthetic.write_run(
        tmp_path / "h.duckdb", shape=synthetic.Shape(steps_per_epoch=12)
    )
    source = Source(history, "demo")
    for part, place in ((-2, "step <= 2"), (-1, "step >= 9")):
        graded = f"run = 'demo' AND purpose = 'train' AND {place}"
        answers = rows(
            history,
            f"SELECT 1 FROM verdicts WHERE {graded} AND outcome <> 'infrastructure_error'",
        )
        for table, view in (
            (mistakes.named(source), "(SELECT *, mistake AS name FROM named_mistakes)"),
            (mistakes.levels(source), "(SELECT *, level AS name FROM failure_levels)"),
            (
                mistakes.reasons(source),
                "(SELECT *, outcome AS name FROM verdicts WHERE outcome = 'timeout')",
            ),
        ):
            name = "timeout" if table.id == "reasons" else table.rows[0][0]
            shown = next(row for row in table.rows if name in row[:2])
            failed = rows(
                history,
                f"SELECT DISTINCT rollout FROM {view} WHERE {graded} AND name = '{name}'",
            )
            assert shown[part] == f"{100 * len(failed) / len(answers):.1f} %"


def test_the_total_reward_of_a_weak_problem_is_less_than_the_sum_of_its_terms(tmp_path):
    history = History(tmp_path / "h.duckdb")
    history.start_run(RunRecord(name="r"))
    answers = [a_rollout(sample=sample) for sample in (0, 1)]
    history.record_rollouts(answers)
    paid = [
        Reward(total=0.5, terms={"tests": (1.0, 1.0)}),
        Reward(total=0.0, terms={"tests": (1.0, 0.0)}),
    ]
    history.record_verdicts(
        [(a.key, a_verdict(Outcome.PASSED), r) for a, r in zip(answers, paid, strict=True)]
    )
    found = {trace["name"]: trace["y"] for trace in learning.reward(Source(history, "r")).data}
    assert found == {"tests": [0.5], "total": [0.25]}


def test_steps_and_evaluations_of_the_same_weights_have_the_same_position(tmp_path):
    history = synthetic.write_run(tmp_path / "h.duckdb", shape=synthetic.Shape(warm_start=4))
    source = Source(history, "demo")
    figures = [learning.equal_difficulty(source), held_out([source])]
    assert [figure.layout["xaxis"]["title"]["text"] for figure in figures] == [
        "train steps",
        "train steps",
    ]
    assert [min(figure.data[0]["x"]) for figure in figures] == [0, 0]


def test_a_problem_that_was_never_solved_has_its_best_attempt(tmp_path):
    history = History(tmp_path / "h.duckdb")
    history.start_run(RunRecord(name="r"))
    answers = [a_rollout(sample=sample) for sample in (0, 1, 2)]
    history.record_rollouts(answers)
    paid = [Reward(total=total, terms={"tests": (1.0, total)}) for total in (0.1, 0.6, 0.3)]
    verdict = a_verdict(Outcome.TESTS_FAILED)
    history.record_verdicts([(a.key, verdict, r) for a, r in zip(answers, paid, strict=True)])
    made = mistakes.never_solved(Source(history, "r"))
    ((problem, *_, count, best, outcome, _),) = made.rows
    assert (problem, count, best, outcome) == (
        answers[0].problem_id,
        "3",
        "0.60",
        "tests failed",
    )
    assert made.links == {0: answers[1].key}
