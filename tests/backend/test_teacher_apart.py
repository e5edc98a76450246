"""A separate service for the teacher: `tinker.teacher_base_url`."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from localtinker.process import LocalTinker
from rtl_core.backend.base import (
    Adam,
    Backend,
    Checkpoint,
    Datum,
    SamplingParams,
    Saved,
    Weights,
)
from rtl_core.backend.registry import backend_of
from rtl_core.backend.tinker.embedded import temporary_folder
from rtl_core.backend.tinker.pauses import Pauses
from rtl_core.config import RunConfig, load_config
from rtl_core.cost.estimate import Prompts
from rtl_core.cost.tokens import total_dollars
from rtl_core.errors import BackendUnavailableError, ConfigError, PolicyError
from rtl_core.run.forecast import forecast, prices_of
from rtl_core.tinymodels import model_path
from tests.command import invoke
from tests.sdk import sdk_loops

STUDENT, TEACHER = Weights(), Weights.of_teacher("teacher")
PROMPT, ANSWER = [40, 41, 42, 43, 44, 45, 46], [50, 60, 70, 80]
ADAM = Adam(learning_rate=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, grad_clip_norm=0.0)
FOLDERS = f"tinker.local_models={json.dumps({n: str(model_path(n)) for n in ('student', 'teacher')})}".replace(
    ":", "="
)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    """Two services with different keys, each with one model."""
    root = tmp_path_factory.mktemp("services")
    with (
        LocalTinker({"student": model_path("student")}, root / "student") as student,
        LocalTinker({"teacher": model_path("teacher")}, root / "teacher") as teacher,
    ):
        yield {"student": student, "teacher": teacher}


@pytest.fixture
def keys(services, monkeypatch, tmp_path):
    for name in ("TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TINKER_API_KEY", services["student"].api_key)
    monkeypatch.setenv("TINKER_TEACHER_API_KEY", services["teacher"].api_key)


def settings(folder: Path, student: str, teacher: str, *more: str) -> list[str]:
    places = (
        f"run.directory={folder}",
        f"run.history={folder / 'h.duckdb'}",
        FOLDERS,
        "tinker.lora_rank=8",
    )
    size = ("problems.sources.0.train=3", "problems.sources.0.heldout=2")
    return [
        *places,
        *size,
        f"tinker.base_url={student}",
        f"tinker.teacher_base_url={teacher}",
        *more,
    ]


def made(*overrides: str) -> RunConfig:
    return load_config("demo", overrides, environment={})


@contextmanager
def opened(config: RunConfig) -> Iterator[tuple[asyncio.Runner, Backend, list[str]]]:
    told: list[str] = []
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        backend = runner.run(
            stack.enter_async_context(backend_of(config).open(config, told.append))
        )
        try:
            yield runner, backend, told
        finally:
            runner.run(stack.aclose())
    assert sdk_loops() == []


async def train(backend: Backend) -> Checkpoint:
    scores = await backend.logprobs(STUDENT, PROMPT, ANSWER)
    trainer = await backend.open_trainer(None)
    inputs = {"logprobs": scores, "advantages": np.ones(len(ANSWER), np.float32)}
    await trainer.step([Datum(PROMPT, ANSWER, inputs)], "importance_sampling", {}, ADAM)
    return await trainer.save("one", None)


@pytest.fixture(scope="module")
def expected():
    """The teacher's log-probabilities, by transformers."""
    teacher = AutoModelForCausalLM.from_pretrained(model_path("teacher"), dtype=torch.float32)
    with torch.no_grad():
        logp_TV = (
            teacher(torch.tensor([PROMPT + ANSWER]))
            .logits[0, len(PROMPT) - 1 : -1]
            .log_softmax(-1)
        )
    return logp_TV[range(len(ANSWER)), ANSWER].numpy()


@pytest.mark.parametrize(
    "embedded",
    [
        "neither",
        *(pytest.param(role, marks=pytest.mark.slow) for role in ("student", "teacher")),
    ],
)
@pytest.mark.usefixtures("keys")
def test_student_and_teacher_use_separate_services(services, expected, embedded, tmp_path):
    places = {
        role: "local" if role == embedded else service.base_url
        for role, service in services.items()
    }
    with opened(made(*settings(tmp_path, places["student"], places["teacher"]))) as (
        runner,
        backend,
        _,
    ):
        saved = runner.run(train(backend))
        after = runner.run(backend.logprobs(Weights(path=saved.sampler_path), PROMPT, ANSWER))
        assert after.sum() > runner.run(backend.logprobs(STUDENT, PROMPT, ANSWER)).sum() + 0.05
        assert runner.run(backend.logprobs(TEACHER, PROMPT, ANSWER)) == pytest.approx(
            expected, abs=1e-4
        )
        (one,) = runner.run(backend.sample(TEACHER, PROMPT, 1, SamplingParams(3, 1.0, [0])))
        assert len(one.tokens_T) <= 3
        assert runner.run(backend.describe(saved.state_path)) == Saved("student", 8)
        with pytest.raises(PolicyError, match="the teacher's service: "):
            runner.run(backend.logprobs(Weights.of_teacher("student"), PROMPT, ANSWER))
        assert runner.run(backend.delete([saved.state_path, saved.sampler_path])) == 2
        if embedded == "student":
            log = (tmp_path / "demo" / "tinker" / "service.log").read_text()
            assert ("model student" in log, "model teacher" in log) == (True, False)
    assert not list(tmp_path.glob("demo/teacher-*"))
    assert (tmp_path / "demo" / "tinker").is_dir() == (embedded == "student")


@pytest.mark.usefixtures("keys")
def test_the_teacher_may_be_saved_weights_and_use_the_students_key(
    services, monkeypatch, tmp_path
):
    teacher = services["teacher"]
    with monkeypatch.context() as own:
        own.setenv("TINKER_API_KEY", teacher.api_key)
        training = made(
            *settings(tmp_path, teacher.base_url, teacher.base_url, "tinker.student=teacher")
        )
        assert not training.tinker.teacher_apart
        with opened(training) as (runner, backend, _):
            saved = runner.run(train(backend))
    monkeypatch.delenv("TINKER_TEACHER_API_KEY")
    monkeypatch.setenv("TINKER_API_KEY", teacher.api_key)
    # Another name of the same machine is another service.
    student = teacher.base_url.replace("127.0.0.1", "localhost")
    names = (f"tinker.teacher={saved.sampler_path}", "tinker.student=teacher")
    config = made(*settings(tmp_path, student, teacher.base_url, *names))
    assert config.tinker.teacher_apart
    with opened(config) as (runner, backend, _):
        assert runner.run(backend.describe(saved.sampler_path)) == Saved("teacher", 8)
        scores = runner.run(
            backend.logprobs(Weights.of_teacher(saved.sampler_path), PROMPT, ANSWER)
        )
        assert scores.shape == (4,)


@pytest.mark.slow
@pytest.mark.parametrize("forgets", [False, True])
def test_a_restarted_teacher_service_scores_again_without_affecting_the_student(
    forgets, services, expected, keys, monkeypatch,
    tmp_path,
):  # fmt: skip
    models = {"teacher": model_path("teacher")}
    first = LocalTinker(models, tmp_path / "first")
    again: list[LocalTinker] = []

    def restart():
        state = tmp_path / ("second" if forgets else "first")
        again.append(LocalTinker(models, state, port=first.port, api_key=first.api_key))

    monkeypatch.setenv("TINKER_TEACHER_API_KEY", first.api_key)
    config = made(*settings(tmp_path, services["student"].base_url, first.base_url))

    async def score(backend):
        # Retries, as a task does.
        for _ in range(3):
            with suppress(BackendUnavailableError):
                return await backend.logprobs(TEACHER, PROMPT, ANSWER)
        return await backend.logprobs(TEACHER, PROMPT, ANSWER)

    async def meanwhile(backend):
        first.kill()
        scoring = asyncio.create_task(score(backend))
        trainer = await backend.open_trainer(None)  # the student's service still works
        await asyncio.to_thread(restart)
        scores = await scoring
        await trainer.save("two", None)
        return scores

    try:
        with opened(config) as (runner, backend, told):
            assert runner.run(score(backend)) == pytest.approx(expected, abs=1e-4)
            assert runner.run(meanwhile(backend)) == pytest.approx(expected, abs=1e-4)
            assert all(line.startswith(("teacher: ", "Tinker: ")) for line in told), told
    finally:
        first.stop()
        for service in again:
            service.stop()


def check(overrides: list[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code of the command and its last line about each subject."""
    done = invoke("check", "demo", "--json", sets=overrides)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, {line["about"]: line for line in json.loads(done.stdout)}


@pytest.mark.slow
@pytest.mark.usefixtures("keys")
def test_check_asks_each_service_only_for_its_own_models(services, monkeypatch, tmp_path):
    student, teacher = services["student"].base_url, services["teacher"].base_url
    code, lines = check(settings(tmp_path, "local", teacher))
    assert code == 0, lines
    assert lines["tinker.student"]["text"].startswith("student: embedded")
    assert lines["tinker.teacher"]["text"].startswith("teacher: sampled")
    assert (
        f"TINKER_TEACHER_API_KEY, taken by {teacher}" in lines["teacher: credentials"]["text"]
    )
    assert "tinker.teacher and student: same vocabulary" in lines["tokenizer"]["text"]
    assert lines["context"]["text"].startswith("tinker.teacher: prompts of up to")

    code, lines = check(settings(tmp_path, student, teacher))
    assert (code, lines["credentials"]["level"], lines["teacher: credentials"]["level"]) == (
        0,
        "ok",
        "ok",
    )

    monkeypatch.setenv("TINKER_TEACHER_API_KEY", services["student"].api_key)
    code, lines = check(
        settings(tmp_path, student, student + "/")
    )  # a service that does not have the teacher
    assert (code, lines["tinker.teacher"]["level"]) == (2, "wrong")
    assert "does not serve 'teacher'" in lines["tinker.teacher"]["text"]
    code, lines = check(settings(tmp_path, "local", teacher))
    assert (code, lines["teacher: credentials"]["level"]) == (2, "wrong")
    assert "export TINKER_TEACHER_API_KEY" in lines["teacher: credentials"]["remedy"]
    code, lines = check(settings(tmp_path, "local", "http://127.0.0.1:9"))
    assert (code, lines["teacher: service"]["level"]) == (2, "wrong")
    assert "tinker.teacher_base_url" in lines["teacher: service"]["remedy"]


def test_equal_addresses_are_one_service():
    with pytest.raises(ConfigError, match="teacher_base_url"):
        made("tinker.teacher_base_url=localhost")
    for own, theirs, apart in (
        ("local", None, False),
        ("local", "local", False),
        ("local", "cloud", True),
        (None, "cloud", False),
        (None, "local", True),
        ("http://a", "http://a", False),
        ("http://a", "http://b", True),
    ):
        names = {"tinker.base_url": own, "tinker.teacher_base_url": theirs}
        tinker = made().tinker.model_copy(
            update={key.split(".")[1]: value for key, value in names.items()}
        )
        assert tinker.teacher_apart == apart, names
    alone = (
        "tinker.teacher_base_url=cloud",
        "learning.kl_weight=0",
        "learning.kl_schedule=constant",
    )
    tinker = made(*alone).tinker.model_copy(update={"teacher": None})
    assert not tinker.teacher_apart
    assert tinker.all_local


HOLD = """\
import sys, time
from pathlib import Path
from rtl_core.backend.tinker.embedded import temporary_folder
with temporary_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_folders_of_killed_teachers_are_deleted_and_those_in_use_kept(tmp_path):
    def hold(name):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path / name)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        return process

    killed, living = hold("teacher-1"), hold("teacher-2")
    try:
        killed.kill()
        killed.wait()
        (tmp_path / "teacher-1" / "registry.db").write_text("left behind")
        with temporary_folder(tmp_path / "teacher-3"):
            assert sorted(path.name for path in tmp_path.iterdir()) == [
                "teacher-2",
                "teacher-3",
            ]
        assert [path.name for path in tmp_path.iterdir()] == ["teacher-2"]
    finally:
        living.kill()
        living.wait()


LARGE = "Qwen/Qwen3.5-397B-A17B"


def test_a_local_student_is_free_and_a_cloud_teacher_is_billed(tmp_path):
    places = (
        f"run.directory={tmp_path}",
        f"run.history={tmp_path / 'h.duckdb'}",
        f"tinker.teacher={LARGE}",
    )
    config = made(*places, "tinker.teacher_base_url=cloud", "cost.budget_usd=5")
    prices = prices_of(config)
    assert prices.models["student"].train == 0
    assert prices.models[LARGE].prefill == 3.0
    found = forecast(config, Prompts(4, 100.0), Prompts(2, 100.0))
    assert total_dollars(found.likely.usage, found.prices) == pytest.approx(
        total_dollars({LARGE: found.likely.usage[LARGE]}, found.prices)
    )
    with pytest.raises(ConfigError, match="no price for student"):
        prices_of(made(*places, "tinker.base_url=http://a", "cost.budget_usd=5"))


def test_a_pause_ends_once_both_services_have_answered():
    told: list[str] = []
    heard = Pauses(told.append, services=2)
    heard.note_refusal("no credit")
    for service in ("one", "one", "other"):
        assert len(told) == 1
        heard.note_success(float("inf"), service)
    assert "serves the account again" in told[1]
