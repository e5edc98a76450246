"""Distillation on distributions: the error of using the teacher's k likeliest tokens in place of the whole vocabulary.

    python -m benchmarks.distributions [--problems 16] [--samples 3] [--config demo-hard]

The untrained student answers the first training problems. transformers scores these answers with both
models over the whole vocabulary, for the exact divergence and its gradient by the student's logits. Prints,
in % of the exact value, the error of the mean divergence and the mean length of the gradient's error.
"""

import asyncio
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from benchmarks.common import markdown, options
from benchmarks.hints import scratch_session
from rtl_core.backend.base import SamplingParams, Weights
from rtl_core.learning.distributions import Divergence, Tail, divergence
from rtl_core.tinymodels import model_path

KINDS: tuple[Divergence, ...] = ("reverse", "forward", "jensen_shannon")
TAILS: tuple[Tail, ...] = ("bucket", "renormalise")
KS = (1, 2, 5, 10, 20, 50)
Answers = Sequence[tuple[Sequence[int], Sequence[int]]]
"""Prompt and tokens of each answer."""


def logprobs_of(model: str, answers: Answers) -> NDArray[np.float64]:
    """Log-probabilities of the whole vocabulary at every position of all answers, (N, V)."""
    network = AutoModelForCausalLM.from_pretrained(model)
    found = []
    with torch.no_grad():
        for prompt_P, tokens_T in answers:
            logits = network(torch.tensor([[*prompt_P, *tokens_T]])).logits[
                0, len(prompt_P) - 1 : -1
            ]
            found.append(logits.double().log_softmax(-1).numpy())
    return np.concatenate(found)


def errors(
    student_NV: NDArray[np.float64],
    teacher_NV: NDArray[np.float64],
    kind: Divergence,
    tail: Tail,
) -> list[str]:
    """For each of KS: the error of the mean divergence and of the gradient by the logits, in % of the exact ones."""
    p_NV, everything = np.exp(student_NV), np.argsort(-teacher_NV, axis=-1)

    def by(k: int) -> tuple[float, NDArray[np.float64]]:
        ids_NK = everything[:, :k]
        student_NK, teacher_NK = (
            np.take_along_axis(values, ids_NK, -1) for values in (student_NV, teacher_NV)
        )
        value_N, pull_NK = divergence(student_NK, teacher_NK, kind, tail)
        gradient_NV = -p_NV * pull_NK.sum(-1, keepdims=True)
        np.put_along_axis(
            gradient_NV, ids_NK, np.take_along_axis(gradient_NV, ids_NK, -1) + pull_NK, -1
        )
        return float(value_N.mean()), gradient_NV

    whole, exact_NV = by(student_NV.shape[1])
    length = np.linalg.norm(exact_NV, axis=-1).mean()
    cells = []
    for k in KS:
        value, gradient_NV = by(k)
        apart = np.linalg.norm(gradient_NV - exact_NV, axis=-1).mean()
        cells.append(f"{100 * (value - whole) / whole:+.2f}, {100 * apart / length:.2f}")
    return cells


async def measure(name: str, problems: int, samples: int) -> None:
    async with scratch_session(name) as session:
        config, backend, chat = session.config, session.policy.backend, session.policy.chat
        shape = SamplingParams(config.sampling.max_tokens, 1.0, chat.stop)
        answers = []
        for problem in session.train[:problems]:
            prompt_P = session.prompts[problem.id].tokens_P
            found = await backend.sample(Weights(), prompt_P, samples, shape)
            answers += [(prompt_P, one.tokens_T) for one in found]
        assert config.tinker.teacher is not None
        names = (config.tinker.student, config.tinker.teacher)
        models = [str(model_path(name)) for name in names]  # type: ignore[arg-type]
        student_NV, teacher_NV = (logprobs_of(model, answers) for model in models)
        print(
            f"{len(answers)} answers, {student_NV.shape[0]:,} tokens, vocabulary {student_NV.shape[1]}\n"
        )
        rows = [
            (k, tail, *errors(student_NV, teacher_NV, k, tail)) for k in KINDS for tail in TAILS
        ]
        print(markdown(("divergence", "tail", *(f"k = {k}" for k in KS)), rows))


def main() -> None:
    config = ("demo-hard", "a shipped configuration with embedded models")
    args = options(__doc__, config=config, problems=16, samples=3).parse_args()
    asyncio.run(measure(args.config, args.problems, args.samples))


if __name__ == "__main__":
    main()
