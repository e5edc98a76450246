"""Configurations of evaluations from a protocol and a command line."""

import hashlib
import json
import tomllib
from pathlib import Path

import pytest

from rtl_core.config import load_config
from rtl_core.config.load import shipped_configs
from rtl_core.config.protocol import evaluation_overrides, problems_override, protocol_file
from rtl_core.errors import ConfigError
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.rollouts.batch import sampling_of
from rtl_grader.errors import ProblemError
from rtl_grader.problems.sources import load_problems
from rtl_grader.prompts import build_messages
from tests.command import invoke
from tests.nouns import a_problem

CVDP = protocol_file("cvdp")
PUBLIC = tomllib.loads((Path(__file__).parent / "public_prompts.toml").read_text())
PLACES = {
    "rtllm": "RTLLM",
    "rtl-benchls-masked": "rtl-benchls/slice_01.jsonl",
    "cvdp": "cvdp-single/problems.jsonl",
}


def problems_of(protocol, path):
    """(configuration, problems) of an evaluation of all problems at a path under a protocol."""
    file = protocol_file(protocol)
    given = [problems_override([str(path)], file), "tinker.student=student"]
    config = load_config(file, evaluation_overrides(file, given, None, None))
    return config, load_problems(config.problems.sources, 0, hold_out_all=True).heldout


@pytest.fixture
def made(cvdp):
    """Function that returns the configuration of an evaluation of `model` with more overrides."""

    def make(model="student", *more, samples=None, name=None):
        overrides = [problems_override([str(cvdp)], CVDP), f"tinker.student={model}", *more]
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


@pytest.mark.parametrize("protocol", PUBLIC)
def test_prompts_are_those_of_the_public_script_byte_by_byte(protocol, data):
    config, problems = problems_of(protocol, data / PLACES.get(protocol, "verilog-eval"))
    prompts = {p.id: build_messages(p, config.prompting.template) for p in problems}
    hashes = {
        name: hashlib.sha256(json.dumps(prompts[name]).encode()).hexdigest()[:16]
        for name in PUBLIC[protocol]
    }
    assert hashes == PUBLIC[protocol]
    assert len(hashes) == 10


def test_a_row_with_its_own_messages_is_asked_with_them(tmp_path):
    project = (
        "module low(input a, output y);\n  // >>> Module Implementation Begin\n\n"
        "  // <<< Module Implementation End\nendmodule\n\nmodule top(input p, output q);\n"
        "  low i (p, q);\nendmodule\n"
    )
    row = {
        "task_id": "t_1",
        "top_module_name": "top",
        "system_message": "You are an expert.",
        "prompt": project,
        "golden_module": "module low(a, y);\n  input a;\n  output y;\n  assign y = ~a;\nendmodule\n",
    }
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    config, (problem,) = problems_of("notsotiny", tmp_path)
    assert build_messages(problem, config.prompting.template) == [
        {"role": "system", "content": "You are an expert."},
        {"role": "user", "content": project},
    ]
    assert problem.frame == {
        "rtl/low.sv": "module low(input a, output y);\n  [MASKED]\nendmodule"
    }
    assert config.problems.sources[0].judge.proof == "undecided"


def test_every_protocol_is_whole_and_says_where_it_is_from():
    for name, file in shipped_configs("protocols").items():
        if name == "round-trip":  # asks models about problems of any set
            continue
        config = load_config(file, ["tinker.student=student"], check_files=False)
        assert (config.run.name, config.run.purpose) == (name, "evaluation")
        assert config.evaluation.samples >= max(config.evaluation.k)
        head, _, _ = file.read_text().partition("[run]")
        assert "https://" in head or "those of `rtllm`" in head


def test_a_protocol_of_one_category_leaves_out_the_others(cvdp):
    _, problems = problems_of("cvdp-cid003", cvdp)
    assert {problem.category for problem in problems} == {"cid003"}
    with pytest.raises(ConfigError, match=r"categories.*cid0033"):
        load_config(
            CVDP,
            ['problems.sources=[{kind = "cvdp", categories = ["cid0033"]}]'],
            check_files=False,
        )


def test_problems_of_another_kind_than_the_protocols_are_refused(data, cvdp):
    with pytest.raises(ProblemError, match="no VerilogEval problem under"):
        problems_of("verilog-eval", cvdp)
    with pytest.raises(ProblemError, match=r"holds no \.jsonl file"):
        problems_of("cvdp", data / "verilog-eval")
    with pytest.raises(ConfigError, match="nothing is masked in easy"):
        build_messages(a_problem(id="easy"), "rtl-benchls")


def test_a_protocol_of_the_users_own_may_name_its_problems_or_not(tmp_path, data):
    own = tmp_path / "own.toml"
    own.write_text('[run]\nname = "own"\npurpose = "evaluation"\n')
    assert 'kind = "cvdp"' in problems_override([str(tmp_path)], str(own))
    own.write_text('[[problems.sources]]\nkind = "rtllm"\n')
    with pytest.raises(ConfigError, match=r"sources\.0\.path.*required"):
        problems_override([str(tmp_path)], str(own))


def test_a_greedy_answer_has_temperature_0(made):
    greedy = load_config(
        protocol_file("rtllm-greedy"), ["tinker.student=student"], check_files=False
    )
    assert sampling_of(greedy, "evaluation").temperature == 0
    assert made("student", "evaluation.temperature=0.0").evaluation.temperature == 0


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
        problems_override([str(tmp_path / "missing.jsonl")], CVDP)
    assert 'kind = "verilog-eval"' in problems_override([f"verilog-eval={cvdp}"], CVDP)


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [("cvdp-cid003", "cvdp"), ("notsotiny", "pairs"), ("rtl-benchls-masked", "rtl")],
)
def test_a_source_of_the_protocols_kind_is_read_as_its_own(protocol, kind, tmp_path):
    file, path = protocol_file(protocol), tmp_path / "problems.jsonl"
    path.touch()
    override = problems_override([f"{kind}={path}"], file)
    assert override == problems_override([str(path)], file)
    assert any(word in override for word in ("cid003", "undecided"))


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
        (
            ["--policy", "teacher", "demo", "--step", "1"],
            "cannot be combined with --policy teacher",
        ),
        (["demo", "--db", "no/such.duckdb"], "there is no history at"),
    ],
)
def test_mistakes_are_reported_before_anything_starts(given, told):
    done = invoke("evaluate", *given)
    assert done.exit_code != 0
    assert told in str(done.exception.message)


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("demo", ["--step", "99"], "run 'demo' has trained 0 steps, not 99"),
        ("cvdp", [], "run 'cvdp' evaluated a model behind an endpoint"),
    ],
)
def test_a_run_is_asked_what_it_has_before_anything_starts(
    name, words, told, tmp_path, monkeypatch
):
    history = History(tmp_path / "h.duckdb")
    served = ["evaluation.endpoint=http://localhost:1/v1", "tinker.student=any"]
    config = (
        load_config("demo") if name == "demo" else load_config(CVDP, served, check_files=False)
    )
    history.start_run(
        RunRecord(name=name, config=config.model_dump(mode="json"), student="any")
    )
    monkeypatch.setattr(
        "rtl_distill.cli.flow.run_flow", lambda *_, **__: pytest.fail("it starts")
    )
    error = invoke("evaluate", name, *words, "--db", history.path).exception
    assert told in str(error)
