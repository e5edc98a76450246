"""The client of OpenAI-compatible endpoints against a small server that misbehaves."""

import json
import time

import httpx
import pytest

from rtl_core.episodes import endpoint as client
from rtl_core.episodes.endpoint import Endpoint, check_serves
from rtl_core.episodes.episode import Turn, to_messages, to_turns
from rtl_core.errors import BackendUnavailableError, MalformedAnswerError, PolicyError
from tests.answering import answering
from tests.episodes.writer import KEY, MODEL, completion

ASKED = [{"role": "user", "content": "q"}]


def reply(*answers):
    """The reply to one request that the server answers with these, one try after the other."""
    left = list(answers)
    with answering(lambda *_: left.pop(0)) as url:
        endpoint = Endpoint(f"{url}/v1", MODEL, retry_s=0.01)
        try:
            return endpoint, endpoint.reply(ASKED)
        finally:
            assert not left, "not all tries were made"


def said(**message):
    return 200, {}, json.dumps(completion(**message)).encode()


def test_a_rate_limit_is_waited_for_as_long_as_the_server_says():
    began = time.monotonic()
    _, answer = reply((429, {"Retry-After": "0.7"}, b"later"), said(content="a"))
    assert answer.text == "a"
    assert time.monotonic() - began >= 0.7


@pytest.mark.parametrize(
    "asked",
    [
        "soon",
        "nan",
        "-5",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "1e999",
        "Fri, 31 Dec 0000 99:59:59 GMT",
    ],
)
def test_a_senseless_pause_is_none(asked):
    _, answer = reply((503, {"Retry-After": asked}, b""), said(content="a"))
    assert answer.text == "a"


def test_no_pause_is_longer_than_five_minutes():
    response = httpx.Response(429, headers={"retry-after": "86400"})
    assert client._pause_s(response) == client.LONGEST_PAUSE_S


def test_a_server_that_keeps_failing_is_unavailable():
    with pytest.raises(BackendUnavailableError, match="does not answer: 500: down"):
        reply(*[(500, {}, b"down")] * client.TRIES)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((200, {}, b"<!doctype html><html>sign in</html>"), PolicyError),
        ((401, {}, b"wrong key"), PolicyError),
        ((404, {}, b"no such model"), PolicyError),
        ((200, {}, b"[]"), MalformedAnswerError),
        ((200, {}, b'{"choices": []}'), MalformedAnswerError),
        ((200, {}, b"[" * 100_000), MalformedAnswerError),
        (said(content=["part"]), MalformedAnswerError),
    ],
)  # fmt: skip
def test_what_is_no_completion_is_an_error(answer, error):
    with pytest.raises(error):
        reply(answer)


LONG = 400, {}, b"This model's maximum context length is 4096 tokens"


@pytest.mark.parametrize(
    "refusal", [LONG, (400, {}, b'{"code": "content_filter"}'), (413, {}, b""), (422, {}, b"")]
)
def test_one_conversation_that_is_refused_is_no_answer(refusal):
    short = said(content="OK")  # is asked with the same settings
    _, answer = reply(refusal, short)
    assert (answer.text, answer.cut) == ("", True)
    assert answer.refusal == f"refused ({refusal[0]}): {refusal[2].decode()}"
    turn = Turn(answer, answer.refused)
    assert to_turns(to_messages("", 0, turn)) == [turn]


@pytest.mark.parametrize(
    "probe", [LONG, (401, {}, b"expired"), (400, {}, b"no such parameter")]
)
def test_settings_that_no_conversation_can_have_are_an_error(probe):
    with pytest.raises(PolicyError, match="maximum context length"):
        reply(LONG, probe)


def test_an_endless_answer_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr(client, "MOST_BYTES", 1000)
    with pytest.raises(MalformedAnswerError, match="more than 1,000 bytes"):
        reply(said(content="a" * 2000))


def test_numbers_and_texts_that_cannot_be_stored_are_mended():
    usage = {"prompt_tokens": -4, "completion_tokens": 1 << 40}
    _, answer = reply(said(content="a\ud800b", reasoning="\udfff", usage=usage))
    assert (answer.text, answer.thought) == ("a?b", "?")
    assert (answer.n_prompt, answer.n_tokens) == (0, 0)


@pytest.mark.parametrize("usage", [["x"], "40", {"completion_tokens": "?", "prompt_tokens": [4]}, {"completion_tokens": 1e999, "prompt_tokens": float("nan")}])  # fmt: skip
def test_an_answer_is_kept_whatever_else_the_server_says(usage):
    about = {"usage": usage, "model": ["m"], "reasoning_content": {"steps": []}}
    _, answer = reply(said(content="a", reasoning="why", **about))
    assert (answer.text, answer.thought, answer.model) == ("a", "why", "")
    assert (answer.n_prompt, answer.n_tokens) == (0, 0)


@pytest.mark.parametrize("end", ["length", "content_filter", "abort", None, ["stop"]])
def test_an_answer_that_is_not_said_to_be_whole_is_cut(end):
    _, answer = reply(said(content="module", finish_reason=end))
    assert answer.cut


@pytest.mark.parametrize("end", ["stop", "STOP", "tool_calls"])
def test_an_answer_that_its_model_ended_is_whole(end):
    _, answer = reply(said(content="module", finish_reason=end))
    assert not answer.cut


def test_no_error_shows_the_key(monkeypatch):
    monkeypatch.setenv(client.KEY, f"{KEY}\r\n")
    assert client._headers() == {"Authorization": f"Bearer {KEY}"}
    for answer in ((401, {}, f"wrong key: {KEY}".encode()), (200, {}, f"{KEY}?".encode())):
        with pytest.raises((PolicyError, MalformedAnswerError), match=r": .*\*\*\*") as error:
            reply(answer)
        assert KEY not in str(error.value)
    for key in (f"{KEY}\n{KEY}", f"{KEY}…", f"{KEY}\x7f"):
        monkeypatch.setenv(client.KEY, key)
        for ask in (
            lambda: Endpoint("http://127.0.0.1:9/v1", MODEL, retry_s=0.01).reply(ASKED),
            lambda: check_serves("http://127.0.0.1:9/v1", MODEL),
        ):
            with pytest.raises(PolicyError, match="characters that no key has") as error:
                ask()
            assert KEY not in str(error.value)


def test_another_models_name_is_told_once_and_an_alias_never():
    endpoint, _ = reply(said(content="a", model=f"{MODEL}-2026-01-01"))
    assert endpoint.other_names() == set()
    endpoint, _ = reply(said(content="a", model="cheaper"))
    assert endpoint.other_names() == {"cheaper"}
    assert endpoint.other_names() == set()


@pytest.mark.parametrize(
    ("answer", "level", "text"),
    [
        ((200, {}, b'{"data": [{"id": "writer-1"}]}'), "ok", "serves writer-1"),
        ((200, {}, b'{"data": [{"id": "other"}]}'), "wrong", "does not serve writer-1"),
        ((401, {}, b""), "wrong", "refuses access (401)"),
        ((404, {}, b"<html>"), "warning", "lists no models (404)"),
        ((200, {}, b"<html>"), "warning", "lists no models (200)"),
    ],
)
def test_the_check_asks_which_models_are_served(answer, level, text):
    with answering(lambda *_: answer) as url:
        finding = check_serves(f"{url}/v1", MODEL)
    assert (finding.level, text in finding.text) == (level, True), finding


def test_a_dead_endpoint_is_a_finding_that_may_pass():
    finding = check_serves("http://127.0.0.1:9/v1", MODEL)
    assert (finding.level, finding.passing) == ("wrong", True)
