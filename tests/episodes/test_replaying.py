"""The episodes of verdict records are played again: what their calls gave must follow from them."""

import json

import pytest

from rtl_core.cards.replaying import replay_episodes
from rtl_core.config.episode import Bounds
from rtl_core.episodes.episode import Episode, to_records
from rtl_core.rollouts.verdict_records import with_episode
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.grading.answer_file import AnswerLine
from rtl_grader.grading.verdict_record import VerdictRecord
from rtl_grader.records.grade_file import graded_record, key_of
from rtl_grader.records.reproduce import CheckedRecord
from tests.episodes.script import Script


@pytest.fixture(scope="module")
def record(arbiter, calls, executor, grader):
    """The record of an episode that looks, writes, compiles with an error, corrects it and submits."""
    game = Episode(arbiter, executor, Bounds())
    game.play(Script(calls))
    line = AnswerLine(0, arbiter, 0, answer_to(arbiter, game.text))
    graded = graded_record(grader, line, key_of(grader, line))
    return json.loads(json.dumps(with_episode(graded, game.bounds, to_records(game.turns))))


def played(record, problem):
    claim = CheckedRecord(1, record, VerdictRecord.model_validate(record))
    replay_episodes([claim], [problem])
    return claim.differences


def test_an_episode_is_played_again(record, arbiter, calls):
    told = [one["call"]["name"] for one in record["episode"]["messages"] if one["call"]]
    assert told == [name for name, _ in calls]
    assert record["passed"]
    assert played(record, arbiter) == []


def altered(record, place, **change):
    messages = list(record["episode"]["messages"])
    messages[place] = {**messages[place], **change}
    return {**record, "episode": {**record["episode"], "messages": messages}}


@pytest.mark.slow
def test_what_does_not_follow_from_the_calls_is_named(record, arbiter):
    messages = record["episode"]["messages"]
    results = [place for place, one in enumerate(messages) if one["call"]]
    (compiles, *_) = (
        place for place in results if messages[place]["call"]["name"] == "compile"
    )
    kinds = [kind for kind, _ in played(altered(record, compiles, text="all is well"), arbiter)]
    assert kinds == ["other result"]
    writes = [place for place in results if messages[place]["call"]["name"] == "write"]
    call = messages[writes[-1]]["call"]
    arguments = json.dumps(
        {**json.loads(call["arguments"]), "content": "module other; endmodule"}
    )
    differences = played(
        altered(record, writes[-1], call={**call, "arguments": arguments}), arbiter
    )
    assert (
        "other answer",
        "the files at its end are not those that were graded",
    ) in differences
    assert [k for k, _ in played(altered(record, 1, call={"name": "read"}), arbiter)] == [
        "malformed"
    ]
    assert played({**record, "episode": {}}, arbiter)[0][0] == "malformed"
