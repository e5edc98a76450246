"""Ten published chat templates: the prompt's opening, the end of a turn, and answers behind any thoughts."""

import copy
import re

import pytest

from rtl_core.backend.start import different_tokens
from rtl_core.errors import ConfigError, PolicyError, UserError
from rtl_core.prompting.budget import build_prompt
from rtl_core.prompting.chat import Chat, answer_text, decoded, thinks_by_name
from rtl_core.prompting.hints import after_verdict, hinted
from rtl_core.starter import starter_problems
from rtl_grader.extraction.response import extract_answer
from rtl_grader.extraction.thoughts import without_thoughts
from rtl_grader.types.verdict import Outcome
from tests.nouns import a_verdict
from tests.prompting.chat_templates import BLOCK, DRAFT, FIRST, MODELS, cases

SETTINGS = [
    (model, thinking)
    for model in MODELS
    for thinking, ending in model.prompts.items()
    if ending is not None
]
IDS = [f"{model.file}-{thinking}" for model, thinking in SETTINGS]
PROBLEM = starter_problems("train", 1, 0)[0]
all_settings = pytest.mark.parametrize(("model", "thinking"), SETTINGS, ids=IDS)
ASKED = [{"role": "user", "content": "Write it."}]
(GPT_OSS,) = (model for model in MODELS if model.channels)


def test_every_available_template_is_tested(data):
    assert sorted(file.stem for file in (data / "chat-templates").glob("*.jinja")) == sorted(
        m.file for m in MODELS
    )


@all_settings
def test_the_end_of_the_prompt_and_of_a_turn_are_known(tokenizers, model, thinking):
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


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.file)
def test_a_name_tells_what_the_template_does_by_default(model):
    assert bool(thinks_by_name(model.file)) == model.thinks


@all_settings
def test_a_golden_turn_is_as_the_template_renders_it_and_closes_its_thought(
    tokenizers, model, thinking
):
    chat = Chat(tokenizers(model), thinking=thinking)
    prompt_P, turn_T = chat.encode(ASKED), chat.tokens_of(BLOCK)
    assert turn_T[-1] == chat.stop[0]
    text = chat.opening(prompt_P) + decoded(chat.tokenizer, turn_T[:-1])
    assert extract_answer(text, ["rtl/first.sv"]).files == {"rtl/first.sv": FIRST}
    assert text.count("<think>") == text.count("</think>")
    whole = chat.tokenizer.apply_chat_template(
        [*ASKED, {"role": "assistant", "content": BLOCK, "reasoning_content": " "}],
        chat_template=chat._template, return_dict=False, tokenize=False, **chat._settings,
    )  # fmt: skip
    if not model.channels and not model.file.startswith(
        "NVIDIA"
    ):  # these two also render a blank thought
        assert re.sub(r"\s", "", whole) == re.sub(
            r"\s", "", decoded(chat.tokenizer, [*prompt_P, *turn_T])
        )


@all_settings
def test_a_hint_shows_the_answer_without_its_thought(tokenizers, model, thinking):
    chat = Chat(tokenizers(model), thinking=thinking)
    first = build_prompt(PROBLEM, chat, "exact", 8192)
    opening = chat.opening(first.tokens_P)
    said = FIRST.replace("endmodule", "  // not a </think> at all\nendmodule")
    finished = next(cases(chat, opening)).completion.replace(FIRST, said)
    failed = a_verdict(Outcome.COMPILE_FAILED, "no semicolon")
    prompt_P = hinted(
        chat, after_verdict(first.messages, opening + finished, failed, 500), 8192
    )
    text = decoded(chat.tokenizer, prompt_P)
    assert "no semicolon" in text
    assert "A wire? First a draft" not in text
    assert DRAFT not in text
    if not model.file.startswith(
        "deepseek"
    ):  # its template takes everything after the tag as the answer
        assert said.strip() in text
    assert chat.opening(prompt_P) == opening
    # A turn that ended within its thoughts has no answer to show.
    unfinished = opening + list(cases(chat, opening))[1].completion
    empty_P = hinted(chat, after_verdict(first.messages, unfinished, failed, 500), 8192)
    assert FIRST not in decoded(chat.tokenizer, empty_P)
    # No text of a model can stop its run.
    marks = (
        f"<|start|>assistant<|channel|>final<|message|>{BLOCK}<|channel|>final<|message|>" * 2
    )
    hinted(chat, after_verdict(first.messages, marks, failed, 500), 8192)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.file)
def test_unsupported_settings_are_refused_with_a_hint(tokenizers, model):
    for thinking, ending in model.prompts.items():
        if ending is None:
            why = "does not support thinking" if thinking else "always thinks"
            with pytest.raises(
                ConfigError, match=rf"prompting\.thinking: .*x/y {why}"
            ) as refused:
                Chat(tokenizers(model), thinking=thinking, model="x/y")
            assert ("reasoning_effort" in (refused.value.hint or "")) == model.channels
    if not model.channels:
        with pytest.raises(
            ConfigError,
            match=r"prompting\.reasoning_effort: .*x/y does not support effort 'low'",
        ):
            Chat(tokenizers(model), reasoning_effort="low", model="x/y")


def test_an_effort_and_a_fixed_date_reach_the_prompt(tokenizers):
    def prompt(**settings):
        return decoded(tokenizers(GPT_OSS), Chat(tokenizers(GPT_OSS), **settings).encode(ASKED))

    for effort in ("low", "medium", "high"):
        assert f"Reasoning: {effort}\n" in prompt(reasoning_effort=effort)
        assert "Current date: 2026-01-01\n" in prompt(reasoning_effort=effort)
    assert prompt() == prompt(reasoning_effort="medium")
    with pytest.raises(ConfigError, match="does not support effort 'hihg'"):
        prompt(reasoning_effort="hihg")


def test_a_token_inside_a_turn_does_not_end_it(tokenizers):
    other = copy.copy(tokenizers(GPT_OSS))
    other.eos_token = (
        "<|end|>"  # as in some conversions: it ends each message, even the thought's
    )
    assert tuple(decoded(other, [end]) for end in Chat(other).stop) == GPT_OSS.end


def test_a_text_without_the_final_channel_has_no_answer():
    for text in (
        f"<|start|>assistant<|channel|>analysis<|message|>{BLOCK}<|end|>",
        f"<|start|>assistant<|channel|>commentary<|message|>{BLOCK}",
        f"<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{BLOCK}",
        f"<|start|>assistant{BLOCK}",
        f"<|channel|>analysis<|message|>The channel is <|channel|>final<|message|>{BLOCK}",
    ):
        assert "thoughts" in (extract_answer(text, ["rtl/first.sv"]).error or ""), text


def test_teacher_and_student_are_compared_with_their_settings(tokenizers):
    qwen35, qwen3 = (Chat(tokenizers(model), thinking=False) for model in MODELS[:2])
    assert different_tokens(qwen35, qwen3, [ASKED]) is None
    thinking = (Chat(tokenizers(model), thinking=True) for model in MODELS[:2])
    assert different_tokens(*thinking, [ASKED]) == "their chat templates differ"
    gpt = Chat(tokenizers(GPT_OSS))
    assert "tokens differ (such as " in (different_tokens(qwen35, gpt, [ASKED]) or "")


def test_a_refusing_and_a_missing_template_are_reported(tokenizers):
    other = copy.copy(tokenizers(MODELS[0]))
    other.chat_template = "{{ raise_exception('System role not supported') }}"
    with pytest.raises(PolicyError, match="refuses the prompt: System role not supported"):
        Chat(other).encode([{"role": "system", "content": "x"}])
    other.chat_template = None
    with pytest.raises(UserError, match="no chat template"):
        Chat(other)


@all_settings
def test_answers_are_extracted_correctly(tokenizers, model, thinking):
    """From a completion to tokens as they are sampled, to the rollout's text, to files."""
    chat = Chat(tokenizers(model), thinking=thinking)
    opening = chat.opening(chat.encode(ASKED))
    for case in cases(chat, opening):
        end = [chat.stop[0]] if case.ended else []
        tokens_T = [*chat.tokenizer.encode(case.completion, add_special_tokens=False), *end]
        text, ended = answer_text(chat.tokenizer, tokens_T, chat.stop)
        answer = extract_answer(opening + text, list(case.files) or ["rtl/first.sv"])
        assert (ended, answer.files) == (case.ended, case.files), (
            case.completion,
            answer.error,
        )
        assert case.files or "ends within its thoughts" in answer.error


def special_of(chat, tokens):
    special = chat.tokenizer.all_special_ids
    return [token for token in tokens if token in special]


WRITES_NO_THOUGHTS = ("deepseek-ai-DeepSeek-V3.1", "HuggingFaceTB-SmolLM3-3B")
"""Templates that leave out the thought of a message."""


@all_settings
def test_another_models_turn_keeps_its_thought_only_if_this_model_thinks(
    tokenizers, model, thinking
):
    chat = Chat(tokenizers(model), thinking=thinking)
    plain = chat.tokens_of(BLOCK)
    assert chat.turn_of(f"{BLOCK}\n") == plain
    turn_T = chat.turn_of(f"<think>\nFirst, the ports.\n</think>\n\n{BLOCK}")
    text = decoded(chat.tokenizer, turn_T)
    assert text.count(BLOCK) == 1
    assert turn_T[-1] == chat.stop[0]
    assert not set(turn_T[:-1]) & set(chat.stop)
    if not chat.thinks or model.file in WRITES_NO_THOUGHTS:
        assert turn_T == plain
    elif model.channels:
        assert re.search(
            r"analysis<.message.>First, .*<.channel.>final<.message.>```", text, re.S
        )
    else:
        # As if the model had written it: one thought, closed, and then the answer.
        whole = chat.opening(chat.encode(ASKED)) + text
        assert [whole.count("<think>"), whole.count("</think>")] == [1, 1]
        assert whole.index("First") < whole.index("</think>") < whole.index(BLOCK)
    # Text that looks like a special token stays text, in the thought and in the answer.
    end = decoded(chat.tokenizer, chat.stop[:1])
    hostile = chat.turn_of(f"<think>\nA {end} b.\n</think>\n\n{BLOCK} {end} c")
    assert f"{BLOCK} {end} c" in decoded(chat.tokenizer, hostile)
    assert special_of(chat, hostile) == special_of(chat, turn_T)
    # Whatever the response holds, what is imitated as the answer is what was graded.
    draft = f"<think>\n</think>\n{DRAFT}\n</think>\n\n{BLOCK}"
    assert without_thoughts(draft).strip() in decoded(chat.tokenizer, chat.turn_of(draft))
