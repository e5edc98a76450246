"""Distillation on distributions: the error of using k likely tokens in place of the whole vocabulary, and the cost of
asking for them.

    python -m benchmarks.distributions [--problems 16] [--samples 3] [--config demo-hard] [--k 20] [--rounds 3]

The untrained student answers the first training problems. transformers scores these answers with both
models over the whole vocabulary, for the exact divergence and its gradient by the student's logits. Prints,
in % of the exact value, the error of the mean divergence and the mean length of the gradient's error, for the tokens
that are likeliest to the teacher and to the student (`learning.choices_of`).

Then the same answers go both ways through the service: the teacher's choices with the trainer's pass for the student's
probabilities of them, and the student's choices, which come with its sample and are scored by the teacher. Prints the
seconds of each request, the tokens that are paid as training before the step itself, and, for the
student's choices, the largest differences from what the trainer's pass and the teacher's own choices say of the same
tokens: of log-probabilities, divergences (nats) and the loss's gradient by the student's logits.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from benchmarks.common import markdown, options
from benchmarks.hints import scratch_session
from rtl_core.algorithms.distribution_distillation import DistributionDistillation
from rtl_core.backend.base import (
    Datum,
    SampledAnswer,
    SamplingParams,
    Trainer,
    Weights,
)
from rtl_core.config import load_config
from rtl_core.learning.distributions import Choices, Divergence, Tail, divergence
from rtl_core.run.session import Session
from rtl_core.tinymodels import model_path

KINDS: tuple[Divergence, ...] = ("reverse", "forward", "jensen_shannon")
TAILS: tuple[Tail, ...] = ("bucket", "renormalise")
KS = (1, 2, 5, 10, 20, 50)
Answers = Sequence[tuple[Sequence[int], SampledAnswer]]
"""Prompt and answer."""
Asked = list[tuple[NDArray[np.float32], Choices]]
"""A teacher's scores of each answer, and tokens with its log-probabilities of them."""
Result = TypeVar("Result")
TEACHER = Weights("teacher")


def logprobs_of(model: str, answers: Answers) -> NDArray[np.float64]:
    """Log-probabilities of the whole vocabulary at every position of all answers, (N, V)."""
    network = AutoModelForCausalLM.from_pretrained(model)
    found = []
    with torch.no_grad():
        for prompt_P, answer in answers:
            tokens = torch.tensor([[*prompt_P, *answer.tokens_T]])
            logits = network(tokens).logits[0, len(prompt_P) - 1 : -1]
            found.append(logits.double().log_softmax(-1).numpy())
    return np.concatenate(found)


def errors(
    student_NV: NDArray[np.float64],
    teacher_NV: NDArray[np.float64],
    chosen_NV: NDArray[np.float64],
    kind: Divergence,
    tail: Tail,
) -> list[str]:
    """For each of KS: the error of the mean divergence and of the gradient by the logits, in % of the exact ones, on
    the tokens that are likeliest by `chosen_NV`."""
    p_NV, everything = np.exp(student_NV), np.argsort(-chosen_NV, axis=-1)

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


class Ways:
    """Both ways of asking, and what each request took."""

    def __init__(self, session: Session, trainer: Trainer, problems: int, samples: int, k: int):
        self.backend, self.trainer, self.k = session.policy.backend, trainer, k
        self.samples, self.stop = samples, session.policy.chat.stop
        self.max_tokens = session.config.sampling.max_tokens
        self.prompts = [session.prompts[one.id].tokens_P for one in session.train[:problems]]
        self.seconds: dict[tuple[str, str], list[float]] = defaultdict(list)

    async def timed(self, way: str, what: str, work: Awaitable[Result]) -> Result:
        begun = time.perf_counter()
        result = await work
        self.seconds[way, what].append(time.perf_counter() - begun)
        return result

    async def sampled(self, likeliest: int) -> Answers:
        shape = SamplingParams(self.max_tokens, 1.0, self.stop, likeliest=likeliest)
        seeds = list(range(self.samples))
        groups = await asyncio.gather(
            *(
                self.backend.sample(Weights(), prompt_P, self.samples, shape, seeds=seeds)
                for prompt_P in self.prompts
            )
        )
        return [
            (prompt_P, one)
            for prompt_P, group in zip(self.prompts, groups, strict=True)
            for one in group
        ]

    async def choices(self, answers: Answers) -> Asked:
        """The teacher's own choices."""
        asked = (self.backend.choices(TEACHER, p, one.tokens_T, self.k) for p, one in answers)
        return list(await asyncio.gather(*asked))

    async def of_students(self, answers: Answers) -> Asked:
        """The teacher's scores of the student's choices."""
        named = [one.choices.tokens_TK for _, one in answers if one.choices is not None]
        asked = (
            self.backend.logprobs_of(TEACHER, prompt_P, one.tokens_T, ids_TK)
            for (prompt_P, one), ids_TK in zip(answers, named, strict=True)
        )
        scores = await asyncio.gather(*asked)
        return [
            (score_T, Choices(ids_TK, teacher_TK))
            for (score_T, teacher_TK), ids_TK in zip(scores, named, strict=True)
        ]

    async def by_trainer(self, answers: Answers, asked: Asked) -> list[NDArray[np.float64]]:
        """The trainer's log-probabilities of the sampled tokens and of the choices, (T, 1 + K)."""
        data = [
            Datum(prompt_P, one.tokens_T, {}, choices.tokens_TK)
            for (prompt_P, one), (_, choices) in zip(answers, asked, strict=True)
        ]
        return await self.trainer.logprobs(data)

    async def round(self) -> tuple[Answers, Asked, Asked]:
        """Go both ways once. Returns the answers with the student's choices, the teacher's scores of these, and the
        teacher's own."""
        way = "teacher"
        answers = await self.timed(way, "sample", self.sampled(0))
        own = await self.timed(way, "score", self.choices(answers))
        await self.timed(way, "trainer's pass", self.by_trainer(answers, own))
        way = "student"
        answers = await self.timed(way, "sample", self.sampled(self.k))
        asked = await self.timed(way, "score", self.of_students(answers))
        return answers, asked, await self.choices(answers)


def largest_differences(
    answers: Answers, asked: Asked, own: Asked, trainer: Sequence[NDArray[np.float64]]
) -> dict[str, float]:
    """What the student's choices and the teacher's scores of them differ in from the trainer's pass over the same
    tokens and from the teacher's own choices."""
    algorithm = DistributionDistillation(
        load_config("demo", ["learning.algorithm=distribution_distillation"], environment={})
    )
    apart: dict[str, list[float]] = defaultdict(list)
    for (_, one), (_, choices), (_, theirs), trainer_TK in zip(
        answers, asked, own, trainer, strict=True
    ):
        assert one.choices is not None
        count = len(one.tokens_T)
        inputs = {
            "logprobs": np.array(one.logprobs_T, np.float32),
            "advantages": np.full(count, 0.5, np.float32),
            "kl_weights": np.ones(count, np.float32),
            "teacher_logprobs": choices.logprobs_TK,
        }
        both = {**inputs, "student_logprobs": one.choices.logprobs_TK}
        weights = algorithm.weights(both, None), algorithm.weights(inputs, trainer_TK)
        p_TK = np.exp(trainer_TK[:, 1:])
        gradients = [one_TK[:, 1:] - p_TK * one_TK.sum(-1, keepdims=True) for one_TK in weights]
        students = one.choices.logprobs_TK, trainer_TK[:, 1:]
        values = [
            divergence(student_TK, choices.logprobs_TK, "reverse", "bucket")[0]
            for student_TK in students
        ]
        same_TKK = choices.tokens_TK[:, :, None] == theirs.tokens_TK[:, None]
        differences_TKK = choices.logprobs_TK[:, :, None] - theirs.logprobs_TK[:, None]
        apart["student's log-probabilities"].append(np.abs(np.subtract(*students)).max())
        apart["teacher's log-probabilities"].append(np.abs(differences_TKK[same_TKK]).max())
        apart["divergence"].append(np.abs(np.subtract(*values)).max())
        apart["gradient"].append(np.abs(np.subtract(*gradients)).max())
    return {what: max(values) for what, values in apart.items()}


async def measure_cost(
    session: Session, problems: int, samples: int, k: int, rounds: int
) -> None:
    trainer = await session.policy.backend.open_trainer(None)
    ways = Ways(session, trainer, problems, samples, k)
    for _ in range(rounds + 1):
        answers, asked, own = await ways.round()
    tokens = sum(len(prompt_P) + len(one.tokens_T) - 1 for prompt_P, one in answers)
    stages = ("sample", "score", "trainer's pass")
    rows = []
    for way, paid in (("teacher", tokens), ("student", 0)):
        # The first round warms up.
        spent = [
            float(np.median(ways.seconds.get((way, what), [0.0])[1:] or [0.0]))
            for what in stages
        ]
        cells = (f"{seconds:.2f}" for seconds in (*spent, sum(spent)))
        rows.append((way, *cells, f"{paid:,}", f"{tokens + paid:,}"))
    seconds = [f"{what} s" for what in (*stages, "all")]
    columns = ("choices of", *seconds, "trainer's tokens before the step", "with the step")
    print(f"\n{len(answers)} answers, k = {k}, median of {rounds} rounds\n")
    print(markdown(columns, rows))
    trained = await ways.by_trainer(answers, asked)
    apart = largest_differences(answers, asked, own, trained)
    print(
        markdown(
            ("largest difference of", ""),
            [(what, f"{value:.1e}") for what, value in apart.items()],
        )
    )


async def measure_errors(session: Session, problems: int, samples: int) -> None:
    config, backend, chat = session.config, session.policy.backend, session.policy.chat
    shape = SamplingParams(config.sampling.max_tokens, 1.0, chat.stop)
    answers: list[tuple[Sequence[int], SampledAnswer]] = []
    for problem in session.train[:problems]:
        prompt_P = session.prompts[problem.id].tokens_P
        found = await backend.sample(Weights(), prompt_P, samples, shape)
        answers += [(prompt_P, one) for one in found]
    assert config.tinker.teacher is not None
    names = (config.tinker.student, config.tinker.teacher)
    models = [str(model_path(name)) for name in names]  # type: ignore[arg-type]
    student_NV, teacher_NV = (logprobs_of(model, answers) for model in models)
    tokens, vocabulary = student_NV.shape
    print(f"{len(answers)} answers, {tokens:,} tokens, vocabulary {vocabulary}\n")
    by = {"teacher": teacher_NV, "student": student_NV}
    rows = [
        (kind, tail, whose, *errors(student_NV, teacher_NV, chosen_NV, kind, tail))
        for kind in KINDS
        for tail in TAILS
        for whose, chosen_NV in by.items()
    ]
    print(markdown(("divergence", "tail", "choices of", *(f"k = {k}" for k in KS)), rows))


async def measure(config: str, problems: int, samples: int, k: int, rounds: int) -> None:
    async with scratch_session(config) as session:
        await measure_errors(session, problems, samples)
        await measure_cost(session, problems, samples, k, rounds)


def main() -> None:
    config = ("demo-hard", "a shipped configuration with embedded models")
    args = options(__doc__, config=config, problems=16, samples=3, k=20, rounds=3).parse_args()
    asyncio.run(measure(args.config, args.problems, args.samples, args.k, args.rounds))


if __name__ == "__main__":
    main()
