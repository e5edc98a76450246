"""Sampling on the service's compute thread, as for large models and GPUs. In this process, no HTTP."""

import threading
from concurrent.futures import Future

import pytest
from tinker.proto import tinker_public_pb2 as pb

from localtinker.engine import Engine
from localtinker.generation import SamplingLoop
from localtinker.lora import LoraSpec, write_adapter
from localtinker.samplers import SampledWeights, SamplerPool, SamplingLimits
from localtinker.sampling import PromptOptions, SampleJob, SampleRequest, SamplingOptions

BASE = SampledWeights("student")


@pytest.fixture
def engine(student):
    limits = SamplingLimits(samplers=2, sampler_bytes=1 << 28, cache_bytes=1 << 28)
    pool = SamplerPool({"student": student}, limits, deterministic=True)
    running = Engine(SamplingLoop(pool, threads=1), threads=1)
    yield running
    running.stop()


class Caller(Future):
    """The answer to a job: bytes, or an exception as the result."""

    def __init__(self, engine, weights, job):
        super().__init__()
        self.cancel_job = engine.sample(weights, job, self.set_result)

    def sequences(self):
        return pb.SampleResponse.FromString(self.result(60)).sequences


def job(num_samples, max_tokens, seed=None):
    return SampleJob([5, 6, 7], num_samples, seed, SamplingOptions(max_tokens), PromptOptions())


def test_the_answers_of_all_parts_concatenated_are_the_answer_to_the_job(engine):
    whole = Caller(engine, BASE, job(7, 9, seed=4))
    parts = [Caller(engine, BASE, part) for part in job(7, 9, seed=4).split(3)]
    joined = pb.SampleResponse.FromString(b"".join(part.result(60) for part in parts))
    assert [s.tokens for s in joined.sequences] == [s.tokens for s in whole.sequences()]
    assert len({s.tokens for s in joined.sequences}) == 7


def test_calls_run_during_sampling_and_a_cancelled_job_is_dropped(engine):
    long = Caller(engine, BASE, job(8, 2000))
    done = threading.Event()
    engine.call(done.set)
    assert done.wait(60)
    long.cancel_job()
    assert Caller(engine, BASE, job(1, 3)).sequences()
    assert engine.load()["rows_running"] == engine.load()["rows_waiting"] == 0
    assert not long.done()


def test_unreadable_weights_fail_only_their_own_jobs(engine, tmp_path):
    bad = Caller(
        engine,
        SampledWeights("student", tmp_path / "gone", LoraSpec(rank=2, seed=0)),
        job(1, 3),
    )
    good = Caller(engine, BASE, job(1, 3))
    assert isinstance(bad.result(60), Exception)
    assert "gone" in str(bad.result())
    assert len(good.sequences()) == 1


def test_samplers_beyond_the_limit_are_evicted_once_they_are_idle_and_come_back_unchanged(
    student, tmp_path
):
    spec = LoraSpec(rank=2, seed=0)
    adapted = []
    for name in ("first", "second"):
        student.adapters.add(name, spec)
        for weight in student.adapters.parameters(name):
            weight.data.normal_(std=0.05)
        (tmp_path / name).mkdir()
        write_adapter(tmp_path / name, student.adapters.tensors(name), spec, "student")
        adapted.append(SampledWeights("student", tmp_path / name, spec))
    limits = SamplingLimits(
        samplers=8, sampler_bytes=3 * student.nbytes // 2, cache_bytes=1 << 28
    )
    loop, answers = (
        SamplingLoop(SamplerPool({"student": student}, limits, deterministic=False), threads=1),
        [],
    )
    for again in (False, True):
        for weights in adapted:
            loop.add(weights, SampleRequest(**vars(job(1, 9, seed=1)), take=answers.append))
            if again:  # one after the other, so that each is evicted before it is used again
                while loop.advance():
                    pass
        loop.advance()
        assert len(loop.pool) == (1 if again else 2)
        while loop.advance():
            pass
        assert len(loop.pool) == 1
    first, second, *later = (
        tuple(pb.SampleResponse.FromString(one).sequences[0].tokens) for one in answers
    )
    assert first != second
    assert later == [first, second]
