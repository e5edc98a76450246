"""`rtl-distill check`, and the same checks in `train`: each error is one sentence with a remedy, and nothing is sampled."""

import asyncio
import base64
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from tinker.lib.credentials import JsonCredentialStore, ManualKey

from localtinker.process import LocalTinker
from rtl_core.backend.base import Readiness
from rtl_core.backend.registry import backend_of
from rtl_core.config import load_config, to_toml
from rtl_core.errors import BackendUnavailableError, PolicyError, ProblemError
from rtl_core.history import connection
from rtl_core.history.schema import VERSION
from rtl_core.history.store import History
from rtl_core.prompting.budget import Prompt
from rtl_core.run import forecast
from rtl_core.run.check import machine, readiness
from rtl_core.run.check import prompts as prompts_of_run
from rtl_core.run.check.cost import cost, disk
from rtl_core.run.check.prompts import (
    PreflightInput,
    PreparedPrompts,
    context,
    known_good,
    prepare,
    sizes,
)
from rtl_core.run.opening import open_session
from rtl_core.tinymodels import model_path
from rtl_grader.problems.sources import load_problems
from tests.command import invoke, run
from tests.nouns import demo
from tests.run.service_in_front import Front, Model

STUDENT, TEACHER = str(model_path("student")), str(model_path("teacher"))
"""Names that are paths, so that tokenizers are loaded as for a cloud."""
SMALL = ("problems.sources.0.train=4", "problems.sources.0.heldout=2")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    models = {STUDENT: model_path("student"), TEACHER: model_path("teacher")}
    with LocalTinker(models, tmp_path_factory.mktemp("service") / "state") as running:
        yield running


@pytest.fixture
def front(service, tmp_path, monkeypatch):
    """The service at a URL like a cloud, with a key in the environment and a home folder without stored credentials."""
    for name in ("TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TINKER_API_KEY", service.api_key)
    with Front(service) as made:
        yield made


def settings(front: Front, folder: Path, *more: str) -> list[str]:
    return [
        f"run.directory={folder}",
        f"run.history={folder / 'h.duckdb'}",
        f"tinker.base_url={front.url}",
        "tinker.engine=tinker",  # as in the cloud, nothing else is asked
        f"tinker.student={STUDENT}",
        f"tinker.teacher={TEACHER}",
        *SMALL,
        *more,
    ]


def check(overrides: list[str], config: str = "demo") -> tuple[int, list[dict[str, Any]]]:
    """The exit code of the command, and its lines."""
    done = invoke("check", config, "--json", sets=overrides)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout)


def begin(overrides: list[str]) -> None:
    """Do what `train` does before its first answer."""

    async def opened() -> None:
        async with open_session(load_config("demo", overrides, environment={})):
            pass

    asyncio.run(opened())


def says(status: int) -> Callable[[Front], None]:
    return lambda front: setattr(front, "status", status)


def lists(change: Callable[[list[Model]], list[Model]]) -> Callable[[Front], None]:
    return lambda front: setattr(front, "list_models", change)


def student_is(**changes: Any) -> Callable[[Front], None]:
    return lists(
        lambda models: [{**m, **changes} if m["model_name"] == STUDENT else m for m in models]
    )


def test_a_valid_run_has_a_line_for_every_check_and_starts(front, tmp_path):
    code, lines = check(settings(front, tmp_path))
    assert code == 0
    assert {line["level"] for line in lines} <= {"ok", "warning"}
    about = {line["about"] for line in lines}
    assert about >= {
        "credentials",
        "account",
        "tinker.student",
        "tinker.teacher",
        "tokenizer",
        "data set",
        "executor",
    }
    assert about >= {"prefect", "context", "disk", "cost"}
    assert not any("asample" in path or "create_session" in path for path in front.asked)
    assert not (tmp_path / "h.duckdb").exists()
    begin(settings(front, tmp_path))


WRONG: dict[str, tuple[Callable[[Front], None], str, str, str]] = {
    "an unpaid account": (says(402), "account", r"not paid for \(402", "billing"),
    "a refused key": (says(401), "credentials", r"refuses TINKER_API_KEY \(401", "auth login"),
    "a forbidden service": (says(403), "account", r"may not use .* \(403", "ask an owner"),
    "a service of another kind": (says(404), "service", "answers 404", "tinker.base_url"),
    "a retired model": (
        lists(lambda models: [m for m in models if m["model_name"] != STUDENT]),
        "tinker.student",
        "does not serve .*retired",
        TEACHER,
    ),
    "a model that is not sampled": (
        student_is(sampleable=False),
        "tinker.student",
        "does not sample it",
        TEACHER,
    ),
    "a model that is not trained": (
        student_is(trainable=False),
        "tinker.student",
        "does not train it",
        TEACHER,
    ),
    "a context too small": (
        student_is(max_context_length=210),
        "context",
        r"max_prompt_tokens = 256 and sampling.max_tokens = 200 make 456, and .* takes 210 tokens; too long .*: \w+",
        "lower sampling.max_tokens",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_permanent_error_is_one_sentence_with_a_remedy_in_check_and_ends_a_run(
    front, tmp_path, case
):
    fault, about, text, remedy = WRONG[case]
    fault(front)
    code, lines = check(settings(front, tmp_path))
    wrong = [line for line in lines if line["level"] == "wrong"]
    assert code == 2
    assert [line["about"] for line in wrong] == [about]
    questions = len(front.asked)
    with pytest.raises(PolicyError, match=f"(?s)^{about}: .*{text}") as refused:
        begin(settings(front, tmp_path))
    assert remedy in (refused.value.hint or "")
    assert "\n" not in refused.value.message
    assert wrong[0]["text"] in refused.value.message
    assert wrong[0]["remedy"] == refused.value.hint
    assert questions <= 2, "each question is asked once"
    assert not any("asample" in path for path in front.asked)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("command", "fault", "text"),
    [
        pytest.param("check", 402, "not paid for", marks=pytest.mark.slow),
        pytest.param("train", 402, "not paid for", marks=pytest.mark.slow),
        ("train", None, "retired"),
    ],
)
def test_the_real_command_exits_with_code_2_and_no_traceback(
    front, tmp_path, command, fault, text
):
    front.status = fault
    overrides = settings(
        front, tmp_path, *([] if fault else ["tinker.student=Qwen/Qwen3-30B-A3B"])
    )
    done = run(command, "demo", sets=overrides, timeout=600)
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert text in said
    assert "-> " in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("schema", "code"), [(VERSION - 1, 2), (VERSION, 0)])
def test_a_history_of_an_older_version_is_an_error(front, tmp_path, schema, code):
    History(tmp_path / "h.duckdb").heartbeat("r")
    with duckdb.connect(str(tmp_path / "h.duckdb")) as con:
        con.execute("UPDATE schema_version SET version = ?", [schema])
    connection.forget_checks()
    told, lines = check(settings(front, tmp_path))
    wrong = [line for line in lines if line["level"] == "wrong"]
    assert (told, [line["about"] for line in wrong]) == (code, ["history"] * (code == 2))
    assert all(
        f"older rtl-distill (schema {schema};" in line["text"]
        and "another file" in line["remedy"]
        for line in wrong
    )


@pytest.mark.slow
def test_a_busy_service_is_retried_by_a_run_but_not_by_check(front, tmp_path, monkeypatch):
    front.busy = 1
    code, lines = check(settings(front, tmp_path))
    assert (code, lines[0]["about"], len(front.asked)) == (2, "service", 1)
    assert "is busy (503" in lines[0]["text"]
    monkeypatch.setattr(readiness, "PAUSE_S", 0.01)
    front.busy = 2
    begin(settings(front, tmp_path))
    front.busy = 10**9
    monkeypatch.setattr(readiness, "PATIENCE_S", 0.0)
    with pytest.raises(BackendUnavailableError, match="is busy"):
        begin(settings(front, tmp_path))


def test_an_unreachable_service_and_one_without_an_answer_are_reported(
    front, tmp_path, monkeypatch
):
    code, lines = check(settings(front, tmp_path, "tinker.base_url=http://127.0.0.1:9"))
    assert (code, lines[0]["about"]) == (2, "service")
    assert "127.0.0.1:9 cannot be reached" in lines[0]["text"]
    monkeypatch.setattr("rtl_core.backend.tinker.readiness.WHOLE_S", 0.3)
    front.silent = True
    code, lines = check(settings(front, tmp_path))
    assert (code, lines[0]["about"]) == (2, "service")
    assert "no answer in time" in lines[0]["text"]


@pytest.mark.slow
def test_a_key_stored_by_tinker_auth_login_is_found_and_a_missing_key_is_reported(
    front, service, tmp_path, monkeypatch
):
    monkeypatch.delenv("TINKER_API_KEY")
    code, lines = check(settings(front, tmp_path))
    assert (code, lines[0]["about"], lines[0]["level"]) == (2, "credentials", "wrong")
    assert "tinker auth login" in lines[0]["remedy"]
    with pytest.raises(PolicyError, match="there is no key"):
        begin(settings(front, tmp_path))
    assert front.asked == []

    store = JsonCredentialStore(tmp_path / "home" / ".tinker" / "credentials.json")
    store.add_key("mine", ManualKey(key=service.api_key, name="mine"))
    store.set_default("mine")
    code, lines = check(settings(front, tmp_path))
    assert code == 0, lines
    assert "tinker auth login" in lines[0]["text"]
    begin(settings(front, tmp_path))

    (tmp_path / "home" / ".tinker" / "credentials.json").write_text("no JSON")
    code, lines = check(settings(front, tmp_path))
    assert (code, lines[0]["about"], lines[0]["level"]) == (2, "credentials", "wrong")


def test_a_key_is_exchanged_for_a_token_if_the_service_requires_it(front, tmp_path):
    claims = (
        base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 3600}).encode())
        .decode()
        .rstrip("=")
    )
    front.token = f"eyJhbGciOiJub25lIn0.{claims}."
    code, lines = check(settings(front, tmp_path))
    assert (code, lines[0]["level"]) == (0, "ok")
    assert [path.rsplit("/", 1)[-1] for path in front.asked] == [
        "config",
        "token",
        "get_server_capabilities",
    ]


def test_a_web_page_is_not_a_service_and_an_empty_credential_is_an_error(
    front, tmp_path, monkeypatch
):
    front.page = b"<html>Sign in to the network</html>"
    code, lines = check(settings(front, tmp_path))
    assert (code, lines[0]["about"]) == (2, "service")
    assert "does not answer as a Tinker service does" in lines[0]["text"]
    monkeypatch.delenv("TINKER_API_KEY")
    monkeypatch.setenv("TINKER_CREDENTIAL_CMD", "false")
    code, lines = check(settings(front, tmp_path))
    assert (code, lines[0]["about"]) == (2, "credentials")
    assert "empty credential" in lines[0]["text"]


NO_FILE = "problems.sources=[{kind = 'cvdp', path = 'none.jsonl'}]"
NONE_HELD_OUT = "problems.sources=[{kind = 'starter', train = 4, heldout = 0}]"


@pytest.mark.parametrize(
    ("sources", "server", "about", "text", "remedy"),
    [
        (NO_FILE, None, "data set", "none.jsonl", "problems fetch"),
        (
            NONE_HELD_OUT,
            None,
            "data set",
            "no problem is held out to evaluate on",
            "heldout_fraction",
        ),
        (None, "http://127.0.0.1:9/api", "prefect", "127.0.0.1:9", "unset PREFECT_API_URL"),
    ],
)
def test_missing_problems_and_an_unreachable_prefect_server_are_errors_with_a_remedy(
    tmp_path, monkeypatch, sources, server, about, text, remedy
):
    if server:
        monkeypatch.setenv("PREFECT_API_URL", server)
    places = [f"run.directory={tmp_path}", f"run.history={tmp_path / 'h.duckdb'}"]
    code, lines = check([*places, *([sources] if sources else SMALL)])
    (wrong,) = (line for line in lines if line["level"] == "wrong")
    assert (code, wrong["about"]) == (2, about)
    assert text in wrong["text"]
    assert remedy in wrong["remedy"]


def test_the_remedy_for_lines_that_cannot_be_read_names_the_configuration(tmp_path):
    (tmp_path / "few.jsonl").write_text("torn\n")
    few = f"{{kind = 'pairs', path = '{tmp_path / 'few.jsonl'}'}}"
    starter = "{kind = 'starter', train = 4, heldout = 2}"
    own = tmp_path / "own.toml"
    own.write_text(to_toml(load_config("demo", [f"problems.sources=[{starter}, {few}]"])))
    done = invoke("check", "--json", own)
    (remedy,) = (
        one["remedy"] for one in json.loads(done.stdout) if "few.jsonl:1" in one["text"]
    )
    assert f"`rtl-distill problems list --config {own}` names all" in remedy
    assert "broken: few.jsonl:1" in invoke("problems", "list", "--config", own).stdout


def test_published_problems_are_counted_by_source(front, tmp_path, cvdp):
    file = (
        next(cvdp.glob("*example*nonagentic*.jsonl"), None) or sorted(cvdp.glob("*.jsonl"))[0]
    )
    place = f"problems.sources=[{{kind = 'cvdp', path = '{file}'}}, {{kind = 'starter', train = 3, heldout = 2}}]"
    _, lines = check([*settings(front, tmp_path)[:5], place])
    told = [line["text"] for line in lines if line["about"] == "data set"]
    assert any(text.startswith("cvdp: ") for text in told)
    assert "starter: 3 to train on, 2 held out" in told


def test_an_embedded_run_needs_no_key_and_names_a_missing_model(tmp_path, monkeypatch):
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    places = [f"run.directory={tmp_path}", f"run.history={tmp_path / 'h.duckdb'}", *SMALL]
    code, lines = check(places)
    assert (code, lines[0]["text"]) == (0, "student: embedded, up to 1,024 tokens")
    code, lines = check([*places, "tinker.student=nobody"])
    assert code == 2
    assert "nobody" in lines[0]["text"]
    code, lines = check([*places, "sampling.max_tokens=1000"])
    wrong = [line for line in lines if line["level"] == "wrong"]
    assert code == 2
    assert {line["about"] for line in wrong} == {"context"}


def small_known(tmp_path: Path, limit: int, *overrides: str) -> PreflightInput:
    """Problems whose prompts have 100 tokens each, and a student that takes `limit`."""
    config = demo(tmp_path, *overrides, train=4, heldout=2)
    loaded = load_problems(config.problems.sources, 0)
    prompts = {
        problem.id: Prompt(problem.id, [], [1] * 100)
        for problem in (*loaded.train, *loaded.heldout)
    }
    readiness = Readiness(context={"student": limit, "teacher": 10_000})
    return PreflightInput(config, readiness, PreparedPrompts(prompts), loaded)


@pytest.mark.parametrize(
    ("limit", "level"), [(456, "ok"), (455, "warning"), (300, "warning"), (299, "wrong")]
)
def test_token_limits_are_an_error_if_an_actual_prompt_exceeds_the_context(
    tmp_path, limit, level
):
    known = small_known(tmp_path, limit)
    student, teacher = context(known)
    assert (student.level, teacher.level) == (level, "ok")
    if level != "ok":
        assert (
            f"prompting.max_prompt_tokens = 256 and sampling.max_tokens = 200 make 456, and student takes {limit}"
            in student.text
        )
        assert (min(known.prompts) in student.text) == (limit == 299)
        assert student.remedy is not None
        assert (
            f"sampling.max_tokens to {199 if limit == 299 else limit - 256}" in student.remedy
        )
        assert f"prompting.max_prompt_tokens to {limit - 200}" in student.remedy
    longer = context(small_known(tmp_path, limit, "evaluation.max_tokens=400"))
    assert [finding.level for finding in longer] == ["wrong", "ok"], (
        "the answers of evaluations need room too"
    )


def test_of_many_problems_most_prompts_are_built_when_they_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(prompts_of_run, "AT_START", 2)
    config = demo(tmp_path, train=9, heldout=2)
    loaded = load_problems(config.problems.sources, 0)
    student = config.prompting.chat(backend_of(config).tokenizer(config, "student"), "student")
    every = prepare(config, loaded, student)
    prepared = prepare(config, loaded, student, readiness=Readiness())
    first = [*loaded.train[::4], *loaded.heldout]
    assert list(prepared.prompts) == [problem.id for problem in first]
    known = PreflightInput(config, Readiness(context={"student": 1024}), prepared, loaded)
    (finding,) = context(known)
    assert finding.text.endswith("; 6 further prompts are measured when they are used")
    later = loaded.train[1].id
    assert prepared.prompts[later] == every.prompts[later]
    tight = Readiness(context={"student": config.longest_answer + 10})
    narrow = prepare(config, loaded, student, readiness=tight).prompts
    with pytest.raises(
        ProblemError, match=f"{later}: its text alone takes .* the budget is 10"
    ):
        narrow[later]


def test_missing_known_good_answers_are_reported_if_they_are_imitated_or_shown(tmp_path):
    def found(good, *overrides):
        known = small_known(tmp_path, 10_000, *overrides)
        train = known.loaded.train
        train = train[:good] + [
            problem.model_copy(update={"golden": None}) for problem in train[good:]
        ]
        known = replace(known, loaded=replace(known.loaded, train=train))
        return [(finding.about, finding.level, finding.text) for finding in known_good(known)]

    without = "problems.require_golden=false"
    imitating = (without, "learning.warm_start_steps=2", "learning.warm_start_source=golden")
    shown = (without, "learning.algorithm=self_distillation")
    assert found(0) == found(4, *imitating) == found(4, *shown) == []
    (some,) = found(1, *imitating)
    assert some[:2] == ("learning.warm_start_source", "warning")
    assert some[2].startswith("3 of 4 training problems")
    # With `require_golden` the run leaves these problems out.
    assert found(1, *imitating[1:]) == []
    (none,) = found(0, *imitating)
    assert none[:2] == ("learning.warm_start_source", "wrong")
    assert [finding[:2] for finding in found(0, *shown)] == [("learning.self_hint", "wrong")]


@pytest.mark.parametrize(
    ("thinking", "overrides", "warned"),
    [
        (None, [], []),
        (True, [], ["sampling.max_tokens = 24576", 'learning.truncated = "mask"']),
        (True, ["sampling.max_tokens=24576", "learning.truncated=mask"], []),
        (
            True,
            ["sampling.max_tokens=24576", "learning.truncated=mask", 'health.ranges={"env/all/truncated" = {max = 0.1}}'],
            ["env/all/truncated"],
        ),
        (False, ["sampling.max_tokens=8192"], []),
        (False, ["sampling.max_tokens=24576"], ["sampling.max_tokens = 8192"]),
    ],
)  # fmt: skip
def test_sizes_that_do_not_suit_the_thinking_mode_give_warnings(
    tmp_path, thinking, overrides, warned
):
    plain = small_known(tmp_path, 10**6, *overrides)
    prompting = plain.config.prompting.model_copy(update={"thinking": thinking})
    found = list(
        sizes(replace(plain, config=plain.config.model_copy(update={"prompting": prompting})))
    )
    assert [finding.level for finding in found] == ["warning"] * len(warned)
    for finding, remedy in zip(found, warned, strict=True):
        assert remedy in (finding.remedy or "")


def test_cost_gives_the_maximum_first_and_compares_the_budget_with_it(tmp_path):
    names = ["tinker.student=Qwen/Qwen3.6-35B-A3B", "tinker.teacher=Qwen/Qwen3.5-397B-A17B"]
    (unlimited,) = cost(small_known(tmp_path, 10**6, *names, "tinker.base_url=http://a"))
    assert (unlimited.level, unlimited.text[:9]) == ("wrong", "at most $")
    assert "--set cost.budget_usd=1`" in (unlimited.remedy or "")
    (covered,) = cost(small_known(tmp_path, 10**6, *names, "cost.budget_usd=1000"))
    assert (covered.level, "covers that" in covered.text) == ("ok", True)
    (small,) = cost(small_known(tmp_path, 10**6, *names, "cost.budget_usd=0.000001"))
    assert small.level == "warning"


@pytest.mark.parametrize(
    ("places", "level", "text"),
    [
        ("tinker.base_url=local cost.budget_usd=1", "ok", "no dollars with the embedded service"),
        ("tinker.base_url=http://a", "warning", "no budget can limit the run: the price list of"),
        ("tinker.base_url=http://a cost.budget_usd=1", "wrong", "cost.budget_usd cannot be watched: the price list of"),
        ("tinker.base_url=local tinker.teacher_base_url=cloud", "wrong", "no budget can limit the run"),
        ("tinker.base_url=local tinker.teacher_base_url=cloud backend.name=own:BACKEND", "warning", "no budget can"),
    ],
)  # fmt: skip
def test_a_budget_that_cannot_be_watched_is_an_error_that_names_the_model(
    tmp_path, monkeypatch, places, level, text
):
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)
    student, teacher = "Qwen/Qwen3.6-35B-A3B", "Qwen/Qwen3.6-35B-A3"
    named = [f"tinker.student={student}", f"tinker.teacher={teacher}"]
    (found,) = cost(small_known(tmp_path, 10**6, *named, *places.split()))
    assert (found.level, found.text[: len(text)]) == (level, text)
    if level != "ok":
        assert f"no price for {teacher}: prefill" in found.text
        remedy = f"name the copy with cost.prices; did you mean {student}"
        assert remedy in (found.remedy or "")


def test_without_a_key_check_names_the_missing_price_and_the_room_for_thoughts(
    tmp_path, monkeypatch
):
    for name in ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD", "TINKER_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    config = tmp_path / "run.toml"
    shipped = load_config("demo", [f"run.history={tmp_path / 'h'}"], environment={})
    sections = to_toml(shipped).replace('base_url = "local"', "")
    config.write_text(sections)
    code, lines = check(
        [
            "tinker.student=Qwen/Qwen3.5-4B",
            "tinker.teacher=student",
            "cost.budget_usd=5",
            *SMALL,
        ],
        str(config),
    )
    assert code == 2
    found = {line["about"]: line for line in lines if line["level"] != "ok"}
    assert found["credentials"]["level"] == found["cost"]["level"] == "wrong"
    assert "no price for student: prefill" in found["cost"]["text"]
    assert "Qwen/Qwen3.5-4B thinks before it answers, and answers limited to" in str(lines)


def test_cost_says_whether_lengths_and_speed_were_measured(tmp_path, monkeypatch):
    known = small_known(tmp_path, 10**6)
    (found,) = cost(known)
    assert found.text.endswith("; lengths and speed assumed")
    monkeypatch.setattr(
        forecast, "measured", lambda *_: forecast.Measured(4, 9.0, 6.0, None, None, None)
    )
    (found,) = cost(known)
    assert found.text.endswith("; lengths and speed measured over 4 answers")


def test_a_file_in_place_of_a_folder_and_a_folder_in_place_of_the_history_are_errors(tmp_path):
    (tmp_path / "file").touch()
    known = small_known(
        tmp_path,
        10**6,
        f"run.directory={tmp_path / 'file' / 'runs'}",
        f"run.history={tmp_path}",
    )
    first = next(disk(known))
    assert (first.level, first.text) == ("wrong", f"{tmp_path / 'file'} is not a folder")
    (found,) = machine.history(known.config)
    assert (found.level, found.text) == ("wrong", f"{tmp_path}: Is a directory")


def test_a_folder_that_is_not_writable_is_an_error(tmp_path, monkeypatch):
    known = small_known(
        tmp_path,
        10**6,
        f"run.directory={tmp_path / 'not' / 'yet'}",
        f"run.history={tmp_path / 'h'}",
    )
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root can write everywhere
    found, room = disk(known)
    assert (found.level, found.text, room.level) == (
        "wrong",
        f"{tmp_path} is not writable",
        "ok",
    )


def test_a_disk_without_room_is_an_error(tmp_path, monkeypatch):
    known = small_known(
        tmp_path, 10**6, "run.epochs=100", f"run.directory={tmp_path / 'not' / 'yet'}"
    )
    for free, level in ((10**12, "ok"), (10**6, "wrong")):
        monkeypatch.setattr(
            shutil, "disk_usage", lambda path, free=free: SimpleNamespace(free=free)
        )
        (found,) = disk(known)
        assert found.level == level
        assert str(tmp_path) in found.text
