"""The faults of a rehearsal: to which call of a Tinker service what happens, what the user sees of it, and how the run ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.rehearsal import strikes as do

PAID = ("sample", "score", "forward_backward", "optim_step", "save_weights", "create_sampling_session")
"""Calls that an account without credit is refused."""
AT_START = ("config", "get_server_capabilities")
"""Calls that a run makes before it begins."""
WORK = (*PAID, "save_weights_for_sampler", "answer of sample", "answer of score", "answer of forward_backward")


@dataclass(frozen=True)
class Fault:
    """One fault. It begins with the first call of one of its routes after `after` optimizer steps."""

    name: str
    routes: tuple[str, ...]
    """Calls that meet it: a name of the API, `score` or `sample` for the two kinds of `asample`, `open saved weights`, or
    `answer of` one of them."""
    strike: do.Strike
    """What happens to such a call."""
    sees: str = ""
    """A phrase in the output of the run; empty: nothing needs to be told, since it is mended in seconds."""
    ends: Literal["by itself", "stops"] = "by itself"
    """`stops`: every call is struck until the run ends with a sentence and exit code 2; then the fault is over, and the same command
    goes on."""
    times: int = 1
    """How many calls are struck."""
    lasts_s: float = 0.0
    """For how many seconds all of them are, instead of `times`."""
    mended_by: tuple[str, ...] = ()
    """The calls whose next success shows that the run went on; empty: `routes`."""
    after: int = 1
    command: tuple[str, ...] = ()
    """What a user gives to `rtl-distill`, before the run's name, so that the same command can go on."""


REOPENED = "the trainer was opened again from the last saved state"
AGAIN = ("create_model",)
"""What opens a trainer."""

REFUSALS = [
    Fault("429, rate limit", ("sample",), do.refused(429), times=3),
    Fault("503 to a pass", ("forward_backward",), do.refused(503), times=2),
    Fault("500 to a score", ("score",), do.refused(500, "capacity")),
    Fault("409 to a save", ("save_weights",), do.refused(409)),
    Fault("503 to a new sampler", ("open saved weights",), do.refused(503)),
    Fault("502 to an answer", ("answer of forward_backward",), do.refused(502)),
    Fault("queue paused", ("answer of sample",), do.paused("paused_capacity", "rehearsed: short on capacity"),
        "rehearsed: short on capacity", lasts_s=6),
    Fault("queue paused, rate limit", ("answer of score",), do.paused("paused_rate_limit", "rehearsed: too many tokens"),
        "rehearsed: too many tokens", lasts_s=6),
    Fault("402, no credit", PAID, do.refused(402, "no credit left"), "has no credit at Tinker (402)", lasts_s=8,
        mended_by=("sample",)),
    Fault("401, key refused", WORK, do.refused(401), "does not accept the key (401)", "stops"),
    Fault("403, not allowed", WORK, do.refused(403), "does not allow this to the key's owner (403)", "stops"),
    Fault("400 to a sample", ("sample",), do.refused(400, "rehearsed: max_tokens"), "rehearsed: max_tokens", "stops"),
    Fault("422 to a pass", ("forward_backward",), do.refused(422, "rehearsed: loss_fn"), "rehearsed: loss_fn", "stops"),
    Fault("a request of ours failed", ("answer of sample",), do.failed("user"), "the Tinker service refused", "stops"),
]  # fmt: skip
LOST = [
    Fault("answer expired", ("answer of sample",), do.refused(410, "promise expired"), mended_by=("sample",)),
    Fault("answer unknown", ("answer of score",), do.refused(404, "no such request"), mended_by=("score",)),
    Fault("sampling failed on the service", ("answer of sample",), do.failed("server"), mended_by=("sample",)),
    Fault("scoring failed on the service", ("answer of score",), do.failed("unknown"), mended_by=("score",)),
    Fault("step failed on the service", ("answer of optim_step",), do.failed("server"), REOPENED, mended_by=AGAIN),
    Fault("sampler expired", ("sample",), do.gone("sampler", 404, "sampler expired"),
        mended_by=("open saved weights", "create_sampling_session")),
    Fault("session lost", ("sample",), do.gone("session", 400, "Invalid session_id"), "the run goes on in a new one",
        mended_by=("create_session",)),
    Fault("session ended while training", ("forward_backward",), do.gone("session", 410, "session is finished"),
        "the run goes on in a new one", mended_by=("create_session",)),
    Fault("sampler weights gone", ("open saved weights",), do.weights_deleted, "were saved again from the state",
        mended_by=("save_weights_for_sampler",)),
    Fault("trainer lost before its step", ("forward_backward",), do.gone("trainer", 404, "model not found"), REOPENED,
        mended_by=AGAIN),
    Fault("trainer lost after its step", ("save_weights",), do.gone("trainer", 410, "model not found"), REOPENED,
        mended_by=AGAIN),
]  # fmt: skip
CONNECTIONS = [
    Fault("connection reset before a sample", ("sample",), do.reset),
    Fault("connection reset before a step", ("optim_step",), do.reset),
    Fault("connection reset, sample accepted", ("sample",), do.reset_after),
    Fault("connection reset, score accepted", ("score",), do.reset_after),
    Fault("connection reset, pass accepted", ("forward_backward",), do.reset_after),
    Fault("connection reset, step accepted", ("optim_step",), do.reset_after),
    Fault("connection reset, save accepted", ("save_weights",), do.reset_after),
    Fault("answer reset on its way", ("answer of forward_backward",), do.reset_after),
    Fault("a slow sample", ("answer of sample",), do.slow(8)),
    Fault("an answer that does not come", ("answer of forward_backward",), do.slow(60)),
    Fault("a slow submission", ("optim_step",), do.slow(8)),
    Fault("a sample twice", ("sample",), do.twice, times=2),
    Fault("a step twice", ("optim_step",), do.twice, times=2),
    Fault("redirect of a sample", ("sample",), do.redirected),
    Fault("redirect of all work", WORK, do.redirected, lasts_s=3),
]
UNREADABLE = [
    Fault("sample: JSON cut short", ("sample",), do.cut_short),
    Fault("score: a list for an object", ("score",), do.instead("[]")),
    Fault("pass: text for an object", ("forward_backward",), do.instead('"accepted"'), REOPENED),
    Fault("step: JSON cut short", ("optim_step",), do.cut_short, REOPENED),
    Fault("save: JSON cut short", ("save_weights",), do.cut_short, REOPENED),
    Fault("new sampler: null for an object", ("open saved weights",), do.instead("null")),
    Fault("sample: a page with status 200", ("sample",), do.instead(do.PAGE, "text/html")),
    Fault("answer: a page with status 200", ("answer of sample",), do.instead(do.PAGE, "text/html"), mended_by=("sample",)),
    Fault("answer: no protobuf", ("answer of sample",), do.instead(b"\xff" * 40, "application/x-protobuf"), mended_by=("sample",)),
    Fault("step's answer: empty", ("answer of optim_step",), do.instead(""), REOPENED, mended_by=AGAIN),
    Fault("pass's answer: cut short", ("answer of forward_backward",), do.cut_short, REOPENED, mended_by=AGAIN),
]  # fmt: skip
GARBAGE = [
    Fault("no sequence", ("answer of sample",), do.samples(lambda found: found.__delitem__(slice(None)))),
    Fault("fewer sequences than asked", ("answer of sample",), do.samples(lambda found: found.pop())),
    Fault("a negative token", ("answer of sample",), do.tokens(do.set_at(0, -7))),
    Fault("a token beyond the vocabulary", ("answer of sample",), do.tokens(do.set_at(0, 10**6))),
    Fault("an answer longer than asked", ("answer of sample",), do.tokens(lambda T: np.tile(T, 300))),
    Fault("fewer log-probabilities than tokens", ("answer of sample",), do.logprobs(lambda T: T[1:])),
    Fault("a positive log-probability", ("answer of sample",), do.logprobs(do.set_at(0, 0.7))),
    Fault("NaN for a log-probability", ("answer of sample",), do.logprobs(do.set_at(0, np.nan))),
    Fault("no scores", ("answer of score",), do.scores(lambda P: P[:0])),
    Fault("fewer scores than tokens", ("answer of score",), do.scores(lambda P: P[-1:])),
    Fault("a positive score", ("answer of score",), do.scores(do.set_at(-1, 3.0))),
    Fault("an infinite score", ("answer of score",), do.scores(do.set_at(-1, -np.inf))),
    Fault("fewer trained answers than sent", ("answer of forward_backward",), do.trained(lambda found: found.loss_fn_outputs.pop()),
        REOPENED),
    Fault("NaN from the trainer", ("answer of forward_backward",), do.trained(do.set_trained(np.nan)), REOPENED),
    Fault("a positive log-probability from the trainer", ("answer of forward_backward",), do.trained(do.set_trained(2.0)), REOPENED),
    Fault("NaN for a metric", ("answer of forward_backward",), do.trained(lambda found: found.metrics.update({"loss:sum": np.nan})),
        REOPENED),
    Fault("a poisoned step", ("answer of forward_backward",), do.trained(do.set_trained(-30.0)), "the step is sampled anew",
        mended_by=("save_weights",)),
    Fault("a step poisoned twice", ("answer of forward_backward",), do.trained(do.set_trained(-30.0)),
        "trainer and sampler differ by a KL of", "stops", command=("set-aside",)),
]  # fmt: skip
START = [
    Fault("401 at the start", AT_START, do.refused(401), "refuses TINKER_API_KEY (401", "stops", after=0),
    Fault("402 at the start", AT_START, do.refused(402), "is not paid for (402", "stops", after=0),
    Fault("a page at the start", AT_START, do.instead(do.PAGE, "text/html"), "does not answer as a Tinker service does", "stops",
        after=0),
    Fault("a redirect at the start", AT_START, do.redirected, "cannot be reached: Exceeded maximum allowed redirects", "stops",
        after=0),
    Fault("silence at the start", AT_START, do.slow(12), "cannot be reached: no answer in time", "stops", after=0),
    Fault("another list of models", ("get_server_capabilities",), do.instead('{"supported_models": [{"model_name": "other"}]}'),
        "it may be retired", "stops", after=0),
    Fault("402 to a new session", ("create_session",), do.refused(402), "has no credit at Tinker (402)", times=2, after=0),
]  # fmt: skip

FAULTS = [*START, *REFUSALS, *LOST, *CONNECTIONS, *UNREADABLE, *GARBAGE]


def named(*names: str) -> list[Fault]:
    """The faults of these names. Raises KeyError for a name that none has."""
    table = {fault.name: fault for fault in FAULTS}
    return [table[name] for name in names]
