"""The whole loop in one file, from the library's parts: sample, grade, score with the teacher, train.

    .venv/bin/python examples/loop.py [STEPS]     # 6 steps by default, a minute on two cores

The embedded Tinker service trains the demo's tiny student on starter problems. `rtl-distill train demo`
does the same and adds what long runs need: validation, a curriculum, evaluation, a history that survives
crashes, retries, limits and costs.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from rtl_core.backend.base import Adam, Backend, Datum, SamplingParams, Weights
from rtl_core.backend.registry import backend_of
from rtl_core.config import RunConfig, load_config
from rtl_core.learning.advantage import group_advantages, token_advantages
from rtl_core.learning.kl import k1
from rtl_core.learning.reward import Graded, reward
from rtl_core.prompting.chat import Chat
from rtl_core.starter import starter_problems
from rtl_grader import (
    Answer,
    Grader,
    GraderPool,
    Problem,
    Verdict,
    answer_to,
    build_messages,
    make_executor,
)

Grading = Callable[[Problem, Sequence[Answer]], Awaitable[list[Verdict]]]
PROBLEMS = 12
"""Number of problems in a step. Group size, λ and learning rate are the demo's."""


class Group(NamedTuple):
    """The answers to one problem: data for the train step, and means over the answers."""

    datums: list[Datum]
    reward: float
    passed: float
    kl: float


async def group_of(
    problem: Problem,
    config: RunConfig,
    chat: Chat,
    backend: Backend,
    sampler: str | None,
    grade: Grading,
) -> Group:
    """Sample answers to one problem; then grade them and score them with the teacher concurrently."""
    prompt_P = chat.encode(build_messages(problem, config.prompting.template))
    size = config.sampling.group_size
    sampling = SamplingParams(
        config.sampling.max_tokens, config.sampling.temperature, chat.stop
    )
    answers = await backend.sample(Weights("student", sampler), prompt_P, size, sampling)
    scores = [backend.logprobs(Weights("teacher"), prompt_P, one.tokens_T) for one in answers]
    verdicts, teacher = await asyncio.gather(
        grade(problem, [answer_to(problem, one.text) for one in answers]),
        asyncio.gather(*scores),
    )
    graded = [
        Graded(problem, v, a.text, a.tokens_T, a.stop_reason)
        for a, v in zip(answers, verdicts, strict=True)
    ]
    rewards_G = np.array([reward(one, config.reward.weights).total for one in graded])
    advantages_G = group_advantages(rewards_G, scale="std")
    datums, kl = [], []
    rows = zip(answers, verdicts, advantages_G, teacher, strict=True)
    for one, verdict, advantage, teacher_T in rows:
        student_T = np.array(one.logprobs_T, np.float32)
        kl.append(k1(student_T, teacher_T).mean())
        # a_t = A_i − λ (s_t − q_t); the teacher corrects only answers that did not pass.
        weight = 0.0 if verdict.passed else config.learning.kl_weight
        advantages_T = token_advantages(advantage, student_T, teacher_T, kl_weight=weight)
        inputs = {"logprobs": student_T, "advantages": advantages_T}
        datums.append(Datum(prompt_P, one.tokens_T, inputs))
    passed = float(np.mean([verdict.passed for verdict in verdicts]))
    return Group(datums, float(rewards_G.mean()), passed, float(np.mean(kl)))


async def train(steps: int, folder: str) -> None:
    """Train for `steps` steps, each on new problems, and print the progress."""
    config = load_config("demo", [f"run.directory={folder}"])
    learning = config.learning
    names = ("learning_rate", "beta1", "beta2", "eps", "grad_clip_norm")
    adam = Adam(*(getattr(learning, name) for name in names))
    problems = starter_problems("train", steps * PROBLEMS, seed=0)
    provider = backend_of(config)
    chat = Chat(provider.tokenizer(config, config.tinker.student))
    grader = Grader(make_executor(config.grading.executor))
    async with provider.open(config, print) as backend:
        with closing(GraderPool(grader, 2)) as pool:
            trainer, sampler = await backend.open_trainer(None), None
            for step in range(steps):
                chosen = problems[step * PROBLEMS :][:PROBLEMS]
                work = [group_of(p, config, chat, backend, sampler, pool.grade) for p in chosen]
                groups = await asyncio.gather(*work)
                datums = [datum for group in groups for datum in group.datums]
                await trainer.step(datums, learning.loss, learning.loss_settings, adam)
                sampler = (await trainer.save(f"loop-{step}", None)).sampler_path
                rewards, passed, kl = np.mean([group[1:] for group in groups], axis=0)
                print(f"step {step + 1}: reward {rewards:.2f}, pass {passed:.2f}, KL {kl:.3f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="rtl-distill-loop-") as place:
        asyncio.run(train(int(sys.argv[1]) if len(sys.argv) > 1 else 6, place))
