"""Turns as the history keeps them, one row a message, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rtl_core.episodes.episode import Reply, Turn
from rtl_core.episodes.tools import Result
from rtl_core.history.records import MessageRecord
from rtl_core.prompting.calls import Call


def to_messages(rollout: str, first: int, turn: Turn) -> list[MessageRecord]:
    """A turn of a rollout's conversation; its messages stand from place `first` on."""
    reply = turn.reply
    said = MessageRecord(
        rollout, first, "model", reply.text, not reply.cut, turn.seconds, reply.thought, n_tokens=reply.n_tokens,
        tokens_T=reply.tokens_T, logprobs_T=reply.logprobs_T,
    )  # fmt: skip
    told = [
        MessageRecord(rollout, at, "tool" if call else "user", r.text, r.ok, r.seconds, call=asdict(call) if call else None, used_s=r.used_s)
        for at, (call, r) in enumerate(turn.told, first + 1)
    ]  # fmt: skip
    return [said, *told]


def to_turns(messages: Sequence[MessageRecord]) -> list[Turn]:
    """The turns of which these are the messages, in order."""
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
    return Turn(Reply(said.text, calls, said.thought, said.n_tokens, not said.ok, *tokens), results, said.seconds)
