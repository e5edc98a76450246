"""A train step of a run in episodes, by the functions that the flows call, and a sampler that breaks off."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from rtl_core.config import RunConfig
from rtl_core.errors import ConfigError
from rtl_core.rollouts import batch as batches
from rtl_core.rollouts import planning, playing, training
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.datums import credit_group
from rtl_core.run.session import Session, open_session


async def begin(session: Session) -> Batch:
    """The first step of a run, opened."""
    if not session.weights.steps:
        await planning.plan_run(session)
    return batches.open_batch(session, await planning.batch_of(session, session.weights.steps[0]))


async def one_step(
    config: RunConfig, opened: Callable[[Session], None] = lambda session: None
) -> tuple[Batch, Session]:
    """A whole train step."""
    async with open_session(config) as session:
        step = await begin(session)
        opened(session)
        await asyncio.gather(*(playing.answer(session, step, problem_id) for problem_id in step.planned))
        for problem_id in step.planned:
            await batches.grade(session, step, problem_id)
            credit_group(session, step, problem_id)
        await training.train(session, step)
    return step, session


def break_off_sampling(session: Session, monkeypatch: pytest.MonkeyPatch, after: int | None) -> Counter[str]:
    """Let the sampler fail with `ConfigError("dead")` after so many turns (None: never); the result counts those that were `asked` for."""
    asked, sample = Counter[str](), session.policy.backend.sample

    async def counted(*arguments, **named):
        asked["asked"] += 1
        if after is not None and asked["asked"] > after:
            raise ConfigError("dead", "a repeat goes on")
        return await sample(*arguments, **named)

    monkeypatch.setattr(session.policy.backend, "sample", counted)
    return asked
