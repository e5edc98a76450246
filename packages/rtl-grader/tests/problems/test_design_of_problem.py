"""Which modules a problem shows: they decide on which side of the split it is."""

import pytest

from rtl_grader.problems.design import modules_of, shown_modules
from tests.nouns import a_problem

BODY = "(input a, output y);\n  assign y = a;\nendmodule"


@pytest.mark.parametrize(
    "text",
    [
        f"(* keep *) module shared{BODY}",
        f"macromodule shared{BODY}",
        f"module automatic shared{BODY}",
        f"module first{BODY} module shared{BODY}",
        f'module first;\n initial $display("/*");\nendmodule\nmodule shared{BODY} // */',
        f"module\n  shared{BODY}",
        f"`ifdef A\n  module shared{BODY}\n`endif",
        f"module shared import p::*; #(parameter W = 1) {BODY}",
        f"Mend the module `shared`:\n```verilog\nmodule shared{BODY}\n```\nIt ends with endmodule.",
        f"module \\shared {BODY}",
        "module shared; endmodule : shared",
    ],
)
def test_a_module_is_seen_however_it_is_written(text):
    assert "shared" in [name for name, _ in modules_of(text)]
    assert "shared" in [
        name for name, _ in shown_modules(a_problem(context={"rtl/a.sv": text}))
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"// module shared{BODY}",
        f"/* module shared{BODY} */",
        f'module first; initial $display("module shared{BODY.splitlines()[0]}"); endmodule',
        "Write a module shared between module and endmodule; it shall be small.",
        "The module shared adds. Begin with the word module and end with endmodule.",
        "module shared(input a, output y);\n  assign y = a;\n",
    ],
)
def test_prose_comments_and_unfinished_modules_are_none(text):
    assert "shared" not in [name for name, _ in modules_of(text)]


def test_the_code_of_a_module_has_neither_comments_nor_its_neighbours():
    ((_, first), (_, second)) = modules_of(
        f"module a{BODY} // one\n(* x *) module b{BODY} /* two */"
    )
    assert first == f"module a{BODY}"
    assert second == f"module b{BODY}"
