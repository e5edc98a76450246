"""Validation results by reason."""

import io

from rich.console import Console

from rtl_grader.problems.problem_set import MEND
from rtl_grader.validation.table import Unfit, in_lines, reasons_of, render

CANNOT = "the harness fails by itself: the golden answer cannot judge: "


def test_goldens_that_cannot_judge_are_counted_reasons_of():
    reasons = [
        f"{CANNOT}it drives nothing",
        f"{CANNOT}it drives nothing; not proved: pyosys is not installed",
        f"{CANNOT}it does not compile: rtl/top.v:7: syntax error",
        f"{CANNOT}it does not compile: rtl/other.v:9: syntax error",
        f"{CANNOT}its port bus_i is inout",
        f"{CANNOT}its port pad is inout",
        "the golden answer fails: tests failed: no output ever changed its value; the harness ...",
        "3 of 20 mutants are paid, for example `x` to `y`",
        "7 of 20 mutants are paid, for example `u` to `v`",
    ]
    unfit = [Unfit("own", f"p{n}", "broken", reason) for n, reason in enumerate(reasons)]
    groups = {reason: len(problems) for (_, reason), problems in reasons_of(unfit).items()}
    assert groups == {
        f"{CANNOT}it drives nothing": 2,
        f"{CANNOT}it does not compile": 2,
        f"{CANNOT}its port … is inout": 2,
        "the golden answer fails: tests failed: no output ever changed its value": 1,
        "… of … mutants are paid": 2,
    }
    console = Console(width=200, file=io.StringIO())
    console.print(render({}, unfit))
    printed = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["2", "broken", *f"{CANNOT}it drives nothing".split(), "p0"] in printed
    assert MEND.split() == printed[-1]


def test_no_unfit_problem_is_hidden_without_a_count():
    unfit = [Unfit("own", f"p{n}", "broken", f"reason {n // 4}") for n in range(100)]
    left_out = Unfit("own", "file.v: left out by the reader", "unsupported", "it has no ports")
    lines = in_lines([*unfit, left_out], {one.problem for one in unfit})
    assert lines[0] == "left out: 4 of own (p0, p1, p2, ...): broken: reason 0"
    assert len(lines) == 21
    assert lines[-1] == "and 5 more"
