"""Stand-in answers compile and have the interface that a harness may use."""

import subprocess

from rtl_grader.grading.stand_in import stand_in
from rtl_grader.types.problem import Interface, InterfaceSource, Parameter, Port
from tests.nouns import a_problem

RUNNER = """
from cocotb_tools.runner import get_runner
runner = get_runner("icarus")
words = {"input": 1, "output": 2}
runner.build(sources=["/code/rtl/top.sv"], hdl_toplevel="top", parameters={"WIDTH": 4, "depth": 2, "a": 1})
"""


def problem(**changed):
    interface = Interface(
        module="top", source=InterfaceSource.HARNESS,
        ports=(Port(name="clk"), Port(name="a", direction="input"), Port(name="y", width=3)),
        parameters=(Parameter(name="ZERO", default=0),),
    )  # fmt: skip
    harness = {"src/test_runner.py": RUNNER}
    return a_problem(
        targets=("rtl/top.sv", "rtl/part.sv"), harness=harness, interface=interface, **changed
    )


def test_an_empty_module_has_the_demanded_ports_and_every_parameter_that_the_harness_may_set(
    tmp_path,
):
    files = stand_in(problem())
    assert files["rtl/part.sv"] == "// nothing\n"
    text = files["rtl/top.sv"]
    assert all(
        line in text
        for line in ("  input clk", "  input [1023:0] a", "  output [2:0] y", "y = ~0")
    )
    assert all(
        f"parameter {setting}" in text for setting in ("ZERO = 0", "WIDTH = 8", "depth = 8")
    )
    assert not any(f"parameter {word} " in text for word in ("input", "output", "top", "a"))
    (tmp_path / "top.sv").write_text(text)
    subprocess.run(["iverilog", "-g2012", "-t", "null", tmp_path / "top.sv"], check=True)


def test_a_module_found_only_in_documents_and_test_benches_is_written():
    shown = "module top(input clk); endmodule\n"
    context = {"docs/top.md": f"```verilog\n{shown}```\n", "verif/tb.sv": shown}
    assert "module top" in stand_in(problem(context=context))["rtl/top.sv"]
    assert stand_in(problem(context={"rtl/other.sv": shown}))["rtl/top.sv"] == "// nothing\n"


def test_the_golden_answer_is_the_stand_in_if_there_is_one():
    golden = {"rtl/top.sv": "module top; endmodule\n"}
    assert stand_in(problem(golden=golden)) == golden
