"""A backend whose model writes golden answers, so that the results of an evaluation are known.

`backend.options`: `passing`, the number of golden answers to each problem (the others are empty modules), and the model's `context`.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rtl_core.backend.base import Readiness, SampledAnswer, SamplingParams, Weights
from rtl_core.config import RunConfig
from rtl_grader.prompts import build_messages
from rtl_grader.types.problem import Problem
from tests.backend.inprocess import InProcess, InProcessProvider

ASKED: list[dict[str, Any]] = []
"""The parameters of each sampling request."""


def golden_text(problem: Problem) -> str:
    """The golden answer in the form that the public prompt requires."""
    assert problem.golden is not None
    if len(problem.golden) == 1:
        return "".join(problem.golden.values())
    return json.dumps({"code": [problem.golden]})


class Golden:
    def __init__(self, inner: InProcess, config: RunConfig) -> None:
        self._inner, self._config = inner, config
        self.tokenizer, self.abort = inner.tokenizer, inner.abort
        found = [
            problem for source in config.problems.sources for problem in source.read().problems
        ]  # type: ignore[attr-defined]
        self._answers = {
            self._prompt(problem): golden_text(problem) for problem in found if problem.golden
        }

    def _prompt(self, problem: Problem) -> tuple[int, ...]:
        messages = build_messages(problem, self._config.prompting.template)
        tokens = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return tuple(tokens)

    async def sample(
        self,
        weights: Weights,
        prompt_P: Sequence[int],
        count: int,
        params: SamplingParams,
        **more: Any,
    ) -> list[SampledAnswer]:
        ASKED.append(
            {
                "weights": weights,
                "count": count,
                "prompt": len(prompt_P),
                **vars(params),
                **more,
            }
        )
        text = self._answers[tuple(prompt_P)]
        passing = int(self._config.backend.options.get("passing", count))
        texts = [
            text if number < passing else "module nothing;\nendmodule\n"
            for number in range(count)
        ]
        return [SampledAnswer([1], [-0.1], "stop", one) for one in texts]


class GoldenProvider(InProcessProvider):
    async def check(self, config: RunConfig) -> Readiness:
        found = await super().check(config)
        limit = config.backend.options.get("context")
        return replace(
            found, context={} if limit is None else {config.tinker.student: int(limit)}
        )


BACKEND = GoldenProvider(Golden)
