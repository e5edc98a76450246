"""Off-policy distillation before the student's own answers are worth learning from: supervised steps on others' answers.

The first `learning.warm_start_steps` steps of a run take the problems of their plan and train by cross entropy on the teacher's
answers (sampled, graded and recorded with the purpose `warm_start`, apart from the student's) or on the known-good ones, which are
not sampled by anybody and so leave no rollouts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rtl_core.pipeline.batch import Batch
from rtl_core.pipeline.examples import answers_to_imitate
from rtl_core.pipeline.session import Session
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


def pairs_to_imitate(session: Session, batch: Batch) -> list[tuple[Sequence[int], Sequence[int]]]:
    """(prompt tokens, completion tokens with the end token) of a supervised step; longer ones than may be sampled are left out."""
    config = session.config
    if config.learning.warm_start_source == "teacher":
        return answers_to_imitate(batch, config)
    tokenizer = session.require_backend().tokenizer
    pairs: list[tuple[Sequence[int], Sequence[int]]] = []
    for problem_id in batch.problem_ids:
        problem = session.problems[problem_id]
        if not problem.golden or not set(problem.targets) <= set(problem.golden):
            continue
        tokens = tokenizer.encode(golden_response(problem), add_special_tokens=False)
        if len(tokens) < config.sampling.max_tokens:
            pairs.append((session.prompts[problem_id].tokens_P, [*tokens, tokenizer.eos_token_id]))
    return pairs
