"""The red team: no attack is paid, no answer causes an infrastructure error, no honest answer is refused.

A few answers of each group and the fuzzer's corpus always run; every twelfth runs with `-m slow`, every tenth in Docker with
`-m docker`, all of them with `make redteam`.
"""

import collections
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarks.redteam import __main__ as runner
from benchmarks.redteam import fuzz, grading
from benchmarks.redteam.attack import BASES, COUNTER, INC, PAID, UNPAID, Attack
from benchmarks.redteam.catalogue import GROUPS, chosen
from benchmarks.redteam.grading import Graded, confirmed, grade, grade_all, grader_for
from benchmarks.redteam.problems import find
from benchmarks.redteam.tables import read
from rtl_grader.types.verdict import Outcome

FAST = [(group, name) for group in GROUPS for name in read(group).get("fast", ())]
BY_NAME = {
    (group, attack.name): attack for group, attacks in GROUPS.items() for attack in attacks
}


@pytest.fixture(scope="module")
def grader():
    with grader_for("bubblewrap") as made:
        yield made


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("group", "name"),
    [
        *FAST,
        pytest.param("resources", "femtosecond clock @ cvdp/lfsr", marks=pytest.mark.slow),
        pytest.param("resources", "busy wait @ cvdp/lfsr", marks=pytest.mark.slow),
    ],
)
def test_a_few_of_each_group_get_the_right_verdict(grader, group, name):
    attack = BY_NAME[group, name]
    if find(attack.problem) is None:
        pytest.skip(f"the published set of {attack.problem} is missing")
    graded = confirmed(grader, grade(grader, group, attack))
    assert not graded.faults, (graded.outcome, graded.reasons, graded.wall_s)


@pytest.mark.parametrize("attack", fuzz.corpus(), ids=lambda attack: attack.name)
def test_past_findings_of_the_fuzzer_stay_fixed(grader, attack):
    if find(attack.problem) is None:
        pytest.skip(f"the published set of {attack.problem} is missing")
    graded = confirmed(grader, grade(grader, "corpus", attack))
    assert not graded.faults, (graded.outcome, graded.reasons)


@pytest.mark.slow
def test_a_plain_wrong_design_is_never_paid_and_a_right_one_always(grader):
    for base in BASES.values():
        if find(base.problem) is not None:
            for core, right in (("wrong", UNPAID), ("switched", UNPAID), ("good", PAID)):
                attack = Attack(
                    core, "", base.problem, text=base.design(core=core), right=right
                )
                graded = confirmed(grader, grade(grader, "bases", attack))
                assert not graded.faults, (base.problem, core, graded.outcome, graded.reasons)


def test_every_attack_has_its_problem_if_the_published_sets_exist(data):
    assert not {attack.problem for attack in BY_NAME.values() if find(attack.problem) is None}


def test_the_red_team_has_the_promised_size_and_describes_every_entry():
    attacks = [attack for attacks in GROUPS.values() for attack in attacks if not attack.honest]
    honest = [attack for attacks in GROUPS.values() for attack in attacks if attack.honest]
    assert len({(attack.idea, attack.name.split(" @ ")[0]) for attack in attacks}) >= 200
    assert len({attack.name for attack in honest}) >= 90
    assert all(attack.idea for attack in (*attacks, *honest))
    for group, members in GROUPS.items():
        repeated = [
            name
            for name, count in collections.Counter(a.name for a in members).items()
            if count > 1
        ]
        assert not repeated, (group, repeated)
        assert all(
            sum(x is not None for x in (a.text, a.files, a.response)) == 1 for a in members
        )


def test_each_kind_of_wrong_verdict_is_a_fault():
    wrong, right = (Attack("x", "x", "own/bench", text="", right=r) for r in (UNPAID, PAID))

    def faults(attack, outcome, wall_s=1.0, extraction_s=0.0):
        return Graded("g", attack, outcome, (), wall_s, 6.0, extraction_s).faults

    assert faults(wrong, Outcome.TESTS_FAILED) == []
    assert faults(right, Outcome.PASSED) == []
    assert faults(wrong, Outcome.PASSED) == ["paid"]
    assert faults(right, Outcome.REJECTED) == ["honest refused"]
    assert (
        faults(wrong, Outcome.INFRASTRUCTURE_ERROR)
        == faults(right, Outcome.INFRASTRUCTURE_ERROR)
        == ["infrastructure error"]
    )
    assert faults(wrong, Outcome.TIMEOUT, wall_s=9.1) == ["over time"]
    assert faults(wrong, Outcome.NO_ANSWER, extraction_s=4.0) == ["over time"]


@pytest.mark.parametrize(
    ("share", "faults"), [(1.0, ["over time"]), (0.2, [])], ids=["idle", "busy"]
)
def test_a_slow_grading_is_repeated_alone_and_the_load_of_the_machine_is_no_fault(
    monkeypatch, share, faults
):
    attacks = [
        ("g", Attack(name, "x", "own/bench", text=name))
        for name in ("slow once", "slow twice", "quick")
    ]
    walls = {"slow once": [20.0, 1.0], "slow twice": [20.0, 20.0], "quick": [1.0]}
    order = []

    def grade(grader, group, attack):
        order.append(attack.name)
        return Graded(group, attack, Outcome.TIMEOUT, (), walls[attack.name].pop(0), 6.0)

    monkeypatch.setattr(grading, "grade", grade)
    monkeypatch.setattr(grading, "core_share", lambda: share)
    found = {
        graded.attack.name: graded.faults
        for graded in grade_all(SimpleNamespace(but=lambda cache: None), attacks, 1)
    }
    assert found == {"quick": [], "slow once": [], "slow twice": faults}
    assert order == ["slow once", "slow twice", "quick", "slow once", "slow twice"]


def test_a_repeated_grading_does_not_use_the_cache(grader):
    attack = Attack("x", "x", "own/bench", text=INC.design())
    first = grade(grader, "g", attack)
    again = confirmed(grader, replace(first, wall_s=60.0))
    assert again.outcome is first.outcome
    assert grade(grader, "g", attack).wall_s < again.wall_s < 60.0


@pytest.mark.slow
def test_the_runner_prints_a_table_and_fails_if_there_are_faults(tmp_path, monkeypatch, capsys):
    offender = Attack(
        "not honest at all",
        "a wrong design",
        "starter/counter",
        text=COUNTER.design(),
        right=PAID,
    )
    monkeypatch.setitem(GROUPS, "offenders", [offender])
    target = tmp_path / "all.json"
    assert runner.main(["--only", "offenders", "--json", str(target)]) == 1
    assert "honest refused: offenders: 'not honest at all'" in capsys.readouterr().out
    assert json.loads(target.read_text())["bubblewrap"][0]["outcome"] == "tests_failed"
    monkeypatch.setitem(
        GROUPS,
        "offenders",
        [Attack("a wrong design", "x", "starter/counter", text=COUNTER.design())],
    )
    assert runner.main(["--only", "offenders"]) == 0


def test_an_unknown_group_is_named():
    with pytest.raises(ValueError, match="nowhere"):
        chosen(["nowhere"])
    assert {group for group, _ in chosen(["cache", "plain verdict"])} == {
        "cache",
        "bench_channel",
    }
    assert len(chosen(every=10)) < 250


def test_a_case_of_the_fuzzer_depends_only_on_seed_and_number():
    kinds = list(fuzz.KINDS)
    cases = [fuzz.case(7, number, kinds) for number in range(40)]
    assert cases == [fuzz.case(7, number, kinds) for number in range(40)]
    assert {kind for kind, _ in cases} == set(kinds)
    assert cases != [fuzz.case(8, number, kinds) for number in range(40)]


def test_a_finding_is_reduced_and_saved(grader, tmp_path):
    text = COUNTER.design("wire a;\nwire b;\nwire c;\n", before="// one\n// two\n")
    found = grade(
        grader, "tasks", Attack("x", "an idea", "starter/counter", text=text, right=PAID)
    )
    assert found.faults == ["honest refused"]
    small = fuzz.smaller(grader, found)
    assert len(str(small.attack.text)) < len(text)
    fuzz.write_finding(tmp_path, small, [])
    (kept,) = fuzz.corpus(tmp_path)
    assert (kept.text, kept.problem, kept.right) == (small.attack.text, "starter/counter", PAID)


def test_the_fuzzer_lists_the_tasks_of_a_program():
    before, body = fuzz.TRICKS[0].hide("fopen", fuzz.FOPEN)
    hidden = COUNTER.design(body, before, core="switched")
    assert fuzz.simulator_calls(Attack("x", "x", "starter/counter", text=hidden)) == ["$fopen"]


@pytest.mark.parametrize("cases", [16, pytest.param(80, marks=pytest.mark.slow)])
def test_the_fuzzer_finds_nothing(tmp_path, capsys, cases):
    assert fuzz.main(["--cases", str(cases), "--seed", "3", "--output", str(tmp_path)]) == 0
    assert f"{cases} cases" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_a_share_of_the_red_team_in_bubblewrap(warm):
    assert (
        runner.main(
            ["--wall", "10", "--every", "12"]
            if warm
            else ["--cold", "--every", "40", "--wall", "10"]
        )
        == 0
    )


@pytest.mark.docker
def test_a_tenth_of_the_red_team_in_docker():
    assert runner.main(["--executor", "docker", "--every", "10", "--wall", "10"]) == 0
