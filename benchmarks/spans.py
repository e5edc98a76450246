"""Spans: how near are a teacher's scores through another tokenizer to its scores of the student's own tokens?

    python -m benchmarks.learning.foreign          # first: a teacher with another tokenizer
    python -m benchmarks.spans [--problems 16] [--samples 3]

The untrained hard student answers training problems. The hard teacher scores the student's tokens (k1); the same
teacher, carried over to another vocabulary (learning/foreign.py), reads the answers in its own tokens. Prints how the
KL of the spans agrees with the sum of k1 over them and, for two ways to give a span's KL to its tokens, how the KL of
single tokens agrees with k1.
"""

import asyncio
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.common import markdown, options
from benchmarks.hints import scratch_session
from benchmarks.learning.foreign import FOLDER
from rtl_core.backend.base import SamplingParams, Weights
from rtl_core.learning.spans import one_to_one, token_scores
from rtl_core.prompting.chat import Chat
from rtl_core.prompting.reading import Reader
from rtl_core.types.tokenizer import Tokenizer

Floats = NDArray[np.floating[Any]]


def agreement(ours: Floats, exact: Floats) -> list[str]:
    """Correlation with the exact values, mean absolute error in nats, and the share of equal signs above 0.5 nats."""
    matters = np.abs(exact) > 0.5
    signs = np.mean(np.sign(ours[matters]) == np.sign(exact[matters]))
    error = np.abs(ours - exact).mean()
    return [f"{np.corrcoef(ours, exact)[0, 1]:.3f}", f"{error:.3f}", f"{100 * signs:.1f} %"]


def equally(k_T: Floats, spans_S4: NDArray[np.int32]) -> Floats:
    """The KL of each span, divided equally among its tokens."""
    even_T = k_T.copy()
    for t, t_end, _, _ in spans_S4:
        even_T[t:t_end] = k_T[t:t_end].mean()
    return even_T


async def measure(problems: int, samples: int, folder: Path) -> None:
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    teacher = Chat(cast(Tokenizer, AutoTokenizer.from_pretrained(folder)))
    by_span: list[list[float]] = []
    exact_span: list[list[float]] = []
    by_token: list[Floats] = []
    even: list[Floats] = []
    exact: list[Floats] = []
    single = 0
    async with scratch_session("demo-hard") as session:
        config, backend, chat = session.config, session.policy.backend, session.policy.chat
        assert config.tinker.teacher is not None
        shape, reader = (
            SamplingParams(config.sampling.max_tokens, 1.0, chat.stop),
            Reader(chat, teacher),
        )
        for problem in session.train[:problems]:
            prompt = session.prompts[problem.id]
            for one in await backend.sample(
                Weights(), prompt.tokens_P, samples, shape, seeds=range(samples)
            ):
                own_T = np.array(one.logprobs_T)
                weights = Weights.of_teacher(config.tinker.teacher)
                k1_T = own_T - await backend.logprobs(weights, prompt.tokens_P, one.tokens_T)
                read = reader.read(prompt.messages, prompt.tokens_P, one.tokens_T)
                tokens = torch.tensor([[*read.prompt_P, *read.tokens_U]])
                with torch.no_grad():
                    logits = network(tokens).logits[0, len(read.prompt_P) - 1 : -1]
                values = logits.double().log_softmax(-1)
                scores_U = values.gather(1, torch.tensor(read.tokens_U)[:, None])[:, 0].numpy()
                k_T = own_T - token_scores(own_T, scores_U, read.spans_S4)
                by_span.append([k_T[t:t_end].sum() for t, t_end, _, _ in read.spans_S4])
                exact_span.append([k1_T[t:t_end].sum() for t, t_end, _, _ in read.spans_S4])
                by_token.append(k_T)
                even.append(equally(k_T, read.spans_S4))
                exact.append(k1_T)
                single += one_to_one(read.spans_S4)
    spans, k1_T = np.concatenate(exact_span), np.concatenate(exact)
    print(
        f"{len(exact)} answers, {len(k1_T):,} tokens, {len(spans):,} spans, {single / len(spans):.0%} of one token on "
        "both sides\n"
    )
    rows = [
        ("KL of spans", *agreement(np.concatenate(by_span), spans)),
        ("KL of tokens, in proportion to −s", *agreement(np.concatenate(by_token), k1_T)),
        ("KL of tokens, equally", *agreement(np.concatenate(even), k1_T)),
    ]
    print(markdown(("", "correlation", "mean error, nats", "sign right"), rows))


def main() -> None:
    teacher = (FOLDER, "a model with another tokenizer")
    args = options(__doc__, problems=16, samples=3, teacher=teacher).parse_args()
    asyncio.run(measure(args.problems, args.samples, args.teacher))


if __name__ == "__main__":
    main()
