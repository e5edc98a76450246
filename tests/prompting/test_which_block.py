"""Which block of a response is the answer: the one that defines the demanded module, whatever stands around it."""

import json

import pytest

from rtl_core.prompting.answer_to import answer_to, demanded_modules
from rtl_core.prompting.extraction import extract_answer
from rtl_core.types.problem import Interface, InterfaceSource, Problem

DESIGN = "module m(input a, output y);\n  assign y = a;\nendmodule\n"
OTHER = "module m2(input a, output y);\n  assign y = ~a;\nendmodule\n"
PORTS = "input  a,\noutput y\n"
HEADER = "module m(input a, output y);\n"
STUB = "module m(input a, output y);\n  wire b;\n  // the logic goes here\nendmodule\n"
ELIDED = "module m(input a, output y);\n  assign y = ...;\nendmodule\n"
COMMENTED = "// module m(input a, output y); assign y = 0; endmodule\nassign x = m;\n"
BENCH = "module tb;\n  reg a; wire y;\n  m dut(.a(a), .y(y));\n  initial begin a = 0; #5 $finish; end\nendmodule\n"
USAGE = "module top(input a, output y);\n  m u(.a(a), .y(y));\nendmodule\n"
EXAMPLE = json.dumps({"code": [{"rtl/m.sv": "<complete file>"}]})
ONE = ("rtl/m.sv",)
TWO = ("rtl/a.sv", "rtl/b.sv")


def block(text, tag="verilog"):
    return f"```{tag}\n{text}```\n"


def problem(**changes):
    interface = Interface(module="m", source=InterfaceSource.SPECIFICATION)
    given = {"id": "p", "source": "cvdp", "category": "cid003", "difficulty": "easy", "prompt": "", "targets": ("rtl/design.sv",), "harness": {}, "interface": interface}  # fmt: skip
    return Problem(**{**given, **changes})


@pytest.mark.parametrize("around", [PORTS, HEADER, STUB, ELIDED, COMMENTED, BENCH, USAGE, OTHER])
@pytest.mark.parametrize("tag", ["verilog", ""])
def test_what_stands_beside_the_design_is_not_taken_for_it(around, tag):
    before = f"The ports:\n{block(around, tag)}The design:\n{block(DESIGN)}"
    after = f"The design:\n{block(DESIGN)}More:\n{block(around, tag)}"
    for response in (before, after):
        assert extract_answer(response, ONE).files == {"rtl/m.sv": DESIGN}


@pytest.mark.parametrize("around", [PORTS, HEADER, STUB, BENCH, USAGE])
def test_the_demanded_module_counts_where_the_file_is_named_otherwise(around):
    response = block(around) + block(DESIGN)
    assert answer_to(problem(), response).files == {"rtl/design.sv": DESIGN}
    harness = {"src/.env": "TOPLEVEL = m\n"}
    assert answer_to(problem(interface=None, harness=harness), response).files == {"rtl/design.sv": DESIGN}


def test_a_top_level_that_the_problem_gives_is_not_demanded():
    given = problem(interface=None, harness={"src/.env": "TOPLEVEL = top\n"}, context={"rtl/top.sv": USAGE})
    assert demanded_modules(given) == []
    assert demanded_modules(given.model_copy(update={"context": {}})) == ["top"]


@pytest.mark.parametrize("example", [EXAMPLE, f"```json\n{EXAMPLE}\n```", EXAMPLE.replace("<complete file>", HEADER)])
def test_an_example_of_the_json_format_is_not_taken_for_the_answer(example):
    response = f"The format would be {example}\nHere it is:\n{block(DESIGN)}"
    assert extract_answer(response, ONE).files == {"rtl/m.sv": DESIGN}


def test_of_several_json_values_the_one_that_defines_the_modules_is_taken():
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


def test_of_two_whole_definitions_the_first_is_taken_as_by_the_public_runner():
    second = DESIGN.replace("= a", "= ~a")
    assert extract_answer(block(DESIGN) + block(second), ONE).files == {"rtl/m.sv": DESIGN}


def test_an_answer_that_was_cut_off_is_taken_before_its_port_list_and_its_test_bench():
    cut = "module m(input a, output y);\n  assign y ="
    assert extract_answer(block(PORTS) + block(BENCH) + f"```verilog\n{cut}", ONE).files == {"rtl/m.sv": cut + "\n"}


def test_without_the_demanded_module_a_design_is_taken_before_a_snippet_or_a_test_bench():
    for around in (PORTS, BENCH.replace("m dut", "m2 dut")):
        assert extract_answer(block(around) + block(OTHER), ONE).files == {"rtl/m.sv": OTHER}
    assert extract_answer(block(PORTS) + block("assign y = a;\n"), ONE).files == {"rtl/m.sv": PORTS}


def test_what_only_a_comment_or_a_string_says_defines_nothing():
    quoted = 'module x;\n  initial $display("module m; assign y = 1; endmodule");\nendmodule\n'
    assert extract_answer(block(COMMENTED) + block(quoted) + block(DESIGN), ONE).files == {"rtl/m.sv": DESIGN}
