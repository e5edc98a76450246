"""Whole episodes: how they end, that a script gets the same verdict as direct grading, and that they can be resumed."""

import io
import json
from types import SimpleNamespace

import pytest

from rtl_core.config.episode import Bounds
from rtl_core.episodes.by_hand import ByHand
from rtl_core.episodes.episode import Episode, Reply, to_messages
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.prompting.calls import Call
from rtl_grader.grading.stand_in import stand_in
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome
from tests.episodes.script import Script
from tests.nouns import a_rollout


def test_all_published_agentic_problems_open(agentic, executor):
    assert len(agentic) == 92
    for problem in agentic:
        episode = Episode(problem, executor)
        answer = episode.play(Script([("list", "{}")]))
        assert (episode.ended, answer.files) == ("no call", {})
        shown = episode.messages[3]["content"]
        assert all(f"{path}  (" in shown for path in {*problem.context, *problem.targets})
        told = json.dumps(episode.messages)
        assert not any(path in told for path in problem.harness)


def known_answer(problem, files):
    """A script that lists the files, reads the documents, writes these files, compiles and submits."""
    calls = [("list", {})]
    calls += [("read", {"path": path}) for path in problem.context if path.startswith("docs/")]
    calls += [("write", {"path": path, "content": text}) for path, text in files.items()]
    return Script(
        [(name, json.dumps(given)) for name, given in (*calls, ("compile", {}), ("submit", {}))]
    )


def both(problem, executor, grader, files):
    """(outcome, passed tests, tests) of a scripted episode that writes these files, and of the files themselves."""
    episode = Episode(problem, executor, Bounds(turns=len(problem.context) + len(files) + 10))
    answers = episode.play(known_answer(problem, files)), Answer(files=dict(files))
    return [
        (v.outcome, v.tests_passed, v.tests_total)
        for v in (grader.grade(problem, one) for one in answers)
    ]


def test_a_script_with_the_known_answer_passes(arbiter, executor, grader):
    episode, single = both(arbiter, executor, grader, arbiter.golden)
    assert episode == single
    assert episode[0] is Outcome.PASSED


@pytest.mark.parametrize("number", range(0, 92, 23))
def test_a_script_gets_the_same_verdict_as_direct_grading(agentic, executor, grader, number):
    problem = agentic[number]
    episode, single = both(problem, executor, grader, stand_in(problem))
    assert episode == single


@pytest.mark.parametrize(
    ("calls", "bounds", "ended"),
    [
        ([("list", "{}")] * 9, {"turns": 4}, "turns"),
        ([("list", "{}")], {}, "no call"),
        ([("nonsense", "{"), ("compile", "[]")], {}, "no call"),
        ([("write", '{"path": "verif/t.v", "content": "module t; reg a = 0; initial forever a = ~a; endmodule"}'),
          ("simulate", '{"bench": "verif/t.v", "files": []}')], {"seconds": 0.3}, "seconds"),
    ],
)  # fmt: skip
def test_how_an_episode_ends(arbiter, executor, calls, bounds, ended, tmp_path):
    episode = Episode(arbiter, executor, Bounds(**bounds))
    assert episode.play(Script(calls)).error == "no file that is asked for was written"
    assert episode.ended == ended == ended_in_history(episode, tmp_path)


def ended_in_history(episode, folder):
    """How it ended according to the view `episodes`."""
    history = History(folder / "h.duckdb")
    history.start_run(
        RunRecord(name="r", status="running", config={"episode": episode.bounds.model_dump()})
    )
    rollout = a_rollout(prompt_P=(), tokens_T=(), logprobs_T=(), text="")
    history.record_rollouts([rollout])
    messages = []
    for turn in episode.turns:
        messages += to_messages(rollout.key, len(messages), turn)
    history.record_messages(messages)
    return history.query("SELECT ended FROM episodes").column(0).to_pylist()[0]


class Talkative:
    def reply(self, messages, tools, most_tokens):
        calls = tuple(Call("list", "{}", str(number)) for number in range(3))
        return Reply("", calls, n_tokens=min(most_tokens, 60), cut=most_tokens < 60)


@pytest.mark.parametrize(("tokens", "ended"), [(130, "cut"), (120, "tokens")])
def test_tokens_and_calls_of_a_turn_are_limited(arbiter, executor, tmp_path, tokens, ended):
    episode = Episode(arbiter, executor, Bounds(tokens=tokens, calls=2))
    episode.play(Talkative())
    assert (episode.ended, episode.n_tokens) == (ended, tokens)
    assert ended_in_history(episode, tmp_path) == ended
    first = episode.turns[0].results
    assert [result.ok for result in first] == [True, True, False]
    assert "at most 2 calls" in first[2].text
    assert f"turn 1 of 30, 60 of {tokens} tokens" in episode.messages[5]["content"]
    assert (episode.turns[-1].results == ()) == (ended == "cut")


def test_an_episode_resumes_from_its_recorded_turns_with_the_same_result(arbiter, executor):
    fails = [
        ("write", '{"path": "verif/tb.v", "content": "module"}'),
        ("simulate", '{"bench": "verif/tb.v", "files": []}'),
    ]
    script = Script([*fails, *known_answer(arbiter, arbiter.golden).calls])
    whole = Episode(arbiter, executor)
    whole.play(script)
    assert whole.turns[1].results[0].used_s > 0
    for count in range(len(whole.turns)):
        resumed = Episode(arbiter, executor, turns=whole.turns[:count])
        assert resumed.tools.used_s == sum(
            result.used_s for turn in whole.turns[:count] for result in turn.results
        )
        assert resumed.messages == whole.messages[: len(resumed.messages)]
        fresh = []
        assert resumed.play(script, fresh.append).files == arbiter.golden
        assert len(fresh) == len(whole.turns) - count  # no turn twice
    ended = Episode(arbiter, executor, turns=whole.turns)
    assert (ended.ended, ended.answer.files) == ("submitted", arbiter.golden)


def test_a_failed_submission_gets_feedback_unless_it_is_the_last(arbiter, executor):
    target, judged, played = arbiter.targets[0], [], []

    def judge(answer):
        judged.append(len(played))  # in which turn
        return None if answer.files == arbiter.golden else "It does not compile:"

    wrong, right = (
        [("write", json.dumps({"path": target, "content": text})), ("submit", "{}")]
        for text in ("module", arbiter.golden[target])
    )
    script = Script([("submit", "{}"), *wrong, *wrong, *right])
    for attempts, asked_in, n_turns in ((4, [2, 4, 6], 7), (2, [2], 5), (1, [], 3)):
        judged, played = [], []
        whole = Episode(arbiter, executor, Bounds(attempts=attempts), judge=judge)
        whole.play(script, played.append)
        assert (whole.ended, len(whole.turns), judged) == ("submitted", n_turns, asked_in)
        assert "none of the files" in whole.turns[0].results[0].text  # nothing was submitted
        told = [turn.results[0] for turn in whole.turns[2::2]]
        assert [result.ok for result in told] == [False] * (len(told) - 1) + [True]
        assert all(
            one.text == "It does not compile:\nCorrect it, and submit again."
            for one in told[:-1]
        )
        if attempts > 1:
            assert f"1 of {attempts} submissions" in whole.messages[7]["content"]
        for count in range(n_turns + 1):
            judged, played = [], whole.turns[:count]
            resumed = Episode(
                arbiter, executor, Bounds(attempts=attempts), list(played), judge=judge
            )
            resumed.play(script, played.append)
            assert (resumed.messages, resumed.ended) == (whole.messages, "submitted")
            assert judged == [turn for turn in asked_in if turn >= count]  # none twice


def test_calls_are_ignored_without_tools(arbiter, executor):
    policy = SimpleNamespace(reply=lambda *_: Reply("module", (Call("submit", "{}", "c"),) * 2))
    bounds, opening = Bounds(tools=[], attempts=2), [{"role": "user", "content": "write"}]
    episode = Episode(
        arbiter, executor, bounds, judge=lambda answer: "It does not compile:", opening=opening
    )
    episode.play(policy)
    assert [[call for call, _ in turn.by_call] for turn in episode.turns] == [[None], []]


def test_a_person_has_the_same_tools(arbiter, executor, tmp_path):
    target = arbiter.targets[0]
    (tmp_path / "answer.sv").write_text(arbiter.golden[target])
    lines = [
        "help read", "list docs", "read path=docs/specification.md 1 3", f"write {target} @{tmp_path}/answer.sv",
        "write verif/tb.sv <<", "module tb;", "endmodule", ".", "replace verif/tb.sv endmodule 'initial $write(\"42\\n\"); endmodule'",
        "simulate verif/tb.sv files=verif/tb.sv", "nonsense 1", "read", "list a b c", "'", "submit",
    ]  # fmt: skip
    shown = io.StringIO()
    episode = Episode(arbiter, executor)
    assert (
        episode.play(ByHand(io.StringIO("\n".join(lines) + "\n"), shown)).files
        == arbiter.golden
    )
    told = shown.getvalue()
    for message in episode.messages[:-1]:
        if message["role"] != "assistant":
            assert message["content"].replace("\r", "\ufffd") in told
    said = (
        "vvp: done\n42",
        "there is no tool 'nonsense'",
        "path: Field required",
        "not a call: list takes under",
    )
    assert all(words in told for words in said)
    assert Episode(arbiter, executor).play(ByHand(io.StringIO(""), io.StringIO())).files == {}
