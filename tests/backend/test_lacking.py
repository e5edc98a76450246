"""Engines of the older protocol: recognised, reached through a bridge, refused by name for what they lack, and never
asked for what they would do wrongly."""

from dataclasses import replace

import pytest

from localtinker.bridge import Engine, capabilities
from rtl_core.backend.base import SamplingParams, Weights
from rtl_core.backend.tinker import engines
from rtl_core.backend.tinker.lacking import engine_findings
from rtl_core.backend.tinker.services import Reached, services_of
from rtl_core.config import load_config
from tests.backend.newest_only import newest_only, on
from tests.backend.test_sessions import retried
from tests.backend.test_teacher_apart import PROMPT, opened
from tests.command import invoke

APART = ("tinker.base_url=http://h:8000", "tinker.teacher_base_url=http://h:8001")
FITS = ("learning.grad_clip_norm=0",)


def findings(backend: str, part: int, *overrides: str) -> dict[str, str]:
    """Key -> text of what is wrong with the demo on a SkyRL with `backend`, as student's (0) or teacher's service."""
    config = load_config("demo", [*APART, *FITS, *overrides], environment={})
    engine = Engine("skyrl", "0.4.0", backend, capabilities.lacks("skyrl", backend))
    service = replace(services_of(config)[part], through=Reached(engine, "", "", print))
    found = engine_findings(service)
    return {one.about: one.text for one in found if one.level == "wrong"}


@pytest.mark.parametrize("backend", ["jax", "gpu"])
@pytest.mark.parametrize("part", [0, 1])
def test_the_demo_with_two_servers_fits(backend, part):
    assert findings(backend, part) == {}


@pytest.mark.parametrize(
    ("key", "backend", "part", "overrides"),
    [
        ("learning.staleness", "jax", 0, ["learning.staleness=1"]),
        ("learning.staleness", "gpu", 0, ["learning.staleness=1"]),
        ("learning.self_weights", "jax", 0, ["learning.algorithm=self_distillation"]),
        ("tinker.teacher", "jax", 1, ["tinker.teacher=tinker://r/sampler_weights/n"]),
        ("tinker.teacher_base_url", "jax", 0, ["tinker.teacher_base_url=http://h:8000"]),
        ("tinker.teacher_base_url", "gpu", 1, ["tinker.teachers={cvdp = 'student'}"]),
        (
            "tinker.teacher",
            "gpu",
            0,
            ["tinker.teacher=student", "tinker.teacher_base_url=http://h:8000"],
        ),
        ("learning.algorithm", "jax", 1, ["learning.algorithm=distribution_distillation"]),
        ("learning.algorithm", "gpu", 0, ["learning.algorithm=distribution_distillation"]),
        ("learning.loss", "gpu", 0, ["learning.loss=cispo"]),
        ("learning.grad_clip_norm", "jax", 0, ["learning.grad_clip_norm=1"]),
        ("learning.eps", "gpu", 0, ["learning.eps=1e-6"]),
    ],
)
def test_what_an_engine_lacks_is_refused_by_the_key_that_needs_it(
    key, backend, part, overrides
):
    assert list(findings(backend, part, *overrides)) == [key]


def test_a_busy_engine_is_asked_again():
    config = load_config("demo", APART, environment={})
    through = Reached(Engine("skyrl", "0.4.0", None, {}), "", "", print)
    (finding,) = engine_findings(replace(services_of(config)[0], through=through))
    assert finding.passing
    assert "busy" in finding.text


@pytest.fixture
def engine(tmp_path, monkeypatch):
    with newest_only(tmp_path / "service", monkeypatch) as running:
        yield running


def test_weights_that_are_not_an_open_trainers_newest_are_loaded_again(engine, tmp_path):
    config = load_config("demo", [f"run.directory={tmp_path}", *on(engine)], environment={})
    params = SamplingParams(2, 1.0, [0])
    with opened(config) as (runner, backend, told):

        def sampled(path: str | None) -> int:
            weights = Weights(path=path)
            return len(retried(runner, lambda: backend.sample(weights, PROMPT, 1, params)))

        assert sampled(None) == 1
        trainer = runner.run(backend.open_trainer(None))  # the one that was opened to sample
        first = runner.run(trainer.save("one", None))
        assert sampled(first.sampler_path) == 1
        assert len(engine.newest) == 1
        runner.run(trainer.save("two", None))
        assert sampled(first.sampler_path) == 1
        assert "only weights of an open trainer" in told[-1]
        engine.forget()
        assert sampled(first.sampler_path) == 1
        assert len(engine.newest) == 1
        again = runner.run(backend.open_trainer(first.state_path))
        runner.run(again.save("three", None))
        assert list(engine.newest.values()) == ["three"]  # of the one that was opened to sample
    assert engine.wrong == []


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("html", "tinker.engine"),
        ("nothing", "tinker.engine"),
    ],
)
def test_what_is_no_engine_is_one_finding(page, says):
    pass


def test_the_command_prints_what_a_server_fixes_when_it_starts():
    done = invoke("admin", "engine", "skyrl", "--config", "cvdp", "--gpus", "8")
    assert done.exit_code == 0, done.output
    assert engines
