"""An analysis that is broken off from outside is no fault of the answer's; one that the text ends is."""

import os
import signal
import subprocess
import sys

import pytest

from rtl_core.errors import InfrastructureError
from rtl_core.grading.analysis import AnalysisRequest, Analyst

ANSWER = "module a(input x, output y);\n  assign y = x;\nendmodule\n"
DOUBLING = (
    "`define a0 x x\n"
    + "".join(f"`define a{i + 1} `a{i} `a{i}\n" for i in range(40))
    + "module a; wire w = `a40; endmodule\n"
)
"""A text that no child takes apart."""


def request(text: str = ANSWER) -> AnalysisRequest:
    return AnalysisRequest(answer={"rtl/a.v": text}, top="a", design=("rtl/a.v",))


@pytest.fixture
def analyst():
    made = Analyst(timeout_s=10.0)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_a_child_that_is_killed_or_stopped_costs_time_and_no_verdict(analyst, end):
    before = analyst.analyse(request())
    assert before.interface is not None
    os.kill(analyst._free[0]._process.pid, end)
    assert analyst.analyse(request()) == before


def test_a_text_that_takes_the_child_down_is_told_so():
    analyst = Analyst()
    try:
        found = analyst.analyse(request(DOUBLING))
    finally:
        analyst.close()
    assert found.failed is not None
    assert "cannot be parsed within" in found.failed


def test_a_child_that_takes_long_to_end_is_waited_for(analyst):
    analyst.analyse(request())
    child = analyst._free.pop()
    child._process.kill()
    child._process.wait()
    child._process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(2); raise SystemExit(1)"])
    assert child.ask(request(), 600.0) is None
    assert child.end() == 1


def test_a_machine_without_a_moment_for_it_is_not_the_answers_fault():
    analyst = Analyst(timeout_s=0.0)
    try:
        with pytest.raises(InfrastructureError, match="broken off 3 times"):
            analyst.analyse(request(DOUBLING))
    finally:
        analyst.close()
