"""Which passes of a train step are doubtful: looked at as soon as a group is graded (`rtl_core.validation.doubts`).

What is found is kept in `audits`, and with `learning.doubtful` as `mask` or `zero` a doubtful pass is masked, or earns nothing. Passes for
which there is no time keep their reward. Where a reward term reads netlists, every pass is looked at, and what it earns follows from that.
"""

from __future__ import annotations

import asyncio
import math

from rtl_core.errors import InfrastructureError
from rtl_core.prompting.answer_to import answer_to
from rtl_core.rollouts.auditing import audit_record
from rtl_core.rollouts.batch import Batch, reward_of
from rtl_core.run.session import Session

WHILE_TRAINING = "while training"
"""The key of such a finding in `audits`; `rtl-distill audit` looks again."""


async def doubt(session: Session, batch: Batch, problem_id: str) -> None:
    """Look at the passes of one group of a train step. A failure of the executor is no finding."""
    pays_size, graders = session.config.reward.pays_size, session.graders
    if batch.purpose != "train" or (session.config.learning.doubtful == "keep" and not pays_size):
        return
    passes = [stored for stored in batch.group(problem_id) if stored.passed and stored.audit is None]
    if not passes:
        return
    problem = session.problems[problem_id]
    answers = [answer_to(problem, stored.rollout.text).files for stored in passes]
    with batch.clock.measure("doubt"):
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                graders.pool,
                graders.doubts.look,
                graders.grader,
                problem,
                answers,
                math.inf if pays_size else session.config.learning.doubtful_share,
                pays_size,
            )
        except InfrastructureError:
            return
    told = [(stored, one) for stored, one in zip(passes, found, strict=True) if one is not None]
    earned = []
    for stored, one in told:
        batch.update(stored, audit=one.result)
        if pays_size and one.agrees and stored.verdict is not None:
            reward = reward_of(session, stored.rollout, stored.verdict, one.netlist)
            batch.update(stored, reward=reward)
            earned.append((stored.rollout.key, stored.verdict, reward))
    session.recorder.put("record_verdicts", earned)
    session.recorder.put(
        "record_audits",
        [
            audit_record(session.run, stored.rollout.key, problem_id, one, graders.grader.executor, WHILE_TRAINING)
            for stored, one in told
        ],
    )
