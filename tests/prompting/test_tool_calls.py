"""Ten published chat templates: tool calls are parsed, and conversations only grow, token by token."""

import json

import pytest

from rtl_core.errors import ConfigError
from rtl_core.prompting.calls import Call, ToolChat
from rtl_core.prompting.chat import Chat, decoded
from tests.prompting.chat_templates import MODELS

SETTINGS = [
    (model, thinking)
    for model in MODELS
    for thinking, ending in model.prompts.items()
    if ending is not None
]
CANNOT = "cannot write tool calls"
REFUSED = {
    ("Qwen-Qwen3-0.6B", False): "renders earlier turns differently",
    ("deepseek-ai-DeepSeek-V3.1", True): "drops the thoughts of earlier turns",
    **{("Kimi-K2-Instruct", thinking): CANNOT for thinking in (None, False)},
    **{("HuggingFaceTB-SmolLM3-3B", thinking): CANNOT for thinking in (None, True, False)},
}  # fmt: skip
GROWING = [
    (model, thinking) for model, thinking in SETTINGS if (model.file, thinking) not in REFUSED
]
growing = pytest.mark.parametrize(
    ("model", "thinking"), GROWING, ids=[f"{m.file}-{t}" for m, t in GROWING]
)


def tool(name, *arguments):
    properties = {
        argument: {"type": "string", "description": "what it is"} for argument in arguments
    }
    parameters = {"type": "object", "properties": properties, "required": list(arguments)}
    return {
        "type": "function",
        "function": {"name": name, "description": "It does.", "parameters": parameters},
    }


TOOLS = [tool("list"), tool("read", "path"), tool("write", "path", "content")]
MESSAGES = [{"role": "system", "content": "Work."}, {"role": "user", "content": "Write it."}]
VERILOG = 'module a(input x, output y);\n  wire [7:0] b = {8{1\'b1}}; // "</think>" {\n\n  assign y = x < 1 && x > 0;\nendmodule\n'
TURNS = [
    ("I look.", [("list", {})]),
    ("Then I write {it}.", [("write", {"path": "rtl/a.sv", "content": VERILOG})]),
    ("And read <it>.", [("read", {"path": "rtl/a.sv"})]),
]  # fmt: skip
RESULTS = ["rtl/a.sv  (12 bytes)", 'error: "x" {y}\n<|im_end|> Value42-0 ümlaut', "done\n"]


def chat_of(tokenizers, model, thinking):
    return ToolChat(Chat(tokenizers(model), thinking=thinking, model=model.file), TOOLS)


def said(chat, thought, calls, number):
    """An assistant's message for rendering the whole conversation."""
    calls = [
        {
            "type": "function",
            "id": f"c{number}",
            "function": {"name": name, "arguments": arguments},
        }
        for name, arguments in calls
    ]
    thoughts = (
        dict.fromkeys(("reasoning_content", "thinking"), thought) if chat.chat.thinks else {}
    )
    return {"role": "assistant", "content": "", "tool_calls": calls, **thoughts}


def whole(chat, messages, header=True):
    return list(
        chat.chat.apply(messages, tokenize=True, add_generation_prompt=header, tools=TOOLS)
    )


@pytest.mark.parametrize(("model", "thinking"), list(REFUSED))
def test_templates_that_rewrite_history_or_lack_calls_are_refused(tokenizers, model, thinking):
    (found,) = [entry for entry, mode in SETTINGS if (entry.file, mode) == (model, thinking)]
    with pytest.raises(ConfigError, match=REFUSED[model, thinking]) as told:
        chat_of(tokenizers, found, thinking)
    assert told.value.hint


@growing
def test_a_growing_conversation_is_what_the_template_renders_of_the_whole(
    tokenizers, model, thinking
):
    chat = chat_of(tokenizers, model, thinking)
    tokens = chat.first(MESSAGES)
    messages = list(MESSAGES)
    assert tokens == whole(chat, messages)
    for number, ((thought, calls), result) in enumerate(zip(TURNS, RESULTS, strict=True)):
        messages.append(said(chat, thought, calls, number))
        turn = whole(chat, messages, header=False)
        assert turn[: len(tokens)] == tokens
        end = max(place for place, token in enumerate(turn) if token in chat.chat.stop) + 1
        sampled = turn[len(tokens) : end]  # as a model would write it
        prompt = tokens
        text = chat.chat.opening(prompt) + decoded(chat.chat.tokenizer, sampled[:-1])
        found = chat.read(text)
        assert [(call.name, json.loads(call.arguments)) for call in found] == calls
        call = Call(found[0].name, found[0].arguments, f"c{number}")
        # Tokens that end a turn are plain text inside a result.
        tokens = [*prompt, *sampled, *chat.after([call], [result])]
        messages.append(
            {"role": "tool", "name": call.name, "tool_call_id": call.id, "content": result}
        )
        assert tokens == whole(chat, messages)


@growing
def test_what_was_sampled_is_never_rendered_again(tokenizers, model, thinking):
    """Unusual tokens for a text stay in the next prompt as they were sampled."""
    chat = chat_of(tokenizers, model, thinking)
    tokens = chat.first(MESSAGES)
    for number in range(3):
        text = f"odd  spaces , and `x` {number}"
        letters = [
            chat.chat.tokenizer.encode(letter, add_special_tokens=False)[0] for letter in text
        ]
        before, sampled = list(tokens), [*letters, chat.chat.stop[0]]
        tokens = [
            *before,
            *sampled,
            *chat.after([Call("unknown", "{", f"c{number}")], ["error: no such tool"]),
        ]
        assert tokens[: len(before) + len(sampled)] == before + sampled
        behind = decoded(chat.chat.tokenizer, tokens[len(before) + len(sampled) :])
        assert "error: no such tool" in behind
        assert text not in behind


@growing
def test_malformed_calls_keep_their_name_or_text(tokenizers, model, thinking):
    chat = chat_of(tokenizers, model, thinking)
    assert chat.read("No call at all, only `code` and a {brace}.") == ()
    prompt = chat.first(MESSAGES)
    turn = whole(
        chat,
        [*MESSAGES, said(chat, "I look.", [("read", {"path": "rtl/a.sv"})], 0)],
        header=False,
    )
    text = chat.chat.opening(prompt) + decoded(chat.chat.tokenizer, turn[len(prompt) :])
    cut = text[: text.index("rtl/a.sv") + 3]
    (call,) = chat.read(cut)
    assert call.name == "read"
    if chat._family == "tagged":
        assert json.loads(call.arguments) == {"path": "rtl"}
    else:
        with pytest.raises(ValueError, match="Unterminated"):
            json.loads(call.arguments)
    for place in range(len(text)):  # none of them raises
        assert len(chat.read(text[:place])) <= 1


REWRITING = {
    *(("Qwen-Qwen3-0.6B", thinking) for thinking in (None, True, False)),
    *((file, thinking) for file in ("openai-gpt-oss-120b", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "HuggingFaceTB-SmolLM3-3B") for thinking in (None, True)),
    ("deepseek-ai-DeepSeek-V3.1", True),
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "thinking"), SETTINGS, ids=[f"{m.file}-{t}" for m, t in SETTINGS]
)
def test_without_tools_a_conversation_only_grows_or_is_refused(tokenizers, model, thinking):
    plain = Chat(tokenizers(model), thinking=thinking, model=model.file)
    if (model.file, thinking) in REWRITING:
        with pytest.raises(
            ConfigError, match=r"drops the thoughts|renders earlier turns differently"
        ):
            ToolChat(plain, [])
        return
    chat, messages = ToolChat(plain, []), list(MESSAGES)
    tokens = chat.first(messages)
    assert tokens == plain.encode(messages)
    for number, words in enumerate(RESULTS):
        thoughts = (
            dict.fromkeys(("reasoning_content", "thinking"), "I think.") if plain.thinks else {}
        )
        messages.append({"role": "assistant", "content": f"Answer {number}", **thoughts})
        turn = list(plain.apply(messages, tokenize=True, add_generation_prompt=False))
        end = max(place for place, token in enumerate(turn) if token in plain.stop) + 1
        assert turn[: len(tokens)] == tokens
        messages.append({"role": "user", "content": words.strip()})
        tokens = [*turn[:end], *chat.after([], [words.strip()])]
        assert tokens == plain.encode(messages)
    assert chat.read('<tool_call>{"name": "read", "arguments": {}}</tool_call>') == ()


def test_gpt_oss_may_name_the_recipient_in_either_place(tokenizers):
    (model,) = [model for model in MODELS if model.channels]
    chat = chat_of(tokenizers, model, None)
    thought = "<|start|>assistant<|channel|>analysis<|message|>to=functions.list {} no<|end|>"
    for call in ("<|channel|>commentary to=functions.read <|constrain|>json<|message|>", " to=functions.read<|channel|>commentary json<|message|>"):  # fmt: skip
        assert chat.read(f'{thought}<|start|>assistant{call}{{"path": "a"}}') == (
            Call("read", '{"path": "a"}'),
        )


def test_several_calls_of_a_turn_are_parsed_and_answered_in_order(tokenizers):
    for model, thinking in GROWING:
        chat = chat_of(tokenizers, model, thinking)
        calls = [("read", {"path": "a"}), ("read", {"path": "b"}), ("list", {})]
        try:
            turn = whole(chat, [*MESSAGES, said(chat, "t", calls, 0)], header=False)
        except Exception:
            assert model.file.startswith("meta-llama")  # its template allows one call
            continue
        if model.channels:
            continue  # its template renders only the first call
        prompt = chat.first(MESSAGES)
        found = chat.read(
            chat.chat.opening(prompt) + decoded(chat.chat.tokenizer, turn[len(prompt) :])
        )
        assert [call.name for call in found] == ["read", "read", "list"]
        told = [
            {"role": "tool", "name": c.name, "tool_call_id": "c0", "content": f"R{i}"}
            for i, c in enumerate(found)
        ]
        end = max(place for place, token in enumerate(turn) if token in chat.chat.stop) + 1
        grown = [*turn[:end], *chat.after(found, ["R0", "R1", "R2"])]
        assert grown == whole(chat, [*MESSAGES, said(chat, "t", calls, 0), *told])


@pytest.mark.parametrize(
    "mark", ["<tool_call>\n<function=", "<tool_call> <function=", "<function="]
)
@pytest.mark.parametrize("file", ["Qwen3-Coder", "Qwen3.5-4B"])
def test_a_call_without_the_tag_around_it_is_parsed(tokenizers, file, mark):
    chat = chat_of(tokenizers, next(model for model in MODELS if model.file == file), None)
    calls = "".join(
        f"{mark}read>\n<parameter=path>\n{path}\n</parameter>\n</function>\n</tool_call>"
        for path in "ab"
    )
    found = [(call.name, json.loads(call.arguments)["path"]) for call in chat.read(calls)]
    assert found == [("read", "a"), ("read", "b")]
