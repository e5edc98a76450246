"""Reading any text of a model takes linear time, since it happens in the trainer's process."""

import random

import pytest

from rtl_grader.extraction.response import MAX_RESPONSE_CHARS, extract_answer
from rtl_grader.hdl.text import bare, modules
from tests.growth import assert_linear

TARGETS = (("rtl/m.sv",), ("rtl/a.sv", "rtl/b.sv"))

REPEATED = [
    "```\n", "```x\n", "```\n\n", "`", "~", "``` `\n", "~~~ `\n", "~~~x\n", "a```\n", "```v x```\n", "``` x```",
    "<think>", "</think>", "<think>```", "<think>```\n```\n", "```\n<think>\n",
    "</think>\n", "```\n</think>x\n", "// </think>\n", "`</think>", "<|start|>assistant<|channel|>", "<|channel|>final", "<|end|> ",
    "{", "[", "[{", '{"a":', '{"code":', '{"code":[', '{"code":1}', '{"code": [{"a.sv": "x"}]}', '{"code":[{"m.sv":"module m;"}]}\n',
    "> ", ">\n", "> ```\n", "<answer>", "<answer>```", "<answer></answer>", "a ;", "function a", "a: b ;", "<pre>", "<a>", "[a]", "a:", "a: ", "'", "(*a)", "+", "@@\n",
    "`define ", "`endif\n", "// a\n`endif\n", "typedef a", "parameter a", "module m(\n", "module m(endmodule\n", "package\n", "endmodule\n// a\n",
    '{"a":"module m(\\n"}', '{"a": ["b.v", "```"]}', "```diff\n+a\n", "```md\n~~~\n", "final\n```\nmodule m; assign a = b; endmodule\n```\n",
    "module ", "module m;", "module m; assign a = b; endmodule ", "endmodule ", "interface ", "package a;\n", "wire a; ",
    "(* ", "*)", "#(", ";", "\t", " ", "\n", "\r", "\t \n", '"', '"\\"', "\\", "\\\\ ", "/*", "/*a", "//", "//\n", "/**/", "./", "x", "é", "\0",
]  # fmt: skip
HEADS = [
    "```verilog\n",
    "~~~~~\n",
    "~~~~~",
    "``` ",
    "```verilog ",
    "```verilog\nmodule m(",
    "```verilog\nmodule m; wire a;",
    '```json\n{"code":',
    '{"code":[{"',
    '{"./',
    '{"code":9',
    "<think>",
    "<answer>",
    "module m(",
    "> module m(",
    "[a]",
    "(* a",
    "```\n</think>",
    "<|start|>assistant<|channel|>final<",
]
AFTER_HEADS = ["`", "~", " ", "\t", "```x\n", "9", "./", ".a", "\\\\", "\\n", '{"a":', "[],", "wire a;", "(*)", "*)", "module ", "/*", "<a>", "a:", "> ", "endmodule\n"]  # fmt: skip


def _mixed(size):
    rng = random.Random(size)
    parts = [*REPEATED, "\r\n", '"}]}', "endmodule\n```\n"]
    return "".join(rng.choices(parts, k=size))[:size]


def _bytes(size):
    return random.Random(size).randbytes(size).decode("latin-1")


def _extract(targets):
    return lambda text: extract_answer(text, targets)


def _read_modules(text):
    for module in modules(bare(text)[0]):
        assert module.is_complete in (True, False)
        assert module.is_bench in (True, False)


def _repeated(pattern):
    return lambda size: (pattern * (size // len(pattern) + 1))[:size]


@pytest.mark.parametrize("pattern", REPEATED)
def test_a_repeated_pattern_is_read_in_linear_time(pattern):
    for targets in TARGETS:
        assert_linear(_extract(targets), _repeated(pattern))
    assert_linear(_read_modules, _repeated(pattern))


@pytest.mark.parametrize("head", HEADS)
def test_an_unfinished_construct_is_read_in_linear_time(head):
    # Because of the backtick at the end, a line that is almost a fence line is none.
    for pattern in AFTER_HEADS:
        assert_linear(
            _extract(TARGETS[0]),
            lambda size, p=pattern: head + _repeated(p)(size - len(head) - 1) + "`",
        )


@pytest.mark.parametrize("make", [_mixed, _bytes])
@pytest.mark.parametrize("targets", TARGETS)
def test_random_text_is_read_in_linear_time(make, targets):
    assert_linear(_extract(targets), make)


@pytest.mark.parametrize("targets", TARGETS)
def test_an_answer_is_found_at_the_end_of_the_longest_response(targets):
    """A real answer after everything that may precede one."""
    stems = [path.rsplit("/")[-1].removesuffix(".sv") for path in targets]
    blocks = "".join(
        f"```verilog\nmodule {name};\nassign y = 1;\nendmodule\n```\n" for name in stems
    )
    noise = "<think>``` " * 1000 + "</think>" + '{"code": {' * 1000 + "\n"
    text = noise + "prose\n" * ((MAX_RESPONSE_CHARS - len(noise) - len(blocks)) // 6) + blocks
    assert sorted(extract_answer(text, targets).files) == sorted(targets)


def test_a_longer_response_is_refused():
    assert "characters" in extract_answer("x" * (MAX_RESPONSE_CHARS + 1), TARGETS[0]).error
