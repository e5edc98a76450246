"""How much does a hint help the student? Scores golden answers with and without the hint.

    python -m benchmarks.hints smollm2 [--problems 32] [--set tinker.student=...]

Needs the configuration of a run with `learning.self_hint = "golden"`. The untrained student scores the
golden answers of the first training problems after the usual prompt, and after the prompt with the hint.
The difference is the most that self-distillation can teach. Prints the mean log-probability of a token, and
the share of whole answers that a sample would reproduce (the product over their tokens).
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from benchmarks.common import options, run_settings, show
from rtl_core.backend.base import Weights
from rtl_core.config import load_config
from rtl_core.prompting.hints import after_right_answer
from rtl_core.rollouts.datums import golden_response
from rtl_core.run.opening import open_session
from rtl_core.run.session import Session


@asynccontextmanager
async def scratch_session(config: str, overrides: Sequence[str] = ()) -> AsyncIterator[Session]:
    """A session of a run whose folder and history are temporary."""
    with tempfile.TemporaryDirectory() as scratch:
        async with open_session(
            load_config(config, [*run_settings("scratch", Path(scratch)), *overrides])
        ) as session:
            yield session


async def measure(
    config: str, problems: int, overrides: Sequence[str]
) -> dict[str, list[np.ndarray]]:
    """Kind of prompt -> log-probabilities [T] of each golden answer."""
    found: dict[str, list[np.ndarray]] = {"as it is": [], "with the hint": []}
    async with scratch_session(config, overrides) as session:
        chat, backend = session.policy.chat, session.policy.backend
        for problem in [p for p in session.train if p.golden][:problems]:
            messages, answer = session.prompts[problem.id].messages, golden_response(problem)
            tokens_T = chat.tokens_of(answer)
            for name, prompt in zip(
                found, (messages, after_right_answer(messages, answer)), strict=True
            ):
                found[name].append(
                    await backend.logprobs(Weights("student"), chat.encode(prompt), tokens_T)
                )
    return found


def main() -> None:
    parser = options(
        __doc__, overrides=True, problems=(32, "number of golden answers to score")
    )
    parser.add_argument("config", help="a TOML file, or the name of a shipped configuration")
    args = parser.parse_args()
    rows = []
    for name, scores in asyncio.run(
        measure(args.config, args.problems, args.overrides)
    ).items():
        whole = np.mean([np.exp(one.sum()) for one in scores])
        rows.append((name, f"{np.concatenate(scores).mean():.3f}", f"{whole:.1%}"))
    show(None, ("prompt", "log-probability of a token", "whole answers"), rows)


if __name__ == "__main__":
    main()
