"""What an answer can lengthen in its verdict is limited: lists of ports, parameters, files and errors, and every text in them."""

import pytest

from rtl_core.starter import problem_of, starter_specs
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import MOST_CHARS, MOST_LISTED, Outcome, shortened

PROBLEM = problem_of(starter_specs("train", 1, 1)[0])
((PATH, GOLDEN),) = PROBLEM.golden.items()
END = GOLDEN.index(");", GOLDEN.index("module "))
MANY = range(3000)


def with_ports(ports):
    return f"{GOLDEN[:END]}, {', '.join(ports)}{GOLDEN[END:]}"


def with_body(text):
    return GOLDEN.replace("endmodule", f"{text}\nendmodule")


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("extra ports", {PATH: with_ports(f"output extra_{n}" for n in MANY)}),
        (
            "many more extra ports",
            {PATH: with_ports(f"output extra_{n}" for n in range(20_000))},
        ),
        ("a port with a long name", {PATH: with_ports([f"output {'x' * 50_000}"])}),
        ("parameters", {PATH: with_body("\n".join(f"parameter P{n} = {n};" for n in MANY))}),
        (
            "modules, none of them asked for",
            {PATH: "\n".join(f"module m{n}; endmodule" for n in MANY)},
        ),
        ("files that are not asked for", {f"rtl/other_{n}.v": "" for n in MANY}),
        (
            "files beside the one that is asked for",
            {PATH: GOLDEN, **{f"rtl/other_{n}.v": "" for n in MANY}},
        ),
        (
            "unknown names",
            {PATH: with_body("\n".join(f"assign ghost_{n}.a = other_{n};" for n in MANY))},
        ),
        ("an unknown name of great length", {PATH: with_body(f"assign {'y' * 50_000}.a = z;")}),
        (
            "forbidden tasks",
            {PATH: with_body("\n".join(f'initial $system("{n}");' for n in MANY))},
        ),
        ("includes", {PATH: "\n".join(f'`include "other_{n}.vh"' for n in MANY) + GOLDEN}),
        (
            "test benches",
            {
                PATH: GOLDEN
                + "\n".join(f"module t{n}; initial #1 $finish; endmodule" for n in MANY)
            },
        ),
    ],
)
def test_the_size_of_a_verdict_does_not_grow_with_the_answer(grader, name, files):
    verdict = grader.grade(PROBLEM, Answer(files=files))
    assert verdict.outcome is not Outcome.INFRASTRUCTURE_ERROR, verdict.reasons
    assert len(verdict.model_dump_json()) < 20_000, name
    assert len(verdict.mismatches) <= MOST_LISTED
    for stage in verdict.stages:
        assert len(stage.reasons) <= MOST_LISTED


def test_a_list_that_is_cut_says_how_many_entries_are_missing_and_a_short_one_is_whole():
    twenty = tuple(f"port {n}" for n in range(MOST_LISTED))
    assert shortened(twenty) == twenty
    assert shortened([*twenty, "a", "b"]) == (*twenty[:-1], "and 3 more")
    assert shortened(shortened([*twenty, "a", "b"])) == (*twenty[:-1], "and 3 more")
    assert shortened(["x" * 100_000]) == ("x" * MOST_CHARS,)


def test_a_verdict_lists_the_reasons_of_two_stages(grader):
    flood = with_ports(f"output extra_{n}" for n in MANY)
    verdict = grader.grade(
        PROBLEM,
        Answer(files={PATH: flood.replace("endmodule", "initial #1 $fatal; endmodule")}),
    )
    assert verdict.outcome is Outcome.INTERFACE_MISMATCH
    assert [r for r in verdict.reasons if r.endswith("more")] == ["and 2,981 more"]
    assert len(verdict.reasons) > MOST_LISTED, "the failing tests are listed besides"
