"""What a model is told when an episode begins."""

from __future__ import annotations

from collections.abc import Sequence

from rtl_core.config.episode import Bounds
from rtl_core.prompting.messages import SYSTEM
from rtl_core.prompting.templates import Message
from rtl_core.types.problem import Problem

WORK = """\
You work in a workspace with tools: look at its files, write the files that are asked for, compile and simulate them, and call
`submit` when they are right. Nothing but calls of tools changes anything; code in your text is not read. Paths are relative to the
workspace: `docs/` holds documents, `rtl/` the design, `verif/` test benches; other files that you write there are yours alone.
The test bench that judges you is another one than what you find, and it is not in the workspace."""


def episode_messages(problem: Problem, bounds: Bounds, tools: Sequence[str]) -> list[Message]:
    """System and user message; without `bounds.explain` the problem's text alone. A problem's own system message (CVDP's) describes other
    tools, so it is left out."""
    if not bounds.explain:
        return [{"role": "user", "content": problem.prompt}]
    system = f"{SYSTEM}\n\n{WORK}\n\nTools: {', '.join(tools)}. {bounds.in_words()}"
    asked = ", ".join(f"`{path}`" for path in problem.targets)
    user = f"{problem.prompt}\n\nWrite {asked} in the workspace, and submit."
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]
