"""Evaluations by conversations, without Prefect: what is recorded, that a stopped one goes on, and a model that samples here."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

import rtl_core.tinymodels
from rtl_core.config import load_config
from rtl_core.config.protocol import evaluation_overrides, problems_override, protocol_file
from rtl_core.episodes.conversation import Conversation
from rtl_core.episodes.endpoint import Endpoint
from rtl_core.episodes.episode import Episode
from rtl_core.errors import BackendUnavailableError, MalformedAnswerError, PolicyError
from rtl_core.prompting.answer_to import answer_to, response_of
from rtl_core.prompting.calls import Call, ToolChat
from rtl_core.prompting.chat import Chat
from rtl_core.reporting.blocks import Source
from rtl_core.reporting.blocks import Table as ReportTable
from rtl_core.reporting.figures.episodes import blocks
from rtl_core.rollouts import batch as batches
from rtl_core.rollouts import evaluation, playing
from rtl_core.run.session import open_session
from tests.episodes.endpoint import EXAMPLE, Scripted, scripted_calls

TEMPLATE = "Qwen-Qwen2.5-7B-Instruct.jinja"


@pytest.fixture(scope="module")
def calls(cvdp):
    return scripted_calls(cvdp)


def config_for(cvdp, folder, *more):
    file = protocol_file("cvdp")
    overrides = [
        problems_override([str(cvdp / EXAMPLE)]), f'run.history="{folder}/h.duckdb"', f'run.directory="{folder}"',
        "evaluation.agentic=true", *more,
    ]  # fmt: skip
    return load_config(file, evaluation_overrides(file, overrides, 2, "agents"))


async def play(config, stop_after=None):
    """Both evaluations; the table as text, and the session's history. `stop_after` so many requests the process "dies"."""
    async with open_session(config, with_policy=config.evaluation.endpoint is None) as session:
        async with playing.players(session) as players:
            for plan, player in players:
                held = batches.open_batch(session, evaluation.evaluation_batch(session, plan))
                for problem_id in held.problem_ids:
                    if player.policy is None:
                        await batches.sample(session, held, problem_id)
                    else:
                        await playing.play(session, held, problem_id, player)
                    await batches.grade(session, held, problem_id)
                await evaluation.record(session, held, plan)
        return playing.table(session, plan), session.history


@pytest.mark.slow
def test_answers_and_every_message_are_recorded_and_what_is_recorded_is_not_asked_again(cvdp, calls, tmp_path):
    with Scripted(calls) as server:
        config = config_for(cvdp, tmp_path, 'tinker.student="m"', f'evaluation.endpoint="{server.url}"')
        server.dies_after = 9  # in the middle of both episodes
        with pytest.raises(PolicyError, match="401"):
            asyncio.run(play(config))
        server.dies_after = None
        before = len(server.asked)
        table, history = asyncio.run(play(config))
        assert len(server.asked) - before == 2 * 8 - 9  # no turn twice
        rows = list(zip(*(map(str, column.cells) for column in table.columns), strict=True))
        assert [(row[0], *row[3:]) for row in rows] == [
            ("single-shot", "10", "1.0"), ("episodes of up to 30 turns", "70", "7.0"), ("single-shot, any of 2", "20", "2"),
        ]  # fmt: skip
        assert [row[2][:3] for row in rows] == ["0.0", "100", "0.0"]
    keys = history.query("SELECT rollout FROM verdicts WHERE outcome = 'passed' ORDER BY 1").column(0).to_pylist()
    assert len(keys) == 2
    for key in keys:
        messages = history.messages(key)
        assert [m.who for m in messages] == ["model", "tool"] * 7
        assert [m.position for m in messages] == list(range(14))
        assert [m.ok for m in messages if m.who == "tool"] == [True, True, False, True, False, True, True]
        assert (messages[2].thought, messages[2].n_tokens) == ("thought 1", 10)
    found = history.query("SELECT turns, calls, failed_calls, tokens, ended, passed FROM episodes ORDER BY rollout")
    assert found.to_pylist() == 2 * [
        {"turns": 7, "calls": 7, "failed_calls": 2, "tokens": 70, "ended": "submitted", "passed": True}
    ]
    (shown,) = (one for one in blocks.blocks(Source(history, "agents")) if isinstance(one, ReportTable))
    assert [row[1:] for row in shown.rows] == [list(row) for row in rows]  # the report's table is the terminal's
    assert table.caption in shown.caption


def test_the_text_of_an_answer_holds_its_files(arbiter):
    for files in (arbiter.golden, {arbiter.targets[0]: "`module` \\n {nonsense}\n```\n"}):
        assert answer_to(arbiter, response_of(files)).files == files
    assert not answer_to(arbiter, response_of({})).files


@pytest.fixture(scope="module")
def knows_tools(data, tmp_path_factory):
    """The folder of the tiny student, with a published chat template that knows tools and room for what that renders."""
    folder = tmp_path_factory.mktemp("models") / "student"
    shutil.copytree(Path(rtl_core.tinymodels.__file__).parent / "student", folder)
    shutil.copy(data / "chat-templates" / TEMPLATE, folder / "chat_template.jinja")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 16384}))
    return folder


def chat_of(folder):
    from transformers import AutoTokenizer

    return Chat(AutoTokenizer.from_pretrained(folder))


@pytest.mark.slow
def test_a_model_that_samples_here_is_evaluated_in_episodes(cvdp, knows_tools, tmp_path):
    config = config_for(
        cvdp, tmp_path, 'tinker.student="student"', 'tinker.base_url="local"', "evaluation.max_tokens=24",
        f'tinker.local_models={{"student" = "{knows_tools}"}}',
    )  # fmt: skip
    _, history = asyncio.run(play(config))
    rows = history.query("SELECT rollout FROM rollouts WHERE evaluation LIKE '%turns%'").column(0).to_pylist()
    assert len(rows) == 2
    for key in rows:
        said = history.messages(key)[0]
        assert said.n_tokens == len(said.tokens_T) == len(said.logprobs_T) > 0


def test_the_prompt_of_each_turn_is_the_one_before_and_what_was_sampled_and_rendered(arbiter, executor, knows_tools):
    chat = chat_of(knows_tools)
    prompts = []

    def sample(prompt_P, most_tokens):
        """A model that writes calls, in tokens of one letter each as no tokenizer would choose them."""
        turn = len(prompts)
        prompts.append(list(prompt_P))
        if turn == 3:
            return chat.tokenizer.encode("I give up.", add_special_tokens=False), [0.0] * 4
        arguments = json.dumps({"path": "docs/specification.md", "last": turn})
        call = f'<tool_call>\n{{"name": "read", "arguments": {arguments}}}\n</tool_call>'
        letters = [token for letter in call for token in chat.tokenizer.encode(letter, add_special_tokens=False)]
        tokens = [*letters, chat.stop[0]]
        return tokens, [-0.5] * len(tokens)

    episode = Episode(arbiter, executor)
    episode.play(Conversation(chat, sample))
    assert episode.ended == "cut"
    tools = ToolChat(chat, episode.tools.definitions())
    expected = tools.first(episode.messages[:2])
    for number, turn in enumerate(episode.turns):
        assert prompts[number] == expected
        if number < 3:
            told = [message["content"] for message in episode.messages if message["role"] == "tool"][number]
            expected = [*expected, *turn.reply.tokens_T, *tools.after(turn.reply.calls, [told])]
    resumed = Episode(arbiter, executor, turns=episode.turns[:2])
    again = list(prompts[:2])
    seen, prompts = prompts, again
    resumed.play(Conversation(chat, sample))
    assert prompts[2:] == seen[2:]  # the same tokens as before the death
    full = Conversation(chat, sample, context=len(seen[0]))
    assert full.reply(episode.messages[:2], episode.tools.definitions(), 100).cut


def test_what_an_endpoint_can_do_wrong(calls):
    said = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    later = [*said, {"role": "assistant", "content": "a"}]
    with Scripted(calls) as server:
        endpoint = Endpoint(server.url, "m", retry_s=0.01)
        server.status = [(503, b"busy"), (429, b"slow down")]
        assert endpoint.reply(said).n_tokens == 10
        server.status = [(500, b"broken")] * 6
        with pytest.raises(BackendUnavailableError, match="does not answer: 500: broken"):
            endpoint.reply(said)
        server.status = [(401, b"no key")]
        with pytest.raises(PolicyError, match=r"refuses the request \(401\): no key"):
            endpoint.reply(said)
        for body in (b"<html>", {"choices": []}, {"choices": [{"message": {"tool_calls": [{}]}}]}, []):
            server.status = [(200, body)]
            with pytest.raises(MalformedAnswerError, match="something else than a chat completion"):
                endpoint.reply(said)
        long = (400, b"This model's maximum context length is 4096 tokens")
        server.status = [long]
        assert endpoint.reply(later).cut
        server.status = [long]
        with pytest.raises(PolicyError, match="maximum context length"):
            endpoint.reply(said)
    with pytest.raises(BackendUnavailableError):
        Endpoint("http://127.0.0.1:9/v1", "m", retry_s=0.01).reply(said)


def test_calls_of_an_endpoint_are_what_it_wrote(calls):
    with Scripted([("read", '{"path":')]) as server:
        reply = Endpoint(server.url, "m").reply([{"role": "user", "content": "u"}], [{"type": "function"}], 5)
        assert reply.calls == (Call("read", '{"path":', "c0"),)
        assert server.asked[0]["max_tokens"] == 5
