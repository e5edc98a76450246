"""A train step of a run with episodes, by the functions that the flows call, and a sampler that fails."""

import asyncio
from collections import Counter

from rtl_core.errors import ConfigError
from rtl_core.rollouts import batch as batches
from rtl_core.rollouts import planning, playing, training
from rtl_core.rollouts.datums import credit_group
from rtl_core.run.opening import open_session


async def begin(session):
    """Open the first step of a run."""
    if not session.weights.steps:
        await planning.plan_run(session)
    return await planning.batch_of(session, session.weights.steps[0])


async def one_step(config, opened=lambda session: None):
    """Make a whole train step; return it and its session."""
    async with open_session(config) as session:
        step = await begin(session)
        opened(session)
        await asyncio.gather(
            *(playing.answer(session, step, problem_id) for problem_id in step.planned)
        )
        for problem_id in step.planned:
            await batches.grade(session, step, problem_id)
            credit_group(config, session.recorder, step, problem_id)
        await training.train(session, step)
    return step, session


def break_off_sampling(session, monkeypatch, after):
    """Let the sampler fail with `ConfigError("dead")` after `after` turns (None: never); return a counter of turns that were `asked` for."""
    asked, sample = Counter[str](), session.policy.backend.sample

    async def counted(*arguments, **named):
        asked["asked"] += 1
        if after is not None and asked["asked"] > after:
            raise ConfigError("dead", "a repeat goes on")
        return await sample(*arguments, **named)

    monkeypatch.setattr(session.policy.backend, "sample", counted)
    return asked
