"""The card of an evaluation follows from its verdict records, and what is altered is named."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rtl_core.cards.card import derived, read_sealed
from rtl_core.cards.checking import check_card
from rtl_core.cards.comparing import comparison
from rtl_core.cards.making import check_path, write_cards
from rtl_core.config import RunConfig, load_config
from rtl_core.config.load import shipped_configs
from rtl_core.config.protocol import evaluation_overrides, problems_override, protocol_file
from rtl_core.errors import ConfigError, ProblemError
from rtl_core.history.records import EvaluationRecord, RunRecord
from rtl_core.history.store import History
from rtl_core.learning.intervals import Interval, unpaired_difference
from rtl_core.rollouts.datums import golden_response
from rtl_core.starter import starter_problems
from rtl_distill.cli.evaluating import _is_finished
from rtl_distill.cli.grade import _read_as_by
from rtl_grader.digest import sha256_of
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.grading.verdict_record import sealed
from rtl_grader.problems.errata import errata_of
from rtl_grader.problems.sources import load_problems
from rtl_grader.types.verdict import Outcome
from tests.command import invoke
from tests.nouns import a_rollout, a_verdict

PROBLEMS = starter_problems("heldout", 3, 0)
PASSES = (2, 1, 0)
"""Passes of the two answers to each problem."""
PROTOCOL = protocol_file("cvdp")


def evaluated(
    history: History,
    name: str,
    passes: tuple[int, ...],
    *more: str,
    protocol=PROTOCOL,
    judge=None,
    given=PROBLEMS,
) -> None:
    """Record a finished evaluation of a model with two answers to each of the first `given` problems; without
    `judge` (a grader) their verdicts are given."""
    own = ["problems.sources=[{kind='starter'}]", "tinker.student=student"]
    own += ["evaluation.k=[1, 2]", *more]
    config = load_config(protocol, evaluation_overrides(protocol, own, 2, name), {})
    history.start_run(
        RunRecord(name=name, config=config.model_dump(mode="json"), student="student")
    )
    problems = given[: len(passes)]
    errata = {one.id: "; ".join(map(str, errata_of(one))) for one in problems}
    history.record_problems(name, [(problem, "heldout", None) for problem in problems])
    key = f"{name}/student/00000/heldoutx2"
    for problem, right in zip(problems, passes, strict=True):
        for sample in range(2):
            text = (
                golden_response(problem) if sample < right else "module nothing;\nendmodule\n"
            )
            place = {"run": name, "purpose": "evaluation", "evaluation": key, "epoch": -1}
            one = a_rollout(**place, problem_id=problem.id, sample=sample, text=text)
            history.record_rollouts([one])
            verdict = a_verdict(Outcome.PASSED)
            if judge is not None:
                own = judge.but(seed=config.grading.seed, seeds=config.grading.seeds)
                verdict = own.grade(problem, answer_to(problem, text))
            history.record_verdicts([(one.key, verdict, None)])
    place = {"policy": "student", "step": 0, "split": "heldout", "samples": 2, "status": "done"}
    figures = {"pass_at_1": 0.5, "lo": 0.0, "hi": 1.0, "pass_at_k": {1: 0.5, 2: 2 / 3}}
    figures["errata"] = {name: known for name, known in errata.items() if known}
    history.record_evaluation(EvaluationRecord(key=key, run=name, **place, **figures))


@pytest.fixture(scope="module")
def history(grader, tmp_path_factory):
    history = History(tmp_path_factory.mktemp("cards") / "h.duckdb")
    evaluated(history, "one", PASSES, judge=grader)
    evaluated(history, "two", (2, 2), "evaluation.temperature=0.8", judge=grader)
    return history


@pytest.fixture(scope="module")
def written(history, tmp_path_factory):
    """The folder of a card and its records."""
    folder = tmp_path_factory.mktemp("written")
    for name in ("one", "two"):
        write_cards(history, name, folder / f"{name}.md", Path(PROTOCOL))
    return folder


@pytest.fixture
def folder(written, tmp_path):
    """A copy of them, to be altered."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path


def reproduced(folder: Path, *words: object) -> tuple[int, list[str]]:
    done = invoke("grade", "reproduce", folder / "one.json", *words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout.splitlines()


def alter(path: Path, change: Any, *, reseal: bool = True) -> None:
    card = json.loads(path.read_text())
    change(card)
    path.write_text(json.dumps(sealed(card) if reseal else card))


def alter_records(folder: Path, change: Any) -> None:
    path = folder / "one.verdicts.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    change(records)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_card_says_what_its_figure_is_and_follows_from_its_verdicts(written):
    card = read_sealed(written / "one.json")
    whole = card.figures["all: all problems"]
    assert (whole.n, whole.pass_at[1].mean, whole.pass_at[2].mean) == (3, 0.5, 2 / 3)
    assert card.kinds == {1: "single attempt", 2: "2 attempts"}
    assert card.protocol.name == "cvdp"
    samples, k, kind, *rest = card.protocol.departs
    assert samples == "cvdp, evaluation, samples: 5, 2"
    assert k == "cvdp, evaluation, k: [1, 5], [1, 2]"
    assert kind == "cvdp, problems, sources, 1, kind: cvdp, starter"
    assert all(one.startswith("cvdp, problems, sources, 1, ") for one in rest)
    assert "model: policy" not in (written / "one.md").read_text()
    assert [one.passed for one in card.problems.values()] == [
        PASSES[[p.id for p in PROBLEMS].index(name)] for name in card.problems
    ]
    spent = [card.spent[name] for name in ("answers", "turns of an answer, mean", "usd")]
    assert spent == [6, 1, None]
    (tools,) = card.tools
    assert "iverilog" in tools
    code, lines = reproduced(written)
    assert (
        lines[0]
        == f"the figures of {written / 'one.json'} follow from {written / 'one.verdicts.jsonl'}"
    )
    assert (code, lines[1]) == (
        0,
        "the answers were not graded again: give --source or --run for that",
    )


def test_markdown_and_page_show_the_card(written, history):
    text = (written / "one.md").read_text()
    assert (
        text.splitlines()[0]
        == "# student on problems of starter with changed settings of cvdp: "
        "pass@1 50.0 % \\[0.0, 100.0\\], single attempt, 3 problems"
    )
    assert "| all: all problems | 3 | pass@2 | 66.7 %" in text
    assert "2 attempts |" in text
    assert "| spent: answers | 6 |" in text
    assert "| protocol: settings: evaluation: samples | 2 |" in text
    assert "| protocol: settings: problems: sources: 1: kind | starter |" in text
    assert "| 6 verdicts |" in text
    assert "{'" not in text
    (page, *_) = write_cards(history, "one", written / "page.html")
    assert "single attempt, 3 problems" in page.read_text()
    assert page.stat().st_size < 200_000


def test_a_card_does_not_replace_that_of_another_evaluation(history, folder):
    kept = (folder / "one.json").read_text()
    for write in (
        lambda: write_cards(history, "two", folder / "one.html"),
        lambda: check_path(folder / "one.md", "two"),
    ):
        with pytest.raises(ConfigError, match="the card of another evaluation: run one, fin"):
            write()
    error = invoke("evaluate", "two", "--card", folder / "one.md").exception
    assert "the card of another evaluation: run one" in str(error)
    assert (folder / "one.json").read_text() == kept
    write_cards(history, "one", folder / "one.md", Path(PROTOCOL))
    assert (folder / "one.json").read_text() == kept
    (folder / "mine.html").write_text("")
    with pytest.raises(ConfigError, match=r"mine\.html is no card"):
        check_path(folder / "mine.html")


def test_only_the_same_finished_evaluation_needs_nothing_but_its_card(history, tmp_path):
    asked = RunConfig.model_validate(history.existing_run("one").config)
    place = history.path, tmp_path / "card.json"
    history.set_run_status("one", "running")
    assert not _is_finished(*place, asked)
    history.set_run_status("one", "finished")
    assert _is_finished(*place, asked)
    hotter = asked.evaluation.model_copy(update={"temperature": 0.9})
    assert not _is_finished(*place, asked.model_copy(update={"evaluation": hotter}))
    assert not _is_finished(tmp_path / "none.duckdb", place[1], asked)


def test_equal_problems_are_both_in_a_card(tmp_path):
    history = History(tmp_path / "h.duckdb")
    twice = [PROBLEMS[0], PROBLEMS[0].model_copy(update={"id": "again"})]
    evaluated(history, "twice", (2, 0), given=twice)
    (file, *_) = write_cards(history, "twice", tmp_path / "card.json")
    passed = {name: one.passed for name, one in read_sealed(file).problems.items()}
    assert passed == {PROBLEMS[0].id: 2, "again": 2}


@pytest.mark.slow
def test_each_protocol_has_a_card_that_names_it_and_what_was_changed(tmp_path):
    history = History(tmp_path / "h.duckdb")
    names = [name for name in shipped_configs("protocols") if name != "round-trip"]
    assert len(names) >= 8
    for name in names:
        path = str(shipped_configs("protocols")[name])
        evaluated(history, name, (2,), "evaluation.top_p=0.123", protocol=path)
        (file, *_) = write_cards(history, name, tmp_path / f"{name}.json", Path(path))
        card = read_sealed(file)
        assert card.protocol.name == name
        departs = {one.split(":")[0] for one in card.protocol.departs}
        assert f"{name}, evaluation, top_p" in departs
        changed = {f"{name}, evaluation, {key}" for key in ("top_p", "samples", "k")}
        assert all(one in changed or f"{name}, problems, sources" in one for one in departs)
        assert check_card(file)[1] == []


READ = {
    "cvdp-cid003": "cvdp=cvdp-single/problems.jsonl",
    "verilog-eval": "verilog-eval=verilog-eval",
    "rtllm": "rtllm=RTLLM",
    "rtl-benchls-masked": "rtl=rtl-benchls/slice_01.jsonl",
}
"""Protocol -> the source in the published problem sets that it reads."""


@pytest.mark.slow
@pytest.mark.parametrize("name", READ)
def test_a_card_is_checked_with_the_problems_that_its_protocol_reads(name, tmp_path, data):
    kind, _, place = READ[name].partition("=")
    file = protocol_file(name)
    sources = [problems_override([str(data / place)], file)]
    config = load_config(file, [*sources, "tinker.student=any"], {})
    read = load_problems(config.problems.sources, 0, hold_out_all=True).heldout
    history = History(tmp_path / "h.duckdb")
    evaluated(history, name, (2,), *sources, protocol=file, given=read)
    (card, *_) = write_cards(history, name, tmp_path / f"{name}.json", Path(file))
    assert not [one for one in read_sealed(card).protocol.departs if "problems" in one]
    again = _read_as_by(card, [f"{kind}={data / place}"])
    assert [one.fingerprint for one in again] == [one.fingerprint for one in read]
    assert check_card(card, problems=again[:1])[1] == []
    (fault,) = check_card(card, problems=again)[1]
    assert f"{len(again) - 1} of the given problems have neither" in fault


def test_settings_that_an_evaluation_has_of_its_own_are_the_cards(history, tmp_path):
    record = history.evaluation("one/student/00000/heldoutx2")
    own = record.model_copy(update={"temperature": 0.9, "template": "table", "split": "test"})
    history.record_evaluation(own)
    (file, *_) = write_cards(history, own.key, tmp_path / "card.json")
    history.record_evaluation(record)
    card = read_sealed(file)
    settings = card.protocol.settings
    assert (settings["evaluation"]["temperature"], settings["prompting"]["template"]) == (
        0.9,
        "table",
    )
    assert settings["conditions"] == ["template table", "temperature 0.9"]
    assert card.provenance["split"] == "test"
    assert check_card(file)[1] == []


def test_a_card_says_that_problems_of_a_published_set_were_edited(tmp_path):
    problem = PROBLEMS[0].model_copy(update={"id": "verilog_eval_Prob001_zero"})
    history = History(tmp_path / "h.duckdb")
    evaluated(history, "edited", (2,), given=[problem])
    (file, *_) = write_cards(history, "edited", tmp_path / "card.json")
    (line,) = read_sealed(file).provenance["data"]
    assert line.startswith("1 problem with the ids of VerilogEval")


def test_known_faults_of_a_set_have_a_figure_without_them(history, tmp_path):
    record = history.evaluation("one/student/00000/heldoutx2")
    faulty = record.model_copy(update={"errata": {FIRST: "its bench is wrong"}})
    history.record_evaluation(faulty)
    (file, *_) = write_cards(history, faulty.key, tmp_path / "card.json")
    history.record_evaluation(record)
    card = read_sealed(file)
    assert card.figures["faults: without known faults"].n == len(PROBLEMS) - 1
    assert card.problems[FIRST].errata == "its bench is wrong"
    assert check_card(file)[1] == []


FIRST, SECOND, _ = sorted(problem.id for problem in PROBLEMS)


def passes_more(card):
    card["problems"][FIRST]["passed"] = 5


def higher(card):
    card["figures"]["all: all problems"]["pass_at"]["1"]["mean"] = 0.9


def other_data(card):
    card["data"]["starter"] = "0" * 64


def other_tool(card):
    (words,) = card["tools"]
    card["tools"] = {words.replace("iverilog ", "iverilog 99."): 6}


def other_kind(card):
    card["kinds"] = {"1": "feedback of the harness", "2": "feedback of the harness, 2 attempts"}


def other_settings(card):
    card["protocol"]["settings"]["evaluation"]["temperature"] = 1.0


def other_seed(card):
    card["protocol"]["settings"]["grading"]["seed"] = 7
    card["protocol"]["hash"] = sha256_of(card["protocol"]["settings"])


def silent(card):
    del card["protocol"]["departs"][0]


def more_samples(card):
    card["protocol"]["settings"]["evaluation"]["samples"] = 3


def no_settings(card):
    card["protocol"]["settings"] = {"grading": [], "evaluation": 5}
    card["protocol"]["hash"] = sha256_of(card["protocol"]["settings"])


def without_k(card):
    del card["kinds"]["2"]


def another_k(card):
    card["kinds"]["3"] = "3 attempts"


def no_number(card):
    card["figures"]["all: all problems"]["pass_at"]["1"]["mean"] = float("nan")


ALTERED = {
    "passes": (passes_more, f"card, problems, {FIRST}, passed: 5, "),
    "figure": (higher, "card, figures, all: all problems, pass_at, 1, mean: 0.9, 0.5 by the verdicts"),
    "data hash": (other_data, f"card, data, starter: {'0' * 64}, "),
    "tool": (other_tool, "card, tools, bubblewrap, "),
    "kind": (other_kind, "card, kinds, 1: feedback of the harness, single attempt by the verdicts"),
    "settings": (other_settings, "card, protocol: its hash is not that of its settings"),
    "seed": (other_seed, "card, protocol, settings, grading, seed: 7, 1 by the verdicts"),
    "departures": (silent, "card, protocol, departs: is silent about cvdp, evaluation, samples: 5, 2"),
    "samples": (more_samples, f"{FIRST}: has samples 0, 1, but the card's settings ask for 3"),
    "no settings": (no_settings, "card, protocol, settings, grading: Input should be"),
    "a k left out": (without_k, "card, kinds: has k [1], but the card's settings ask for [1, 2]"),
    "a k too many": (another_k, "card, kinds: has k [1, 2, 3], but the card's settings ask for [1, 2]"),
    "no number": (no_number, "card, figures, all: all problems, pass_at, 1, mean: nan, 0.5 by the verdicts"),
}  # fmt: skip


@pytest.mark.parametrize("name", ALTERED)
def test_an_altered_card_is_refused_by_name_also_when_it_is_sealed_again(folder, name):
    change, said = ALTERED[name]
    alter(folder / "one.json", change)
    code, lines = reproduced(folder)
    assert code == 1
    assert any(line.startswith(said) for line in lines), lines
    assert not any("altered since" in line for line in lines)
    alter(
        folder / "one.json",
        lambda card: card.update(left_out={"too long": 3}),
        reseal=False,
    )
    assert "card, left_out: altered since it was sealed" in reproduced(folder)[1]


def passed_instead(records):
    (index, *_) = (i for i, one in enumerate(records) if not one["passed"])
    records[index] = sealed({**records[index], "outcome": "passed", "passed": True})


def removed(records):
    del records[3]


def edited(records):
    records[0]["tests_passed"] = 99


def on_other_data(records):
    graded = {**records[0]["graded"], "problem": "0" * 64}
    records[0] = sealed({**records[0], "graded": graded})


def by_another_tool(records):
    records[0] = sealed({**records[0], "tools": {**records[0]["tools"], "iverilog": "99"}})


def twice(records):
    records.append(records[1])


def of_another_problem(records):
    records.append(sealed({**records[0], "id": "another"}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (passed_instead, "passed: "),
        (removed, f"{SECOND} sample 1: its verdict is missing"),
        (twice, f"two verdicts on {FIRST} sample 1"),
        (edited, "altered: tests_passed"),
        (on_other_data, "fingerprint: "),
        (by_another_tool, "iverilog 99"),
        (of_another_problem, "another sample 0: the card has no such problem"),
    ],
)
def test_altered_and_missing_verdicts_are_named(folder, change, said):
    alter_records(folder, change)
    code, lines = reproduced(folder)
    assert code == 1
    assert any(said in line for line in lines), lines


@pytest.mark.slow
def test_a_verdict_forged_throughout_is_found_by_grading(folder, history):
    code, lines = reproduced(folder, "--run", "one", "--db", history.path)
    assert (code, lines[-1]) == (0, "6 of 6 verdicts are equal")
    alter_records(folder, passed_instead)
    path = folder / "one.verdicts.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]

    def follow(card):
        labels = {n: dict(p) for n, p in read_sealed(folder / "one.json").problems.items()}
        fields = derived(records, labels, {1, 2})
        whole = read_sealed(folder / "one.json").model_copy(update=fields)
        card.update(whole.model_dump(mode="json"))

    alter(folder / "one.json", follow)
    assert reproduced(folder)[0] == 0
    code, lines = reproduced(folder, "--run", "one", "--db", history.path)
    assert code == 1
    assert any("other outcome" in line for line in lines)


def test_data_that_is_not_the_cards_is_named(written):
    first, second, third = PROBLEMS
    changed = first.model_copy(update={"prompt": "other words"})
    changed.__dict__.pop("fingerprint", None)
    given = [changed, third, *starter_problems("train", 1, 0)]
    _, faults = check_card(written / "one.json", problems=given)
    assert sorted(faults) == sorted(
        [
            f"{first.id}: other data than the card's",
            f"{second.id}: not among the given problems",
            f"card, left_out: 1 of the given problems have neither verdict nor reason: {given[-1].id}",
        ]
    )
    assert check_card(written / "one.json", problems=PROBLEMS)[1] == []


def test_labels_and_what_is_left_out_are_compared_with_the_data(folder):
    another, *_ = starter_problems("train", 1, 0)

    def forge(card):
        card["model"]["train steps"] = 0
        card["problems"][FIRST].update(errata="its bench is wrong", difficulty="hard")
        card["left_out"] = {"too long": 99, another.id: 1}

    alter(folder / "one.json", forge)
    _, faults = check_card(folder / "one.json", problems=[*PROBLEMS, another])
    assert f"card, problems, {FIRST}, errata: its bench is wrong,  by the data" in faults
    assert any(one.startswith(f"card, problems, {FIRST}, difficulty: hard, ") for one in faults)
    assert faults[-1].endswith(f"have neither verdict nor reason: {another.id}")
    alter(folder / "one.json", lambda card: card["left_out"].update({another.id: "too long"}))
    assert (
        "left_out" not in check_card(folder / "one.json", problems=[*PROBLEMS, another])[1][-1]
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no card: it is not JSON"),
        ("[]", "is no card: it has no field `card`"),
        ('{"card": 99}', "is a card of version 99; this rtl-distill reads up to 1"),
        ('{"card": 1}', "is no card: model: Field required"),
        ("no name", "the model has no name"),
    ],
)
def test_what_is_no_card_is_refused(folder, text, said):
    path = folder / "one.json"
    if text == "no name":
        alter(path, lambda card: card["model"].pop("name"))
    else:
        path.write_text(text)
    for words in (("grade", "reproduce", path), ("compare", path, path)):
        error = invoke(*words).exception
        assert isinstance(error, ProblemError)
        assert said in str(error)


def test_missing_files_and_other_forms_are_said(folder):
    (folder / "one.verdicts.jsonl").unlink()
    error = invoke("grade", "reproduce", folder / "one.json").exception
    assert f"cannot read the verdicts {folder / 'one.verdicts.jsonl'}" in str(error)
    error = invoke("evaluate", "demo", "--card", folder / "x.pdf").exception
    assert "unknown form" in str(error)
    (folder / "data.json").write_text("{}")
    error = invoke("evaluate", "demo", "--card", folder / "data.md").exception
    assert f"{folder / 'data.json'} is no card" in str(error)
    error = invoke("compare", folder / "one.json", "demo").exception
    assert "cannot read the card demo" in str(error)


def test_two_cards_are_compared_paired_over_what_both_have(written):
    done = invoke("compare", written / "one.json", written / "two.json")
    assert done.exit_code == 0, done.exception
    lines = done.stdout.splitlines()
    assert "not comparable: protocol, evaluation, temperature: 0.2, 0.8" in lines
    assert f"not comparable: data, 1 problem only in the first: {PROBLEMS[2].id}" in lines
    assert lines[-1].startswith(
        "second minus first, paired over the 2 problems of both: +25.0 points"
    )


def test_the_order_of_tools_makes_no_difference(written):
    one = read_sealed(written / "one.json")
    both = [one.model_copy(update={"tools": dict.fromkeys(names, 3)}) for names in ("ab", "ba")]
    assert not [line for line in comparison(*both) if line.startswith("not comparable")]


def test_cards_without_a_common_problem_are_compared_by_their_intervals(written):
    one, two = (read_sealed(written / f"{name}.json") for name in ("one", "two"))
    others = {f"other {name}": problem for name, problem in two.problems.items()}
    *_, last = comparison(one, two.model_copy(update={"problems": others}))
    assert last.startswith(
        "second minus first, unpaired, since no problem is in both: +50.0 points"
    )
    gap = unpaired_difference(Interval(0.5, 0.2, 0.8, 9), Interval(0.7, 0.3, 0.9, 4))
    assert (gap.mean, gap.lo, gap.hi) == pytest.approx((0.2, -0.3, 0.2 + 0.13**0.5))
