"""The query `what-rl-taught` against a computation by hand, and where there is nothing to tell."""

import itertools
import math

import numpy as np
import pytest

from rtl_core.history.named_queries import named_query
from rtl_core.history.records import EvaluationRecord, RunRecord
from rtl_core.history.store import History
from rtl_core.reporting.blocks import Source
from rtl_core.reporting.figures.gain_parts import causes, levels
from rtl_grader.types.verdict import Outcome, Stage, StageResult, StageStatus
from tests import synthetic
from tests.nouns import a_problem, a_rollout, a_verdict

# What an answer is: passed, wrong, wrong interface that compiles, wrong interface that does not, does not compile, no answer.
KINDS = {
    "p": (Outcome.PASSED, "pppp"),
    "w": (Outcome.TESTS_FAILED, "pppf"),
    "i": (Outcome.INTERFACE_MISMATCH, "pfps"),
    "I": (Outcome.INTERFACE_MISMATCH, "pffs"),
    "c": (Outcome.COMPILE_FAILED, "ppfs"),
    "n": (Outcome.NO_ANSWER, "fsss"),
    "x": (Outcome.INFRASTRUCTURE_ERROR, "ssss"),
    "P": (Outcome.PASSED, "pfsp"),  # passed, although an earlier stage did not
}
STATUS: dict[str, StageStatus] = {"p": "passed", "f": "failed", "s": "skipped"}
COMPILES, FITS = "pwi", "pw"
FIRST = {"one": "nccw", "two": "iiwp", "three": "nnnn", "four": "Iciw", "five": "wwww"}
LAST = {"one": "wppc", "two": "pppp", "three": "ppwi", "four": "ccnn", "five": "pwww"}


def write(path, evaluations, config=None, sources=None):
    """A history with the run `demo`: `evaluations` maps (step, other fields) to problem -> its answers' kinds."""
    history = History(path)
    samples = len(next(iter(next(iter(evaluations.values())).values())))
    config = config or {"evaluation": {"samples": samples}}
    history.start_run(
        RunRecord(
            name="demo", status="finished", config=config, config_hash="c", problems_hash="p"
        )
    )
    names = sorted({name for answers in evaluations.values() for name in answers})
    problems = [a_problem(id=n, source=(sources or {}).get(n, "starter")) for n in names]
    rows = [(problem, "heldout", None) for problem in problems]
    history.record_problems("demo", rows)
    for (step, *other), answers in evaluations.items():
        key = f"demo-student-{step}-{'-'.join(map(str, other))}"
        fields = dict(zip(("template", "policy"), other, strict=False))
        fields = {"policy": "student", "split": "heldout", **fields}
        record = EvaluationRecord(
            key=key,
            run="demo",
            step=step,
            status="done",
            n_problems=len(answers),
            samples=samples,
            pass_at_1=0.5,
            lo=0,
            hi=1,
            **fields,
        )
        history.record_evaluation(record)
        rollouts = [
            (a_rollout(run="demo", purpose="evaluation", evaluation=key, step=step, problem_id=name, sample=i), kind)
            for name, kinds in answers.items() for i, kind in enumerate(kinds)
        ]  # fmt: skip
        history.record_rollouts([rollout for rollout, _ in rollouts])
        history.record_verdicts(
            [(rollout.key, verdict(kind), None) for rollout, kind in rollouts]
        )
    return history


def verdict(kind):
    outcome, statuses = KINDS[kind]
    stages = [
        StageResult(stage=stage, status=STATUS[s])
        for stage, s in zip(Stage, statuses, strict=True)
    ]
    return a_verdict(outcome, stages=tuple(stages))


def ask(history, **given):
    query = named_query("what-rl-taught")
    rows = history.query(query.sql, query.bind(given, "demo")).to_pylist()
    return {row["part"]: row for row in rows}


def by_hand(first, last):
    """The parts of each problem's gain by walking from one evaluation to the other in every order."""
    parts = []
    for name in first:
        counts = []
        for kinds in (first[name], last[name]):
            n = [
                len(kinds),
                *(sum(k in group for k in kinds) for group in (COMPILES, FITS, "p")),
            ]
            counts.append([b / a if a else None for a, b in itertools.pairwise(n)])
        old, new = (
            [a if a is not None else b or 0.0 for a, b in zip(*pair, strict=True)]
            for pair in (counts, counts[::-1])
        )
        share = np.zeros(3)
        for order in itertools.permutations(range(3)):
            state = list(old)
            for factor in order:
                was = math.prod(state)
                state[factor] = new[factor]
                share[factor] += (math.prod(state) - was) / 6
        parts.append(share)
    return np.array(parts)


def test_the_parts_are_those_of_every_order_and_add_up_to_the_gain(tmp_path):
    history = write(tmp_path / "h.duckdb", {(0,): FIRST, (9,): LAST, (4,): LAST})
    found, parts_PK = ask(history), by_hand(FIRST, LAST)
    compiles, interface, right = 100 * parts_PK.mean(axis=0)
    gain = 100 * np.mean([(LAST[n].count("p") - FIRST[n].count("p")) / 4 for n in FIRST])
    assert found["pass@1"]["points"] == pytest.approx(gain)
    assert found["compiles"]["points"] == pytest.approx(compiles)
    assert found["… right interface"]["points"] == pytest.approx(interface)
    assert found["… right behaviour"]["points"] == pytest.approx(right)
    assert found["passes, if it compiles"]["points"] == pytest.approx(interface + right)
    assert compiles + interface + right == pytest.approx(gain)
    counts = "".join(FIRST.values())
    compiled = sum(counts.count(kind) for kind in COMPILES)
    assert found["compiles"]["before"] == pytest.approx(compiled / 20)
    assert found["passes, if it compiles"]["before"] == pytest.approx(
        counts.count("p") / compiled
    )
    assert found["wrong interface"]["before"] == pytest.approx(
        sum(map(counts.count, "iI")) / 20
    )
    shares = [row for row in found.values() if row["kind"] == "level"]
    assert sum(row["before"] for row in shares) == pytest.approx(1)
    assert sum(row["points"] for row in shares) == pytest.approx(0, abs=1e-9)
    assert found["passed"]["points"] == pytest.approx(gain)


def test_the_intervals_are_those_of_a_bootstrap_over_problems(tmp_path):
    rng = np.random.default_rng(2)
    first = {f"p{i}": "".join(rng.choice([*"pwwiccn"], 4)) for i in range(40)}
    last = {f"p{i}": "".join(rng.choice([*"pppwwic"], 4)) for i in range(40)}
    found = ask(write(tmp_path / "h.duckdb", {(0,): first, (9,): last}))
    parts_PK = by_hand(first, last)
    draws = rng.integers(0, 40, (20_000, 40))
    means_DK = parts_PK[draws].mean(axis=1)
    gains_D = means_DK.sum(axis=1)
    for k, part in enumerate(("compiles", "… right interface", "… right behaviour")):
        row = found[part]
        assert [row["lo"], row["hi"]] == pytest.approx(
            100 * np.quantile(means_DK[:, k], [0.025, 0.975]), abs=0.8
        )
        shares = np.quantile(means_DK[:, k] / gains_D, [0.025, 0.975])
        assert [row["share_lo"], row["share_hi"]] == pytest.approx(shares, abs=0.05)
    assert sum(
        found[p]["share"] for p in ("compiles", "passes, if it compiles")
    ) == pytest.approx(1)


@pytest.mark.parametrize(
    "evaluations",
    [
        {(9,): LAST},  # no baseline
        {(0,): FIRST},  # no end
        {(0,): FIRST, (9, "brief"): LAST},  # another template
        {(0,): FIRST, (9, None, "teacher"): LAST},
        {(0,): FIRST, (9,): {"other": "pppp"}},  # other problems
        {(0,): FIRST, (9,): dict.fromkeys(FIRST, "xppp")},  # not graded whole
    ],
)
def test_without_two_comparable_evaluations_there_is_nothing_to_tell(tmp_path, evaluations):
    history = write(tmp_path / "h.duckdb", evaluations)
    assert ask(history) == {}
    source = Source(history, "demo")
    assert (causes([source]).rows, levels(source).rows) == ([], [])


@pytest.mark.slow
def test_a_loss_and_a_gain_of_nothing_have_no_share_and_say_so(tmp_path):
    one = {name: kinds for name, kinds in FIRST.items() if name != "three"}
    loss = dict.fromkeys(one, "cccc")
    for number, (last, words) in enumerate(
        ((one, "cannot be told from 0"), (loss, "cannot be told from 0"))
    ):
        history = write(tmp_path / f"{number}.duckdb", {(0,): one, (9,): last})
        found = ask(history)
        assert {row["share"] for row in found.values()} == {None}
        table = causes([Source(history, "demo")])
        assert words in table.caption
        assert {row[-1] for row in table.rows} == {"–"}
    wrong = dict.fromkeys("abcdefgh", "wwww")
    history = write(tmp_path / "fell.duckdb", {(0,): dict.fromkeys(wrong, "pppp"), (9,): wrong})
    assert ask(history)["… right behaviour"]["points"] == -100
    assert "pass@1 fell" in causes([Source(history, "demo")]).caption


def test_a_loss_in_one_source_and_a_gain_of_nothing_in_all_are_both_named(tmp_path):
    lost, won = [f"l{i}" for i in range(6)], [f"w{i}" for i in range(6)]
    first = dict.fromkeys(lost, "pppp") | dict.fromkeys(won, "cccc")
    last = dict.fromkeys(lost, "wwww") | dict.fromkeys(won, "pppp")
    history = write(
        tmp_path / "h.duckdb",
        {(0,): first, (9,): last},
        sources=dict.fromkeys(lost, "cvdp"),
    )
    table = causes([Source(history, "demo")])
    assert table.caption.endswith("No share: pass@1 fell, or the gain cannot be told from 0.")
    shares = {row[0]: row[-1] for row in table.rows}
    assert shares == {"cvdp": "–", "starter": "100 %", "all together": "–"}


def test_one_sample_a_problem_and_one_problem(tmp_path):
    history = write(
        tmp_path / "one.duckdb",
        {(0,): {"a": "c", "b": "w", "c": "i", "d": "p"}, (9,): dict.fromkeys("abcd", "p")},
    )
    found = ask(history)
    points = [
        found[part]["points"]
        for part in ("compiles", "… right interface", "… right behaviour", "pass@1")
    ]
    assert points == pytest.approx([25, 25, 25, 75])
    history = write(tmp_path / "single.duckdb", {(0,): {"a": "cw"}, (9,): {"a": "pp"}})
    found = ask(history)
    assert {row[name] for row in found.values() for name in ("lo", "hi", "share")} == {None}
    table = causes([Source(history, "demo")])
    assert table.rows[-1][-2:] == ["+100.0", "–"]
    assert "cannot be told from 0" in table.caption
    assert found["pass@1"]["points"] == 100
    assert found["compiles"]["points"] + found["… right behaviour"]["points"] == pytest.approx(
        100
    )


def test_a_pass_counts_at_every_stage_so_that_the_parts_add_up(tmp_path):
    first, last = {"a": "cccc", "b": "cwww"}, {"a": "PPPw", "b": "PPpp"}
    found = ask(write(tmp_path / "h.duckdb", {(0,): first, (9,): last}))
    whole = {name: kinds.replace("P", "p") for name, kinds in last.items()}
    parts = ("compiles", "… right interface", "… right behaviour")
    assert [found[part]["points"] for part in parts] == pytest.approx(
        [*(100 * by_hand(first, whole).mean(axis=0))]
    )
    assert sum(found[part]["points"] for part in parts) == pytest.approx(87.5)


def test_with_a_warm_start_it_begins_after_it(tmp_path):
    config = {"evaluation": {"samples": 4}, "learning": {"warm_start_steps": 4}}
    every = {(0,): FIRST, (4,): LAST, (9,): FIRST}
    found = ask(write(tmp_path / "warm.duckdb", every, config))
    assert found["pass@1"]["points"] == pytest.approx(
        100 * by_hand(LAST, FIRST).sum(axis=1).mean()
    )
    # Not evaluated after the warm start: from the beginning.
    found = ask(write(tmp_path / "not.duckdb", {(0,): FIRST, (9,): LAST}, config))
    assert found["pass@1"]["points"] == pytest.approx(
        100 * by_hand(FIRST, LAST).sum(axis=1).mean()
    )
    # Nothing but a warm start teaches nothing by RL.
    assert ask(write(tmp_path / "only.duckdb", {(0,): FIRST, (4,): LAST}, config)) == {}


def test_each_source_by_itself(tmp_path):
    history = write(
        tmp_path / "h.duckdb",
        {(0,): FIRST, (9,): LAST},
        sources={"one": "cvdp", "five": "cvdp"},
    )
    own = {name: (FIRST[name], LAST[name]) for name in ("one", "five")}
    expected = by_hand(*({n: pair[i] for n, pair in own.items()} for i in (0, 1)))
    assert ask(history, source="cvdp")["pass@1"]["points"] == pytest.approx(
        100 * expected.sum(axis=1).mean()
    )
    rows = causes([Source(history, "demo")]).rows
    assert [row[0] for row in rows[::5]] == ["cvdp", "starter", "all together"]


@pytest.mark.slow
def test_several_runs_are_told_apart(tmp_path):
    path = tmp_path / "h.duckdb"
    history = write(path, {(0,): FIRST, (9,): LAST})
    synthetic.write_run(path, "other")
    table = causes([Source(history, "demo"), Source(history, "other")])
    assert [heading for heading, _ in table.columns[:2]] == ["run", "an answer"]
    assert [row[0] for row in table.rows] == ["demo"] * 5 + ["other"] * 5
    assert {len(row) for row in table.rows} == {len(table.columns)}
