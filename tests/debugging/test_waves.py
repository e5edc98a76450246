"""Waves of a failing answer: the design's ports around the failing check, and a whole dump for a viewer."""

import random

import pytest

from rtl_core.debugging.again import open_case
from rtl_core.debugging.waves import dump
from rtl_core.errors import HistoryError
from rtl_grader.grading import vcd
from rtl_grader.grading.vcd import read_vcd
from rtl_grader.problems.judged import judged_problem
from rtl_grader.types.verdict import Outcome
from tests.debugging.conftest import written


@pytest.mark.parametrize("name", ["starter", "verilog-eval", "cvdp"])
def test_a_failing_answer_shows_the_ports_around_its_failing_check(
    name, history, keys, problems, executor
):
    problem = problems[name][0]
    before = history.rollout(keys[name])
    found = dump(open_case(history, keys[name]), executor)
    assert found.verdict.outcome.value == "tests_failed"
    assert [signal.name for signal in found.signals] == [
        port.name for port in problem.interface.ports
    ]
    assert all(
        len(bits) == signal.width for signal in found.signals for _, bits in signal.changes
    )
    assert found.begin <= found.failed_at <= found.end
    assert found.failed_at in found.times
    whole = read_vcd(found.vcd)
    assert set(whole.scopes[found.scope]) >= {port.name for port in problem.interface.ports}
    assert history.rollout(keys[name]) == before


def test_a_starter_bench_reports_the_value_that_it_saw(history, keys, executor):
    found = dump(open_case(history, keys["starter"]), executor)
    check = found.check
    (signal,) = [signal for signal in found.signals if signal.name == check.signal]
    assert signal.at(found.failed_at) == check.got != check.expected


def test_a_golden_answer_that_judges_is_not_what_is_dumped(executor, tmp_path):
    golden = {
        "rtl/inv.v": "module inv (input clk, a, output reg y);\n  always @(posedge clk) y <= ~a;\nendmodule\n"
    }
    problem = judged_problem(
        id="inv", source="pairs", category="cid003", difficulty="easy", prompt="Invert.", golden=golden, top="inv"
    )  # fmt: skip
    wrong = f"```verilog\n{golden['rtl/inv.v'].replace('~', '')}```"
    history = written(tmp_path / "h.duckdb", {"judged": (problem, wrong)}, executor)
    found = dump(open_case(history, "inv/0"), executor)
    at = {signal.name: signal.at(found.failed_at) for signal in found.signals}
    assert found.scope.rpartition(".")[2].startswith("dut_")
    assert (at["clk"], at["y"]) == ("1", at["a"])
    assert (found.check.test, found.check.got) == ("y, phase 1", at["y"])
    assert found.check.expected == str(1 - int(at["y"]))


def test_a_benchs_reference_design_gives_expected_values(history, keys, executor):
    found = dump(open_case(history, keys["verilog-eval"]), executor)
    outputs = [signal for signal in found.signals if signal.direction == "output"]
    assert found.check.got != found.check.expected
    assert all(signal.expected for signal in outputs)
    assert any(signal.expected != signal.changes for signal in outputs)


def test_a_design_that_dumps_itself_does_not_prevent_the_waves(problems, executor, tmp_path):
    problem, text = problems["starter"]
    own = text.replace(
        "endmodule", 'initial begin $dumpfile("mine.vcd"); $dumpvars(1); end\nendmodule'
    )
    history = written(tmp_path / "h.duckdb", {"own": (problem, own)}, executor)
    found = dump(open_case(history, problem.id + "/0"), executor)
    assert [signal.name for signal in found.signals] == [
        port.name for port in problem.interface.ports
    ]
    assert found.end > 0


def test_an_answer_that_reaches_no_simulator_has_no_waves(problems, executor, tmp_path):
    problem, text = problems["starter"]
    broken = {"broken": (problem, text.replace("assign", "asign"))}
    history = written(tmp_path / "h.duckdb", broken, executor, Outcome.COMPILE_FAILED)
    with pytest.raises(HistoryError, match="has no waves: its harness started no simulation"):
        dump(open_case(history, problem.id + "/0"), executor)


HEAD = (
    b"$timescale 1ps $end\n$scope module m $end\n$var wire 1 ! a $end\n$var wire 4 % b [3:0] $end\n"
    b"$var wire 1 %! c $end\n$upscope $end\n$enddefinitions $end\n"
)


def test_a_truncated_dump_is_read_up_to_its_end():
    found = read_vcd(HEAD + b"#0\n$dumpvars\nx!\nb101 %\n$end\n#5\n1!\nb1 %\n#7\nb0 %\n#1")
    variables = found.scopes["m"]
    assert found.around(list(variables.values()), 7, 9, 9) == {
        "a": ((0, "x"), (5, "1")),
        "b": ((0, "0101"), (5, "0001"), (7, "0000")),
        "c": (),
    }
    assert [found.changed(variables[name]) for name in "abc"] == [True, True, False]
    assert (found.end, found.step_s) == (7, 1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_a_window_of_a_long_dump_equals_that_of_the_whole_dump(seed, monkeypatch):
    monkeypatch.setattr(vcd, "_BLOCK", 64)
    chance, lines, truth = (
        random.Random(seed),
        [b"#0"],
        dict[str, list[tuple[int, str]]](a=[], b=[], c=[]),
    )
    for time in range(0, 3000, 3):
        lines += [b"#%d" % time] if time else []
        for name, code, often in (("a", "!", 0.3), ("b", "%", 0.1), ("c", "%!", 0.004)):
            if chance.random() < often:
                value = (
                    chance.choice(["0", "1", "x"])
                    if name != "b"
                    else chance.choice(["0", "101", "xz"])
                )
                lines.append(
                    f"b{value} {code}".encode() if name == "b" else f"{value}{code}".encode()
                )
                truth[name].append(
                    (
                        time,
                        value.rjust(4, "x" if value == "xz" else "0") if name == "b" else value,
                    )
                )
    found = read_vcd(HEAD + b"\n".join(lines) + b"\n")
    variables = list(found.scopes["m"].values())
    moments = sorted({time for changes in truth.values() for time, _ in changes})
    for told in (0, 1, 2999, 5000, *(chance.randrange(3000) for _ in range(20))):
        window = found.around(variables, told, 5, 2)
        before, after = (
            [at for at in moments if at <= told][-6:],
            [at for at in moments if at > told][:2],
        )
        begin, end = min([*before, *after]), max([*before, *after])
        for name, changes in truth.items():
            standing = [(at, value) for at, value in changes if at < begin][-1:]
            within = [(at, value) for at, value in changes if begin <= at <= end]
            got = [(at, value) for at, value in window[name] if at <= end]
            assert [one for one in got if one[0] >= begin] == within
            assert [one for one in got if one[0] < begin][-1:] == standing
