"""Engines of the older protocol: recognised, reached through a bridge, refused by name for what they lack, and never
asked for what they would do wrongly."""

import asyncio
import json
import shlex
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace

import pytest
import tinker
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from benchmarks.rehearsal.proxy import Proxy
from localtinker.bridge import Engine, capabilities
from localtinker.client import weights
from rtl_core.backend.base import SamplingParams, Weights
from rtl_core.backend.registry import backend_of
from rtl_core.backend.tinker import _readiness, engines
from rtl_core.backend.tinker.lacking import WHEN, engine_findings, table
from rtl_core.backend.tinker.services import Endpoint, services_of
from rtl_core.config import load_config
from rtl_core.errors import ConfigError, PolicyError
from rtl_core.tinymodels import model_path
from tests.backend.newest_only import newest_only, on
from tests.backend.test_sessions import retried
from tests.backend.test_teacher_apart import PROMPT, opened
from tests.command import invoke

APART = ("tinker.base_url=http://h:8000", "tinker.teacher_base_url=http://h:8001")
FITS = ("learning.grad_clip_norm=0",)


class Answering(Proxy):
    """A server that gives one answer to everything."""

    def __init__(self, answer: Response) -> None:
        super().__init__("http://127.0.0.1:9")
        self.answer = answer

    async def serve(self, request: Request) -> Response:
        return self.answer


def findings(backend: str, part: int, *overrides: str) -> dict[str, str]:
    """Key -> text of what is wrong with the demo on a SkyRL with `backend`, as student's (0) or teacher's service."""
    config = load_config("demo", [*APART, *FITS, *overrides], environment={})
    engine = Engine("skyrl", "0.4.0", backend, capabilities.lacks("skyrl", backend))
    service = replace(services_of(config)[part], through=Endpoint("", "", engine=engine))
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


def test_every_row_is_about_something_that_some_engine_lacks_and_a_key():
    some = capabilities.lacks("skyrl", None) | capabilities.lacks("tuft", None)
    for row in table():
        section, name = row["key"].split(".")
        assert name in getattr(load_config("demo"), section).model_dump()
        assert row["lacking"] in some
        assert row.get("when") in (None, *WHEN)


@pytest.mark.parametrize(
    ("engine", "passing"),
    [
        (Engine("skyrl", "0.4.0", None, {}), True),
        (Engine("tuft", "0.2.2", None, {}), False),
        (None, False),
    ],
)
def test_only_a_busy_skyrl_of_the_key_skyrl_is_asked_again(engine, passing, monkeypatch):
    monkeypatch.setattr(engines, "recognise", lambda *_: engine)
    monkeypatch.setattr(engines, "_engine_of_bridge", lambda *_: None)
    config = load_config("demo", [*APART, "tinker.engine=skyrl"], environment={})
    readiness = asyncio.run(_readiness(services_of(config)[0]))
    (finding,) = readiness.findings
    assert (finding.level, finding.passing) == ("wrong", passing)
    assert ("busy" if passing else "no SkyRL") in finding.text


@pytest.fixture
def engine(tmp_path, monkeypatch):
    with newest_only(tmp_path / "service", monkeypatch) as running:
        yield running


@pytest.mark.slow
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
    ("answer", "says"),
    [
        (HTMLResponse("<h1>sign in</h1>"), "not as a Tinker server does"),
        (
            JSONResponse({"info": {"title": "Tinker API Mock"}, "paths": {}}),
            "of another version than 0.4.0",
        ),
        (JSONResponse({"status": "ok"}), "is no SkyRL, which tinker.engine names"),
        (None, "cannot be reached"),
    ],
    ids=["a page", "another version", "no engine", "nothing"],
)
def test_what_is_no_skyrl_is_one_sentence_about_the_key(answer, says, tmp_path):
    with ExitStack() as stack:
        url = "http://127.0.0.1:9"
        if answer is not None:
            url = stack.enter_context(Answering(answer)).url
        places = (f"run.directory={tmp_path}", f"run.history={tmp_path / 'h.duckdb'}")
        sets = [*places, f"tinker.base_url={url}", "tinker.engine=skyrl"]
        config = load_config("demo", sets, environment={})
        readiness = asyncio.run(backend_of(config).check(config))
        (finding,) = (one for one in readiness.findings if one.level == "wrong")
        assert finding.text.startswith("tinker.base_url: ")
        assert says in finding.text
        assert finding.remedy
        assert not list(tmp_path.iterdir())
        with pytest.raises(PolicyError, match=r"tinker\.base_url: "), opened(config):
            pass


def test_the_options_of_a_server_on_this_machine_are_compared():
    given = {
        "trainer.policy.optimizer_config.adam_betas": [0.9, 0.95],
        "trainer.policy.optimizer_config.weight_decay": 0.0,
    }
    words = ["-m", "skyrl.tinker.api", "--port", "61", f"--backend-config={json.dumps(given)}"]
    code = "import sys; sys.stdin.read()"
    server = [sys.executable, "-c", code, *words]
    here = "tinker.base_url=http://127.0.0.1:61"
    with subprocess.Popen(server, stdin=subprocess.PIPE):
        assert findings("gpu", 0, here, "learning.grad_clip_norm=1") == {}
        text = findings("gpu", 0, here)["engine"]
        assert text.endswith('"trainer.policy.optimizer_config.max_grad_norm": 1.0}')
        assert findings("gpu", 0, "tinker.base_url=http://127.0.0.1:62") == {}


class WithoutExpiry(Answering):
    """A server that has the saved weights `tinker://r/weights/one` and answers requests about expiries with `status`."""

    def __init__(self, status: int) -> None:
        saved = {
            "checkpoint_id": "weights/one",
            "checkpoint_type": "training",
            "time": "2026-11-30T00:00:00Z",
            "tinker_path": "tinker://r/weights/one",
        }
        super().__init__(JSONResponse({"checkpoints": [saved]}))
        self.status = status

    async def serve(self, request: Request) -> Response:
        answer = await super().serve(request)
        is_expiry = request.url.path.endswith("/ttl")
        return JSONResponse({"detail": "no"}, self.status) if is_expiry else answer


@pytest.mark.parametrize("status", [404, 405])
def test_a_server_without_expiries_has_none_to_remove(status):
    async def keep(url: str, name: str) -> None:
        rest = tinker.RestClient(base_url=url, api_key="tml-key")
        await weights.keep(rest, [f"tinker://r/weights/{name}"])

    with WithoutExpiry(status) as server:
        asyncio.run(keep(server.url, "one"))
        if status == 404:
            with pytest.raises(tinker.NotFoundError):
                asyncio.run(keep(server.url, "gone"))


def words_of(*arguments: str) -> tuple[list[list[str]], str]:
    """The servers' commands that the command prints, as words, and its comments."""
    done = invoke("admin", "engine", "skyrl", *arguments)
    assert done.exit_code == 0, done.output
    commands = done.output.replace("\\\n", "").splitlines()
    servers = [shlex.split(line) for line in commands if line.startswith("uv run")]
    return servers, "\n".join(line for line in commands if line.startswith("#"))


def test_the_command_prints_what_a_server_fixes_when_it_starts():
    (student, teacher), comments = words_of("--config", "cvdp", "--gpus", "8")
    options = json.loads(student[student.index("--backend-config") + 1])
    optimizer = "trainer.policy.optimizer_config"
    assert options[f"{optimizer}.adam_betas"] == [0.9, 0.95]
    assert options[f"{optimizer}.weight_decay"] == options[f"{optimizer}.max_grad_norm"] == 0
    assert options["trainer.policy.model.lora.rank"] == 32
    assert student[student.index("--base-model") + 1] == "Qwen/Qwen3.6-35B-A3B"
    assert teacher[teacher.index("--runtime-role") + 1] == "inference"
    assert "--runtime-role" not in student
    bases = {words[words.index("--database-url") + 1] for words in (student, teacher)}
    assert len(bases) == 2
    assert {words[words.index("--host") + 1] for words in (student, teacher)} == {"127.0.0.1"}
    for key in ("learning.staleness", "learning.loss"):
        assert f"# - Refused: {key}:" in comments


def test_the_command_for_jax_takes_the_models_of_this_machine():
    servers, comments = words_of("--config", "demo", "--backend", "jax", "--gpus", "0")
    for words, name in zip(servers, ("student", "teacher"), strict=True):
        folder = words[words.index("--base-model-checkpoint-path") + 1]
        assert folder == str(model_path(name))
    assert "learning.grad_clip_norm" in comments
    refused = invoke("admin", "engine", "skyrl", "--config", "demo", "--gpus", "0")
    assert isinstance(refused.exception, ConfigError)
