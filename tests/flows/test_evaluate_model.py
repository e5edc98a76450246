"""Evaluation of a model by a protocol without a training run: golden answers to NVIDIA's examples give 100 %."""

import asyncio
from pathlib import Path

import pytest

from rtl_core.config.protocol import evaluation_overrides, problems_override, protocol_file
from rtl_core.errors import ConfigError
from rtl_core.history.records import Conditions
from rtl_core.history.store import History
from rtl_core.reporting.figures.benchmark import tables_of
from tests.flows.golden_answers import golden

pytestmark = [pytest.mark.usefixtures("prefect"), pytest.mark.slow]

PROTOCOL = protocol_file("cvdp")
EXAMPLES = ("nonagentic", "agentic")


@pytest.fixture
def overrides(cvdp, tmp_path, script):
    """Overrides for an evaluation of NVIDIA's two examples that open tools can grade, by a model that writes golden
    answers."""
    script.sample = golden

    def make(name, *more, samples=2):
        files = [
            next(cvdp.glob(f"*example_{kind}_code_generation_no_commercial*"))
            for kind in EXAMPLES
        ]
        given = [
            problems_override(list(map(str, files)), PROTOCOL),
            "tinker.student=student",
            "backend.name=tests.backend.scripted:BACKEND",
            "backend.options.context=0",
            f"run.directory={tmp_path}",
            f"run.history={tmp_path / 'history.duckdb'}",
            *more,
        ]
        return evaluation_overrides(PROTOCOL, given, samples, name)

    return make


def cells(history: History, run: str) -> list[list[str]]:
    """The rates in each of a run's tables, without intervals, row by row."""
    return [
        [cell.split("\n")[0] for row in table.rows for cell in row[1:]]
        for table in tables_of(history, run)
    ]


def test_golden_answers_give_100_percent_and_the_same_command_repeats_nothing(
    overrides, tmp_path, capsys, script
):
    from rtl_distill.flows.evaluate import evaluate, evaluate_model
    from rtl_distill.flows.train import train

    history = History(tmp_path / "history.duckdb")
    report = asyncio.run(evaluate_model(PROTOCOL, overrides("golden", samples=None)))
    page = Path(report).read_text(encoding="utf-8")
    assert "pass@5 by category and difficulty" in page
    assert '<span class="status finished">finished</span>' in page
    assert cells(history, "golden") == [["100.0 %"] * 4] * 2
    assert {
        (a["count"], a["temperature"], a["top_p"], a["max_tokens"]) for a in script.sampled
    } == {(5, 0.2, 0.7, 4096)}
    record = history.run("golden")
    assert record is not None
    assert (record.status, len(script.sampled)) == ("finished", 2)
    (evaluation,) = history.evaluations("golden")
    assert evaluation.pass_at_k == {1: 1.0, 5: 1.0}
    assert evaluation.left_out == {
        "not in the given files, of the 302 of the public set cvdp": 301
    }

    Path(report).unlink()
    asyncio.run(evaluate_model(PROTOCOL, overrides("golden", samples=None)))
    assert len(script.sampled) == 2
    assert ">finished</span>" in Path(report).read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match=r"evaluation\.top_p: was 0\.7, is 0\.9"):
        asyncio.run(evaluate_model(PROTOCOL, overrides("golden", "evaluation.top_p=0.9")))
    with pytest.raises(ConfigError, match="evaluates a model and does not train"):
        asyncio.run(train(PROTOCOL, overrides("golden")))

    # One of two answers is right, and the longer prompt does not fit the context: a problem without an answer fails.
    lengths = sorted(len(a["prompt"]) for a in script.sampled)
    more = ("backend.options.passing=1", f"backend.options.context={lengths[0] + 100}")
    asyncio.run(evaluate_model(PROTOCOL, overrides("half", *more)))
    assert cells(history, "half") == [["25.0 %"] * 4]
    assert (
        len(script.sampled),
        script.sampled[-1]["max_tokens"],
        len(script.sampled[-1]["prompt"]),
    ) == (3, 100, lengths[0])
    empty = history.query(
        "SELECT DISTINCT outcome FROM verdicts JOIN rollouts USING (rollout) WHERE n_tokens = 0"
    )
    assert empty.to_pylist() == [{"outcome": "no_answer"}]
    assert (
        "Counted as failed without an answer: 1 problem whose"
        in tables_of(history, "half")[-1].caption
    )

    # `evaluate` accepts it like any run: another number of answers is another evaluation of the same run.
    asyncio.run(
        evaluate(
            "half", str(tmp_path / "history.duckdb"), samples=1, other=Conditions(top_p=0.5)
        )
    )
    assert (len(script.sampled), script.sampled[-1]["count"], script.sampled[-1]["top_p"]) == (
        4,
        1,
        0.5,
    )
    other = next(e for e in history.evaluations("half") if e.samples == 1)
    assert (other.conditions, other.pass_at_1) == (["top_p 0.5"], 0.5)
    assert cells(history, "half") == [["25.0 %"] * 4]
