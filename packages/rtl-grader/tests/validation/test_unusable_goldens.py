"""Golden answers that cannot judge are named with the reason, and counted."""

from rtl_grader.problems.judged import judged_problem
from rtl_grader.validation.level import Level
from rtl_grader.validation.table import by_source, reasons_of
from rtl_grader.validation.validate import validate_problem

GOLDENS = {
    "fine": "(input a, input c, output b); assign b = a ^ c;",
    "constant": "(input [31:0] a, output [3:0] b); assign b = 4'd5;",
    "unknown": "(input clk, input a, output reg b); reg q; always @(posedge clk) {b, q} <= {q, q ^ a};",
    "empty": "(input a, output b);",
    "failing": "(input a, output b); assign b = missing_function(a);",
    "pad": "(input a, inout b); assign b = a ? 1'bz : 1'b0;",
}


def test_golden_answers_that_cannot_judge_are_counted_reasons_of(grader):
    level = Level("quick", 0, (1,), stubs=(), generated_stubs=())
    records = {}
    for name, rest in GOLDENS.items():
        problem = judged_problem(
            id=name,
            source="own",
            category="cid003",
            difficulty="easy",
            prompt=f"Write {name}.",
            golden={f"rtl/{name}.sv": f"module {name}{rest}\nendmodule\n"},
            top=name,
        )
        records[name] = validate_problem(problem, grader, level=level)
    _, unfit = by_source(records)
    reasons = {reason.rpartition("cannot judge: ")[2]: ids for (_, reason), ids in reasons_of(unfit).items()}  # fmt: skip
    assert reasons == {
        "its outputs never change": ["constant"],
        "its outputs are X nearly always": ["unknown"],
        "it drives nothing": ["empty"],
        "it does not compile": ["failing"],
        "its port … is inout": ["pad"],
    }
