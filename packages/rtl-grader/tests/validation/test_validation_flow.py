"""The validation flow over whole sets: one table, reuse of stored results, and only fit problems take part."""

import asyncio
import json

import pytest

from rtl_core.history.store import History
from rtl_core.synthesis.variants import record_of
from rtl_grader.validation.table import by_source


@pytest.fixture
def problem_file(tmp_path, planted):
    """An honest problem, an always-passing one, a flaky one, one that needs a missing tool, and a broken line."""
    by_seed = 'import os, sys\nsys.exit(int(os.environ["COCOTB_RANDOM_SEED"]) % 2)\n'
    programs = {
        "honest": planted().harness["src/run.py"],
        "always": "pass\n",
        "flips": by_seed,
        "lacking": "import no_such_module_anywhere\n",
    }
    lines = [
        json.dumps(record_of(planted(run, identity=identity)))
        for identity, run in programs.items()
    ]
    lines.append('{"id": "torn", "categories": ["cid003", "easy"], "input": {"prompt": 7}}')
    path = tmp_path / "planted.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def overrides(tmp_path, problem_file):
    """A run on these problems in its own folder."""
    source = f'problems.sources=[{{kind="cvdp", path="{problem_file}", heldout_fraction=0.0}}]'
    return [f"run.directory={tmp_path}", f"run.history={tmp_path / 'history.duckdb'}", source]


@pytest.mark.slow
def test_a_set_is_validated_once_and_each_unfit_problem_is_named(prefect, tmp_path, overrides):
    from prefect.client.orchestration import get_client

    from rtl_distill.flows.validate import validate

    first = asyncio.run(validate("demo", overrides, "full", 4, 2))
    assert first == {"fit": 1, "weak": 1, "flaky": 1, "unsupported": 1, "known": 0}

    second = asyncio.run(validate("demo", overrides, "full", 4, 2))
    assert second == {**first, "known": 4}, "stored results are reused"
    third = asyncio.run(validate("demo", overrides, "full", 5, 2))
    assert third["known"] == 0, "another level is another validation"

    history = History(tmp_path / "history.duckdb", read_only=True)
    rows = {r["problem_id"]: r for r in history.query("SELECT * FROM validations").to_pylist()}
    assert {i: r["status"] for i, r in rows.items()} == {
        "honest": "fit", "always": "weak", "flips": "flaky", "lacking": "unsupported",
    }  # fmt: skip
    assert "no_such_module_anywhere" in json.loads(rows["lacking"]["evidence"])["reason"]
    run = history.run("demo.validation")
    assert run.status == "finished"

    async def artifacts():
        async with get_client() as client:
            return [
                a
                for a in await client.read_artifacts()
                if a.key == "validation-demo-validation"
            ]

    found = asyncio.run(artifacts())
    assert found
    table = json.loads(found[0].data)
    assert {(row["problem"].split(" ")[-1], row["status"]) for row in table if row["problem"]} == {
        ("always", "weak"), ("flips", "flaky"), ("lacking", "unsupported"), ("torn", "broken"),
    }  # fmt: skip
    assert table[0]["source"] == "cvdp"


def test_only_fit_problems_take_part_in_a_run(prefect, overrides):
    from rtl_core.config import load_config
    from rtl_core.run.opening import open_session
    from rtl_distill.flows.validate import validate_problems

    settings = load_config("demo", ["run.name=part", *overrides])

    async def run():
        async with open_session(settings, with_policy=False) as session:
            found = await validate_problems(session)
            return (
                found,
                dict(session.unfit),
                [p.id for p in session.usable(session.loaded.train)],
            )

    found, unfit, usable = asyncio.run(run())
    assert usable == ["honest"]
    assert set(unfit) == {"always", "flips", "lacking"}
    assert unfit["flips"].startswith("flaky: the golden answer passes")
    assert found["fit"] == 1


def test_counts_by_source_include_broken_lines_and_skipped_problems():
    from rtl_grader.problems.problem_set import BrokenLine, LeftOut

    rows, unfit = by_source(
        {},
        [BrokenLine("x.jsonl", 3, None, "line", "is not JSON", "cvdp")],
        [LeftOut("c", "needs a commercial tool", "cvdp")],
    )
    assert rows["cvdp"].counts["broken"] == 1
    assert rows["cvdp"].counts["unsupported"] == 1
    assert [u.reason for u in unfit] == ["is not JSON", "needs a commercial tool"]


@pytest.mark.slow
def test_a_long_validation_reports_what_is_running(prefect, overrides, monkeypatch):
    from rtl_distill.flows import validate as flow
    from rtl_grader import work
    from rtl_grader.progress import LogProgress, progress

    lines: list[str] = []
    teller = LogProgress()
    monkeypatch.setattr(teller, "line", lines.append)
    monkeypatch.setattr(work, "TELL_S", 0.05)
    before = progress.set(teller)
    try:
        asyncio.run(flow.validate("demo", overrides, "full", 4, 2))
    finally:
        progress.reset(before)
    told = [line for line in lines if " of 4 problems validated; in progress: " in line]
    assert any("honest (" in line for line in told), lines
