"""An analysis that is killed from outside is retried; one that the text crashes fails the answer."""

import os
import signal
import subprocess
import sys
from contextlib import closing

import pytest

from rtl_core.errors import InfrastructureError
from rtl_grader.grading.analysis import AnalysisRequest, Analyst

ANSWER = "module a(input x, output y);\n  assign y = x;\nendmodule\n"
DOUBLING = (
    "`define a0 x x\n"
    + "".join(f"`define a{i + 1} `a{i} `a{i}\n" for i in range(40))
    + "module a; wire w = `a40; endmodule\n"
)
"""A text that no child can parse."""


def request(text=ANSWER):
    return AnalysisRequest(answer={"rtl/a.v": text}, top="a", design=("rtl/a.v",))


@pytest.fixture
def analyst():
    with closing(Analyst(timeout_s=10.0)) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_or_stopped_child_is_replaced(analyst, end):
    before = analyst.analyse(request())
    assert before.interface is not None
    os.kill(analyst._free[0]._process.pid, end)
    assert analyst.analyse(request()) == before


def test_a_text_that_crashes_the_child_fails():
    with closing(Analyst()) as analyst:
        assert "cannot be parsed within" in analyst.analyse(request(DOUBLING)).failed


def test_a_child_that_ends_slowly_is_waited_for(analyst):
    analyst.analyse(request())
    child = analyst._free.pop()
    child._process.kill()
    child._process.wait()
    child._process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(2); raise SystemExit(1)"]
    )
    assert child.ask(request(), 600.0) is None
    assert child.end() == 1


def test_repeated_timeouts_are_an_infrastructure_error():
    with (
        closing(Analyst(timeout_s=0.0)) as analyst,
        pytest.raises(InfrastructureError, match="broken off 3 times"),
    ):
        analyst.analyse(request(DOUBLING))
