"""What a response may wrap around its code, and which of several designs counts (the table in docs/grading.md)."""

import html
import json
import re

import pytest

from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.extraction.response import extract_answer
from tests.nouns import a_problem

CODE = "module m(input a, output y);\n  assign y = a;\nendmodule\n"
BAD = CODE.replace("= a", "= ~a")
HELPER = "module inv(input i, output o);\n  assign o = ~i;\nendmodule\n"
TOP = "module m(input a, output y);\n  wire t;\n  inv u1(a, t);\n  inv u2(t, y);\nendmodule\n"
BENCH = "module tb;\n  reg a; wire y;\n  m dut(.a(a), .y(y));\n  initial begin a = 0; #5 $finish; end\nendmodule\n"
ONE = ("rtl/m.sv",)
BLOCK = f"```verilog\n{CODE}```\n"


def behind(mark, text):
    return "".join(mark + line for line in text.splitlines(keepends=True))


WRAPPED = {
    "answer": f"Sure.\n<answer>\n{CODE}</answer>\nDone.",
    "answer in one line": f"<answer>{CODE.strip()}</answer>",
    "upper case": f"<ANSWER>\n{CODE}</ANSWER>",
    "begin and done": f"[BEGIN]\n{CODE}[DONE]",
    "begin in one line": f"[BEGIN]{CODE.strip()}[DONE]",
    "code": f"<code>\n{CODE}</code>",
    "html": f'<pre><code class="verilog">\n{CODE}</code></pre>',
    "html in one line": f'<pre><code class="verilog">{CODE}</code></pre>',
    "file": f'<file path="rtl/m.sv">\n{CODE}</file>',
    "character data": f'<file name="rtl/m.sv"><![CDATA[\n{CODE}]]></file>',
    "details": f"<details><summary>m.sv</summary>\n\n{BLOCK}</details>",
    "bold heading": f"**rtl/m.sv**\n{BLOCK}",
    "prose": f"Here is the module:\n\n{CODE}\nIt is a wire.",
    "a word before": f"Answer: {CODE}",
    "end of turn": f"{CODE}<|im_end|>",
    "indented": f"Here:\n\n{behind('    ', CODE)}\nDone.",
    "quoted": behind("> ", BLOCK),
    "quoted within prose": f"The answer:\n\n{behind('> ', BLOCK)}\nDone.",
    "quoted without a blank": behind(">", BLOCK),
    "quoted without a fence": behind("> ", CODE),
    "list": f"1. The design\n{behind('   ', BLOCK)}",
    "list item": f"- {BLOCK}",
    "tildes": f"~~~verilog\n{CODE}~~~",
    "four graves": f"````verilog\n{CODE}````",
    "block in a block": f"````markdown\n{BLOCK}````",
    "block in a markdown block": f"```markdown\nHere:\n{BLOCK}```",
    "attributes": f"```{{.verilog .numberLines}}\n{CODE}```",
    "title": f'```verilog title="m.sv"\n{CODE}```',
    "path": f"```verilog:rtl/m.sv\n{CODE}```",
    "another language": f"```c\n{CODE}```",
    "shell": f"```bash\ncat > rtl/m.sv <<'EOF'\n{CODE}EOF\n```",
    "unclosed": f"```verilog\n{CODE}\nThis is a wire.",
    "unclosed before another": f"```verilog\n{CODE}\nIt is used so:\n```bash\nmake\n```",
    "new file as a patch": f"```diff\n--- /dev/null\n+++ b/rtl/m.sv\n@@ -0,0 +1,3 @@\n{behind('+', CODE)}```",
    "patch of the whole file": "```diff\n@@ -1,3 +1,3 @@\n module m(input a, output y);\n-  assign y = ~a;\n+  assign y = a;\n"
    " endmodule\n```",
    "response in JSON": json.dumps({"response": CODE}),
    "fenced response in JSON": json.dumps({"reasoning": "a wire", "response": BLOCK}),
    "code in JSON": json.dumps({"code": CODE}),
    "path and content in JSON": json.dumps(
        {"files": [{"path": "rtl/m.sv", "language": "verilog", "content": CODE}]}
    ),
    "name and code in JSON": json.dumps({"filename": "m.sv", "code": CODE}),
    "object of a file in JSON": json.dumps({"rtl/m.sv": {"content": CODE}}),
    "folders in JSON": json.dumps({"rtl": {"m.sv": CODE}}),
    "list in JSON": json.dumps([{"rtl/m.sv": CODE}]),
    "lines in JSON": json.dumps({"rtl/m.sv": CODE.splitlines()}),
    "module in JSON": json.dumps({"m": CODE}),
    "fenced JSON": f"```json\n{json.dumps({'response': CODE}, indent=1)}\n```",
    "JSON within prose": f"Here:\n{json.dumps({'answer': CODE})}\nDone.",
    "YAML": f"rtl/m.sv: |\n{behind('  ', CODE)}",
    "fenced YAML": f"```yaml\nrtl/m.sv: |\n{behind('  ', CODE)}```",
    "LaTeX": f"\\begin{{lstlisting}}[language=Verilog]\n{CODE}\\end{{lstlisting}}",
    "box": f"\\boxed{{\n{CODE}}}",
    "AsciiDoc": f"[source,verilog]\n----\n{CODE}----",
    "reStructuredText": f".. code-block:: verilog\n\n{behind('   ', CODE)}",
    "org": f"#+BEGIN_SRC verilog\n{CODE}#+END_SRC",
    "marker lines": f"=== rtl/m.sv ===\n{CODE}=== end ===",
    "byte order mark": f"\ufeff{CODE}",
    "no-break spaces": CODE.replace("  ", "\xa0 "),
    "bench in a block beside bare code": f"{CODE}\nA bench:\n```verilog\n{BENCH}```",
}


def words_of(text):
    return [re.sub(r"\s+", " ", unit) for unit in re.findall(r"(?s)module.*?endmodule", text)]


@pytest.mark.parametrize("name", WRAPPED)
def test_the_code_is_read_however_it_is_wrapped(name):
    (text,) = extract_answer(WRAPPED[name], ONE).files.values()
    assert words_of(text)[0] == words_of(CODE)[0]
    if "bench" not in name:
        assert text.lstrip().startswith("module")
        assert text.rstrip().endswith("endmodule")


def test_escaped_code_of_html_is_unescaped():
    code = CODE.replace("= a", "= a && (a <= 1)")
    assert extract_answer(f"<pre>{html.escape(code)}</pre>", ONE).files == {"rtl/m.sv": code}
    assert extract_answer(f"```verilog\n{html.escape(code)}```", ONE).files == {
        "rtl/m.sv": html.escape(code)
    }


def test_what_belongs_to_bare_code_stays():
    function = "function automatic t f(input t x);\n  case (x)\n    default: f = x;\n  endcase\nendfunction\n"
    head = f"// a wire\n`timescale 1ns/1ps\n`define W 1\ntypedef logic [`W-1:0] t;\n{function}import p::*;\n"
    code = f"{head}{HELPER}// then\n\n{function}(* keep *)\n{CODE}`undef W\n"
    for response in (
        code,
        f"Here it is:\n{code}",
        f"{code}I hope it helps.",
        f"<code>\n{code}</code>",
    ):
        assert extract_answer(response, ONE).files == {"rtl/m.sv": code}


def two(first, before, second):
    return f"{first}\n```verilog\n{BAD}```\n{before}\n```verilog\n{second}```\n"


@pytest.mark.parametrize(
    "response",
    [
        two("The given code is", "Here is the fixed design:", CODE),
        two("", "Final answer:", CODE),
        two("First attempt:", "That inverts. So:", CODE),
        two("The original module:", "What I changed is the inversion.", CODE),
        two("Before:", "After:", CODE),
        two("Here is the module you gave.", "The answer:", CODE),
        f"{behind('> ', BLOCK.replace(CODE, BAD))}\n{BLOCK}",
        two("", "", BAD) + f"<answer>\n{CODE}</answer>",
        two("", "", BAD) + f"<answer>\n{BLOCK}</answer>",
        f"```verilog\n{CODE}```\nAlternatively, a complete variant:\n```verilog\n{BAD}```",
        f"```verilog\n{CODE}```\nThe final version could also be\n```verilog\n{BAD}```",
        f"```verilog\n{CODE}```\nIt is short.\n```verilog\n{BAD}```",
        two("The given code:", "Corrected:", BAD) + f"Revised:\n{BLOCK}",
    ],
)
def test_of_several_complete_designs_the_one_that_the_response_presents_is_used(response):
    answer = extract_answer(response, ONE)
    assert answer.files == {"rtl/m.sv": CODE}


def test_the_answer_says_which_block_was_taken():
    assert extract_answer(two("Wrong:", "Right:", CODE), ONE).notes == (
        "rtl/m.sv: block 2 of 2",
    )
    assert extract_answer(f"Here:\n{BLOCK}", ONE).notes == ()


WITH_HELPER = {
    "before": f"```verilog\n{HELPER}```\nand the top:\n```verilog\n{TOP}```",
    "behind": f"```verilog\n{TOP}```\nwith\n```verilog\n{HELPER}```\nand a bench\n```verilog\n{BENCH}```",
    "in a file of its own": f"`rtl/inv.sv`\n```verilog\n{HELPER}```\n`rtl/m.sv`\n```verilog\n{TOP}```",
    "in JSON": json.dumps({"code": [{"rtl/inv.sv": HELPER}, {"rtl/m.sv": TOP}]}),
    "bare": f"The helper:\n{HELPER}\nThe top:\n{TOP}",
    "in tags": f'<file path="inv.sv">\n{HELPER}</file>\n<file path="m.sv">\n{TOP}</file>',
}


@pytest.mark.parametrize("name", WITH_HELPER)
def test_a_helper_module_of_another_block_belongs_to_the_answer(name):
    answer = extract_answer(WITH_HELPER[name], ONE)
    assert sorted(words_of(answer.files["rtl/m.sv"])) == sorted(words_of(HELPER + TOP))
    if "bare" not in name and "tags" not in name:
        assert "rtl/m.sv: with inv of another block" in answer.notes


def test_helpers_of_helpers_and_packages_belong_to_the_answer():
    package = "package p;\n  localparam N = 1;\nendpackage\n"
    parts = [package, HELPER.replace("~i", "~i + p::N"), TOP]
    text = extract_answer("".join(f"```verilog\n{part}```\n" for part in parts), ONE).files[
        "rtl/m.sv"
    ]
    assert text == "\n".join(parts)
    files = extract_answer("".join(f"`rtl/{n}.sv`\n```verilog\n{t}```\n" for n, t in (("m", TOP), ("b", BAD))) + HELPER,
                           ("rtl/m.sv", "rtl/b.sv")).files  # fmt: skip
    assert files["rtl/b.sv"] == BAD


@pytest.mark.parametrize(
    "other",
    [
        HELPER.replace("inv", "unused"),
        HELPER.replace("inv(", "m(").replace("~i", "i"),
        BENCH.replace("module tb", "module inv"),
        HELPER + BAD,
    ],
)
def test_no_other_block_is_added(other):
    own = TOP + HELPER
    assert extract_answer(f"```verilog\n{own}```\n```verilog\n{other}```", ONE).files == {
        "rtl/m.sv": own
    }
    if "tb" not in other:
        text = extract_answer(f"```verilog\n{TOP}```\n```verilog\n{other}```", ONE).files[
            "rtl/m.sv"
        ]
        assert text == TOP


def test_a_helper_that_the_problem_provides_is_not_added():
    response = f"The given helper:\n```verilog\n{HELPER}```\n```verilog\n{TOP}```\n"
    for at in ("context", "harness"):
        problem = a_problem(**{"harness": {}, at: {"rtl/inv.sv": HELPER}})
        assert answer_to(problem, response.replace("given", "")).files == {"rtl/m.sv": TOP}
    assert words_of(
        answer_to(a_problem(), response.replace("given", "")).files["rtl/m.sv"]
    ) == words_of(HELPER + TOP)
