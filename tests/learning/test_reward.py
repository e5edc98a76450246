"""Reward terms over verdicts, texts and tokens, and their registration."""

from unittest.mock import patch

import pytest

from rtl_core.config import load_config, to_toml
from rtl_core.errors import ConfigError, InfrastructureError
from rtl_core.history.named_queries import named_query
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.learning.reward import TERMS, Conduct, Graded, Reward, reward, term
from rtl_grader.types.verdict import Outcome, Stage, StageResult, Verdict
from tests.nouns import a_problem, a_rollout, a_verdict

PROBLEM = a_problem()
WEIGHTS = {"format": 0.1, "interface": 0.2, "syntax": 0.3, "tests": 1.0}


def verdict(
    outcome: Outcome, passed: str, failed: str = "", tests: tuple[int, int] = (0, 0)
) -> Verdict:
    stages = [StageResult(stage=Stage(name), status="passed") for name in passed.split()]
    stages += [StageResult(stage=Stage(name), status="failed") for name in failed.split()]
    return a_verdict(outcome, stages=tuple(stages), tests_passed=tests[0], tests_total=tests[1])


def earned(
    of: Verdict, weights: dict[str, float] = WEIGHTS, text: str = "module a; endmodule"
) -> Reward:
    return reward(Graded(PROBLEM, of, text, tuple(range(len(text))), "stop"), weights)


COMPILES = "format interface syntax"
FRACTION = {"tests_fraction": 1.0}


@pytest.mark.parametrize(
    ("of", "weights", "total"),
    [
        (verdict(Outcome.PASSED, f"{COMPILES} tests", tests=(3, 3)), WEIGHTS, 1.6),
        (verdict(Outcome.PASSED, f"{COMPILES} tests"), {**WEIGHTS, "interface": 0.0}, 1.4),
        (verdict(Outcome.INTERFACE_MISMATCH, "format syntax", "interface"), WEIGHTS, 0.4),
        (verdict(Outcome.REJECTED, COMPILES), WEIGHTS, 0.0),
        (verdict(Outcome.TESTS_FAILED, COMPILES, "tests", (3, 4)), FRACTION, 0.75),
        # All cocotb tests pass but the lint service fails: not a pass, so not a full score.
        (verdict(Outcome.TESTS_FAILED, COMPILES, "tests", (4, 4)), FRACTION, 0.75),
        (verdict(Outcome.COMPILE_FAILED, "format", "syntax"), FRACTION, 0.0),
    ],
    ids=[
        "passed",
        "interface without a weight",
        "other ports",
        "rejected",
        "3 of 4",
        "4 of 4 and no pass",
        "no code",
    ],
)
def test_a_verdict_earns_the_terms_of_its_passed_stages(of, weights, total):
    assert earned(of, weights).total == pytest.approx(total)


def test_a_ceiling_bounds_the_total_but_not_the_terms():
    passed = verdict(Outcome.PASSED, "format interface syntax tests", tests=(3, 3))
    graded = Graded(PROBLEM, passed, "module a; endmodule", (1,), "stop")
    got = reward(graded, WEIGHTS, most=0.8)
    assert (got.total, got.terms) == (0.8, reward(graded, WEIGHTS).terms)
    assert got.terms["tests"] == (1.0, 1.0)


def test_an_infrastructure_error_is_never_a_reward():
    with pytest.raises(InfrastructureError):
        earned(verdict(Outcome.INFRASTRUCTURE_ERROR, ""), WEIGHTS)


@pytest.fixture
def own_terms():
    """Remove the terms that a test registers."""
    with patch.dict(TERMS):
        yield


@pytest.mark.usefixtures("own_terms")
def test_an_own_term_sees_text_and_tokens_and_is_stored_without_a_weight():
    @term("brief")
    def brief(answer):
        """1 for an empty answer,
        0 from 40 tokens on.

        More for the reader of the code.
        """
        return max(0.0, 1 - len(answer.tokens_T) / 40)

    assert TERMS["brief"].about == "1 for an empty answer, 0 from 40 tokens on."
    compiled = verdict(Outcome.TESTS_FAILED, "format interface syntax", "tests")
    assert earned(compiled, {"brief": 2.0}, "x" * 10).terms["brief"] == (2.0, 0.75)
    # Other modules of the process may have registered more terms.
    assert earned(compiled, WEIGHTS, "x" * 10).terms.items() >= {
        "format": (0.1, 1.0), "interface": (0.2, 1.0), "syntax": (0.3, 1.0), "tests": (1.0, 0.0),
        "tests_fraction": (0.0, 0.0), "brief": (0.0, 0.75),
    }.items()  # fmt: skip
    assert earned(verdict(Outcome.REJECTED, "format"), {"brief": 1.0}, "x").total == 0.0


@pytest.mark.usefixtures("own_terms")
def test_a_term_needs_a_free_name_a_docstring_and_values_in_its_range():
    def bare(answer):
        return 1.5

    def documented(answer):
        """1.5 for every answer."""
        return 1.5

    invalid = (
        ("tests", documented, "twice"),
        ("No Latch", documented, "lower-case"),
        ("generous", bare, "docstring"),
    )
    for name, function, reason in invalid:
        with pytest.raises(ValueError, match=reason):
            term(name)(function)

    def failing(answer):
        """Fails for every answer."""
        return {}["x"]

    term("failing")(failing)
    with pytest.raises(
        ConfigError,
        match=r"'failing' fails for an answer to p\S*: KeyError\('x'\)\n  -> fix \S*test_reward, line",
    ):
        earned(verdict(Outcome.PASSED, "format"), WEIGHTS)
    del TERMS["failing"]
    term("generous")(documented)
    with pytest.raises(ConfigError, match=r"'generous' is 1.5 for an answer to p"):
        earned(verdict(Outcome.PASSED, "format"), WEIGHTS)


MODULE = """
from rtl_core.learning.reward import term

@term("no_latch")
def no_latch(answer):
    '''1 unless the text has `always_latch`.'''
    return float("always_latch" not in answer.text)
"""


@pytest.mark.usefixtures("own_terms")
def test_an_own_module_adds_a_term_to_configuration_and_history(tmp_path, monkeypatch):
    (tmp_path / "terms_of_mine.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    weighed = "reward.weights={no_latch = 0.5, tests = 1.0}"
    with pytest.raises(
        ConfigError,
        match=r"--set reward\.weights=.*: `reward\.weights`: unknown reward term 'no_latch'",
    ):
        load_config("demo", [weighed], environment={})
    with pytest.raises(
        ConfigError,
        match=r"`reward\.plugins`: cannot import terms_of_yours: ModuleNotFoundError",
    ) as error:
        load_config("demo", ['reward.plugins=["terms_of_yours"]', weighed], environment={})
    assert "unknown reward term" not in error.value.message
    assert "add its folder to PYTHONPATH" in error.value.message
    with pytest.raises(
        ConfigError,
        match=r"demo.toml, --set reward\.weights\.leen=1: `reward\.weights`: unknown reward term 'leen'",
    ):
        load_config("demo", ["reward.weights.leen=1"], environment={})
    config = load_config("demo", ['reward.plugins=["terms_of_mine"]', weighed], environment={})
    assert "#   no_latch: 1 unless the text has `always_latch`." in to_toml(config).splitlines()

    history = History(tmp_path / "h.duckdb")
    history.start_run(RunRecord(name="r"))
    passed = verdict(Outcome.PASSED, "format interface syntax tests", tests=(2, 2))
    failed = verdict(Outcome.TESTS_FAILED, "format interface syntax", "tests", (1, 2))
    rows = {}
    for sample, (of, text) in enumerate(
        [(passed, "always_comb"), (failed, "always_latch"), (failed, "assign")]
    ):
        rollout = a_rollout(sample=sample, text=text)
        history.record_rollouts([rollout])
        rows[rollout.key] = (rollout.key, of, earned(of, config.reward.weights, text))
    history.record_verdicts(list(rows.values()))
    stored: dict[str, dict[str, float]] = {}
    for row in history.query("SELECT rollout, term, value FROM term_values").to_pylist():
        stored.setdefault(row["rollout"], {})[row["term"]] = row["value"]
    assert stored == {
        key: {name: value for name, (_, value) in got.terms.items()}
        for key, (_, _, got) in rows.items()
    }
    assert all({"no_latch", "tests_fraction"} <= values.keys() for values in stored.values())
    assert all("area" not in values for values in stored.values()), "nothing was synthesised"
    query = named_query("counterfactual-rollouts")
    given = query.bind({"weights": '{"no_latch": 2.0, "tests_fraction": 1.0}'}, "r")
    assert [row["reward_now"] for row in history.query(query.sql, given).to_pylist()] == [
        3.0,
        0.5,
        2.5,
    ]


def test_terms_of_episodes_are_stored_only_for_episodes():
    passed = verdict(Outcome.PASSED, "format interface syntax tests")
    weights = {"tests": 1.0, "submit": 0.5, "turns_used": -0.4, "tokens_used": -0.2}
    graded = Graded(PROBLEM, passed, "x", (1, 2, 3), "stop", conduct=Conduct(True, 0.5, 0.25))
    assert reward(graded, weights).total == pytest.approx(1.0 + 0.5 - 0.2 - 0.05)
    assert reward(graded, {"tests": 1.0}).terms["submit"] == (0.0, 1.0)
    assert "submit" not in earned(passed, {"tests": 1.0}).terms
