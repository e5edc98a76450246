"""An episode: a policy and the tools take turns until the last submission, a turn without calls, or a limit.

A failed submission that is not the last one allowed by `Bounds.attempts` is answered with the grader's
feedback. Without tools every turn is a submission.

A *policy* continues a conversation: a model that samples tokens (conversation.py) or is behind an endpoint
(endpoint.py), a script, or a person at a terminal. Every turn is passed to `on_turn` before the next
begins, so that an episode whose process died can be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from rtl_core.config.episode import Bounds
from rtl_core.episodes.tools import Judge, Result, Toolbox, definitions
from rtl_core.history.records import MessageRecord
from rtl_core.prompting.calls import Call
from rtl_core.prompting.hints import ASK
from rtl_core.types.rollout import Ended
from rtl_grader.extraction.answer_to import answer_to, response_of
from rtl_grader.grading.executors.base import Executor
from rtl_grader.prompts import SYSTEM, Message
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem

WORK = """\
You work in a workspace with tools: look at its files, write the files that are asked for, compile and simulate them, and call
`submit` when they are right. Nothing but calls of tools changes anything; code in your text is not read. Paths are relative to the
workspace: `docs/` holds documents, `rtl/` the design, `verif/` test benches; other files that you write there are yours alone.
The test bench that judges you is another one than what you find, and it is not in the workspace."""


@dataclass(frozen=True)
class Reply:
    """A policy's turn."""

    text: str
    calls: tuple[Call, ...] = ()
    thought: str = ""
    """Reasoning that an endpoint returns separately from the text."""
    n_tokens: int = 0
    cut: bool = False
    """Whether a token limit ended it."""
    tokens_T: tuple[int, ...] = ()
    """The sampled tokens; empty for an endpoint."""
    logprobs_T: tuple[float, ...] = ()
    """The sampler's log-probabilities of these tokens."""


class Policy(Protocol):
    """Plays an episode."""

    def reply(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], most_tokens: int
    ) -> Reply:
        """The next turn of a conversation in OpenAI's format, with at most `most_tokens` tokens."""
        ...


@dataclass(frozen=True)
class Turn:
    """A turn of the policy, and the results of its calls."""

    reply: Reply
    results: tuple[Result, ...] = ()
    """Without tools: the grader's feedback, if another attempt is allowed."""
    seconds: float = 0.0
    """Wall time of the policy."""

    @property
    def told(self) -> list[tuple[Call | None, Result]]:
        """Each result with its call, which is None without tools."""
        return list(zip(self.reply.calls or [None] * len(self.results), self.results, strict=True))


@dataclass
class Episode:
    """A running or finished episode."""

    problem: Problem
    executor: Executor
    bounds: Bounds = field(default_factory=Bounds)
    turns: list[Turn] = field(default_factory=list)
    ended: Ended | None = None
    judge: Judge | None = None
    """Grades an attempt that is not the last one; if None, the first ends the episode."""
    opening: Sequence[Message] | None = None
    """The first prompt, instead of `episode_messages`."""

    def __post_init__(self) -> None:
        self.tools = Toolbox(self.problem, self.executor, self.bounds, self.judge)
        opening = self.opening or episode_messages(
            self.problem, self.bounds, list(self.tools.offered)
        )
        self.messages: list[dict[str, Any]] = [*opening]
        recorded, self.turns = self.turns, []
        for turn in recorded:
            for call, result in turn.told:
                self.tools.again(call, result)
            self._append(turn)

    @property
    def text(self) -> str:
        """A response with the answer: the current files, or without tools the last nonempty text."""
        if self.tools.offered:
            return response_of(self.tools.workspace.answer().files)
        return next((turn.reply.text for turn in reversed(self.turns) if turn.reply.text), "")

    @property
    def answer(self) -> Answer:
        """The current state of the files that are asked for."""
        return (
            self.tools.workspace.answer()
            if self.tools.offered
            else answer_to(self.problem, self.text)
        )

    @property
    def n_tokens(self) -> int:
        """Number of tokens that the model wrote."""
        return sum(turn.reply.n_tokens for turn in self.turns)

    def play(self, policy: Policy, on_turn: Callable[[Turn], None] = lambda turn: None) -> Answer:
        """Play to the end. Raises what the policy raises, and InfrastructureError if the sandbox fails;
        call it again to resume."""
        offered = definitions(self.tools.offered)
        while self.ended is None:
            started = time.monotonic()
            reply = policy.reply(self.messages, offered, self.bounds.tokens - self.n_tokens)
            seconds = time.monotonic() - started
            if (
                reply.cut or not self.tools.offered
            ):  # the last call may be incomplete; without tools a call is text
                reply = replace(reply, calls=())
            turn = Turn(
                reply,
                tuple(self._results(reply.calls) if self.tools.offered else self._feedback(reply)),
                seconds,
            )
            on_turn(turn)
            self._append(turn)
        return self.answer

    def _results(self, calls: Sequence[Call]) -> list[Result]:
        found: list[Result] = []
        for number, call in enumerate(calls):
            why = (
                f"a turn has at most {self.bounds.calls} calls"
                if number >= self.bounds.calls
                else ""
            )
            why = "you have submitted" if self.tools.submitted else why
            refused = Result(f"error: not carried out, since {why}", False)
            found.append(refused if why else self.tools.call(call))
        return found

    def _feedback(self, reply: Reply) -> list[Result]:
        """The grader's feedback on a turn without tools, if another attempt is allowed."""
        if reply.cut:
            return []
        started = time.monotonic()
        words = self.tools.submit(answer_to(self.problem, reply.text))
        return (
            [] if words is None else [Result(f"{words}\n{ASK}", False, time.monotonic() - started)]
        )

    def _append(self, turn: Turn) -> None:
        """Add a turn to the conversation, and determine whether it is the last."""
        self.turns.append(turn)
        reply = turn.reply
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
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
            left = f"\n({self._remaining()})" if told else ""
            self.messages.append(
                {
                    "role": "tool",
                    "tool_call_id": call.id,
                    "name": call.name,
                    "content": result.text + left,
                }
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

    def _remaining(self) -> str:
        used_s, tries = self.tools.used_s, self.bounds.attempts
        submitted = f", {self.tools.attempts} of {tries} submissions" if tries > 1 else ""
        return (
            f"turn {len(self.turns)} of {self.bounds.turns}, {self.n_tokens:,} of {self.bounds.tokens:,} tokens,"
            f" {used_s:.1f} of {self.bounds.seconds:g} s{submitted}"
        )


def episode_messages(problem: Problem, bounds: Bounds, tools: Sequence[str]) -> list[Message]:
    """System and user message; without `bounds.explain` only the problem's text. A problem's own system
    message (CVDP's) describes other tools and is not used."""
    if not bounds.explain:
        return [{"role": "user", "content": problem.prompt}]
    system = f"{SYSTEM}\n\n{WORK}\n\nTools: {', '.join(tools)}. {bounds.in_words()}"
    asked = ", ".join(f"`{path}`" for path in problem.targets)
    user = f"{problem.prompt}\n\nWrite {asked} in the workspace, and submit."
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


@dataclass
class Script:
    """A policy that makes the given calls, one a turn."""

    calls: Sequence[tuple[str, str]]
    """Name, and arguments as JSON."""

    def reply(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], most_tokens: int
    ) -> Reply:
        turn = sum(message["role"] == "assistant" for message in messages)
        if turn >= len(self.calls):
            return Reply("")
        name, arguments = self.calls[turn]
        return Reply("", (Call(name, arguments, f"call_{turn}"),))


def to_messages(rollout: str, first: int, turn: Turn) -> list[MessageRecord]:
    """The messages of a turn in a rollout's conversation, numbered from `first`."""
    reply = turn.reply
    said = MessageRecord(
        rollout,
        first,
        "model",
        reply.text,
        not reply.cut,
        turn.seconds,
        reply.thought,
        n_tokens=reply.n_tokens,
        tokens_T=reply.tokens_T,
        logprobs_T=reply.logprobs_T,
    )
    told = [
        MessageRecord(
            rollout,
            at,
            "tool" if call else "user",
            r.text,
            r.ok,
            r.seconds,
            call=asdict(call) if call else None,
            used_s=r.used_s,
        )
        for at, (call, r) in enumerate(turn.told, first + 1)
    ]
    return [said, *told]


def to_turns(messages: Sequence[MessageRecord]) -> list[Turn]:
    """The turns that consist of these messages, which are in order."""
    found: list[list[MessageRecord]] = []
    for message in messages:
        if message.who == "model":
            found.append([])
        found[-1].append(message)
    return [_turn(*one) for one in found]


def _turn(said: MessageRecord, *told: MessageRecord) -> Turn:
    calls = tuple(Call(**one.call) for one in told if one.call is not None)
    tokens = (tuple(said.tokens_T), tuple(said.logprobs_T))
    results = tuple(Result(one.text, one.ok, one.seconds, one.used_s) for one in told)
    return Turn(
        Reply(said.text, calls, said.thought, said.n_tokens, not said.ok, *tokens),
        results,
        said.seconds,
    )
