"""An episode: a policy and the tools take turns until the last submission, a turn without calls, or a limit.

A failed submission that is not the last one allowed by `Bounds.attempts` is answered with the grader's
feedback. Without tools every turn is a submission.

A *policy* continues a conversation: a model that samples tokens (conversation.py) or is behind an endpoint
(endpoint.py), a script, or a person at a terminal. Every turn is passed to `on_turn` before the next
begins, so that an episode whose process died can be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
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
You work in a workspace with tools: look at its files, write the files that are asked for, compile and \
simulate them, and call
`submit` when they are right. Nothing but calls of tools changes anything; code in your text is not read. \
Paths are relative to the
workspace: `docs/` holds documents, `rtl/` the design, `verif/` test benches; other files that you write \
there are yours alone.
The test bench that judges you is another one than what you find, and it is not in the workspace."""


Messages = Sequence[dict[str, Any]]
"""A conversation, or definitions of tools, in OpenAI's format."""


@dataclass(frozen=True)
class Reply:
    """A policy's turn."""

    text: str
    calls: tuple[Call, ...] = ()
    thought: str = ""
    """Reasoning that an endpoint returns separately from the text."""
    n_tokens: int = 0
    cut: bool = False
    """Whether it is not whole: a token limit ended it, or it was refused."""
    tokens_T: tuple[int, ...] = ()
    """The sampled tokens; empty for an endpoint."""
    logprobs_T: tuple[float, ...] = ()
    """The sampler's log-probabilities of these tokens."""
    n_prompt: int = 0
    """Tokens of the conversation before the turn, as an endpoint counts them; 0 if it does not."""
    model: str = ""
    """Name of the model that an endpoint says it is."""
    n_cached: int | None = None
    """Tokens of the conversation before the turn that the service read from its cache; None: unknown, as in turns that
    are restored from the history."""
    refusal: str = ""
    """What an endpoint said in place of an answer to this conversation."""

    @property
    def refused(self) -> tuple[Result, ...]:
        """The refusal, which stands in the history as what the model was told."""
        return (Result(self.refusal, False),) if self.refusal else ()


class Policy(Protocol):
    """Plays an episode."""

    def reply(self, messages: Messages, tools: Messages, most_tokens: int) -> Reply:
        """The next turn of a conversation in OpenAI's format, with at most `most_tokens` tokens."""
        ...


@dataclass(frozen=True)
class Turn:
    """A turn of the policy, and the results of its calls."""

    reply: Reply
    results: tuple[Result, ...] = ()
    """Without tools: the grader's feedback, if another attempt is allowed. Of a refused turn the refusal."""
    seconds: float = 0.0
    """Wall time of the policy."""

    @property
    def by_call(self) -> list[tuple[Call | None, Result]]:
        """Each result with its call, which is None without tools."""
        calls = self.reply.calls or [None] * len(self.results)
        return list(zip(calls, self.results, strict=True))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The turn in OpenAI's format, with the tokens of the reply."""
        reply = self.reply
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in reply.calls
        ]
        optional = {
            "tool_calls": calls,
            "reasoning_content": reply.thought,
            "tokens": list(reply.tokens_T),
            "logprobs": list(reply.logprobs_T),
        }
        message: dict[str, Any] = {"role": "assistant", "content": reply.text}
        messages = [message | {key: value for key, value in optional.items() if value}]
        for call, result in self.by_call:
            message = {"role": "user", "content": result.text}
            if call is not None:
                message |= {"role": "tool", "tool_call_id": call.id, "name": call.name}
            messages.append(message)
        return messages


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
            for call, result in turn.by_call:
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
        if self.tools.offered:
            return self.tools.workspace.answer()
        return answer_to(self.problem, self.text)

    @property
    def n_tokens(self) -> int:
        """Number of tokens that the model wrote."""
        return sum(turn.reply.n_tokens for turn in self.turns)

    def play(
        self, policy: Policy, on_turn: Callable[[Turn], None] = lambda turn: None
    ) -> Answer:
        """Play to the end. Raises what the policy raises, and InfrastructureError if the sandbox fails;
        call it again to resume."""
        offered = definitions(self.tools.offered)
        while self.ended is None:
            started = time.monotonic()
            reply = policy.reply(self.messages, offered, self.bounds.tokens - self.n_tokens)
            seconds = time.monotonic() - started
            if reply.cut or not offered:
                # The last call may be incomplete; without tools a call is text.
                reply = replace(reply, calls=())
            results = self._results(reply.calls) if offered else self._feedback(reply)
            turn = Turn(reply, reply.refused or tuple(results), seconds)
            on_turn(turn)
            self._append(turn)
        return self.answer

    def _results(self, calls: Sequence[Call]) -> list[Result]:
        results: list[Result] = []
        for number, call in enumerate(calls):
            if self.tools.submitted:
                why = "you have submitted"
            elif number >= self.bounds.calls:
                why = f"a turn has at most {self.bounds.calls} calls"
            else:
                results.append(self.tools.call(call))
                continue
            results.append(Result(f"error: not carried out, since {why}", False))
        return results

    def _feedback(self, reply: Reply) -> list[Result]:
        """The grader's feedback on a turn without tools, if another attempt is allowed."""
        if reply.cut:
            return []
        started = time.monotonic()
        words = self.tools.submit(answer_to(self.problem, reply.text))
        if words is None:
            return []
        return [Result(f"{words}\n{ASK}", False, time.monotonic() - started)]

    def _append(self, turn: Turn) -> None:
        """Add a turn to the conversation, and determine whether it is the last."""
        self.turns.append(turn)
        self.messages += turn.messages
        self.ended = self._why_ended(turn)
        if turn.reply.calls and turn.results and self.bounds.explain and self.ended is None:
            self.messages[-1]["content"] += f"\n({self._remaining()})"

    def _why_ended(self, turn: Turn) -> Ended | None:
        if self.tools.submitted:
            return "submitted"
        if turn.reply.cut:
            return "refused" if turn.reply.refusal else "cut"
        if not turn.results:
            return "no call" if self.tools.offered else "submitted"
        if len(self.turns) >= self.bounds.turns:
            return "turns"
        if self.n_tokens >= self.bounds.tokens:
            return "tokens"
        return "seconds" if self.tools.used_s >= self.bounds.seconds else None

    def _remaining(self) -> str:
        tools, bounds = self.tools, self.bounds
        parts = [
            f"turn {len(self.turns)} of {bounds.turns}",
            f"{self.n_tokens:,} of {bounds.tokens:,} tokens",
            f"{tools.used_s:.1f} of {bounds.seconds:g} s",
        ]
        if bounds.attempts > 1:
            parts.append(f"{tools.attempts} of {bounds.attempts} submissions")
        return ", ".join(parts)


def episode_messages(problem: Problem, bounds: Bounds, tools: Sequence[str]) -> list[Message]:
    """System and user message; without `bounds.explain` only the problem's text. A problem's own system
    message (CVDP's) describes other tools and is not used."""
    if not bounds.explain:
        return [{"role": "user", "content": problem.prompt}]
    system = f"{SYSTEM}\n\n{WORK}\n\nTools: {', '.join(tools)}. {bounds.in_words()}"
    targets = ", ".join(f"`{path}`" for path in problem.targets)
    user = f"{problem.prompt}\n\nWrite {targets} in the workspace, and submit."
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def to_messages(rollout: str, first: int, turn: Turn) -> list[MessageRecord]:
    """The messages of a turn in a rollout's conversation, numbered from `first`."""
    reply = turn.reply
    messages = [
        MessageRecord(
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
    ]
    for place, (call, result) in enumerate(turn.by_call, first + 1):
        messages.append(
            MessageRecord(
                rollout,
                place,
                "tool" if call else "user",
                result.text,
                result.ok,
                result.seconds,
                call=asdict(call) if call else None,
                used_s=result.used_s,
            )
        )
    return messages


def to_turns(messages: Sequence[MessageRecord]) -> list[Turn]:
    """The turns that consist of these messages, which are in order."""
    groups: list[list[MessageRecord]] = []
    for message in messages:
        if message.who == "model":
            groups.append([])
        groups[-1].append(message)
    return [_turn(*group) for group in groups]


def _turn(model: MessageRecord, *others: MessageRecord) -> Turn:
    calls = tuple(Call(**other.call) for other in others if other.call is not None)
    reply = Reply(
        model.text,
        calls,
        model.thought,
        model.n_tokens,
        not model.ok,
        tuple(model.tokens_T),
        tuple(model.logprobs_T),
        # Nothing else is a word on a turn that is not whole.
        refusal="" if model.ok else "".join(other.text for other in others),
    )
    results = tuple(
        Result(other.text, other.ok, other.seconds, other.used_s) for other in others
    )
    return Turn(reply, results, model.seconds)


def to_records(turns: Iterable[Turn]) -> list[MessageRecord]:
    """The messages of an episode that is not recorded."""
    messages: list[MessageRecord] = []
    for turn in turns:
        messages += to_messages("", len(messages), turn)
    return messages
