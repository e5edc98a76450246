"""How much better is a student with a hint? What it gives the tokens of golden answers with and without seeing them.

    python -m benchmarks.hints smollm2 [--problems 32] [--set tinker.student=...]

Needs the configuration of a run with `learning.self_hint = "golden"`. The untrained student scores the golden answers of the first training
problems behind the prompt that a run would send, and behind the one with the hint. Self-distillation can teach the difference at most.
Printed: mean log-probability of a token, and the share of answers that a sample would give whole (the product over their tokens).
"""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.common import options, show
from rtl_core.backend.base import Weights
from rtl_core.config import load_config
from rtl_core.prompting.hints import after_right_answer
from rtl_core.rollouts.datums import golden_response
from rtl_core.run.session import open_session


async def measure(config: str, problems: int, overrides: Sequence[str]) -> dict[str, list[np.ndarray]]:
    """Kind of prompt -> log-probabilities [T] of each golden answer."""
    found: dict[str, list[np.ndarray]] = {"as it is": [], "with the hint": []}
    with tempfile.TemporaryDirectory() as scratch:
        places = (f"run.directory={scratch}", f"run.history={Path(scratch) / 'history.duckdb'}")
        async with open_session(load_config(config, [*places, *overrides])) as session:
            chat, backend = session.policy.chat, session.policy.backend
            for problem in [p for p in session.usable(session.loaded.train) if p.golden][:problems]:
                messages, answer = session.prompts[problem.id].messages, golden_response(problem)
                tokens_T = chat.tokens_of(answer)
                prompts = (messages, after_right_answer(messages, answer))
                for name, prompt in zip(found, prompts, strict=True):
                    found[name].append(await backend.logprobs(Weights("student"), chat.encode(prompt), tokens_T))
    return found


def main() -> None:
    parser = options(__doc__, overrides=True, problems=(32, "how many golden answers are scored"))
    parser.add_argument("config", help="a TOML file, or the name of a shipped configuration")
    args = parser.parse_args()
    rows = []
    for name, scores in asyncio.run(measure(args.config, args.problems, args.overrides)).items():
        whole = np.mean([np.exp(one.sum()) for one in scores])
        rows.append((name, f"{np.concatenate(scores).mean():.3f}", f"{whole:.1%}"))
    show(None, ("prompt", "log-probability of a token", "whole answers"), rows)


if __name__ == "__main__":
    main()
