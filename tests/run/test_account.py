"""What a run's account holds of other runs, and its bill: with the embedded service at a URL, and with a fake of the routes
for admins, which no service but Tinker's cloud has."""

import asyncio
import json
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import tinker

from localtinker.process import LocalTinker
from rtl_core.backend.base import Checkpoint
from rtl_core.backend.registry import backend_of
from rtl_core.backend.tinker.account import bill_of, weights_of_account
from rtl_core.backend.tinker.connect import Endpoint, tinker_session
from rtl_core.backend.tinker.marks import run_id
from rtl_core.config import RunConfig, load_config
from rtl_core.errors import PolicyError
from rtl_core.history.records import RunRecord, StepPlan, StepRecord
from rtl_core.history.store import History
from rtl_core.run import account
from rtl_core.run.lock import lock_path, run_lock
from rtl_core.tinymodels import model_path
from tests.answering import Answer, answering
from tests.command import invoke
from tests.nouns import a_rollout

STUDENT = str(model_path("student"))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with LocalTinker({STUDENT: Path(STUDENT)}, tmp_path_factory.mktemp("account")) as running:
        yield running


def settings(url: str, name: str, folder: Path) -> RunConfig:
    overrides = [
        f"run.name={name}",
        f"run.directory={folder}",
        f"tinker.base_url={url}",
        f"tinker.student={STUDENT}",
        f"tinker.teacher={STUDENT}",
        "tinker.lora_rank=8",
    ]
    return load_config("demo", overrides, environment={})


def saved(config: RunConfig, *steps: int) -> list[Checkpoint]:
    """Weights that a run saves."""

    async def run() -> list[Checkpoint]:
        async with backend_of(config).open(config, print) as backend:
            trainer = await backend.open_trainer(None)
            return [await trainer.save(f"{config.run.name}-{n:06d}", None) for n in steps]

    return asyncio.run(run())


def record(history: History, config: RunConfig, weights: Checkpoint, **more: Any) -> None:
    """Record a run with one step, whose weights these are."""
    name = config.run.name
    history.start_run(
        RunRecord(name=name, config=config.model_dump(mode="json"), student=STUDENT, **more)
    )
    history.plan_epoch(name, 0, [StepPlan(step=0, problem_ids=("a",))])
    history.finish_step(
        StepRecord(
            run=name, epoch=0, step=0, state_path=weights.state_path,
            sampler_path=weights.sampler_path, examples=1, train_tokens=30,
        )
    )  # fmt: skip


def paths(*weights: Checkpoint) -> set[str]:
    return {path for one in weights for path in (one.state_path, one.sampler_path)}


@pytest.mark.slow
def test_weights_that_no_run_has_recorded_are_listed_and_deleted(
    service, tmp_path, monkeypatch
):
    monkeypatch.setenv("TINKER_API_KEY", service.api_key)
    history = History(tmp_path / "h.duckdb")
    mine, other = (
        settings(service.base_url, name, tmp_path / folder)
        for name, folder in (("mine", "runs"), ("other", "others"))
    )
    kept, attempt = saved(mine, 1, 2)
    of_other = saved(other, 1, 2)
    gone = settings(
        service.base_url, "mine", tmp_path / "gone"
    )  # a name that this history has, too
    of_gone, taught = saved(gone, 1, 2)
    teacher = mine.tinker.model_copy(update={"teachers": {"cvdp": taught.sampler_path}})
    record(history, mine.model_copy(update={"tinker": teacher}), kept)
    record(history, other, of_other[0])
    aside = settings(service.base_url, "aside", tmp_path / "runs")  # in another history
    of_aside = saved(aside, 1)
    shutil.rmtree(tmp_path / "gone")
    with tinker.ServiceClient(base_url=service.base_url, api_key=service.api_key) as client:
        foreign = client.create_lora_training_client(STUDENT, rank=8).result()
        # Of another program that happens to use the same key.
        marks = {"run_id": "x", "run": "mine"}
        of_foreign = foreign.save_state("mine-000001", user_metadata=marks).result().path

    def listed(*more: str) -> str:
        place = ["--all", "--db", history.path, *more]
        done = invoke("admin", "checkpoints", "mine", *place, COLUMNS="250")
        return " ".join(done.output.split())

    def there() -> set[str]:
        return {path for path, *_ in asyncio.run(weights_of_account(mine))}

    everything = there()
    known = {*paths(kept, *of_other, *of_aside), of_foreign, taught.sampler_path}
    assert everything == known | paths(attempt, of_gone) | {taught.state_path}
    text = listed()
    assert "of an interrupted attempt" in text
    assert "saved lately: its run may go on elsewhere" in text
    assert "without marks: of another program" in text
    assert "--delete would delete 2 saved weights" in text
    assert "The service tells the price of storage to admins alone" in text
    assert "aside" not in text
    assert "other " not in text.replace("another ", "")

    async def while_it_runs() -> tuple[list[str], dict[str, str]]:
        async with run_lock(lock_path(mine), {}, print):
            table, unused = await account.weights_left(history, mine)
            return [row[-1] for row in table.rows], unused

    states, unused = asyncio.run(while_it_runs())
    assert "this run is running" in states
    assert unused == {}
    in_two_days = datetime.now(UTC) + timedelta(days=2)
    monkeypatch.setattr(account, "utc_now", lambda: in_two_days)
    assert "left behind" in listed()
    asked = listed("--delete")
    assert "Delete 5 saved weights of mine for good?" in asked
    assert "Aborted" in asked  # nobody said yes
    assert there() == everything
    assert "deleted 5 of 5 saved weights" in listed("--delete", "--yes")
    assert there() == known
    assert "--delete would delete 0 saved weights" in listed("--delete", "--yes")
    wrong = invoke("admin", "checkpoints", "mine", "--delete")
    assert "requires --all" in wrong.output


def event(session: str, hour: str, usd: float | None, **info: Any) -> dict[str, Any]:
    start = datetime.fromisoformat(hour)
    return {
        "bucket_start": start.isoformat(),
        "bucket_end": (start + timedelta(hours=1)).isoformat(),
        "base_model": STUDENT,
        "session_id": session,
        "estimated_cost_usd": usd,
        "event_info": info,
    }


@contextmanager
def cloud(
    billing: Answer | dict[str, Any],
) -> Iterator[tuple[str, list[tuple[str, str, bytes]]]]:
    """A service that answers the routes of bills: (URL, requests)."""
    asked = []

    def answer(method: str, path: str, body: bytes) -> Answer:
        asked.append((method, path, body))
        kind = {"Content-Type": "application/json"}
        if urlsplit(path).path == "/api/v1/billing/usage/events" and isinstance(billing, tuple):
            return billing
        routes = {
            "/api/v1/client/config": {},
            "/api/v1/billing/usage/events": billing,
            "/api/v1/billing/usage/checkpoints/current": {
                "effective_rate_usd_per_gigabyte_month": 0.25, "data": [],
            },
            "/api/v1/create_session": {"session_id": "s", "type": "create_session"},
            "/api/v1/checkpoints": {
                "checkpoints": [
                    {
                        "checkpoint_id": "weights/a-000001", "checkpoint_type": "training",
                        "time": "2026-01-01T00:00:00Z", "tinker_path": "tinker://r/weights/a-000001",
                        "size_bytes": 2_000_000_000,
                        "user_metadata": {
                            "rtl_distill": "0.3.0", "run": "a", "run_id": "1", "host": platform.node(),
                        },
                    }
                ]
            },
        }  # fmt: skip
        return 200, kind, json.dumps(routes.get(urlsplit(path).path, {})).encode()

    with answering(answer) as url:
        yield url, asked


def test_recorded_tokens_are_compared_with_the_bill(tmp_path, monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", "tml-test")
    hour = "2026-01-02T03:00:00+00:00"
    billing: dict[str, Any] = {"data": [], "sessions": {}}
    with cloud(billing) as (url, asked):
        config = settings(url, "r", tmp_path)
        marks = {"run": "r", "run_id": run_id(config), "host": "h"}
        billing["sessions"] = {
            "ours": {"user_metadata": marks},
            "namesake": {"user_metadata": {**marks, "run_id": "another"}},
            "foreign": {"user_metadata": None},
        }
        billing["data"] = [
            event("ours", hour, 0.5, type="training", token_count=30),
            event("ours", hour, 0.25, type="sampling_sample", token_count=7),
            event("ours", hour, 0.125, type="sampling_prefill", token_count=3, cached=False),
            event("ours", hour, None, type="sampling_prefill", token_count=2, cached=True),
            event("namesake", hour, 9.0, type="training", token_count=999),
            event("foreign", hour, 9.0, type="training", token_count=999),
            {
                **event("ours", hour, 9.0, type="storage", gigabyte_hours=2.0),
                "session_id": None,
            },
            event("ours", hour, None, type="checkpoint", count=2),
        ]
        history = History(tmp_path / "h.duckdb")
        record(history, config, Checkpoint("s", "w"))
        one = a_rollout(run="r", step=0, prompt_P=(1, 2, 3), tokens_T=(4, 5), logprobs_T=(-1.0, -1.0), n_cached=0)  # fmt: skip
        history.record_rollouts([one])

        def said(*more: str) -> str:
            done = invoke("admin", "cost", "r", "--db", history.path, *more, COLUMNS="400")
            return " ".join(done.output.split())

        assert f"{STUDENT} prefill 3 {STUDENT} sample 2 {STUDENT} train 30" in said()
        text = said("--billed")
        for kind, numbers in {
            "prefill": "3 3 +0", "cached": "0 2 +2", "sample": "2 7 +5", "train": "30 30 +0",
        }.items():  # fmt: skip
            assert f"{STUDENT} {kind} {numbers}" in text
        assert "Billed so far for 1 session: $0.8750 before credits" in text
        # Periods of at most 14 days, in whole hours, without a gap.
        since = datetime(2026, 1, 1, 10, 30, tzinfo=UTC)
        asked.clear()
        bill = asyncio.run(bill_of(config, {"run": "r"}, since, since + timedelta(days=15)))
        assert bill.sessions == {"ours", "namesake"}
        queries = [parse_qs(urlsplit(path).query) for _, path, _ in asked if "events" in path]
        assert [(q["starting_on"][0][:13], q["ending_before"][0][:13]) for q in queries] == [
            ("2026-01-01T10", "2026-01-15T10"), ("2026-01-15T10", "2026-01-16T11"),
        ]  # fmt: skip
        billing["sessions"] = {}
        assert "has no session of run 'r'" in str(said_error(history))


def said_error(history: History) -> BaseException | None:
    return invoke("admin", "cost", "r", "--billed", "--db", history.path).exception


@pytest.mark.parametrize(
    ("status", "words"),
    [(403, "to admins and billing admins of the organisation alone"), (404, "has no bills")],
)
def test_a_service_without_a_bill_for_this_key_is_named(status, words, tmp_path, monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", "tml-test")
    with cloud((status, {"Content-Type": "application/json"}, b'{"detail": "no"}')) as (url, _):
        history, config = History(tmp_path / "h.duckdb"), settings(url, "r", tmp_path)
        record(history, config, Checkpoint("s", "w"))
        error = said_error(history)
        assert isinstance(error, PolicyError)
        assert words in str(error)
        # What storage costs is told beside the weights, where it can be known.
        listed = invoke(
            "admin", "checkpoints", "r", "--all", "--db", history.path, COLUMNS="250"
        )
        assert f"a {platform.node()} 2026-01-01 00:00 1 2.000 0.50 left behind" in " ".join(
            listed.output.split()
        )


def test_the_embedded_service_has_no_account_and_no_bill(service, tmp_path, monkeypatch):
    history = History(tmp_path / "h.duckdb")
    record(history, settings("local", "r", tmp_path), Checkpoint("s", "w"))
    assert "has no account" in str(said_error(history))
    monkeypatch.setenv("TINKER_API_KEY", service.api_key)
    served = settings(service.base_url, "r", tmp_path)
    with pytest.raises(PolicyError, match="has no bills"):
        asyncio.run(bill_of(served, {}, datetime.now(UTC), datetime.now(UTC)))


def test_a_session_has_the_project_of_the_environment(monkeypatch):
    monkeypatch.setenv("TINKER_PROJECT_ID", "rtl")

    async def session(url: str) -> None:
        async with tinker_session(Endpoint(url, "tml-test", marks={"run": "r"})) as client:
            await asyncio.to_thread(lambda: client.holder)

    with cloud({}) as (url, asked):
        asyncio.run(session(url))
    (body,) = [json.loads(body) for _, path, body in asked if path.endswith("/create_session")]
    assert (body["project_id"], body["user_metadata"]) == ("rtl", {"run": "r"})
