"""The grading service over real sockets: its records, and clear errors for bad requests that affect no other client."""

import asyncio
import json
import resource
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager

import httpx
import pytest

from rtl_core.errors import ConfigError, ProblemError
from rtl_core.starter import starter_problems
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.pool import GraderPool
from rtl_grader.grading.verdict_file import VerdictFile
from rtl_grader.grading.verdict_record import changed_fields
from rtl_grader.http_server import listen, serve
from rtl_grader.records.reproduce import reproduce
from rtl_grader.serving import app as http
from rtl_grader.serving.grading_queue import MOST_FAILED, GradingQueue
from tests.command import invoke
from tests.waiting import wait_for

PROBLEMS = starter_problems("train", 3, 0)
TOKEN = {"Authorization": "Bearer secret"}


def golden(number, note):
    """The golden answer to a problem, made distinct by a comment."""
    problem = PROBLEMS[number]
    return {
        "id": problem.id,
        "files": {path: f"{text}\n// {note}\n" for path, text in problem.golden.items()},
    }


@contextmanager
def serving(grader, output, queue=64):
    """A client of a service in this process."""
    address = Future()
    with closing(VerdictFile(output)) as store, closing(listen("127.0.0.1", 0)) as port:
        queue = GradingQueue(
            GraderPool(grader, 2), {problem.id: problem for problem in PROBLEMS}, store, queue
        )
        loop = asyncio.new_event_loop()
        task = loop.create_task(
            serve(http.create_app(queue, "secret"), port, address.set_result, grace_s=10)
        )

        def run():
            with pytest.raises(asyncio.CancelledError):
                loop.run_until_complete(task)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            with httpx.Client(
                base_url=address.result(60), headers=TOKEN, timeout=300
            ) as client:
                yield client
        finally:
            loop.call_soon_threadsafe(task.cancel)
            thread.join()
            loop.close()


class Held:
    """An executor whose jobs wait for an event."""

    def __init__(self, executor):
        self._executor, self.go = executor, threading.Event()

    def __getattr__(self, name):
        return getattr(self._executor, name)

    def run(self, job):
        assert self.go.wait(300)
        return self._executor.run(job)


@contextmanager
def held(grader, output, queue):
    """A service whose gradings wait for an event."""
    executor = Held(grader.executor)
    with closing(Grader(executor)) as waiting, serving(waiting, output, queue) as service:
        try:
            yield service, executor.go
        finally:
            executor.go.set()


def until_waiting(service, waiting):
    wait_for(
        lambda: metric(service, "rtl_grader_waiting") == waiting,
        f"{waiting} waiting gradings",
        60.0,
    )


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("service") / "verdicts.jsonl"


@pytest.fixture(scope="module")
def service(grader, output):
    with serving(grader, output) as client:
        yield client


def grade(service, *answers):
    response = service.post("/v1/grade", json={"answers": answers})
    assert response.status_code == 200, response.text
    return response.json()["verdicts"]


def metric(service, name):
    lines = service.get("/metrics").text.splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith((f"{name} ", f"{name}{{"))
    )


@contextmanager
def others_unaffected(service, note):
    """Another client's batch is graded meanwhile and gets the right verdicts."""
    with ThreadPoolExecutor(1) as pool:
        batch = pool.submit(grade, service, *(golden(number, note) for number in range(3)))
        yield
        assert [verdict["outcome"] for verdict in batch.result()] == ["passed"] * 3


def test_an_answer_with_a_lone_surrogate_gets_a_record(service):
    asked = json.dumps({"answers": [golden(0, "\ud800")]})  # as ASCII
    response = service.post(
        "/v1/grade", content=asked, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 200, response.text
    (verdict,) = response.json()["verdicts"]
    assert verdict["outcome"] == "rejected"
    assert changed_fields(verdict) == []


def test_a_batch_gets_sealed_records_in_order_and_equal_answers_are_graded_once(
    service, output
):
    answers = [
        golden(0, "a"),
        {"id": PROBLEMS[1].id, "response": "I do not know.", "sample": 7},
        {**golden(0, "a"), "sample": 1},
    ]
    before = metric(service, "rtl_grader_graded_total")
    verdicts = grade(service, *answers)
    assert [(v["id"], v["sample"], v["outcome"]) for v in verdicts] == [
        (PROBLEMS[0].id, 0, "passed"),
        (PROBLEMS[1].id, 7, "no_answer"),
        (PROBLEMS[0].id, 1, "passed"),
    ]
    assert not any(map(changed_fields, verdicts))
    assert grade(service, *answers) == verdicts
    assert metric(service, "rtl_grader_graded_total") == before + 2
    assert [
        claim.differences
        for claim in reproduce(output, PROBLEMS)
        if claim.raw["key"] == verdicts[0]["key"]
    ] == [[]]
    told = service.get("/v1/problems").json()["problems"]
    assert {name: problem["fingerprint"] for name, problem in told.items()} == {
        p.id: p.fingerprint for p in PROBLEMS
    }


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer other"}, {"Authorization": "secret"}]
)
def test_a_wrong_token_is_401_except_for_health_and_documentation(service, headers):
    with others_unaffected(service, f"token {headers}"):
        for path in ("/v1/grade", "/v1/problems", "/metrics"):
            refused = httpx.request(
                "POST" if path == "/v1/grade" else "GET",
                f"{service.base_url}{path}",
                headers=headers,
            )
            assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert httpx.get(f"{service.base_url}/health").json()["status"] == "ok"
        page = httpx.get(f"{service.base_url}/docs")
        assert "POST /v1/grade" in page.text
        for name in ("Batch", "AnswerRecord", "Verdicts"):
            assert f"<h3>{name}</h3>" in page.text
        assert "<script" not in page.text


BROKEN = {
    '{"answers": [': "JSON",
    '{"answers": []}': "answers: ",
    '{"answers": 3}': "answers: ",
    "[]": "body: ",
    '{"answers": [{"id": "x", "response": "y"}]}': "answers.0.id: 'x' is not one of the problems",
    json.dumps({"answers": [golden(0, "b"), {"id": PROBLEMS[0].id}]}): "answers.1.needs either",
    json.dumps(
        {"answers": [{"id": PROBLEMS[0].id, "files": {"rtl/a.sv": 3}}]}
    ): "answers.0.files.rtl/a.sv: ",
    json.dumps(
        {"answers": [{"id": PROBLEMS[0].id, "response": "x", "sample": -1}]}
    ): "answers.0.sample: ",
}


@pytest.mark.parametrize("body", BROKEN)
def test_a_malformed_body_is_422_and_names_the_place(service, body):
    before = metric(service, "rtl_grader_graded_total")
    refused = service.post(
        "/v1/grade", content=body, headers={"Content-Type": "application/json"}
    )
    assert refused.status_code == 422
    assert BROKEN[body] in refused.json()["detail"]
    assert metric(service, "rtl_grader_graded_total") == before


def test_too_long_answers_and_bodies_are_413(service):
    with others_unaffected(service, "too long"):
        long = {"id": PROBLEMS[0].id, "response": "x" * 2_000_001}
        files = {
            "id": PROBLEMS[0].id,
            "files": {"rtl/a.sv": "x" * 1_500_000, "rtl/b.sv": "x" * 1_500_000},
        }
        for number, answers in enumerate(([long], [golden(0, "c"), files])):
            refused = service.post("/v1/grade", json={"answers": answers})
            assert refused.status_code == 413, refused.text
            assert f"answers.{number}: has" in refused.json()["detail"]
        refused = service.post("/v1/grade", content=b" " * (http.MAX_BODY_BYTES + 1))
        assert (refused.status_code, "32 MiB" in refused.text) == (413, True)


def partial_request(service, length=100, start=b"{"):
    """A connection on which a request with a body of `length` bytes has begun."""
    connection = socket.create_connection((service.base_url.host, service.base_url.port))
    head = "POST /v1/grade HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + start)
    return connection


def test_a_client_that_disconnects_affects_no_other_and_its_answer_is_graded_once(
    grader, tmp_path
):
    with (
        held(grader, tmp_path / "v.jsonl", 64) as (service, go),
        others_unaffected(service, "hung up"),
    ):
        until_waiting(service, 3)
        partial_request(service).close()
        body = json.dumps({"answers": [golden(2, "left alone")]}).encode()
        connection = partial_request(service, length=len(body), start=body)
        until_waiting(service, 4)
        connection.close()
        go.set()
        assert grade(service, golden(2, "left alone"))[0]["outcome"] == "passed"
        until_waiting(service, 0)
        assert metric(service, "rtl_grader_hung_up_total") == 1
        assert metric(service, "rtl_grader_graded_total") == 4


def test_a_request_that_stalls_is_408(service, monkeypatch):
    monkeypatch.setattr(http, "STALL_S", 0.1)
    with closing(partial_request(service)) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_full_queue_is_429_and_known_answers_take_no_place(grader, tmp_path):
    nothing = [
        {"id": PROBLEMS[0].id, "response": text} for text in ("none", "```verilog\n")
    ]  # needs no sandbox
    with held(grader, tmp_path / "v.jsonl", 2) as (service, go), ThreadPoolExecutor(1) as pool:
        grade(service, *nothing)
        waiting = pool.submit(grade, service, golden(0, "first"))
        until_waiting(service, 1)
        refused = service.post(
            "/v1/grade", json={"answers": [golden(1, "more"), golden(2, "more")]}
        )
        assert (refused.status_code, int(refused.headers["Retry-After"]) >= 1) == (429, True)
        assert len(grade(service, *nothing)) == 2
        go.set()
        assert waiting.result()[0]["outcome"] == "passed"
        assert service.post("/v1/grade", json={"answers": nothing * 2}).status_code == 413


def test_failed_gradings_are_not_stored_and_make_the_service_unhealthy(tmp_path):
    with make_executor("bubblewrap") as executor, closing(Grader(executor)) as broken:
        executor.close()
        with serving(broken, tmp_path / "v.jsonl") as service:
            verdicts = grade(
                service, *(golden(0, str(number)) for number in range(MOST_FAILED))
            )
            assert {verdict["outcome"] for verdict in verdicts} == {"infrastructure_error"}
            assert service.get("/health").status_code == 503
    assert (tmp_path / "v.jsonl").read_bytes() == b""


def test_a_full_disk_is_503_and_leaves_the_file_intact(grader, tmp_path):
    output = tmp_path / "v.jsonl"
    with serving(grader, output) as service:
        (kept,) = grade(service, golden(0, "kept"))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (output.stat().st_size + 100, limits[1]))
        try:
            refused = service.post(
                "/v1/grade", json={"answers": [{"id": PROBLEMS[0].id, "response": "no"}]}
            )
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
        assert (
            grade(service, {"id": PROBLEMS[0].id, "response": "no"})[0]["outcome"]
            == "no_answer"
        )
    first, second = map(json.loads, output.read_text().splitlines())
    assert (first, second["outcome"]) == (kept, "no_answer")


def test_a_file_is_resumed_and_has_one_owner(grader, output, service, tmp_path):
    grade(service, golden(1, "before"))
    with pytest.raises(ProblemError, match="another process has"):
        VerdictFile(output)
    copy = tmp_path / "copy.jsonl"
    copy.write_text(output.read_text() + '{"id": "cut o')
    with serving(grader, copy) as again:
        grade(again, golden(1, "before"))
        assert (
            metric(again, "rtl_grader_known_total"),
            metric(again, "rtl_grader_graded_total"),
        ) == (1, 0)
    assert copy.read_text() == output.read_text()
    copy.write_text("notes\n")
    with pytest.raises(ProblemError, match=r"copy\.jsonl:1: not a verdict"):
        VerdictFile(copy)
    assert copy.read_text() == "notes\n"
    copy.write_text('{"id": "x", "outcome": "passed", "graded": {}, "key": "edited"}\n')
    with pytest.raises(ProblemError, match=r"copy\.jsonl:1: not a verdict"):
        VerdictFile(copy)
    copy.write_text('{"id": "x", "response": "an answer file of one line"}')
    with pytest.raises(ProblemError, match=r"copy\.jsonl:1: not a verdict"):
        VerdictFile(copy)
    assert "one line" in copy.read_text()


def test_other_machines_are_served_only_with_a_token(monkeypatch):
    monkeypatch.delenv("RTL_DISTILL_GRADER_TOKEN", raising=False)
    done = invoke("serve", "grader", "--host", "0.0.0.0")
    assert isinstance(done.exception, ConfigError)
    assert "RTL_DISTILL_GRADER_TOKEN" in str(done.exception)
