"""Names of the design that a harness' executed code uses, read from its source."""

import pytest

from rtl_grader.problems.harness_use import harness_use

ENV = {"src/.env": "MODULE = test_top\nTOPLEVEL = top\n"}


def use(text, **further):
    return harness_use({**ENV, "src/test_top.py": text, **further})


def use_in_test(*lines):
    """What the statements of one cocotb test use."""
    return use(
        "@cocotb.test()\nasync def t(dut):\n" + "".join(f"    {line}\n" for line in lines)
    )


CLOCK = "cocotb.start_soon(Clock(dut.clk, 10).start())"


def test_driven_and_touched_names():
    found = use_in_test(
        CLOCK,
        "dut.a.value = 1",
        "dut.mem[3].value = 2",
        "dut.b.setimmediatevalue(0)",
        "dut.c <= 1",
        "await reset(dut.rst)",
        "assert dut.y.value <= 3 and dut.z.value == 1",
    )
    assert set(found.driven) == {"clk", "a", "mem", "b", "c"}
    assert set(found.touched) == {"rst", "y", "z"}


def test_moved_names_get_more_than_one_constant():
    found = use_in_test(
        CLOCK,
        "dut.cleared.value = 0",
        "dut.toggled.value = 0",
        "dut.toggled.value = 1",
        "dut.drawn.value = random.getrandbits(8)",
        "dut.cleared.value = 0",
    )
    assert found.moved == {"clk", "toggled", "drawn"}


@pytest.mark.parametrize(
    "wait",
    [
        "RisingEdge(dut.valid)",
        "FallingEdge(dut.valid)",
        "Edge(dut.valid)",
        "ClockCycles(dut.valid, 3)",
    ],
)
def test_waiting_for_an_edge_does_not_drive(wait):
    found = use_in_test(f"await {wait}", "dut.a.value = 1")
    assert (found.driven, found.touched) == (("a",), ("valid",))


def test_clocks_and_signals_with_a_rising_edge_have_one_bit():
    waits = (
        "await RisingEdge(dut.done)",
        "await Edge(dut.bus)",
        "await FallingEdge(dut.bits[2])",
    )
    assert use_in_test("Clock(dut.clk, 10)", *waits).scalars == {"clk", "done"}


def test_a_signal_in_capitals_that_is_waited_for_is_not_a_parameter():
    found = use_in_test("await FallingEdge(dut.TX)", "w = int(dut.WIDTH.value)")
    assert (found.names, found.parameters) == (("TX",), {"WIDTH"})


DEAD = {
    "a comment": "    # dut.ghost.value = 1\n",
    "a string": '    log("dut.ghost.value = 1")\n',
    "if False": "    if False:\n        dut.ghost.value = 1\n",
    "if 0": "    if 0:\n        dut.ghost.value = 1\n",
    "a constant name": "    debug = 0\n    if debug:\n        print(dut.ghost.value)\n",
    "a constant of the file": "    if DEBUG and x:\n        print(dut.ghost.value)\n",
    "not True": "    if not True:\n        dut.ghost.value = 1\n",
    "the else of True": "    if True:\n        pass\n    else:\n        dut.ghost.value = 1\n",
    "the else of not a constant": "    gates = False\n    if not gates:\n        pass\n    else:\n        dut.ghost.value = 1\n",
    "after return": "    return\n    dut.ghost.value = 1\n",
    "after raise": "    raise TestSuccess('done')\n    dut.ghost.value = 1\n",
    "an uncalled nested function": "    async def inner():\n        dut.ghost.value = 1\n",
    "hasattr": "    if hasattr(dut, 'ghost'):\n        dut.ghost.value = 1\n",
    "hasattr in an expression": "    x = dut.ghost.value if hasattr(dut, 'ghost') else 0\n",
    "a default": "    x = getattr(dut, 'ghost', None)\n",
    "try": "    try:\n        dut.ghost.value = 1\n    except AttributeError:\n        pass\n",
    "an attribute of the handle": "    dut._log.info('x')\n",
}


@pytest.mark.parametrize("code", DEAD.values(), ids=DEAD)
def test_unexecuted_and_guarded_code_does_not_count(code):
    found = use(
        f"DEBUG = False\n@cocotb.test()\nasync def t(dut):\n    dut.a.value = 1\n{code}"
    )
    assert found.names == ("a",)


TEST = "@cocotb.test()\nasync def t(dut):\n    dut.a.value = 1\n"
USES = {
    "a function that a test reaches": (
        f"import harness_library as h\n{TEST}    await h.init(dut)\n",
        {"a", "b"},
        {"src/harness_library.py": "async def reset_dut(dut):\n    dut.ghost.value = 1\nasync def init(dut):\n    await deeper(dut)\n"
         "async def deeper(dut):\n    dut.b.value = 0\n"},
    ),
    "a function that is only named as a test": (f"async def test_old(dut):\n    dut.ghost.value = 1\n{TEST}", {"a"}, {}),
    "a test that is skipped": (f"@cocotb.test(skip=True)\nasync def s(dut):\n    dut.ghost.value = 1\n{TEST}", {"a"}, {}),
    "a file that nothing names": (TEST, {"a"}, {"src/test_of_last_year.py": TEST.replace("dut.a", "dut.ghost")}),
    "a name that must be there": (f'{TEST}    assert hasattr(dut, "key"), "no key"\n', {"a", "key"}, {}),
    "a name in a string": (f'{TEST}    getattr(dut, "b").value\n', {"a", "b"}, {}),
    "a design under another name, kept by a class": (
        "class TB:\n    def __init__(self, d):\n        self.dut = d\n        self.dut.a.value = 0\n"
        "    def unused(self):\n        self.dut.ghost.value = 0\n"
        "@cocotb.test()\nasync def t(device):\n    tb = TB(device)\n    device.b.value = 1\n",
        {"a", "b"},
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", USES)
def test_only_code_that_a_test_reaches_counts(what):
    text, names, further = USES[what]
    assert set(use(text, **further).names) == names


def test_parameters_come_from_the_build_call():
    runner = {
        "src/test_runner.py": "def test_runner():\n    runner.build(parameters={'WIDTH': 4}, build_args=['-Ptop.DEPTH=3'])\n"
        "# parameters={'OLD': 1}\n",
        "docker-compose.yml": "command: pytest /src/test_runner.py",
    }
    found = use(TEST.replace("1", "int(dut.N.value)"), **runner)
    assert {"WIDTH", "DEPTH", "N"} <= found.parameters
    assert "OLD" not in found.parameters


@pytest.mark.parametrize(
    "text",
    ["", "async def (", "\0", "x = " + "(" * 3000, "x = " + "-" * 200_000 + "1", "dut." * 5],
)
def test_invalid_python_names_nothing(text):
    assert use(text).names == ()
