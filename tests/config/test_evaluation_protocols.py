"""Configurations of evaluations from a protocol and a command line."""

import pytest

from rtl_core.config import load_config
from rtl_core.config.protocol import evaluation_overrides, problems_override, protocol_file
from rtl_core.errors import ConfigError
from rtl_grader.problems.sources import load_problems
from tests.command import invoke

CVDP = protocol_file("cvdp")


@pytest.fixture
def made(cvdp):
    """Function that returns the configuration of an evaluation of `model` with more overrides."""

    def make(model="student", *more, samples=None, name=None):
        overrides = [problems_override([str(cvdp)]), f"tinker.student={model}", *more]
        return load_config(CVDP, evaluation_overrides(CVDP, overrides, samples, name))

    return make


def test_the_protocol_is_the_published_one(made):
    config = made()
    section = config.evaluation
    assert (
        section.samples,
        section.k,
        section.temperature,
        section.top_p,
        section.max_tokens,
    ) == (
        5,
        (1, 5),
        0.2,
        0.7,
        4096,
    )
    assert (config.run.purpose, config.prompting.template, config.tinker.teacher) == (
        "evaluation",
        "cvdp",
        None,
    )


def test_all_problems_are_evaluated_and_none_trained_on(made):
    config = made()
    loaded = load_problems(config.problems.sources, config.run.seed, hold_out_all=True)
    assert (len(loaded.train), len(loaded.heldout)) == (0, 94)


def test_the_run_name_depends_only_on_what_affects_the_figures(made):
    name = made().run.name
    assert name.startswith("cvdp-student-")
    assert made("student", "run.directory=elsewhere", "grading.workers=1").run.name == name
    others = [
        made("teacher"),
        made(samples=4),
        made("student", "evaluation.top_p=0.9"),
        made("student", "grading.executor=docker"),
        made("student", "run.seed=1"),
        made("student", "run.seed=2"),
    ]
    assert len({name, *(other.run.name for other in others)}) == 7
    assert made("some/Very-Long.Model:name" * 9).run.name  # still a valid name
    assert made(name="mine").run.name == "mine"


def test_k_above_the_number_of_samples_is_dropped(made):
    assert made(samples=3).evaluation.k == (1,)
    assert made(samples=10).evaluation.k == (1, 5)
    assert made("student", "evaluation.k=[1, 10]", samples=10).evaluation.k == (1, 10)


def test_a_budget_is_refused_in_an_evaluation(made):
    with pytest.raises(ConfigError, match="a budget stops a run between its train steps"):
        made("student", "cost.budget_usd=5")


def test_an_invalid_protocol_is_refused(tmp_path, cvdp):
    with pytest.raises(ConfigError, match="--protocol vdcp: no such protocol"):
        protocol_file("vdcp")
    with pytest.raises(ConfigError, match="a training run"):
        evaluation_overrides("demo", [], None, None)
    with pytest.raises(ConfigError, match=r"--problems cvdp=.*there is no"):
        problems_override([str(tmp_path / "missing.jsonl")])
    assert 'kind = "verilog-eval"' in problems_override([f"verilog-eval={cvdp}"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "what is to be evaluated?"),
        (["--model", "student"], "--model: on which problems?"),
        (
            ["demo", "--problems", "x", "--protocol", "cvdp"],
            "--problems, --protocol cannot be combined with a RUN",
        ),
        (
            ["--model", "student", "--problems", "x", "--step", "0"],
            "--step cannot be combined with --model",
        ),
        (
            ["demo", "--model", "student", "--problems", "x"],
            "RUN cannot be combined with --model",
        ),
        (["--model", "student", "--problems", "/no/file"], "there is no /no/file"),
        (
            ["--model", "tinker://a/weights/b", "--base-url", "local", "--problems", "."],
            "--model: no run in runs has tinker://a/weights/b",
        ),
        (["demo", "--template", "exakt"], "no template 'exakt'"),
    ],
)
def test_mistakes_are_reported_before_anything_starts(given, told):
    done = invoke("evaluate", *given)
    assert done.exit_code != 0
    assert told in str(done.exception.message)
