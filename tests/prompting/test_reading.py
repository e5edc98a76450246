"""How teachers with other tokenizers and chat templates read a student's answers."""

import random
from itertools import pairwise

import pytest
from transformers import AutoTokenizer

from rtl_core.errors import PolicyError
from rtl_core.learning.spans import heard_T, one_to_one
from rtl_core.prompting.chat import Chat, decoded
from rtl_core.prompting.reading import Reader, agreement
from rtl_core.tinymodels import model_path
from rtl_core.tinymodels.tokenizer import training_texts
from rtl_grader.extraction.thoughts import thought_and_answer
from tests.prompting import other_tokenizers as other
from tests.prompting.chat_templates import BLOCK, MODELS

ASKED = [{"role": "user", "content": "Write a counter. Then say why."}]
ANSWERS = 2_000
BY_NAME = {model.file: model for model in MODELS}


@pytest.fixture(scope="module")
def tiny():
    return AutoTokenizer.from_pretrained(model_path("student"))


def sampled(reader: Reader, text: str, rng: random.Random, ended: bool = True) -> list[int]:
    tokens = other.as_sampled(rng, reader.student.tokenizer, text)
    return [*tokens, reader.student.stop[0]] if ended else tokens


def check_whole(reader: Reader, answers: int, seed: int) -> tuple[int, int]:
    """Read random answers and check that every span has equal bytes on both sides, that no token of text is in no span,
    and that they are in order. Returns the numbers of spans and of those with one token on both sides."""
    rng, texts, counts = random.Random(seed), training_texts()[1:600:2], [0, 0, 0]
    student, teacher = reader.student, reader.teacher
    for _ in range(answers):
        text, ended = other.random_answer(rng, texts), rng.random() < 0.8
        tokens_T = sampled(reader, text, rng, ended)
        read = reader.read(ASKED, student.encode(ASKED), tokens_T)
        if not text and not ended:
            assert not read.tokens_U
            continue
        own = decoded(student.tokenizer, tokens_T[: len(tokens_T) - ended])
        kept = own == decoded(teacher.tokenizer, teacher.tokens_of_text(own)) and "�" not in own
        if not read.tokens_U:
            assert not kept
            continue
        lead = teacher.tokens_of_frame(teacher.lead)
        assert list(read.prompt_P) == [*teacher.encode(ASKED), *lead]
        assert (read.tokens_U[-1] == teacher.stop[0]) == ended
        assert not set(read.tokens_U[: len(read.tokens_U) - ended]) & special(teacher)
        spans = read.spans_S4.tolist()
        for t, t_end, u, u_end in spans:
            if t_end == len(tokens_T) and ended:
                assert (t + 1, u + 1, u_end) == (t_end, u_end, len(read.tokens_U))
                continue
            ours, theirs = (
                decoded(chat.tokenizer, part).lstrip(" ")
                for chat, part in (
                    (student, tokens_T[t:t_end]),
                    (teacher, read.tokens_U[u:u_end]),
                )
            )
            assert ours == theirs
            assert "�" not in ours
        assert all(a[1] <= b[0] and a[3] <= b[2] for a, b in pairwise(spans))
        counts[0] += len(spans)
        counts[1] += one_to_one(read.spans_S4)
        counts[2] += kept
        if kept:
            assert heard_T(read.spans_S4, len(tokens_T)).all(), text
            assert spans[-1][3] == len(read.tokens_U)
    assert counts[2] > 0.7 * answers
    return counts[0], counts[1]


def special(chat: Chat) -> set[int]:
    added = chat.tokenizer.added_tokens_decoder
    return {number for number, token in added.items() if token.special}


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [other.byte_level, lambda: other.sentencepiece(False)], ids=["bytes", "unigrams"]
)
def test_random_answers_of_the_tiny_students_tokenizer_are_aligned_whole(tiny, make):
    reader = Reader(Chat(tiny), Chat(make()))
    spans, single = check_whole(reader, ANSWERS // 4, 1)
    assert 0.1 < single / spans < 0.9


@pytest.mark.slow
@pytest.mark.parametrize("pair", range(6))
def test_two_thousand_answers_are_aligned_and_none_is_lost(tiny, pair, tokenizers):
    unigrams, bpe = other.sentencepiece(False), other.byte_level()
    qwen, gpt = (
        tokenizers(BY_NAME[name])
        for name in ("Qwen-Qwen2.5-7B-Instruct", "openai-gpt-oss-120b")
    )
    pairs = [
        (tiny, bpe),
        (bpe, tiny),
        (tiny, unigrams),
        (unigrams, bpe),
        (tiny, qwen),
        (qwen, gpt),
    ]
    student, teacher = pairs[pair]
    check_whole(Reader(Chat(student), Chat(teacher)), ANSWERS, pair)


@pytest.mark.slow
def test_two_thousand_answers_between_the_tiny_tokenizer_and_that_of_smollm2(tiny):
    from rtl_core.pretrained import models_folder
    from rtl_core.pretrained.fetch import fetch_model

    fetch_model("SmolLM2-135M-Instruct", print)
    smollm2 = AutoTokenizer.from_pretrained(models_folder() / "SmolLM2-135M-Instruct")
    check_whole(Reader(Chat(tiny), Chat(smollm2)), ANSWERS, 0)
    check_whole(Reader(Chat(smollm2), Chat(tiny)), ANSWERS, 1)


def test_equal_tokenizers_give_one_span_for_each_token(tiny):
    reader, text = Reader(Chat(tiny), Chat(tiny)), training_texts()[1]
    tokens_T = [*reader.student.tokens_of_text(text), reader.student.stop[0]]
    read = reader.read(ASKED, reader.student.encode(ASKED), tokens_T)
    assert list(read.tokens_U) == tokens_T
    assert read.spans_S4.tolist() == [[t, t + 1, t, t + 1] for t in range(len(tokens_T))]


def test_what_a_teachers_tokenizer_changes_is_in_no_span(tiny):
    reader = Reader(Chat(tiny), Chat(other.normalising()))
    before, changed, after = "wire a;\n", "e\u0301", " = 1;\n"
    tokens_T = [
        token
        for text in (before, changed, after)
        for token in reader.student.tokens_of_text(text)
    ]
    read = reader.read(ASKED, reader.student.encode(ASKED), tokens_T)
    heard = heard_T(read.spans_S4, len(tokens_T))
    unheard = decoded(
        tiny, [token for token, is_heard in zip(tokens_T, heard, strict=True) if not is_heard]
    )
    assert "\u0301" in unheard
    assert len(unheard) <= len("e\u0301 =")
    # A space before the text, which the student did not write, leaves only the first piece out.
    reader = Reader(Chat(tiny), Chat(other.sentencepiece(True)))
    tokens_T = reader.student.tokens_of_text("module m(input a);\nendmodule\n")
    read = reader.read(ASKED, reader.student.encode(ASKED), tokens_T)
    assert not heard_T(read.spans_S4, len(tokens_T))[0]
    assert heard_T(read.spans_S4, len(tokens_T))[3:].all()
    # One that keeps neither case nor white space can be heard only where it does.
    reader = Reader(Chat(tiny), Chat(other.wordpiece()))
    measured = agreement(reader, [(ASKED, text) for text in training_texts()[1:64:2]])
    assert measured.unheard > 0.2
    assert f"{measured.unheard:.1%} of the tokens are in no span" in measured.in_words


def test_bytes_that_are_no_text_are_in_no_span(tiny):
    reader = Reader(Chat(tiny), Chat(other.byte_level()))
    broken = reader.student.tokens_of_text("🙂")[:-1]
    a, b = reader.student.tokens_of_text("a ;"), reader.student.tokens_of_text("b ;")
    tokens_T = [*a, *broken, *b]
    read = reader.read(ASKED, reader.student.encode(ASKED), tokens_T)
    heard = heard_T(read.spans_S4, len(tokens_T)).tolist()
    assert not any(heard[len(a) : len(a) + len(broken)])
    assert all(heard[: len(a)])
    assert heard[-1]


def test_a_cut_answer_has_no_end_and_an_empty_one_has_only_that(tiny):
    reader = Reader(Chat(tiny), Chat(other.byte_level()))
    prompt_P, end = reader.student.encode(ASKED), reader.student.stop[0]
    cut = reader.read(ASKED, prompt_P, reader.student.tokens_of_text("module m"))
    assert reader.teacher.stop[0] not in cut.tokens_U
    empty = reader.read(ASKED, prompt_P, [end])
    assert (list(empty.tokens_U), empty.spans_S4.tolist()) == (
        [reader.teacher.stop[0]],
        [[0, 1, 0, 1]],
    )
    assert not reader.read(ASKED, prompt_P, []).tokens_U
    small = Reader(Chat(tiny), Chat(other.byte_level()), context=len(empty.prompt_P) + 4)
    assert small.read(ASKED, prompt_P, [end]).tokens_U
    long_T = reader.student.tokens_of_text("module m " * 9)
    assert not small.read(ASKED, prompt_P, long_T).tokens_U


THOUGHT = "First a draft,\nthen the answer."


@pytest.mark.parametrize(
    "student", ["openai-gpt-oss-120b", "Qwen3.5-4B", "deepseek-ai-DeepSeek-V3.1"]
)
@pytest.mark.parametrize("teacher", ["openai-gpt-oss-120b", "Qwen3.5-4B", "Qwen-Qwen3-0.6B"])
@pytest.mark.parametrize("thoughts", [False, True])
def test_a_thinking_teacher_reads_answer_and_thought_in_its_own_format(
    tokenizers, student, teacher, thoughts
):
    ours, theirs = (tokenizers(BY_NAME[name]) for name in (student, teacher))
    reader = Reader(Chat(ours, thinking=True), Chat(theirs, thinking=True), thoughts=thoughts)
    before, between = reader.student.around_thought
    text = f"{before}{THOUGHT}{between}{BLOCK}"
    prompt_P = reader.student.encode(ASKED)
    tokens_T = [*ours.encode(text, add_special_tokens=False), reader.student.stop[0]]
    read = reader.read(ASKED, prompt_P, tokens_T)
    whole = decoded(theirs, [*read.prompt_P, *read.tokens_U])
    messages = [*ASKED, {"role": "assistant", "content": BLOCK, **dict.fromkeys(("reasoning_content", "thinking"), THOUGHT if thoughts else "")}]  # fmt: skip
    assert whole.count(BLOCK) == 1
    assert (THOUGHT in whole) == thoughts
    if thoughts:
        assert reader.teacher.apply(messages, tokenize=False).startswith(whole)
    heard = heard_T(read.spans_S4, len(tokens_T))
    text = decoded(ours, [t for t, is_heard in zip(tokens_T, heard, strict=True) if is_heard])
    end = decoded(ours, [reader.student.stop[0]])
    assert text == (THOUGHT if thoughts else "") + BLOCK + end
    # Cut within the thought: there is no answer.
    cut = ours.encode(f"{before}{THOUGHT}", add_special_tokens=False)
    read = reader.read(ASKED, prompt_P, cut)
    assert decoded(theirs, read.tokens_U) == (THOUGHT if thoughts else "")


def test_a_teacher_without_thoughts_cannot_read_them(tokenizers):
    gpt, qwen = (
        tokenizers(BY_NAME[name])
        for name in ("openai-gpt-oss-120b", "Qwen-Qwen2.5-7B-Instruct")
    )
    with pytest.raises(
        PolicyError, match=r"learning\.teacher_reads: .* no place for a thought"
    ):
        Reader(Chat(gpt), Chat(qwen), thoughts=True)


def test_a_teachers_answer_becomes_a_turn_of_the_student(tokenizers):
    gpt = tokenizers(BY_NAME["openai-gpt-oss-120b"])
    student = Chat(gpt)
    turn = student.turn_of(f"{BLOCK} and <|return|>")
    assert decoded(gpt, turn) == f"<|channel|>final<|message|>{BLOCK} and <|return|><|return|>"
    assert turn.count(student.stop[0]) == 1
    # What is imitated is what was graded, also of an answer in pieces.
    turn = student.turn_of(f"Here: <think>{THOUGHT}</think>{BLOCK}\n")
    assert decoded(gpt, turn) == f"<|channel|>final<|message|>Here: {BLOCK}<|return|>"
    assert student.turn_of(f"<think>{THOUGHT}") == []


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("plain", "plain"),
        ("", ""),
        ("<think>\na\n</think>\n\nb", "b"),
        ("<think>\na", None),
        ("a</think>b", "b"),
        (
            "<|start|>assistant<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
            "b",
        ),
        ("<|start|>assistant<|channel|>analysis<|message|>a", None),
        ("b <think>a</think> c", None),
        ("\n<think>a</think>b", "b"),
        ("\n<think>a\n", None),
        ("end<|channel|>", "end<|channel|>"),
        (
            "<|channel|>final<|message|>end<|end|><|start|>assistant<|channel|>final<|message|>end",
            "end",
        ),
    ],
)
def test_the_answer_is_found_behind_thoughts(text, answer):
    place = thought_and_answer(text)[1]
    assert (None if place is None else text[place.start : place.stop]) == answer


def test_an_answer_is_not_taken_for_its_copy_in_a_thought_or_in_a_tag():
    assert thought_and_answer("x<think>x</think>")[1] == (0, 1)
    text = "<|channel|>final<|message|>end<|end|>"
    assert text[slice(*thought_and_answer(text)[1])] == "end"
    assert thought_and_answer(text)[1].start == text.index("end<|")
    # White space without an end is read in linear time.
    assert thought_and_answer("<think> x" + " \n" * 200_000 + "x")[1] is None
