"""The waves of a failing answer: the design's ports around the check that failed, and a whole dump for a viewer."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtl_core.debugging.vcd import read_vcd
from rtl_core.debugging.waves import waves_of
from rtl_core.errors import HistoryError
from rtl_core.grading.executors import Executor
from rtl_core.history.store import History
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Outcome
from tests.debugging.conftest import written

Problems = dict[str, tuple[Problem, str]]


@pytest.mark.parametrize("name", ["starter", "verilog-eval", "cvdp"])
def test_a_failing_answer_shows_the_ports_around_its_failing_check(
    name: str, history: History, keys: dict[str, str], problems: Problems, executor: Executor
) -> None:
    problem = problems[name][0]
    before = history.rollout(keys[name])
    found = waves_of(history, keys[name], executor)
    assert found.verdict.outcome.value == "tests_failed"
    assert problem.interface is not None
    assert found.check is not None
    assert [signal.name for signal in found.signals] == [port.name for port in problem.interface.ports]
    assert all(len(bits) == signal.width for signal in found.signals for _, bits in signal.changes)
    assert found.begin <= found.failed_at <= found.end
    assert found.failed_at in found.times
    whole = read_vcd(found.vcd.decode())
    assert set(whole.scopes[found.scope]) >= {port.name for port in problem.interface.ports}
    assert history.rollout(keys[name]) == before


def test_a_starter_bench_names_what_it_saw(history: History, keys: dict[str, str], executor: Executor) -> None:
    found = waves_of(history, keys["starter"], executor)
    check = found.check
    assert check is not None
    assert check.signal is not None
    (signal,) = [signal for signal in found.signals if signal.name == check.signal]
    assert signal.at(found.failed_at) == check.got != check.expected


def test_the_reference_of_a_bench_stands_beside_the_design(
    history: History, keys: dict[str, str], executor: Executor
) -> None:
    found = waves_of(history, keys["verilog-eval"], executor)
    outputs = [signal for signal in found.signals if signal.direction == "output"]
    assert found.check is not None
    assert found.check.got != found.check.expected
    assert all(signal.expected for signal in outputs)
    assert any(signal.expected != signal.changes for signal in outputs)


def test_a_design_that_dumps_by_itself_does_not_take_the_waves_away(
    problems: Problems, executor: Executor, tmp_path: Path
) -> None:
    problem, text = problems["starter"]
    own = text.replace("endmodule", 'initial begin $dumpfile("mine.vcd"); $dumpvars(1); end\nendmodule')
    history = written(tmp_path / "h.duckdb", {"own": (problem, own)}, executor)
    found = waves_of(history, problem.id + "/0", executor)
    assert problem.interface is not None
    assert [signal.name for signal in found.signals] == [port.name for port in problem.interface.ports]
    assert found.end > 0


def test_an_answer_that_reaches_no_simulator_has_no_waves(
    problems: Problems, executor: Executor, tmp_path: Path
) -> None:
    problem, text = problems["starter"]
    broken = {"broken": (problem, text.replace("assign", "asign"))}
    history = written(tmp_path / "h.duckdb", broken, executor, Outcome.COMPILE_FAILED)
    with pytest.raises(HistoryError, match="has no waves: its harness started no simulation"):
        waves_of(history, problem.id + "/0", executor)


def test_a_rollout_that_is_not_there_is_said_so(executor: Executor, history: History) -> None:
    with pytest.raises(HistoryError, match="there is no rollout"):
        waves_of(history, "nothing/of/that/name", executor)


def test_a_dump_that_is_cut_off_is_read_as_far_as_it_goes() -> None:
    text = (
        "$timescale 1ps $end\n$scope module m $end\n$var wire 1 ! a $end\n$var wire 4 % b [3:0] $end\n"
        "$upscope $end\n$enddefinitions $end\n#0\n$dumpvars\nx!\nb101 %\n$end\n#5\n1!\nb1 %\n#7\nb0 %\n#1"
    )
    found = read_vcd(text)
    variables = found.scopes["m"]
    assert found.changes(variables["a"]) == ((0, "x"), (5, "1"))
    assert found.changes(variables["b"]) == ((0, "0101"), (5, "0001"), (7, "0000"))
    assert (found.end, found.step_s) == (7, 1e-12)
