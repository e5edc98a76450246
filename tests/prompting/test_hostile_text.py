"""Whatever a model writes, its answer is read in time linear in its length: the trainer's own process does it."""

import random
import time

import pytest

from rtl_core.prompting.extraction import MAX_RESPONSE_CHARS, extract_answer
from rtl_core.prompting.verilog_text import bare, modules

MOST_S = 5.0
"""CPU time of one extraction at the cap; it takes 0.1 to 0.4 s, and what grows with the square takes hours."""
SIZES = (40_000, MAX_RESPONSE_CHARS // 4, MAX_RESPONSE_CHARS // 2, MAX_RESPONSE_CHARS)
TARGETS = (("rtl/m.sv",), ("rtl/a.sv", "rtl/b.sv"))

REPEATED = [
    "```\n", "```x\n", "```\n\n", "`", "~", "``` `\n", "~~~ `\n", "~~~x\n", "a```\n", "```v x```\n", "``` x```",
    "<think>", "</think>", "<think>```", "<think>```\n```\n", "```\n<think>\n",
    "{", "[", "[{", '{"a":', '{"code":', '{"code":[', '{"code":1}', '{"code": [{"a.sv": "x"}]}', '{"code":[{"m.sv":"module m;"}]}\n',
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
]
AFTER_HEADS = ["`", "~", " ", "\t", "```x\n", "9", "./", ".a", "\\\\", "\\n", '{"a":', "[],", "wire a;", "(*)", "*)", "module ", "/*"]  # fmt: skip


def _mixed(size):
    rng = random.Random(size)
    parts = [*REPEATED, "\r\n", '"}]}', "endmodule\n```\n"]
    return "".join(rng.choices(parts, k=size))[:size]


def _bytes(size):
    return random.Random(size).randbytes(size).decode("latin-1")


def _cpu_s(work, *arguments):
    start = time.process_time()
    work(*arguments)
    return time.process_time() - start


def _is_quick(make):
    # From small to large, so that time that grows with the square is seen before it takes hours.
    for size in SIZES:
        text = make(size)
        assert len(text) == size
        for targets in TARGETS if size in (SIZES[0], SIZES[-1]) else TARGETS[:1]:
            assert _cpu_s(extract_answer, text, targets) < MOST_S, size


@pytest.mark.parametrize("pattern", REPEATED)
def test_a_text_of_one_thing_repeated_is_read_in_linear_time(pattern):
    _is_quick(lambda size: (pattern * (size // len(pattern) + 1))[:size])


@pytest.mark.parametrize("head", HEADS)
def test_what_begins_and_never_ends_is_read_in_linear_time(head):
    # The backtick at the end makes what almost was a fence line none.
    for pattern in AFTER_HEADS:
        text = (head + pattern * (MAX_RESPONSE_CHARS // len(pattern)))[: MAX_RESPONSE_CHARS - 1] + "`"
        assert _cpu_s(extract_answer, text[:20_000] + "`", TARGETS[0]) < MOST_S, pattern
        assert _cpu_s(extract_answer, text, TARGETS[0]) < MOST_S, pattern


@pytest.mark.parametrize("make", [_mixed, _bytes])
def test_random_text_is_read_in_linear_time(make):
    _is_quick(make)


@pytest.mark.parametrize("pattern", REPEATED)
def test_modules_are_found_in_linear_time(pattern):
    text = (pattern * (SIZES[1] // len(pattern) + 1))[: SIZES[1]]

    def look():
        for module in modules(bare(text)[0]):
            assert module.is_complete in (True, False)
            assert module.is_bench in (True, False)

    assert _cpu_s(look) < MOST_S


@pytest.mark.parametrize("targets", TARGETS)
def test_the_whole_path_of_a_long_answer_is_linear(targets):
    """A real answer behind everything that may precede one, up to the cap."""
    stems = [path.rsplit("/")[-1].removesuffix(".sv") for path in targets]
    blocks = "".join(f"```verilog\nmodule {name};\nassign y = 1;\nendmodule\n```\n" for name in stems)
    noise = "<think>``` " * 1000 + "</think>" + '{"code": {' * 1000 + "\n"
    text = noise + "prose\n" * ((MAX_RESPONSE_CHARS - len(noise) - len(blocks)) // 6) + blocks
    start = time.process_time()
    answer = extract_answer(text, targets)
    assert time.process_time() - start < MOST_S
    assert sorted(answer.files) == sorted(targets)


def test_a_giant_response_is_refused_unread():
    assert _cpu_s(extract_answer, "x" * 100_000_000, TARGETS[0]) < MOST_S
    assert "characters" in extract_answer("x" * (MAX_RESPONSE_CHARS + 1), TARGETS[0]).error
