"""The shipped models are the result of `admin models` and behave as the demo and the learning report require."""

import json
import random

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

import rtl_core.tinymodels
from rtl_core.config.episode import Bounds
from rtl_core.episodes.tools import definitions
from rtl_core.episodes.workspace import Workspace
from rtl_core.prompting.calls import Call, ToolChat
from rtl_core.prompting.chat import Chat
from rtl_core.starter import BY_NAME, FAMILIES, documented, problem_of, starter_specs
from rtl_core.starter.spec import modules_of
from rtl_core.tinymodels import MODEL_NAMES, model_path
from rtl_core.tinymodels.corpus import (
    AGENT,
    FENCE_CLOSE,
    FENCE_OPEN,
    HARD_STUDENT,
    HARD_TEACHER,
    STUDENT,
    TEACHER,
    document_read,
    draw_chat,
    draw_pair,
    fenced,
    rendered,
    tool_call,
)
from rtl_core.tinymodels.make import CHECKSUMS, checksums_of
from rtl_grader.extraction.response import extract_answer
from tests.command import invoke
from tests.nouns import golden_answer

SHIPPED = model_path("student").parent


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(model_path("student"))


def dtypes_and_shapes(folder):
    with safe_open(folder / "model.safetensors", "pt") as file:
        return {
            key: (file.get_slice(key).get_dtype(), tuple(file.get_slice(key).get_shape()))
            for key in file.keys()  # noqa: SIM118
        }


def chat_of(tokenizer, messages):
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)


def sample(model, tokenizer, specs):
    """An answer to each specification at temperature 1."""
    problems = [problem_of(spec) for spec in specs]
    chats = [
        chat_of(tokenizer, [{"role": "user", "content": problem.prompt}])
        for problem in problems
    ]
    batch = tokenizer(chats, padding=True, padding_side="left", return_tensors="pt")
    torch.manual_seed(0)
    output = model.generate(
        **batch, max_new_tokens=256, do_sample=True, temperature=1.0, top_k=0, top_p=1.0
    )
    texts = tokenizer.batch_decode(
        output[:, batch["input_ids"].shape[1] :], skip_special_tokens=True
    )
    return [
        extract_answer(text, problem.targets)
        for text, problem in zip(texts, problems, strict=True)
    ]


def share_correct(name, tokenizer, specs):
    """Share of sampled answers that equal the golden answer: a lower bound of the pass rate."""
    model = AutoModelForCausalLM.from_pretrained(model_path(name), dtype=torch.float32)
    answers = sample(model, tokenizer, specs)
    good = [
        golden_answer(spec) in answer.files.values()
        for spec, answer in zip(specs, answers, strict=True)
    ]
    return sum(good) / len(good)


def test_checksums_match_the_shipped_files():
    assert json.loads((SHIPPED / CHECKSUMS).read_text()) == checksums_of(SHIPPED)


def test_the_shipped_models_are_small():
    assert (
        sum(path.stat().st_size for name in MODEL_NAMES for path in model_path(name).iterdir())
        <= 12_000_000
    )


@pytest.mark.slow
def test_a_short_make_models_gives_the_same_kinds_of_files(tmp_path):
    run = invoke("admin", "models", "--output", tmp_path / "pair", "--seconds", 3)
    assert run.exit_code == 0, run.output
    made = tmp_path / "pair"
    assert set(checksums_of(made)) == set(checksums_of(SHIPPED))
    assert json.loads((made / CHECKSUMS).read_text()) == checksums_of(made)
    for name in MODEL_NAMES:
        for file in (
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
            "config.json",
        ):
            assert (made / name / file).read_bytes() == (SHIPPED / name / file).read_bytes(), (
                f"{name}/{file}"
            )
        assert dtypes_and_shapes(made / name) == dtypes_and_shapes(SHIPPED / name)
        assert {dtype for dtype, _ in dtypes_and_shapes(made / name).values()} == {"F16"}
        AutoModelForCausalLM.from_pretrained(made / name)
    assert invoke("admin", "models", "--output", made).exit_code != 0


def test_all_models_share_the_tokenizer():
    assert (
        len({(model_path(name) / "tokenizer.json").read_bytes() for name in MODEL_NAMES}) == 1
    )


def test_prompts_and_answers_round_trip_and_are_short(tokenizer):
    for tier, prompt_limit, answer_limit in (("starter", 40, 90), ("hard", 60, 210)):
        for spec in starter_specs("heldout", 6 * len(FAMILIES[tier]), seed=2, tier=tier):
            prompt, answer = BY_NAME[spec.family].prompt(spec), fenced(golden_answer(spec))
            for text, limit in ((prompt, prompt_limit), (answer, answer_limit)):
                ids = tokenizer.encode(text)
                assert tokenizer.decode(ids) == text
                assert len(ids) <= limit, text


def test_a_name_a_number_and_a_fence_are_one_token_each(tokenizer):
    for text in (FENCE_OPEN, FENCE_CLOSE, "module ", "posedge ", "data", "_n", "12", "async"):
        assert len(tokenizer.encode(text)) == 1, text


def test_the_chat_has_no_system_message_and_ends_where_the_assistant_begins(tokenizer):
    text = chat_of(tokenizer, [{"role": "user", "content": "Module a_b: mux."}])
    assert text == "<|im_start|>user\nModule a_b: mux.<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.eos_token == "<|im_end|>"


@pytest.mark.parametrize(
    "phases",
    [STUDENT, TEACHER, HARD_STUDENT, HARD_TEACHER],
    ids=["student", "teacher", "hard-student", "hard-teacher"],
)
def test_pre_training_uses_train_specifications_only(phases):
    rng = random.Random(1)
    reserved = set(modules_of("heldout")) | set(modules_of("test"))
    asked = {draw_pair(rng, phases, progress=number / 3000)[0] for number in range(3000)}
    assert not {prompt.split()[1].rstrip(":") for prompt in asked} & reserved
    for split in ("heldout", "test"):
        for tier in FAMILIES:
            held = {
                BY_NAME[spec.family].prompt(spec)
                for spec in starter_specs(split, 60, seed=0, tier=tier)
            }
            assert not asked & held


@pytest.mark.slow
def test_the_teacher_follows_heldout_specifications(tokenizer):
    specs = starter_specs("heldout", 5 * len(FAMILIES["starter"]), seed=1)
    assert share_correct("teacher", tokenizer, specs) >= 0.8


@pytest.mark.slow
def test_the_student_has_the_planted_habit_with_exceptions(tokenizer):
    specs = starter_specs("heldout", 5 * len(FAMILIES["starter"]), seed=1)
    assert 0.08 <= share_correct("student", tokenizer, specs) <= 0.5
    hard = starter_specs("heldout", 5 * len(FAMILIES["hard"]), seed=1, tier="hard")
    assert share_correct("student", tokenizer, hard) <= 0.12


@pytest.mark.slow
def test_the_hard_pair_differs_as_the_hard_tier_requires(tokenizer):
    specs = starter_specs("heldout", 8 * len(FAMILIES["hard"]), seed=1, tier="hard")
    assert share_correct("hard-student", tokenizer, specs) <= 0.12
    assert share_correct("hard-teacher", tokenizer, specs) >= 0.7


def test_make_models_names_an_unknown_model_or_a_missing_start(tmp_path):
    for only, message in (
        ("parent", "there is no such model"),
        ("reader", "add --only student"),
    ):
        run = invoke("admin", "models", "--output", tmp_path / "made", "--only", only)
        assert run.exit_code != 0
        assert message in str(run.exception) + run.output


def test_an_unknown_model_is_named():
    with pytest.raises(ValueError, match="no shipped model 'parent'"):
        rtl_core.tinymodels.model_path("parent")


def test_the_agents_conversations_match_an_episode_and_use_train_specifications_only():
    tokenizer = AutoTokenizer.from_pretrained(model_path("agent"))
    tools = ToolChat(Chat(tokenizer), definitions())
    problem = documented(starter_specs("train", 1, seed=0)[0])
    read = tool_call("read", path="docs/specification.md")
    call = Call("read", json.dumps(read["function"]["arguments"]))
    document = Workspace.of(problem, Bounds()).read("docs/specification.md")
    assert (
        document_read(problem.context["docs/specification.md"].rstrip("\n"))["content"]
        == document
    )
    asked = {"role": "user", "content": problem.prompt}
    grown = (
        tools.first([asked])
        + tokenizer.encode(rendered(read))
        + [tokenizer.eos_token_id]
        + tools.after([call], [document])
    )
    messages = [
        asked,
        {"role": "assistant", "content": "", "tool_calls": [read]},
        {"role": "tool", "content": document},
    ]
    assert tokenizer.decode(grown) == chat_of(tokenizer, messages)
    rng, reserved = random.Random(2), set(modules_of("heldout")) | set(modules_of("test"))
    reads = 0
    for _ in range(600):
        messages, answer = draw_chat(rng, AGENT, 0.5)
        calls = tools.read(answer)
        assert [call.name for call in calls] in (["read"], ["write", "submit"])
        reads += calls[0].name == "read"
        assert (
            messages[0]["content"].split()[1].removeprefix("rtl/").removesuffix(".sv,")
            not in reserved
        )
    assert 10 <= reads <= 60
