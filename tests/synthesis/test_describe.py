"""`problems describe` as a user runs it: descriptions, their refusal, and the way back."""

import json
import subprocess
import threading
import time
from collections import Counter

import pytest

from benchmarks.common import command
from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.synthesis.asking import affordable
from rtl_core.synthesis.descriptions import Description, RoundTrips, add_rows, waiting
from rtl_grader.problems.sources import load_problems, source_of
from tests.command import run
from tests.synthesis.models import DESIGNS, INNER, served, specification, write_pairs

ADDING, TAKING, MIXING, JOINING = DESIGNS


@pytest.fixture
def problems(tmp_path):
    write_pairs(tmp_path / "in.jsonl", DESIGNS)
    return load_problems([source_of(f"pairs={tmp_path / 'in.jsonl'}")], 0).every


class Models:
    """A writer and a solver, who is always right about `adding`, once about `taking`, and never about
    `joining`. The first description of `taking` and all of `mixing` use a name of the code."""

    def __init__(self):
        self.asked = Counter()

    def __call__(self, model, words):
        name = next(
            name for name in DESIGNS if f"about {name}" in words or f"`{name}`" in words
        )
        self.asked[model, name] += 1
        if model == "writer":
            leaks = name == MIXING or (name == TAKING and "was refused" not in words)
            leak = f" It keeps {INNER}." if leaks else ""
            return f"<think>{INNER}</think>{specification(name)}{leak}"
        assert INNER not in words
        right = name == ADDING or (name == TAKING and self.asked[model, name] == 1)
        text = DESIGNS[name] if right else DESIGNS[name].replace("step_i;", "~step_i;")
        return f"```verilog\n{text}\n```"


def rows(path):
    return {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}


@pytest.mark.slow
def test_descriptions_are_kept_from_which_a_solver_finds_the_way_back(problems, tmp_path):
    pairs, db, models = tmp_path / "out" / "pairs.jsonl", tmp_path / "h.duckdb", Models()
    with served(models) as url:
        words = (
            *("problems", "describe", "--source", f"pairs={tmp_path / 'in.jsonl'}"),
            *("--endpoint", url, "--writer", "writer", "--solver", "solver", "--answers", 2),
            *("--output", pairs, "--db", db),
        )
        asks = run(*words, timeout=600)
        assert asks.returncode == 1
        assert "4 of 4 problems: no price is known" in asks.stdout
        costly = run(*words, "--budget", 1, timeout=600)
        assert "does not surely cover one problem" in costly.stderr
        assert not models.asked, "nothing is asked before the user agrees"
        done = run(*words, "--yes", timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        first = dict(models.asked)
        again = run(*words, "--yes", timeout=600)
    assert "nothing to do" in again.stdout
    assert dict(models.asked) == first, "nothing is asked twice"
    kept = rows(pairs)
    assert {name: (row["solve_rate"], row["difficulty"]) for name, row in kept.items()} == {
        ADDING: (1.0, "easy"),
        TAKING: (0.5, "medium"),
    }
    assert kept[TAKING]["specification"] == specification(TAKING)
    assert (kept[TAKING]["top"], kept[TAKING]["golden"]) == (TAKING, DESIGNS[TAKING])
    assert {name: row["reason"] for name, row in rows(pairs.with_suffix(".left-out.jsonl")).items()} == {
        MIXING: f"refused: it uses names from inside the code: {INNER}",
        JOINING: "none of 2 answers is equivalent",
    }  # fmt: skip
    assert "kept 2 of 4" in done.stdout
    assert "left out: 1 refused: it uses names from inside the code\n" in done.stdout
    assert len(load_problems([source_of(f"pairs={pairs}")], 0).every) == 2, "they train"
    counted = "SELECT outcome, count(*) AS n FROM verdicts GROUP BY 1"
    outcomes = History(db, read_only=True).query(counted).to_pylist()
    assert {row["outcome"]: row["n"] for row in outcomes} == {
        "not_tested": 3,
        "rejected": 3,  # of the writer
        "passed": 3,
        "tests_failed": 3,  # of the solver
    }


@pytest.mark.slow
def test_rows_are_there_before_the_solver_ends_and_an_interrupted_command_asks_for_nothing_twice(
    problems, tmp_path
):
    pairs, models, answered = tmp_path / "pairs.jsonl", Models(), threading.Event()
    words = (
        *("problems", "describe", "--source", f"pairs={tmp_path / 'in.jsonl'}", "--yes"),
        *("--writer", "writer", "--solver", "solver", "--answers", 2),
        *("--output", pairs, "--db", tmp_path / "h.duckdb"),
    )

    def waits_for_joining(model, text):
        if model == "solver" and f"about {JOINING}" in text:
            answered.wait()
        return models(model, text)

    with served(waits_for_joining) as url:
        first = subprocess.Popen(command(*words, "--endpoint", url))
        while not (pairs.exists() and rows(pairs).keys() == {ADDING, TAKING}):
            assert first.poll() is None
            time.sleep(0.1)
        first.terminate()
        first.wait()
        answered.set()
        before = dict(models.asked)
        done = run(*words, "--endpoint", url, timeout=600)
    assert "kept 2 of 4" in done.stdout, done.stderr[-3000:]
    assert rows(pairs).keys() == {ADDING, TAKING}
    assert rows(pairs.with_suffix(".left-out.jsonl")).keys() == {MIXING, JOINING}
    again = {key: times - before.get(key, 0) for key, times in models.asked.items()}
    assert again.keys() - {key for key, times in again.items() if not times} <= {
        ("solver", JOINING)
    }
    assert not pairs.with_suffix(".asked.json").exists()


def test_a_budget_covers_the_first_problems():
    assert affordable([1.0, 2.0, 4.0], 3.5) == (2, "2 of 3 problems: at most $3.00")
    assert affordable([1.0, 2.0], None) == (2, "2 of 2 problems: at most $3.00")
    with pytest.raises(ConfigError, match="does not surely cover one problem"):
        affordable([4.0], 3.5)


@pytest.mark.slow
def test_the_embedded_models_are_asked_offline(problems, tmp_path):
    done = run(
        *("problems", "describe", "--source", f"pairs={tmp_path / 'in.jsonl'}"),
        *("--base-url", "local", "--writer", "student", "--solver", "student", "--answers", 1),
        *("--output", tmp_path / "pairs.jsonl", "--db", tmp_path / "h.duckdb"),
        sets=["evaluation.max_tokens=32"],
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "kept 0 of 4" in done.stdout
    assert set(rows(tmp_path / "pairs.left-out.jsonl")) == set(DESIGNS)


def test_a_description_may_not_use_names_of_the_code(problems):
    problem = problems[0]
    text = specification(ADDING)
    assert Description(problem, text).refusal is None
    for unusable, why in (
        ("", "empty"),
        (f"{text} See {INNER}.", f"names from inside the code: {INNER}"),
        (f"{text}\nmodule x; endmodule", "contains code"),
        (text.replace("step_i", "the step"), "not name the whole interface: step_i"),
    ):
        assert why in Description(problem, unusable).refusal


def test_an_interrupted_write_harms_no_other_row(problems, tmp_path):
    path = tmp_path / "pairs.jsonl"
    add_rows(path, [{"id": ADDING}])
    path.write_text(path.read_text() + '{"id": "cut')
    add_rows(path, [{"id": TAKING}])
    copy = problems[3].model_copy(update={"id": "a copy"})
    left = waiting([*problems, copy], path, tmp_path / "none.jsonl")
    assert [problem.id for problem in left] == [MIXING, JOINING]


def test_a_result_is_written_once(problems, tmp_path):
    trips, (adding, taking, *_) = RoundTrips(tmp_path / "pairs.jsonl"), problems
    trips.begin([adding.id, taking.id])
    for passed in (2, 1):
        trips.end(Description(adding, specification(ADDING)), passed, 2)
    again = RoundTrips(trips.output)
    again.end(Description(adding, specification(ADDING)), 0, 2)
    again.end(Description(taking, specification(TAKING)), 0, 2)
    assert rows(trips.output)[ADDING]["solve_rate"] == 1.0
    assert rows(trips.others)[TAKING]["reason"] == "none of 2 answers is equivalent"
    assert trips.output.read_text().count("\n") == 1
    assert again.reasons([ADDING]).total() == 0
    assert again.reasons([ADDING, TAKING]) == {"none of 2 answers is equivalent": 1}
    assert again.begun() == [ADDING, TAKING]
    again.finish()
    assert again.begun() == []
