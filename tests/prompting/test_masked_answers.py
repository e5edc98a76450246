"""Answers to a masked part of a file."""

import time

import pytest

from rtl_core.rollouts.datums import golden_response
from rtl_grader.extraction.answer_to import answer_to, within_frame
from rtl_grader.problems.judged import judged_problem

WHOLE = """\
`timescale 1ns / 1ps
module part (input a, output y);
  assign y = a;
endmodule
module inv (input a, output y);
  wire b;
  part u (a, b);
  assign y = !b;
endmodule
"""
PIECE = "assign y = !b;"
FRAME = WHOLE.replace(PIECE, "[MASKED]")
MODULE = WHOLE[WHOLE.index("module inv") :]
OTHER = MODULE.replace(PIECE, "assign y = ~b;")


@pytest.fixture
def problem():
    return judged_problem(
        id="inv", source="rtl", category="cid002", difficulty="easy", prompt=f"Complete:\n{FRAME}",
        golden={"rtl/inv.v": WHOLE}, top="inv", frame={"rtl/inv.v": FRAME},
    )  # fmt: skip


def answered(problem, response):
    return answer_to(problem, response).files.get("rtl/inv.v")


@pytest.mark.parametrize(
    "response",
    [
        f"```verilog\n{PIECE}\n```",
        f"```\n  {PIECE}\n\n```\n",
        f"<think>```\nassign y = b;\n```</think>It inverts:\n\n```verilog\n{PIECE}\n```\nDone.",
        f"The given code is:\n```verilog\n{FRAME}```\nWrite:\n```verilog\n{PIECE}\n```",
        f"My wrong attempt:\n```\nassign y = b;\n```\nCorrected:\n```\n{PIECE}\n```",
        f"```verilog\n{MODULE}```",
        f"// The module\n{MODULE}",
        f"```verilog\n// inverts\n{MODULE}```",
        f"```verilog\n{WHOLE}```",
    ],
)
def test_a_piece_a_module_and_a_file_are_answers(problem, response):
    assert answered(problem, response) == WHOLE


def test_a_module_replaces_its_own_text_alone(problem):
    assert answered(problem, f"```verilog\n{OTHER}```") == WHOLE.replace(
        PIECE, "assign y = ~b;"
    )
    own = f"module helper; endmodule\n{OTHER}"
    assert answered(problem, f"```verilog\n{own}```") == own


def test_the_known_good_response_is_the_piece(problem):
    assert golden_response(problem) == f"```verilog\n{PIECE}\n```"


@pytest.mark.parametrize("response", ["", "I do not know.", f"```verilog\n{FRAME}```"])
def test_a_response_without_a_piece_is_no_answer(problem, response):
    answer = answer_to(problem, response)
    assert answer.error
    assert not answer.files


@pytest.mark.parametrize(
    "piece",
    ["endmodule\nmodule evil (input a);", "`undef X", "*/ /*", '"', "\\", "[MASKED", "`endif"],
)
def test_odd_text_is_only_text(problem, piece):
    before, _, after = FRAME.partition("[MASKED]")
    assert answered(problem, f"```verilog\n{piece}\n```") == f"{before}{piece}{after}"


@pytest.mark.slow
def test_long_answers_take_linear_time():
    text = "module inv (input a);\n" + "endmodule module x; " * 200_000
    start = time.thread_time()
    within_frame(FRAME, text)
    # Less than a second on an idle machine; in quadratic time it would be hours.
    assert time.thread_time() - start < 300
