"""Translation of SDK errors, and which errors are transient."""

import json
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager

import httpx
import pytest
import tinker
from tinker.lib.retryable_exception import RetryableException
from tinker.types import RequestErrorCategory
from transformers import AutoTokenizer

from rtl_core.backend.base import (
    SampledAnswer,
    SamplingParams,
    checked_logprobs,
    checked_metrics,
)
from rtl_core.backend.tinker.connect import load_tokenizer
from rtl_core.backend.tinker.faults import (
    SessionLostError,
    sampler_errors,
    sdk_errors,
    trainer_errors,
)
from rtl_core.config import load_config
from rtl_core.errors import (
    BackendUnavailableError,
    ConfigError,
    InfrastructureError,
    MalformedAnswerError,
    PolicyError,
    RunHealthError,
    TrainerLostError,
    WeightsGoneError,
)
from rtl_core.history.connection import HistoryBusyError
from rtl_core.run.stopping import is_transient
from rtl_core.tinymodels import model_path

REQUEST = httpx.Request("POST", "http://127.0.0.1/api/v1/forward_backward")


def status(
    kind: type[tinker.APIStatusError], code: int, words: str = "refused"
) -> tinker.APIStatusError:
    return kind(words, response=httpx.Response(code, request=REQUEST), body=None)


def fetched(error: Exception) -> ValueError:
    """Wrap an error as the SDK does while it fetches a result."""
    wrapped = ValueError("Error retrieving result")
    wrapped.__cause__ = error
    return wrapped


def translated(
    error: Exception, errors: Callable[[], AbstractContextManager[None]] = sdk_errors
) -> Exception:
    """Return the error that the backend raises for it."""
    with pytest.raises(Exception) as raised, errors():  # noqa: PT011
        raise error
    return raised.value


@pytest.mark.parametrize(
    "error",
    [
        InfrastructureError("a sandbox died"),
        HistoryBusyError("locked"),
        ConnectionResetError(),
        TimeoutError(),
        httpx.ReadTimeout("slow"),
        tinker.APIConnectionError(request=REQUEST),
        tinker.APITimeoutError(request=REQUEST),
        status(tinker.RateLimitError, 429),
        status(tinker.ConflictError, 409),
        status(tinker.InternalServerError, 503),
        RetryableException("promise expired"),
        tinker.RequestFailedError("node lost", "r1", RequestErrorCategory.Server),
        tinker.RequestFailedError("who knows", "r1", RequestErrorCategory.Unknown),
        tinker.TinkerError("polling failed"),
        fetched(status(tinker.NotFoundError, 404)),
        ValueError("Proto deserialization failed: truncated for self.request_id='r1'"),
        tinker.APIResponseValidationError(httpx.Response(200, request=REQUEST), body="<html>"),
        ExceptionGroup("tasks", [InfrastructureError("a"), ConnectionResetError()]),
    ],
    ids=lambda error: f"{type(error).__name__}",
)
def test_temporary_errors_are_transient(error):
    assert is_transient(translated(error))


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("bad key"),
        PolicyError("not served"),
        RunHealthError("drift"),
        status(tinker.BadRequestError, 400),
        status(tinker.AuthenticationError, 401),
        status(tinker.BillingError, 402),
        status(tinker.PermissionDeniedError, 403),
        status(tinker.NotFoundError, 404),
        status(tinker.APIStatusError, 410),
        status(tinker.UnprocessableEntityError, 422),
        fetched(status(tinker.AuthenticationError, 401)),
        fetched(status(tinker.BillingError, 402)),
        fetched(status(tinker.PermissionDeniedError, 403)),
        tinker.RequestFailedError("bad datum", "r1", RequestErrorCategory.User),
        RuntimeError("our own mistake"),
        ExceptionGroup("tasks", [InfrastructureError("a"), ConfigError("b")]),
    ],
    ids=lambda error: f"{type(error).__name__}",
)
def test_permanent_errors_are_not_transient(error):
    assert not is_transient(translated(error))


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("no sequence"),
        OverflowError("can't convert negative int to unsigned"),
        TypeError("'NoneType' object is not subscriptable"),
        ValueError("zip() argument 2 is shorter than argument 1"),
        json.JSONDecodeError("Expecting value", "{", 1),
        AttributeError("'list' object has no attribute 'get'"),
        KeyError("logprobs"),
        httpx.TooManyRedirects("Exceeded maximum allowed redirects."),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("errors", [sdk_errors, trainer_errors, sampler_errors])
def test_an_unreadable_answer_is_reported_and_retried(error, errors):
    ours = translated(error, errors)
    assert isinstance(ours, MalformedAnswerError)
    assert is_transient(ours)
    assert "gave an invalid answer to a" in ours.message
    assert "check-service" in (ours.hint or "")


@pytest.mark.parametrize(
    ("tokens", "logprobs", "says"),
    [
        ([1, 2, 3], [-0.1, -0.2], "2 log-probabilities for 3 tokens"),
        ([1, 2], None, "0 log-probabilities for 2 tokens"),
        ([1, 2], [-0.1, 0.5], "the log-probability 0.5 at token 2 of 2"),
        ([1, 2], [float("nan"), -0.1], "the log-probability nan at token 1 of 2"),
        ([1, -7], [-0.1, -0.1], "the token -7"),
        ([1, 10**6], [-0.1, -0.1], "the token 1000000"),
        ([1] * 9, [-0.1] * 9, "9 tokens, but max_tokens is 8"),
    ],
)
def test_an_invalid_sample_is_refused(tokens, logprobs, says):
    tokenizer = AutoTokenizer.from_pretrained(model_path("student"))
    with pytest.raises(MalformedAnswerError, match=re.escape(says)):
        SampledAnswer.checked(tokens, logprobs, True, tokenizer, SamplingParams(8, 1.0, [0]))


def test_log_probabilities_and_metrics_must_be_finite():
    assert checked_logprobs([-1.5, 0.0005], 2, "a score").tolist() == [-1.5, 0.0005]
    for values in ([None, -1.0], [-1.0, float("inf")], [-1.0]):
        with pytest.raises(MalformedAnswerError, match="a score has"):
            checked_logprobs(values, 2, "a score")
    with pytest.raises(
        MalformedAnswerError, match="the metric loss:sum of a train step is nan"
    ):
        checked_metrics({"loss:sum": float("nan")})


def test_a_training_client_lost_in_a_restart_is_recognised():
    def lost(error):
        return isinstance(translated(error, trainer_errors), TrainerLostError)

    assert lost(status(tinker.NotFoundError, 404))
    assert lost(fetched(status(tinker.NotFoundError, 404)))
    assert lost(RetryableException("promise expired"))
    assert lost(status(tinker.APIStatusError, 410))
    assert not lost(status(tinker.BadRequestError, 400))
    assert not lost(tinker.APIConnectionError(request=REQUEST))


@pytest.mark.parametrize(
    "error",
    [
        status(
            tinker.BadRequestError, 400, "Error code: 400 - {'detail': 'Invalid session_id'}"
        ),
        status(tinker.NotFoundError, 404, "session 7f not found"),
        status(tinker.APIStatusError, 410, "session_id: session '7f' is finished"),
        fetched(status(tinker.NotFoundError, 404)).__class__("Invalid session_id"),
        tinker.RequestFailedError("Invalid session_id", "r1", RequestErrorCategory.User),
    ],
    ids=["400", "404", "410", "plain ValueError", "failed request"],
)
@pytest.mark.parametrize("errors", [sdk_errors, trainer_errors, sampler_errors])
def test_every_translation_recognises_a_lost_session(error, errors):
    ours = translated(error, errors)
    if isinstance(error, ValueError):  # not a message of the service
        assert isinstance(ours, MalformedAnswerError)
        return
    assert isinstance(ours, SessionLostError)
    assert is_transient(ours)


def test_a_run_name_with_the_word_session_is_not_a_lost_session():
    error = status(
        tinker.NotFoundError, 404, "no checkpoint tinker://abc/sampler_weights/session-a-000001"
    )
    assert isinstance(translated(error, sdk_errors), WeightsGoneError)


@pytest.mark.parametrize("code", [404, 410])
def test_a_dropped_sampling_client_does_not_mean_lost_weights(code):
    kind = tinker.NotFoundError if code == 404 else tinker.APIStatusError
    gone = status(kind, code, "sampling_session_id: no sampler 'a:sample:3' on this service")
    assert isinstance(translated(gone, sampler_errors), BackendUnavailableError)
    assert not isinstance(translated(gone, sampler_errors), SessionLostError)
    assert isinstance(translated(gone), WeightsGoneError)


@pytest.mark.parametrize(
    ("error", "says", "remedy"),
    [
        (status(tinker.AuthenticationError, 401), "does not accept the key", "TINKER_API_KEY"),
        (status(tinker.BillingError, 402), "no credit", "add credit"),
        (status(tinker.PermissionDeniedError, 403), "does not allow this", "use a key"),
        (status(tinker.NotFoundError, 404), "does not have", "models may be retired"),
        (
            status(tinker.BadRequestError, 400, "prompt too long"),
            "prompt too long",
            "correct the setting",
        ),
        (
            AttributeError("no attribute '_last_logged_billing_exception_time'"),
            "no credit",
            "add credit",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_permanent_errors_say_what_to_do(error, says, remedy):
    ours = translated(error)
    assert isinstance(ours, PolicyError)
    assert says in ours.message
    assert remedy in (ours.hint or "")


def test_a_damaged_tokenizer_is_named(tmp_path):
    folder = shutil.copytree(model_path("student"), tmp_path / "model")
    (folder / "tokenizer.json").write_text("{")
    config = load_config(
        "demo", [f'tinker.local_models={{student="{folder}"}}'], environment={}
    )
    with pytest.raises(
        PolicyError, match=f"tokenizer of 'student' cannot be loaded from {folder}: "
    ):
        load_tokenizer("student", config)
