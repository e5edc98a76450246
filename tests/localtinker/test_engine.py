"""Sampling on the service's own compute thread, as large models and GPUs have it. In this process, no HTTP."""

import threading

import pytest
from tinker.proto import tinker_public_pb2 as pb

from rtl_core.localtinker.engine import Engine
from rtl_core.localtinker.generation import SamplingLoop
from rtl_core.localtinker.lora import LoraSpec, write_adapter
from rtl_core.localtinker.models import load_model
from rtl_core.localtinker.samplers import SampledWeights, SamplerPool, SamplingLimits
from rtl_core.localtinker.sampling import PromptOptions, SampleJob, SampleRequest, SamplingOptions

BASE = SampledWeights("student")


@pytest.fixture
def engine(models_by_name):
    model = load_model("student", models_by_name["student"], dtype="float32", device="cpu", max_context=2048)
    limits = SamplingLimits(samplers=2, sampler_bytes=1 << 28, cache_bytes=1 << 28)
    pool = SamplerPool({"student": model}, limits, deterministic=True)
    running = Engine(SamplingLoop(pool, threads=1), threads=1)
    yield running
    running.stop()


class Caller:
    """Waits for one answer."""

    def __init__(self, engine: Engine, weights: SampledWeights, job: SampleJob) -> None:
        self.ready = threading.Event()
        self.response: pb.SampleResponse | None = None
        self.error: BaseException | None = None
        self.cancel = engine.sample(weights, job, self._take)

    def _take(self, answer: bytes | Exception) -> None:
        if isinstance(answer, bytes):
            self.response = pb.SampleResponse.FromString(answer)
        else:
            self.error = answer
        self.ready.set()


def job(num_samples: int, max_tokens: int, seed: int | None = None) -> SampleJob:
    return SampleJob([5, 6, 7], num_samples, seed, SamplingOptions(max_tokens), PromptOptions())


def test_parts_of_a_job_joined_are_the_answer_to_the_whole(engine):
    whole = Caller(engine, BASE, job(7, 9, seed=4))
    parts = [Caller(engine, BASE, part) for part in job(7, 9, seed=4).split(3)]
    assert all(caller.ready.wait(60) for caller in (whole, *parts))
    joined = pb.SampleResponse.FromString(b"".join(part.response.SerializeToString() for part in parts))
    assert [s.tokens for s in joined.sequences] == [s.tokens for s in whole.response.sequences]
    assert len({s.tokens for s in joined.sequences}) == 7


def test_a_cancelled_job_leaves_and_calls_run_meanwhile(engine):
    long = Caller(engine, BASE, job(8, 2000))
    done = threading.Event()
    engine.call(done.set)
    assert done.wait(60)
    long.cancel()
    assert Caller(engine, BASE, job(1, 3)).ready.wait(60)
    assert engine.load()["rows_running"] == engine.load()["rows_waiting"] == 0
    assert not long.ready.is_set()


def test_weights_that_cannot_be_read_fail_only_their_own_jobs(engine, tmp_path):
    bad = Caller(engine, SampledWeights("student", tmp_path / "gone", LoraSpec(rank=2, seed=0)), job(1, 3))
    good = Caller(engine, BASE, job(1, 3))
    assert bad.ready.wait(60)
    assert good.ready.wait(60)
    assert bad.error is not None
    assert "gone" in str(bad.error)
    assert len(good.response.sequences) == 1


def test_samplers_beyond_the_limit_go_when_nothing_is_sampled_from_them(models_by_name, tmp_path):
    """Two sets of weights that are sampled from side by side are both there; afterwards one is let go for the limit's sake."""
    model = load_model("student", models_by_name["student"], dtype="float32", device="cpu", max_context=2048)
    spec = LoraSpec(rank=2, seed=0)
    model.adapters.add("run", spec)
    adapted = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_adapter(tmp_path / name, model.adapters.tensors("run"), spec, "student")
        adapted.append(SampledWeights("student", tmp_path / name, spec))
    limits = SamplingLimits(samplers=8, sampler_bytes=3 * model.nbytes // 2, cache_bytes=1 << 28)
    loop = SamplingLoop(SamplerPool({"student": model}, limits, deterministic=False), threads=1)
    for weights in adapted:
        loop.add(weights, SampleRequest(**vars(job(2, 9)), take=lambda _: None))
    loop.advance()
    assert len(loop.pool) == 2
    while loop.advance():
        pass
    assert len(loop.pool) == 1
