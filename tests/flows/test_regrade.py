"""Stored rollouts are graded again by real simulators, and changed verdicts are reported."""

import asyncio
import shutil

import pytest

from rtl_core.config import load_config
from rtl_core.errors import ConfigError, HistoryError, InfrastructureError
from rtl_core.history.named_queries import named_query
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.learning.reward import Graded, reward
from rtl_core.rollouts.regrading import open_regrading
from rtl_core.rollouts.resumable import Choice
from rtl_core.starter import problem_of, starter_specs
from rtl_distill.flows.regrade import regrade
from rtl_grader.extraction.response import extract_answer
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome
from tests.nouns import a_rollout, golden_answer

pytestmark = pytest.mark.usefixtures("prefect")

ODD_SEEDS_FAIL = (
    '    assert int(__import__("os").environ["COCOTB_RANDOM_SEED"]) % 2 == 0, "an odd seed"\n'
)
"""Appended to the last test of a harness."""
RUN = "graded"


def problems() -> tuple[tuple[Problem, str], tuple[Problem, str]]:
    """Two pairs of problem and golden answer; the second problem's harness fails with odd seeds."""
    first, second = starter_specs("train", 2, seed=3)
    moody = problem_of(second)
    path = next(path for path, text in moody.harness.items() if "\n@cocotb.test()\n" in text)
    moody = moody.model_copy(
        update={"harness": {**moody.harness, path: moody.harness[path] + ODD_SEEDS_FAIL}}
    )
    return (problem_of(first), golden_answer(first)), (moody, golden_answer(second))


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A history of a run with eight rollouts graded with seed 2; per problem: golden, golden again, empty, and golden in an evaluation."""
    history = History(tmp_path_factory.mktemp("graded") / "history.duckdb")
    config = load_config(
        "demo", [f"run.name={RUN}", f"run.history={history.path}", "grading.seed=2"]
    )
    history.start_run(RunRecord(name=RUN, config=config.model_dump(mode="json")))
    pairs = problems()
    history.record_problems(
        RUN, [(problem, "train", i) for i, (problem, _) in enumerate(pairs)]
    )
    with make_executor("bubblewrap") as executor:
        grader = Grader(executor, seed=2)
        rows, rollouts = [], []
        for problem, golden in pairs:
            right = f"```verilog\n{golden}```"
            for sample, text in enumerate((right, right, "I do not know.", right)):
                place = {"purpose": "evaluation", "evaluation": "e"} if sample == 3 else {}
                rollout = a_rollout(
                    run=RUN,
                    step=sample,
                    problem_id=problem.id,
                    sample=sample,
                    text=text,
                    **place,
                )
                verdict = grader.grade(problem, extract_answer(rollout.text, problem.targets))
                rollouts.append(rollout)
                graded = Graded(problem, verdict, text, rollout.tokens_T, rollout.stop_reason)
                rows.append((rollout.key, verdict, reward(graded, config.reward.weights)))
        grader.close()
    history.record_rollouts(rollouts)
    history.record_verdicts(rows)
    assert [v.outcome is Outcome.PASSED for _, v, _ in rows] == [True, True, False, True] * 2
    return history.path


@pytest.fixture
def graded(once, tmp_path):
    """A copy of that history."""
    return History(shutil.copy(once, tmp_path / "history.duckdb"))


def ask(history: History, name: str) -> list[dict]:
    query = named_query(name)
    return history.query(query.sql, query.bind({}, RUN)).to_pylist()


def test_another_seed_shows_which_verdicts_depend_on_it_and_keeps_the_old_ones(graded):
    before = graded.query("SELECT * FROM verdicts ORDER BY rollout")
    label = asyncio.run(regrade(RUN, str(graded.path), seed=3))
    assert label.startswith("bubblewrap-")
    assert label.endswith("-seed3")
    moody = problems()[1][0].id
    changed = ask(graded, "changed-verdicts")
    assert [(r["was"], r["now"]) for r in changed] == [("passed", "tests_failed")] * 3
    passed = "SELECT rollout FROM verdicts WHERE problem_id = ? AND outcome = 'passed'"
    assert {r["rollout"] for r in changed} == {
        r["rollout"] for r in graded.query(passed, [moody]).to_pylist()
    }
    ((counted),) = ask(graded, "regrades")
    assert (counted["label"], counted["rollouts"], counted["changed"]) == (label, 8, 3)
    stored = graded.query("SELECT DISTINCT seed FROM regrades").column(0).to_pylist()
    assert stored == [3]
    assert graded.query("SELECT * FROM verdicts ORDER BY rollout").equals(before)


def test_the_same_tools_and_seed_give_the_same_verdicts_and_a_label_resumes(graded):
    asyncio.run(
        regrade(
            RUN, str(graded.path), label="again", choice=Choice(purpose="train", first_step=1)
        )
    )
    first = graded.query("SELECT rollout, graded_at FROM regrades ORDER BY rollout").to_pylist()
    assert len(first) == 4
    asyncio.run(regrade(RUN, str(graded.path), label="again"))
    found = graded.query("SELECT rollout, graded_at FROM regrades ORDER BY rollout").to_pylist()
    assert len(found) == 8
    assert [row for row in found if row in first] == first
    assert ask(graded, "changed-verdicts") == []


@pytest.mark.slow
def test_a_failure_of_grading_is_no_verdict_and_is_retried(graded, monkeypatch):
    """Without a simulator the flow fails with the reason, and the same label resumes when it is back."""
    from rtl_grader.grading.executors.bubblewrap import BubblewrapExecutor

    def gone(self, job):
        raise InfrastructureError("no sandbox today")

    with monkeypatch.context() as patch:
        patch.setattr(BubblewrapExecutor, "run", gone)
        with pytest.raises(InfrastructureError, match=r"6 rollouts: .*no sandbox today"):
            asyncio.run(regrade(RUN, str(graded.path), label="late"))
    assert graded.query("SELECT count(*) AS n FROM regrades").to_pylist() == [
        {"n": 2}
    ]  # those without any file
    asyncio.run(regrade(RUN, str(graded.path), label="late"))
    assert graded.query("SELECT count(*) AS n FROM regrades").to_pylist() == [{"n": 8}]


def test_an_image_without_docker_and_an_empty_choice_are_refused(graded):
    config = load_config("demo", [f"run.name={RUN}"])
    with pytest.raises(ConfigError, match="uses no image"):
        asyncio.run(regrade(RUN, str(graded.path), image="x"))
    with (
        pytest.raises(HistoryError, match="no graded rollout"),
        open_regrading(graded.path, config, Choice(purpose="train", first_step=9)),
    ):
        pass
