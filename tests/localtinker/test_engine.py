"""Sampling on the service's compute thread. In this process, no HTTP."""

from __future__ import annotations

import threading

import pytest

from rtl_core.localtinker.engine import Engine
from rtl_core.localtinker.generation import SamplerPool, SamplingLimits, SamplingLoop, Weights
from rtl_core.localtinker.lora import LoraSpec
from rtl_core.localtinker.models import load_model
from rtl_core.localtinker.sampling import PromptOptions, SampleRequest, SamplingOptions
from rtl_core.localtinker.wire import PromptScores, SampledSequence

BASE = Weights("student")


@pytest.fixture
def engine(models_by_name):
    model = load_model("student", models_by_name["student"], dtype="float32", device="cpu", max_context=2048)
    limits = SamplingLimits(samplers=2, sampler_bytes=1 << 28, cache_bytes=1 << 28)
    pool = SamplerPool({"student": model}, limits, deterministic=True)
    running = Engine(SamplingLoop(pool, threads=1, cache_bytes=limits.cache_bytes), threads=1)
    yield running
    running.stop()


class Caller:
    """Waits for one answer."""

    def __init__(
        self, engine: Engine, weights: Weights, num_samples: int, max_tokens: int, seed: int | None = None
    ) -> None:
        self.ready = threading.Event()
        self.sequences: list[SampledSequence] = []
        self.error: BaseException | None = None
        options = SamplingOptions(max_tokens), PromptOptions()
        self.cancel = engine.sample(
            weights, SampleRequest([5, 6, 7], num_samples, seed, *options, self._finish, self._fail)
        )

    def _finish(self, sequences: list[SampledSequence], scores: PromptScores | None) -> None:
        self.sequences = sequences
        self.ready.set()

    def _fail(self, error: BaseException) -> None:
        self.error = error
        self.ready.set()


def test_the_first_samples_of_a_seed_do_not_depend_on_how_many_are_asked_for(engine):
    whole, few = Caller(engine, BASE, 7, 9, seed=4), Caller(engine, BASE, 3, 9, seed=4)
    assert all(caller.ready.wait(60) for caller in (whole, few))
    assert [s.tokens for s in few.sequences] == [s.tokens for s in whole.sequences[:3]]
    assert len({tuple(s.tokens) for s in whole.sequences}) == 7


def test_a_cancelled_job_leaves_and_calls_run_meanwhile(engine):
    long = Caller(engine, BASE, 8, 2000)
    done = threading.Event()
    engine.call(done.set)
    assert done.wait(60)
    long.cancel()
    assert Caller(engine, BASE, 1, 3).ready.wait(60)
    assert engine.load()["rows_running"] == engine.load()["rows_waiting"] == 0
    assert not long.ready.is_set()


def test_weights_that_cannot_be_read_fail_only_their_own_jobs(engine, tmp_path):
    bad = Caller(engine, Weights("student", tmp_path / "gone", LoraSpec(rank=2, seed=0)), 1, 3)
    good = Caller(engine, BASE, 1, 3)
    assert bad.ready.wait(60)
    assert good.ready.wait(60)
    assert bad.error is not None
    assert "gone" in str(bad.error)
    assert len(good.sequences) == 1
