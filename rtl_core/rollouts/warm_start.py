"""Off-policy distillation before the student's own answers are worth learning from: supervised steps on others' answers.

The first `learning.warm_start_steps` steps of a run take the problems of their plan and train by cross entropy
(algorithms/warm_start.py) on the teacher's answers (sampled, graded and recorded with the purpose `warm_start`, apart from the
student's) or on the known-good ones, which are not sampled by anybody and so leave no rollouts.
"""

from __future__ import annotations

import json

from rtl_core.algorithms.warm_start import WarmStart
from rtl_core.backend.base import Datum
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.credit import algorithm_of
from rtl_core.rollouts.datums import build_datums
from rtl_core.run.session import Session
from rtl_core.types.problem import Problem


def is_warm_start(session: Session, step: int) -> bool:
    """Whether a step is one of the supervised ones at the beginning."""
    return step < session.config.learning.warm_start_steps


def samples_answers(session: Session, step: int) -> bool:
    """Whether a step samples anything at all."""
    return not is_warm_start(session, step) or session.config.learning.warm_start_source == "teacher"


def golden_response(problem: Problem) -> str:
    """The known-good answer as a model would give it: the form that extraction.py reads."""
    files = {target: problem.golden[target] for target in problem.targets} if problem.golden else {}
    if len(files) == 1:
        (text,) = files.values()
        return f"```verilog\n{text.rstrip()}\n```"
    return json.dumps({"code": [{name: text} for name, text in files.items()]})


def datums_to_imitate(session: Session, batch: Batch) -> list[Datum]:
    """The data of a supervised step. A known-good answer is a whole turn, its thought finished and its end told; one longer than may be sampled is
    left out."""
    config = session.config
    if config.learning.warm_start_source == "teacher":
        return build_datums(batch, algorithm_of(config, batch), 0.0)
    chat = session.require_chat()
    datums = []
    for problem_id in batch.problem_ids:
        problem = session.problems[problem_id]
        tokens_T = chat.tokens_of(golden_response(problem))
        if len(tokens_T) <= config.sampling.max_tokens:
            datums.append(Datum(session.prompts[problem_id].tokens_P, tokens_T, WarmStart.inputs_of(len(tokens_T))))
    return datums
