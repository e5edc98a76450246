"""Ten published chat templates: what the prompt opens, what ends a turn, and answers read right whatever the model thinks before them.

`python -m benchmarks.chat_templates` prints all of it as a table.
"""

import copy
import re
from functools import cache
from typing import Any

import pytest

from benchmarks.chat_templates import (
    BLOCK,
    DRAFT,
    FIRST,
    MODELS,
    cases,
    main,
    tokenizer_of,
)
from rtl_core.backend.base import check_same_tokens
from rtl_core.errors import ConfigError, PolicyError, RtlDistillError
from rtl_core.problems.starter import starter_problems
from rtl_core.prompting.budget import build_prompt
from rtl_core.prompting.chat import Chat, decoded
from rtl_core.prompting.extraction import extract_answer
from rtl_core.prompting.hints import after_verdict, hinted
from rtl_core.types.verdict import Outcome
from tests.nouns import a_verdict

SETTINGS = [(model, thinking) for model in MODELS for thinking, ending in model.prompts.items() if ending is not None]
IDS = [f"{model.file}-{thinking}" for model, thinking in SETTINGS]
PROBLEM = starter_problems("train", 1, 0)[0]
all_settings = pytest.mark.parametrize(("model", "thinking"), SETTINGS, ids=IDS)


@pytest.fixture(scope="session")
def tokenizers(data):
    return cache(lambda model: tokenizer_of(model, data / "chat-templates"))


def test_every_template_that_is_there_is_tested(data):
    assert sorted(file.stem for file in (data / "chat-templates").glob("*.jinja")) == sorted(m.file for m in MODELS)


@all_settings
def test_it_is_known_how_the_prompt_ends_and_what_ends_a_turn(tokenizers, model, thinking):
    chat = Chat(tokenizers(model), thinking=thinking)
    prompt = build_prompt(PROBLEM, chat, "exact", 8192)
    ending = model.prompts[thinking]
    text = decoded(chat.tokenizer, prompt.tokens_P)
    assert text.endswith(ending)
    assert all(message["content"].strip() in text for message in prompt.messages)
    opened = ending if model.channels or re.search(r"<think>\s*\Z", ending) else ""
    assert chat.opening(prompt.tokens_P) == opened.removeprefix("<｜Assistant｜>")
    assert tuple(decoded(chat.tokenizer, [end]) for end in chat.stop) == model.end
    assert chat.thinks == (model.thinks if thinking is None else thinking)
    assert ("thinks" if chat.thinks else "does not think") in chat.in_words()


@all_settings
def test_a_golden_turn_is_the_templates_own_and_finishes_its_thought(tokenizers, model, thinking):
    chat = Chat(tokenizers(model), thinking=thinking)
    asked = [{"role": "user", "content": "Write it."}]
    prompt_P, turn_T = chat.encode(asked), chat.tokens_of(BLOCK)
    assert turn_T[-1] == chat.stop[0]
    text = chat.opening(prompt_P) + decoded(chat.tokenizer, turn_T[:-1])
    assert extract_answer(text, ["rtl/first.sv"]).files == {"rtl/first.sv": FIRST}
    assert text.count("<think>") == text.count("</think>")
    whole = chat.tokenizer.apply_chat_template(
        [*asked, {"role": "assistant", "content": BLOCK, "reasoning_content": " "}],
        chat_template=chat._template, return_dict=False, tokenize=False, **chat._settings,
    )  # fmt: skip
    if not model.channels and not model.file.startswith("NVIDIA"):  # those two render a thought of white space, too
        assert re.sub(r"\s", "", whole) == re.sub(r"\s", "", decoded(chat.tokenizer, [*prompt_P, *turn_T]))


@all_settings
def test_a_hint_shows_the_answer_without_its_thought(tokenizers, model, thinking):
    chat = Chat(tokenizers(model), thinking=thinking)
    first = build_prompt(PROBLEM, chat, "exact", 8192)
    opening = chat.opening(first.tokens_P)
    said = FIRST.replace("endmodule", "  // not a </think> at all\nendmodule")
    finished = next(cases(chat, opening)).completion.replace(FIRST, said)
    failed = a_verdict(Outcome.COMPILE_FAILED, "no semicolon")
    prompt_P = hinted(chat, after_verdict(first.messages, opening + finished, failed, 500), 8192)
    text = decoded(chat.tokenizer, prompt_P)
    assert "no semicolon" in text
    assert "A wire? First a draft" not in text
    assert DRAFT not in text
    if not model.file.startswith("deepseek"):  # its template takes whatever stands behind the tag for the answer
        assert said.strip() in text
    assert chat.opening(prompt_P) == opening
    # A turn that ended within its thoughts has no answer to show.
    unfinished = opening + list(cases(chat, opening))[1].completion
    empty_P = hinted(chat, after_verdict(first.messages, unfinished, failed, 500), 8192)
    assert FIRST not in decoded(chat.tokenizer, empty_P)
    # Nor can a model stop its run by what it writes.
    marks = f"<|start|>assistant<|channel|>final<|message|>{BLOCK}<|channel|>final<|message|>" * 2
    hinted(chat, after_verdict(first.messages, marks, failed, 500), 8192)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.file)
def test_what_a_template_cannot_do_is_refused_with_what_to_do(tokenizers, model):
    for thinking, ending in model.prompts.items():
        if ending is None:
            why = "does not support thinking" if thinking else "always thinks"
            with pytest.raises(ConfigError, match=rf"prompting\.thinking: .*x/y {why}") as refused:
                Chat(tokenizers(model), thinking=thinking, model="x/y")
            assert ("reasoning_effort" in (refused.value.hint or "")) == model.channels
    if not model.channels:
        with pytest.raises(ConfigError, match=r"prompting\.reasoning_effort: .*x/y does not support effort 'low'"):
            Chat(tokenizers(model), reasoning_effort="low", model="x/y")


def test_an_effort_and_a_fixed_date_reach_the_prompt(tokenizers):
    (gpt_oss,) = (model for model in MODELS if model.channels)
    asked = [{"role": "user", "content": "Write it."}]

    def prompt(**settings):
        return decoded(tokenizers(gpt_oss), Chat(tokenizers(gpt_oss), **settings).encode(asked))

    for effort in ("low", "medium", "high"):
        assert f"Reasoning: {effort}\n" in prompt(reasoning_effort=effort)
        assert "Current date: 2026-01-01\n" in prompt(reasoning_effort=effort)
    assert prompt() == prompt(reasoning_effort="medium")
    with pytest.raises(ConfigError, match="does not support effort 'hihg'"):
        prompt(reasoning_effort="hihg")


def test_no_token_that_stands_within_a_turn_ends_it(tokenizers):
    (gpt_oss,) = (model for model in MODELS if model.channels)
    other = copy.copy(tokenizers(gpt_oss))
    other.eos_token = "<|end|>"  # so in some conversions: it ends each message, the thought's, too
    assert tuple(decoded(other, [end]) for end in Chat(other).stop) == gpt_oss.end


def test_a_text_that_never_reaches_the_final_channel_is_no_answer():
    for text in (
        f"<|start|>assistant<|channel|>analysis<|message|>{BLOCK}<|end|>",
        f"<|start|>assistant<|channel|>commentary<|message|>{BLOCK}",
        f"<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{BLOCK}",
        f"<|start|>assistant{BLOCK}",
        f"<|channel|>analysis<|message|>The channel is <|channel|>final<|message|>{BLOCK}",
    ):
        assert "thoughts" in (extract_answer(text, ["rtl/first.sv"]).error or ""), text


def test_teacher_and_student_are_compared_with_the_settings(tokenizers):
    qwen35, qwen3 = (Chat(tokenizers(model), thinking=False) for model in MODELS[:2])
    asked = [[{"role": "user", "content": "Write it."}]]
    check_same_tokens(qwen35, qwen3, asked)
    thinking = (Chat(tokenizers(model), thinking=True) for model in MODELS[:2])
    with pytest.raises(PolicyError, match="chat templates differ"):
        check_same_tokens(*thinking, asked)


def test_a_template_that_takes_no_such_messages_or_none_at_all_is_told(tokenizers):
    plain = tokenizer_of_template("{{ raise_exception('System role not supported') }}", tokenizers)
    with pytest.raises(PolicyError, match="refuses the prompt: System role not supported"):
        Chat(plain).encode([{"role": "system", "content": "x"}])
    with pytest.raises(RtlDistillError, match="no chat template"):
        Chat(tokenizer_of_template(None, tokenizers))


def tokenizer_of_template(template: str | None, tokenizers: Any) -> Any:
    other = copy.copy(tokenizers(MODELS[0]))
    other.chat_template = template
    return other


def test_answers_are_read_right(data, capsys, monkeypatch):
    """Each case of each template and setting is a cell of the table."""
    monkeypatch.setenv("RTL_DISTILL_DATA", str(data))
    assert main() == 0, capsys.readouterr().out
