"""What a response stands for: each rule of answer extraction, and each trap of the public runner's parser."""

import json

import pytest

from rtl_core.prompting.extraction import extract_answer

CODE = "module m(input a, output y);\n  assign y = a;\nendmodule\n"
ONE = ("rtl/m.sv",)
TWO = ("rtl/a.sv", "rtl/b.sv")


@pytest.mark.parametrize(
    "response",
    [
        f"```verilog\n{CODE}```",
        f"```systemverilog\n{CODE}```\nThat is all.",
        f"```\n{CODE}```",
        f"```SystemVerilog  \n{CODE}```",
        f"~~~sv\n{CODE}~~~",
        f"````verilog\n{CODE}````",
        f"  ```verilog\n{CODE}  ```",
        f"Here it is: ```verilog\n{CODE}```",
        f"```\nverilog\n{CODE}```",
        f"```verilog rtl/m.sv\n{CODE}```",
        CODE,
        "\n\n" + CODE + "\n\n\n",
        f"```verilog\n{CODE.rstrip()}```",
        json.dumps({"code": [{"rtl/m.sv": CODE}]}),
        json.dumps({"rtl/m.sv": CODE}),
        json.dumps({"code": {"m.sv": CODE}}),
        "```json\n" + json.dumps({"code": [{"rtl/m.sv": CODE}]}) + "\n```",
        "Sure. " + json.dumps({"code": [{"rtl/m.sv": CODE}]}),
    ],
)
def test_one_target_is_found_however_it_is_wrapped(response):
    assert extract_answer(response, ONE).files == {"rtl/m.sv": CODE}


def test_crlf_line_ends_neither_hide_the_fence_nor_leak_into_the_code():
    response = f"```verilog\n{CODE}```\n".replace("\n", "\r\n")
    assert extract_answer(response, ONE).files == {"rtl/m.sv": CODE}


def test_an_unclosed_fence_is_healed_without_keeping_its_backticks():
    answer = extract_answer(f"```verilog\n{CODE}", ONE)
    assert answer.files == {"rtl/m.sv": CODE}


@pytest.mark.parametrize(
    "response",
    [
        f"<think>```verilog\nmodule wrong; endmodule\n```</think>\n```verilog\n{CODE}```",
        f"I reason ```verilog\nmodule wrong; endmodule\n``` so</think>\n```verilog\n{CODE}```",
        f"<THINKING>\nmodule wrong;\n</THINKING>\n{CODE}",
        f"```verilog\n{CODE}```\n<think>```verilog\nmodule wrong; endmodule\n```",
    ],
)
def test_a_block_inside_thoughts_never_wins(response):
    assert extract_answer(response, ONE).files == {"rtl/m.sv": CODE}


def test_a_response_that_ends_within_its_thoughts_is_no_answer():
    answer = extract_answer(f"<think>```verilog\n{CODE}```", ONE)
    assert not answer.files
    assert "thoughts" in (answer.error or "")


NAMED = CODE.replace(
    "endmodule",
    """  // not </think>
  initial $display("so </think>");
  /*
</think>
  */
endmodule""",
)


@pytest.mark.parametrize(
    "response",
    [
        f"```verilog\n{NAMED}```",
        f'Here:\n```verilog\n{NAMED}```\nIt names `</think>`, and "</think>", in comments.',
        f"```verilog\n{NAMED}",
        NAMED,
        json.dumps({"code": [{"rtl/m.sv": NAMED}]}),
        f"```python\nassert text.endswith('</think>')\n```\n```verilog\n{NAMED}```",
        f"<think>\nWhich?\n</think>\n```verilog\n{NAMED}```",
    ],
)
def test_a_closing_tag_in_code_ends_no_thought_that_is_not_open(response):
    assert extract_answer(response, ONE).files == {"rtl/m.sv": NAMED}


@pytest.mark.parametrize(
    "draft",
    [
        "```verilog\nmodule m; // hm\n</think>\n",
        "```verilog\nmodule m; endmodule\n```\nSo it is.</think>",
        "module m; endmodule </think>",
        '<think>\n```verilog\nmodule m; endmodule\n```\n// "</think>\n',
    ],
)
def test_a_thought_that_broke_off_a_draft_is_left_out_whole(draft):
    assert extract_answer(f"{draft}```verilog\n{CODE}```", ONE).files == {"rtl/m.sv": CODE}
    assert not extract_answer(draft, ONE).files
    assert extract_answer(f"```verilog\nmodule m;\nNo.</think>\n```verilog\n{CODE}```", ONE).files == {"rtl/m.sv": CODE}


def test_a_think_tag_in_a_comment_does_not_eat_the_code():
    code = "module m; // <think> about it\nendmodule\n"
    assert extract_answer(f"```verilog\n{code}```", ONE).files == {"rtl/m.sv": code}


def test_a_block_of_another_language_does_not_hide_the_hdl():
    response = f"```bash\niverilog m.sv\n```\n```verilog\n{CODE}```"
    assert extract_answer(response, ONE).files == {"rtl/m.sv": CODE}


def test_the_first_of_several_blocks_wins():
    response = f"```verilog\n{CODE}```\nor\n```verilog\nmodule other; endmodule\n```"
    assert extract_answer(response, ONE).files == {"rtl/m.sv": CODE}


@pytest.mark.parametrize("response", ["", "   \n", "I cannot do this.", "```verilog\n```", "```\n\n```"])
def test_no_code_is_no_answer_with_a_reason(response):
    answer = extract_answer(response, ONE)
    assert not answer.files
    assert answer.error


def test_several_targets_from_json_with_raw_newlines_in_strings():
    response = '{"code": [{"rtl/a.sv": "module a;\nendmodule"}, {"rtl/b.sv": "module b;\nendmodule"}]}'
    files = extract_answer(response, TWO).files
    assert files == {"rtl/a.sv": "module a;\nendmodule\n", "rtl/b.sv": "module b;\nendmodule\n"}


@pytest.mark.parametrize(
    "response",
    [
        "`rtl/b.sv`:\n```verilog\nmodule b;\nendmodule\n```\n**rtl/a.sv**\n```verilog\nmodule a;\nendmodule\n```",
        "```verilog rtl/b.sv\nmodule b;\nendmodule\n```\n```verilog a.sv\nmodule a;\nendmodule\n```",
        "```verilog\nmodule a;\nendmodule\n```\n```verilog\nmodule b;\nendmodule\n```",
    ],
)
def test_several_targets_from_labelled_blocks(response):
    files = extract_answer(response, TWO).files
    assert files == {"rtl/a.sv": "module a;\nendmodule\n", "rtl/b.sv": "module b;\nendmodule\n"}


def test_a_first_line_comment_labels_a_block():
    response = "```verilog\n// rtl/b.sv\nmodule x; endmodule\n```"
    assert list(extract_answer(response, TWO).files) == ["rtl/b.sv"]


def test_only_declared_targets_are_accepted_and_the_others_are_named():
    offered = {
        "rtl/a.sv": CODE,
        "src/conftest.py": "import os",
        "../rtl/b.sv": CODE,
        "/etc/passwd.txt": "x",
        "rtl/../src/test_runner.py": "x",
    }
    answer = extract_answer(json.dumps({"code": [offered]}), TWO)
    assert list(answer.files) == ["rtl/a.sv"]
    assert set(answer.ignored) == set(offered) - {"rtl/a.sv"}


def test_json_without_any_declared_target_is_no_answer():
    answer = extract_answer(json.dumps({"code": [{"src/conftest.py": "x"}]}), TWO)
    assert not answer.files
    assert "conftest" in (answer.error or "")
