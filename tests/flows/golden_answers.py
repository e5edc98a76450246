"""A model that writes golden answers, so that the results of an evaluation are known."""

import json
from collections.abc import Sequence
from typing import Any

from rtl_core.backend.base import SampledAnswer, SamplingParams, Weights
from rtl_core.config import RunConfig
from rtl_grader.prompts import build_messages
from rtl_grader.types.problem import Problem
from tests.backend.inprocess import InProcess


def golden_text(problem: Problem) -> str:
    """The golden answer in the form that the public prompt requires."""
    assert problem.golden is not None
    if len(problem.golden) == 1:
        return "".join(problem.golden.values())
    return json.dumps({"code": [problem.golden]})


def answers_of(inner: InProcess, config: RunConfig) -> dict[tuple[int, ...], str]:
    """Mapping of prompt to golden answer."""
    answers = {}
    for source in config.problems.sources:
        for problem in source.read().problems:  # type: ignore[attr-defined]
            messages = build_messages(problem, config.prompting.template)
            prompt_P = inner.tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=True, return_dict=False
            )
            answers[tuple(prompt_P)] = golden_text(problem) if problem.golden else ""
    return answers


async def golden(
    inner: InProcess,
    weights: Weights,
    prompt_P: Sequence[int],
    count: int,
    params: SamplingParams,
    **more: Any,
) -> list[SampledAnswer]:
    """`backend.options.passing`: the number of golden answers to each problem; the others are empty modules."""
    config = inner._config
    text = answers_of(inner, config)[tuple(prompt_P)]
    passing = int(config.backend.options.get("passing", count))
    texts = [text] * passing + ["module nothing;\nendmodule\n"] * (count - passing)
    return [SampledAnswer([1], [-0.1], "stop", one) for one in texts]
