"""`problems describe` as a user runs it: descriptions, their refusal, and the way back."""

import json
from collections import Counter

import pytest

from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.synthesis.asking import affordable
from rtl_core.synthesis.descriptions import Description, add_rows, waiting
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
        command = (
            *("problems", "describe", "--source", f"pairs={tmp_path / 'in.jsonl'}"),
            *("--endpoint", url, "--writer", "writer", "--solver", "solver", "--answers", 2),
            *("--output", pairs, "--db", db),
        )
        asks = run(*command, timeout=600)
        assert asks.returncode == 1
        assert "4 of 4 problems: no price is known" in asks.stdout
        costly = run(*command, "--budget", 1, timeout=600)
        assert "does not surely cover one problem" in costly.stderr
        assert not models.asked, "nothing is asked before the user agrees"
        done = run(*command, "--yes", timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        first = dict(models.asked)
        again = run(*command, "--yes", timeout=600)
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
