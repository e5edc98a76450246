"""Which parts of a prompt are dropped, and in which order, when the budget is short."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rtl_core.errors import ProblemError
from rtl_core.prompting.budget import CUT_MARKER, build_prompt
from rtl_core.prompting.chat import Chat
from tests.nouns import a_problem


@pytest.fixture(scope="module")
def chat():
    """A real tokenizer with one token per word or punctuation mark."""
    plain = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="?")
    fast.chat_template = (
        "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}assistant"
    )
    return Chat(fast)


KINDS = {
    "docs/spec.md": "document",
    "rtl/helper.v": "helper",
    "rtl/top.v": "target",
    "verif/tb.v": "bench",
}
CONTEXT = {
    path: "\n".join(f"{kind} line {i}" for i in range(20)) for path, kind in KINDS.items()
}


def problem(**changes):
    return a_problem(
        **{
            "prompt": "Mend the module.",
            "context": CONTEXT,
            "targets": ("rtl/top.v",),
            **changes,
        }
    )


def test_a_prompt_that_fits_is_complete_and_has_no_notes(chat):
    prompt = build_prompt(problem(), chat, "exact", 10_000)
    assert prompt.notes == ()
    assert all(text in prompt.messages[-1]["content"] for text in CONTEXT.values())


def test_files_are_dropped_least_needed_first_and_the_last_is_cut_at_a_line(chat):
    whole = len(build_prompt(problem(), chat, "exact", 10_000).tokens_P)
    prompt = build_prompt(problem(), chat, "exact", whole - 100)
    assert [note.split(":")[0] for note in prompt.notes] == ["verif/tb.v", "rtl/helper.v"]
    assert "left out (20 lines)" in prompt.notes[0]
    content = prompt.messages[-1]["content"]
    assert "bench line" not in content
    assert all(
        text in content for text in (CUT_MARKER, CONTEXT["rtl/top.v"], CONTEXT["docs/spec.md"])
    )
    assert len(prompt.tokens_P) <= whole - 100
    kept = [line for line in content.splitlines() if line.startswith("helper line")]
    assert kept == CONTEXT["rtl/helper.v"].splitlines()[: len(kept)]


def test_the_target_file_is_dropped_last(chat):
    bare = len(build_prompt(problem(context={}), chat, "exact", 10_000).tokens_P)
    prompt = build_prompt(problem(), chat, "exact", bare + 40)
    assert [note.split(":")[0] for note in prompt.notes] == [
        "verif/tb.v",
        "rtl/helper.v",
        "docs/spec.md",
        "rtl/top.v",
    ]
    assert "target line 0" in prompt.messages[-1]["content"]


def test_a_problem_whose_own_text_does_not_fit_is_refused(chat):
    with pytest.raises(
        ProblemError, match=r"problem p: its text alone takes \d+ tokens, the budget is 20"
    ):
        build_prompt(problem(), chat, "exact", 20)
