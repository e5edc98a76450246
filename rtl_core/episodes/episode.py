"""One episode: a policy and the tools in turns, until it submits for the last time, stops calling, or a bound is reached.

A submission that fails, and is not the last that `Bounds.attempts` allows, is met with the grader's words. Without tools every turn is one.

A *policy* is whatever answers a conversation: a model that samples tokens (conversation.py) or
answers at an endpoint (endpoint.py), a script, a person in a terminal. Every turn is told
to `on_turn` before the next begins, so that an episode whose process died goes on from its recorded turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from rtl_core.config.episode import Bounds
from rtl_core.episodes.tools import Judge, Result, Toolbox
from rtl_core.grading.executors.base import Executor
from rtl_core.prompting.answer_to import answer_to, response_of
from rtl_core.prompting.calls import Call
from rtl_core.prompting.hints import ASK
from rtl_core.prompting.templates import SYSTEM, Message
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem
from rtl_core.types.rollout import Ended

WORK = """\
You work in a workspace with tools: look at its files, write the files that are asked for, compile and simulate them, and call
`submit` when they are right. Nothing but calls of tools changes anything; code in your text is not read. Paths are relative to the
workspace: `docs/` holds documents, `rtl/` the design, `verif/` test benches; other files that you write there are yours alone.
The test bench that judges you is another one than what you find, and it is not in the workspace."""


@dataclass(frozen=True)
class Reply:
    """What a policy writes in one turn."""

    text: str
    calls: tuple[Call, ...] = ()
    thought: str = ""
    """What an endpoint tells apart from the text."""
    n_tokens: int = 0
    """Tokens that it wrote."""
    cut: bool = False
    """Whether a limit of tokens ended it."""
    tokens_T: tuple[int, ...] = ()
    """Of a model that samples here, the tokens themselves; none of one at an endpoint."""
    logprobs_T: tuple[float, ...] = ()
    """The sampler's log-probabilities of them."""


class Policy(Protocol):
    """Whoever plays an episode."""

    def reply(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], most_tokens: int) -> Reply:
        """The next turn after a conversation in OpenAI's format, of at most so many tokens."""
        ...


@dataclass(frozen=True)
class Turn:
    """One turn: what the model wrote, and what each of its calls gave."""

    reply: Reply
    results: tuple[Result, ...] = ()
    """Of a turn without tools: what the grader said of it, if there is a further attempt."""
    seconds: float = 0.0
    """That the policy took, on the clock."""

    @property
    def told(self) -> list[tuple[Call | None, Result]]:
        """The results with the call that each is of; None where there are no tools."""
        return list(zip(self.reply.calls or [None] * len(self.results), self.results, strict=True))


@dataclass
class Episode:
    """An episode under way, or ended."""

    problem: Problem
    executor: Executor
    bounds: Bounds = field(default_factory=Bounds)
    turns: list[Turn] = field(default_factory=list)
    ended: Ended | None = None
    judge: Judge | None = None
    """Asked between two attempts; None: the first ends the episode."""
    opening: Sequence[Message] | None = None
    """The first prompt, in place of `episode_messages`."""

    def __post_init__(self) -> None:
        self.tools = Toolbox(self.problem, self.executor, self.bounds, self.judge)
        opening = self.opening or episode_messages(self.problem, self.bounds, list(self.tools.offered))
        self.messages: list[dict[str, Any]] = [*opening]
        recorded, self.turns = self.turns, []
        for turn in recorded:
            for call, result in turn.told:
                self.tools.again(call, result)
            self._take(turn)

    @property
    def text(self) -> str:
        """A response that holds the answer: the files as they are; without tools what the model wrote last, if it wrote anything."""
        if self.tools.offered:
            return response_of(self.tools.workspace.answer().files)
        return next((turn.reply.text for turn in reversed(self.turns) if turn.reply.text), "")

    @property
    def answer(self) -> Answer:
        """The files that are asked for, as they are."""
        return self.tools.workspace.answer() if self.tools.offered else answer_to(self.problem, self.text)

    @property
    def n_tokens(self) -> int:
        """Tokens that the model wrote."""
        return sum(turn.reply.n_tokens for turn in self.turns)

    def play(self, policy: Policy, on_turn: Callable[[Turn], None] = lambda turn: None) -> Answer:
        """Play to the end. Raises what the policy raises, and InfrastructureError where the sandbox fails; play then goes on."""
        definitions = self.tools.definitions()
        while self.ended is None:
            started = time.monotonic()
            reply = policy.reply(self.messages, definitions, self.bounds.tokens - self.n_tokens)
            seconds = time.monotonic() - started
            if reply.cut or not self.tools.offered:  # its last call may be half of one; one to no tool is text
                reply = replace(reply, calls=())
            turn = Turn(reply, tuple(self._results(reply.calls) if self.tools.offered else self._said(reply)), seconds)
            on_turn(turn)
            self._take(turn)
        return self.answer

    def _results(self, calls: Sequence[Call]) -> list[Result]:
        found: list[Result] = []
        for number, call in enumerate(calls):
            if self.tools.submitted:
                found.append(Result("error: not carried out, since you have submitted", False))
            elif number >= self.bounds.calls:
                found.append(
                    Result(f"error: not carried out, since a turn has at most {self.bounds.calls} calls", False)
                )
            else:
                found.append(self.tools.call(call))
        return found

    def _said(self, reply: Reply) -> list[Result]:
        """What the grader says of a turn without tools, if a further attempt may follow."""
        if reply.cut:
            return []
        started = time.monotonic()
        words = self.tools.submit(answer_to(self.problem, reply.text))
        return [] if words is None else [Result(f"{words}\n{ASK}", False, time.monotonic() - started)]

    def _take(self, turn: Turn) -> None:
        """Add a turn to the conversation, and see whether it is the last."""
        self.turns.append(turn)
        reply = turn.reply
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.calls
        ]
        sampled = {"tokens": list(reply.tokens_T), "logprobs": list(reply.logprobs_T)}
        more = {"tool_calls": calls, "reasoning_content": reply.thought, **sampled}
        said = {key: value for key, value in more.items() if value}
        self.messages.append({"role": "assistant", "content": reply.text, **said})
        self.ended = self._why_ended(turn)
        for number, (call, result) in enumerate(turn.told):
            if call is None:
                self.messages.append({"role": "user", "content": result.text})
                continue
            told = self.bounds.explain and number + 1 == len(turn.results) and self.ended is None
            left = f"\n({self._left()})" if told else ""
            self.messages.append(
                {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": result.text + left}
            )

    def _why_ended(self, turn: Turn) -> Ended | None:
        if self.tools.submitted:
            return "submitted"
        if turn.reply.cut:
            return "cut"
        if not turn.results:
            return "no call" if self.tools.offered else "submitted"
        if len(self.turns) >= self.bounds.turns:
            return "turns"
        if self.n_tokens >= self.bounds.tokens:
            return "tokens"
        return "seconds" if self.tools.used_s >= self.bounds.seconds else None

    def _left(self) -> str:
        used_s, tries = self.tools.used_s, self.bounds.attempts
        submitted = f", {self.tools.attempts} of {tries} submissions" if tries > 1 else ""
        return (
            f"turn {len(self.turns)} of {self.bounds.turns}, {self.n_tokens:,} of {self.bounds.tokens:,} tokens,"
            f" {used_s:.1f} of {self.bounds.seconds:g} s{submitted}"
        )


def episode_messages(problem: Problem, bounds: Bounds, tools: Sequence[str]) -> list[Message]:
    """System and user message; without `bounds.explain` the problem's text alone. A problem's own system message (CVDP's) describes other
    tools, so it is left out."""
    if not bounds.explain:
        return [{"role": "user", "content": problem.prompt}]
    system = f"{SYSTEM}\n\n{WORK}\n\nTools: {', '.join(tools)}. {bounds.in_words()}"
    asked = ", ".join(f"`{path}`" for path in problem.targets)
    user = f"{problem.prompt}\n\nWrite {asked} in the workspace, and submit."
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


@dataclass
class Script:
    """A policy that makes given calls, one a turn, whatever it is told."""

    calls: Sequence[tuple[str, str]]
    """Name and arguments as JSON."""

    def reply(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], most_tokens: int) -> Reply:
        turn = sum(message["role"] == "assistant" for message in messages)
        if turn >= len(self.calls):
            return Reply("")
        name, arguments = self.calls[turn]
        return Reply("", (Call(name, arguments, f"call_{turn}"),))
