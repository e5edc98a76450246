"""Policies of an episode: a model that samples tokens, and an endpoint."""

import json

import pytest
from transformers import AutoTokenizer

from rtl_core.episodes.conversation import Conversation
from rtl_core.episodes.endpoint import Endpoint, check_reachable
from rtl_core.episodes.episode import Episode
from rtl_core.episodes.tools import definitions
from rtl_core.errors import BackendUnavailableError, MalformedAnswerError, PolicyError
from rtl_core.prompting.calls import Call, ToolChat
from rtl_core.prompting.chat import Chat
from rtl_grader.extraction.answer_to import answer_to, response_of
from tests.episodes.endpoint import scripted


def test_the_text_of_an_answer_contains_its_files(arbiter):
    for files in (arbiter.golden, {arbiter.targets[0]: "`module` \\n {nonsense}\n```\n"}):
        assert answer_to(arbiter, response_of(files)).files == files
    assert not answer_to(arbiter, response_of({})).files


def test_each_turns_prompt_is_the_previous_one_with_the_sampled_and_rendered_tokens(
    arbiter, executor, knows_tools
):
    chat = Chat(AutoTokenizer.from_pretrained(knows_tools))
    prompts = []

    def sample(prompt_P, most_tokens):
        """A model that writes calls in tokens of one letter each, which no tokenizer would choose."""
        turn = len(prompts)
        prompts.append(list(prompt_P))
        if turn == 3:
            return chat.tokenizer.encode("I give up.", add_special_tokens=False), [0.0] * 4, 9
        arguments = json.dumps({"path": "docs/specification.md", "last": turn})
        call = f'<tool_call>\n{{"name": "read", "arguments": {arguments}}}\n</tool_call>'
        letters = [
            token
            for letter in call
            for token in chat.tokenizer.encode(letter, add_special_tokens=False)
        ]
        tokens = [*letters, chat.stop[0]]
        return tokens, [-0.5] * len(tokens), turn

    episode = Episode(arbiter, executor)
    episode.play(Conversation(chat, sample))
    assert episode.ended == "cut"
    assert [turn.reply.n_cached for turn in episode.turns] == [0, 1, 2, 9]
    tools = ToolChat(chat, definitions(episode.tools.offered))
    expected = tools.first(episode.messages[:2])
    for number, turn in enumerate(episode.turns):
        assert prompts[number] == expected
        if number < 3:
            told = [
                message["content"] for message in episode.messages if message["role"] == "tool"
            ][number]
            expected = [*expected, *turn.reply.tokens_T, *tools.after(turn.reply.calls, [told])]
    resumed = Episode(arbiter, executor, turns=episode.turns[:2])
    seen, prompts = prompts, prompts[:2]
    resumed.play(Conversation(chat, sample))
    assert prompts[2:] == seen[2:]  # the same tokens as in the first run
    full = Conversation(chat, sample, context=len(seen[0]))
    assert full.reply(episode.messages[:2], definitions(episode.tools.offered), 100).cut


def test_errors_of_an_endpoint_are_retried_or_reported(calls):
    said = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    with scripted(calls) as server:
        endpoint = Endpoint(server.url, "m", retry_s=0.01)
        server.status = [(503, b"busy"), (429, b"slow down")]
        assert endpoint.reply(said).n_tokens == 10
        server.status = [(500, b"broken")] * 6
        with pytest.raises(BackendUnavailableError, match="does not answer: 500: broken"):
            endpoint.reply(said)
        server.status = [(401, b"no key")]
        with pytest.raises(PolicyError, match=r"refuses the request \(401\): no key"):
            endpoint.reply(said)
        no_texts = [
            None,
            {"content": 7},
            {"content": [{"type": "text"}]},
            {"tool_calls": [{}]},
        ]
        server.status = [(200, b" <!DOCTYPE html><title>A page</title>")]
        with pytest.raises(
            PolicyError, match=r"\(200\).*A page\D*check its address, which usually ends in /v1"
        ):
            endpoint.reply(said)  # another try would get the same page
        for body in (
            b"no JSON",
            {"choices": []},
            [],
            *({"choices": [{"message": message}]} for message in no_texts),
        ):
            server.status = [(200, body)]
            with pytest.raises(
                MalformedAnswerError, match="something else than a chat completion"
            ):
                endpoint.reply(said)
    with pytest.raises(BackendUnavailableError):
        Endpoint("http://127.0.0.1:9/v1", "m", retry_s=0.01).reply(said)
    with pytest.raises(BackendUnavailableError, match="Invalid port"):
        check_reachable("http://127.0.0.1:80a0/v1")


def test_calls_of_an_endpoint_are_kept_as_written():
    with scripted([("read", '{"path":')]) as server:
        reply = Endpoint(server.url, "m").reply(
            [{"role": "user", "content": "u"}], [{"type": "function"}], 5
        )
        assert reply.calls == (Call("read", '{"path":', "c0"),)
        server.calls = [("read", {"path": "rtl"})]  # an object, as some servers give it
        reply = Endpoint(server.url, "m").reply(
            [{"role": "user", "content": "u"}], [{"type": "function"}], 5
        )
        assert reply.calls == (Call("read", '{"path": "rtl"}', "c0"),)
        assert server.asked[0]["max_tokens"] == 5
