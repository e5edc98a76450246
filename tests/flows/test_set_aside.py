"""A step on whose answers trainer and sampler disagree is sampled again: once automatically, then by a command."""

import asyncio
from dataclasses import replace

import pytest

from rtl_core.errors import SamplerDriftError
from rtl_core.history.store import History
from tests.command import invoke
from tests.flows.conftest import QUICK

pytestmark = pytest.mark.usefixtures("prefect")
COUNT = "SELECT purpose, step, count(*) AS n FROM rollouts WHERE purpose IN ('train', 'set_aside') GROUP BY ALL ORDER BY ALL"


@pytest.mark.slow
def test_a_drifting_step_is_sampled_again_once_automatically_and_then_by_a_command(
    small_run, tmp_path, script
):
    from rtl_distill.flows.train import train

    backend = "backend.name=tests.backend.scripted:BACKEND"
    overrides = small_run("drift", backend, *QUICK, "learning.replacements=0")
    drifts = iter([5.0, 5.0])

    def drifting(result):
        """The log-probabilities of the first two train steps differ from the sampler's."""
        drift = next(drifts, 0.0)
        return replace(result, logprobs=[logprobs_T - drift for logprobs_T in result.logprobs])

    script.trained_as = drifting
    with pytest.raises(
        SamplerDriftError, match=r"step 1: trainer and sampler differ by a KL of"
    ) as stopped:
        asyncio.run(train("demo", overrides))
    assert "rtl-distill admin set-aside drift" in (stopped.value.hint or "")
    history = History(tmp_path / "history.duckdb")
    assert history.query(COUNT).to_pylist() == [
        {"purpose": "set_aside", "step": 0, "n": 6},
        {"purpose": "train", "step": 0, "n": 6},
    ]
    assert history.trained_steps("drift") == []

    where = f" --db {history.path}"
    paused = invoke("pause", "drift", "--db", history.path).output
    assert (
        paused
        == f"drift is not running on this machine and will not start; `rtl-distill resume drift{where}` continues it\n"
    )
    invoke("resume", "drift", "--release", "--db", history.path)
    done = invoke("admin", "set-aside", "drift", "--db", history.path)
    assert (done.exit_code, done.output) == (
        0, f"step 1: 6 answers are set aside; `rtl-distill resume drift{where}` samples the step again\n",
    )  # fmt: skip
    asyncio.run(train("demo", overrides))
    assert [state.status for state in history.steps("drift")] == ["trained"] * 2
    assert history.query(COUNT).to_pylist() == [
        {"purpose": "set_aside", "step": 0, "n": 12},
        {"purpose": "train", "step": 0, "n": 6},
        {"purpose": "train", "step": 1, "n": 6},
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda logprobs: [*logprobs[1:], logprobs[0]], "nats per token in either direction"),
        (
            lambda logprobs: [0.0 if t % 3 else value for t, value in enumerate(logprobs)],
            "exactly 0",
        ),
    ],
)
def test_wrong_log_probabilities_of_right_tokens_stop_a_run_before_its_first_step(
    small_run, tmp_path, script, fault, words
):
    from rtl_distill.flows.train import train

    overrides = small_run("wrong", "backend.name=tests.backend.scripted:BACKEND", *QUICK)

    async def wrong(inner, *asked, **more):
        answers = await inner.sample(*asked, **more)
        return [replace(answer, logprobs_T=fault(answer.logprobs_T)) for answer in answers]

    script.sample = wrong
    with pytest.raises(SamplerDriftError, match=words):
        asyncio.run(train("demo", overrides))
    assert History(tmp_path / "history.duckdb").trained_steps("wrong") == []
