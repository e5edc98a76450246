"""Play the episodes of verdict records again: the same turns and calls must give the same results and files.

The model is not asked: its turns are the recorded ones. Programs run again, so an episode that a time limit
ended may go on for a turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from rtl_core.config.episode import Bounds
from rtl_core.episodes.episode import Episode, Messages, Reply, Turn, to_turns
from rtl_core.history.records import MessageRecord
from rtl_core.prompting.hints import feedback
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.grading.executors import Executor, make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.verdict_record import VerdictRecord
from rtl_grader.records.reproduce import CheckedRecord, Difference
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem


@dataclass(frozen=True)
class Recorded:
    """A policy that repeats recorded turns; after them it ends the episode."""

    turns: Sequence[Turn]

    def reply(self, messages: Messages, tools: Messages, most_tokens: int) -> Reply:
        place = sum(message["role"] == "assistant" for message in messages)
        return self.turns[place].reply if place < len(self.turns) else Reply("", cut=True)


def replay_episodes(
    claims: Sequence[CheckedRecord], problems: Sequence[Problem], executor: str | None = None
) -> None:
    """Play every episode among these records again, and add what differs to their `differences`.

    `executor`: None: the first record's. Raises ToolMissingError or InfrastructureError if a sandbox cannot start or
    fails.
    """
    by_print = {problem.fingerprint: problem for problem in problems}
    episodes = [
        (claim, claim.record, by_print[claim.record.graded["problem"]])
        for claim in claims
        if "episode" in claim.raw
        and claim.record
        and claim.record.graded.get("problem") in by_print
    ]
    if not episodes:
        return
    name = executor or episodes[0][1].executor
    # As in an evaluation, the sandbox of the tools is not the grader's.
    with closing(make_executor(name)) as tools, closing(make_executor(name)) as harness:
        for claim, record, problem in episodes:
            try:
                claim.differences += _replayed(
                    claim.raw["episode"], record, problem, tools, harness
                )
            except (LookupError, TypeError, ValueError) as error:
                claim.differences.append(("malformed", f"episode: {error!r}"))


def _replayed(
    episode_record: dict[str, Any],
    record: VerdictRecord,
    problem: Problem,
    tools: Executor,
    harness: Executor,
) -> Iterator[Difference]:
    bounds, conditions = Bounds.model_validate(episode_record["bounds"]), record.conditions
    grader = Grader(
        harness,
        limits=conditions.limits,
        seed=conditions.seed,
        seeds=conditions.seeds,
        until=conditions.until,
    )

    def judge(answer: Answer) -> str | None:
        verdict = grader.grade(problem, answer)
        return None if verdict.passed else feedback(verdict, bounds.feedback_chars)

    messages = [
        MessageRecord("", place, seconds=0.0, **message)
        for place, message in enumerate(episode_record["messages"])
    ]
    turns = to_turns(messages)
    episode = Episode(problem, tools, bounds, judge=judge if bounds.attempts > 1 else None)
    episode.play(Recorded(turns))
    for number, (was, now) in enumerate(zip(turns, episode.turns, strict=False), 1):
        for (call, before), (_, after) in zip(was.by_call, now.by_call, strict=True):
            if (before.text, before.ok) != (after.text, after.ok):
                what = f"turn {number}, {call.name if call else 'feedback'}"
                yield "other result", f"{what}: {before.text[:200]!a}, now {after.text[:200]!a}"
    if len(episode.turns) < len(turns):
        yield "other episode", f"it ends after turn {len(episode.turns)} of {len(turns)}"
    if answer_to(problem, episode.text).files != record.answer.files:
        yield "other answer", "the files at its end are not those that were graded"
