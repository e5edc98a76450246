"""Interface differences, and which of them make a harness run needless."""

import pytest

from rtl_grader.grading.interface_check import compare, is_fatal, is_hopeless
from rtl_grader.types.problem import Interface, InterfaceSource, Port
from rtl_grader.types.verdict import InterfaceMismatch, MismatchKind

ENV = "TOPLEVEL = top\nMODULE = test_top\n"
MISSING_TOP = (InterfaceMismatch(kind=MismatchKind.WRONG_MODULE, name="top"),)


def test_a_missing_module_is_reported_with_the_existing_ones():
    demand = Interface(module="top", source=InterfaceSource.SPECIFICATION)
    answer = {"rtl/a.sv": "// a module for sums, see module gcd_top\nmodule other; endmodule\n"}
    (mismatch,) = compare(demand, None, answer)
    assert (mismatch.kind, mismatch.got) == (MismatchKind.WRONG_MODULE, "other")
    (mismatch,) = compare(
        demand, None, {"rtl/a.sv": "`ifdef NEVER\nmodule top; endmodule\n`endif"}
    )
    assert (
        str(mismatch)
        == "wrong module `top`: expected top, got none of that name that can be parsed"
    )


def test_a_comment_declares_nothing():
    demand = Interface(
        module="top", ports=(Port(name="ready"),), source=InterfaceSource.HARNESS, exact=False
    )
    got = Interface(module="top", source=InterfaceSource.CONTEXT)
    assert compare(demand, got, {"rtl/a.sv": "module top; // ready\nendmodule"})
    assert not compare(demand, got, {"rtl/a.sv": "module top; wire ready; endmodule"})


@pytest.mark.parametrize(
    ("harness", "sources", "fatal"),
    [
        ({"src/.env": ENV}, ["module other; endmodule"], True),
        ({"src/.env": "SIM = icarus\n"}, ["module other; endmodule"], False),
        ({"src/.env": ENV}, ["`ifdef SIMULATION\nmodule top; endmodule\n`endif"], False),
        ({"src/.env": "TOPLEVEL = testbench\n"}, ["module other; endmodule"], False),
    ],
    ids=[
        "the top level is missing",
        "no top level is named",
        "it may be there",
        "another top level",
    ],
)
def test_only_a_missing_top_level_is_fatal(harness, sources, fatal):
    assert is_fatal(MISSING_TOP, harness, sources) is fatal


@pytest.mark.parametrize(
    "kind", [kind for kind in MismatchKind if kind is not MismatchKind.WRONG_MODULE]
)
def test_no_other_difference_is_fatal(kind):
    used = {
        "src/.env": ENV,
        "src/test_top.py": "@cocotb.test()\nasync def t(dut):\n    dut.q.value = 1\n",
    }
    assert not is_fatal((InterfaceMismatch(kind=kind, name="q"),), used, [])


def test_only_a_missing_port_that_the_harness_uses_is_hopeless():
    text = "@cocotb.test()\nasync def t(dut):\n    dut.q.value = 1\n    # dut.ghost.value = 1\n"
    harness = {"src/.env": ENV, "src/test_top.py": text}
    assert is_hopeless((InterfaceMismatch(kind=MismatchKind.MISSING_PORT, name="q"),), harness)
    assert not is_hopeless(
        (InterfaceMismatch(kind=MismatchKind.MISSING_PORT, name="ghost"),), harness
    )
    assert not is_hopeless(
        (InterfaceMismatch(kind=MismatchKind.WRONG_WIDTH, name="q"),), harness
    )


@pytest.mark.parametrize(
    "text", ["assign y = a;\n", "  always @(posedge clk) y <= a;\nendmodule\n"]
)
def test_a_fragment_is_called_a_fragment(text):
    expected = Interface(module="top", source=InterfaceSource.SPECIFICATION)
    (mismatch,) = compare(expected, None, {"rtl/top.sv": text})
    assert (
        str(mismatch)
        == "a fragment, not the whole file: no module begins in it, expected `top`"
    )
    (mismatch,) = compare(expected, None, {"rtl/top.sv": f"module other;\n{text}endmodule\n"})
    assert "wrong module `top`: expected top, got other" in str(mismatch)
