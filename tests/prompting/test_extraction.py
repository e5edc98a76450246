"""Each rule of answer extraction, each trap of the public runner's parser, and the choice of the block."""

import json

import pytest

from rtl_grader.extraction.answer_to import answer_to, demanded_modules
from rtl_grader.extraction.response import extract_answer
from rtl_grader.types.problem import Interface, InterfaceSource
from tests.nouns import a_problem

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
        f"```verilog\n{CODE}```\n".replace("\n", "\r\n"),
        f"```verilog\n{CODE}",
        f"```bash\niverilog m.sv\n```\n```verilog\n{CODE}```",
        f"<answer>\n```verilog\n{CODE}```</answer>",
        f"```verilog\n{CODE}```<|im_end|>",
        f"```verilog\n{CODE}``` It is a wire.\n```verilog\n{CODE.replace('= a', '= ~a')}```",
        f"I write it in a ```verilog block.\n\n```verilog\n{CODE}```",
        f"The header:\n```verilog\nmodule m(\n\n```verilog\n{CODE}```",
    ],
)
def test_one_target_is_found_however_it_is_wrapped(response):
    assert extract_answer(response, ONE).files == {"rtl/m.sv": CODE}


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
def test_a_tag_in_code_neither_opens_nor_ends_a_thought(response):
    assert extract_answer(response, ONE).files == {"rtl/m.sv": NAMED}
    opening = {"rtl/m.sv": NAMED.replace("</think>", "<think>")}
    assert extract_answer(f"```verilog\n{opening['rtl/m.sv']}```", ONE).files == opening


@pytest.mark.parametrize(
    "draft",
    [
        "```verilog\nmodule m; // hm\n</think>\n",
        "```verilog\nmodule m; endmodule\n```\nSo it is.</think>",
        "module m; endmodule </think>",
        '<think>\n```verilog\nmodule m; endmodule\n```\n// "</think>\n',
        f"```verilog\n{CODE.replace('= a', '= ~a')}```\nSo it is.</think>",
        f"```verilog\n{CODE.replace('= a', '= ~a')}```</think>\n",
        f"```verilog\n{CODE.replace('= a', '= ~a')}``` So it is.</think>\n\n",
    ],
)
def test_a_thought_that_broke_off_a_draft_is_removed_completely(draft):
    assert extract_answer(f"{draft}```verilog\n{CODE}```", ONE).files == {"rtl/m.sv": CODE}
    assert not extract_answer(draft, ONE).files
    assert extract_answer(
        f"```verilog\nmodule m;\nNo.</think>\n```verilog\n{CODE}```", ONE
    ).files == {"rtl/m.sv": CODE}


@pytest.mark.parametrize(
    ("response", "error"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("I cannot do this.", "no fenced block"),
        ("```verilog\n```", "no fenced block"),
        ("```\n\n```", "no fenced block"),
        (f"<think>```verilog\n{CODE}```", "within its thoughts"),
        ("<think>x</think>", "no answer after them"),
        (f"<reasoning>\n```verilog\n{CODE}```\n</reasoning>\n\n", "no answer after them"),
        ("x</think>", "no answer after them"),
        ("<|channel|>analysis<|message|>x<|end|>", "no answer after them"),
        ("<|channel|>analysis<|message|>x", "within its thoughts"),
        ("<think>x</think><think>y", "within its thoughts"),
    ],
)
def test_a_response_without_an_answer_has_an_error(response, error):
    answer = extract_answer(response, ONE)
    assert not answer.files
    assert error in answer.error


def test_several_targets_from_json_with_raw_newlines_in_strings():
    response = (
        '{"code": [{"rtl/a.sv": "module a;\nendmodule"}, {"rtl/b.sv": "module b;\nendmodule"}]}'
    )
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
    assert list(
        extract_answer("```verilog\n// rtl/b.sv\nmodule x; endmodule\n```", TWO).files
    ) == ["rtl/b.sv"]


def test_only_declared_targets_are_accepted_and_the_others_are_listed():
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
    answer = extract_answer(json.dumps({"code": [{"src/conftest.py": "x"}]}), TWO)
    assert not answer.files
    assert "conftest" in answer.error


OTHER = "module m2(input a, output y);\n  assign y = ~a;\nendmodule\n"
PORTS = "input  a,\noutput y\n"
HEADER = "module m(input a, output y);\n"
STUB = "module m(input a, output y);\n  wire b;\n  // the logic goes here\nendmodule\n"
ELIDED = "module m(input a, output y);\n  assign y = ...;\nendmodule\n"
COMMENTED = "// module m(input a, output y); assign y = 0; endmodule\nassign x = m;\n"
BENCH = "module tb;\n  reg a; wire y;\n  m dut(.a(a), .y(y));\n  initial begin a = 0; #5 $finish; end\nendmodule\n"
USAGE = "module top(input a, output y);\n  m u(.a(a), .y(y));\nendmodule\n"
EXAMPLE = json.dumps({"code": [{"rtl/m.sv": "<complete file>"}]})


def block(text, tag="verilog"):
    return f"```{tag}\n{text}```\n"


def problem(**changes):
    interface = Interface(module="m", source=InterfaceSource.SPECIFICATION)
    return a_problem(**{"targets": ("rtl/design.sv",), "interface": interface, **changes})


@pytest.mark.parametrize(
    "around", [PORTS, HEADER, STUB, ELIDED, COMMENTED, BENCH, USAGE, OTHER]
)
@pytest.mark.parametrize("tag", ["verilog", ""])
def test_text_beside_the_design_is_not_used(around, tag):
    before = f"The ports:\n{block(around, tag)}The design:\n{block(CODE)}"
    after = f"The design:\n{block(CODE)}More:\n{block(around, tag)}"
    for response in (before, after):
        assert extract_answer(response, ONE).files == {"rtl/m.sv": CODE}


@pytest.mark.parametrize("around", [PORTS, HEADER, STUB, BENCH, USAGE])
def test_the_demanded_module_is_used_even_if_the_file_has_another_name(around):
    response = block(around) + block(CODE)
    assert answer_to(problem(), response).files == {"rtl/design.sv": CODE}
    harness = {"src/.env": "TOPLEVEL = m\n"}
    assert answer_to(problem(interface=None, harness=harness), response).files == {
        "rtl/design.sv": CODE
    }


def test_a_top_level_that_the_problem_provides_is_not_demanded():
    given = problem(
        interface=None, harness={"src/.env": "TOPLEVEL = top\n"}, context={"rtl/top.sv": USAGE}
    )
    assert demanded_modules(given) == []
    assert demanded_modules(given.model_copy(update={"context": {}})) == ["top"]


@pytest.mark.parametrize(
    "example", [EXAMPLE, f"```json\n{EXAMPLE}\n```", EXAMPLE.replace("<complete file>", HEADER)]
)
def test_an_example_of_the_json_format_is_not_the_answer(example):
    response = f"The format would be {example}\nHere it is:\n{block(CODE)}"
    assert extract_answer(response, ONE).files == {"rtl/m.sv": CODE}


def test_of_several_json_values_the_one_that_defines_the_modules_is_used():
    texts = {path: f"module {path[4]};\n  assign y = 1;\nendmodule\n" for path in TWO}
    example = {"code": [dict.fromkeys(TWO, "<complete file>")]}
    foreign = {"files": {"notes.txt": "x"}}
    for order in ((example, foreign, {"code": [texts]}), ({"code": [texts]}, example)):
        response = "\n".join(map(json.dumps, order))
        assert extract_answer(response, TWO).files == texts
    labelled = "".join(f"`{path}`:\n{block(text)}" for path, text in texts.items())
    assert extract_answer(f"{json.dumps(example)}\n{labelled}", TWO).files == texts


def test_a_port_list_under_a_files_name_does_not_hide_the_file():
    texts = {path: f"module {path[4]}(output y);\n  assign y = 1;\nendmodule\n" for path in TWO}
    ports = block("module a(output y);\n", "verilog rtl/a.sv")
    response = ports + "".join(block(text, f"verilog {path}") for path, text in texts.items())
    assert extract_answer(response, TWO).files == texts
    unlabelled = block("module a(output y);\n") + "".join(map(block, texts.values()))
    assert extract_answer(unlabelled, TWO).files == texts


CUT = "module m(input a, output y);\n  assign y ="
QUOTED = 'module x;\n  initial $display("module m; assign y = 1; endmodule");\nendmodule\n'


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (block(CODE) + block(CODE.replace("= a", "= ~a")), CODE),  # like the public runner
        (f"{block(PORTS)}{block(BENCH)}```verilog\n{CUT}", f"{CUT}\n"),
        (block(PORTS) + block(OTHER), OTHER),
        (block(BENCH.replace("m dut", "m2 dut")) + block(OTHER), OTHER),
        (block(PORTS) + block("assign y = a;\n"), PORTS),
        (block(COMMENTED) + block(QUOTED) + block(CODE), CODE),
    ],
)
def test_the_best_of_several_blocks_is_used(response, expected):
    assert extract_answer(response, ONE).files == {"rtl/m.sv": expected}
