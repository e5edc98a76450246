"""Ways to hide a system task from one preprocessor that another one sees. Data for attacks and for the fuzzer.

In the texts `@T` is the task's name without its dollar, `@H` its first letters and `@L` the rest.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trick:
    """`before` stands ahead of the module; `opening`, the statement with `call` in it, and `closing` stand in it."""

    name: str
    idea: str
    before: str = ""
    call: str = "$@T"
    opening: str = ""
    closing: str = ""

    def hide(self, task: str, statement: str) -> tuple[str, str]:
        """(text ahead of the module, text inside) for a statement whose call of `task` is written `@CALL`."""
        half = len(task) // 2
        texts = [self.before, self.opening + statement.replace("@CALL", self.call) + self.closing]
        for mark, text in (("@T", task), ("@H", task[:half]), ("@L", task[half:])):
            texts = [one.replace(mark, text) for one in texts]
        return texts[0], texts[1]


PASTED = [
    Trick("dollar before a macro", "Icarus joins the dollar and the macro's text", "`define N @T\n", "$`N"),
    Trick("half a name before a macro", "Icarus joins both halves", "`define N @L\n", "$@H`N"),
    Trick("half a name behind a macro", "the macro's text comes first", "`define N() $@H\n", "`N()@L"),
    Trick("three macros in a row", "three pieces", "`define A @H\n`define B @L\n", "$`A`B"),
    Trick("arguments joined", "the standard's own paste operator", "`define C(a, b) a``b\n", "`C($@H,@L)"),
    Trick("macro of a macro", "the name of the macro that holds the task is itself a macro", "`define M @T\n`define N `M\n", "$`N"),
    Trick("undefined macro between", "an undefined macro is nothing to Icarus", "`define N @T\n", "$`NOT_DEFINED`N"),
    Trick("body that ends in a comment", "one reading cuts the comment off, the other the call", "`define N @T // x\n", "$`N"),
    Trick("comment within the body", "a comment may join or part two words", "`define N @H/**/@L\n", "$`N"),
    Trick("joined in the body", "the paste operator in a macro without arguments", "`define N @H``@L\n", "$`N"),
    Trick("name as an argument", "the argument is the task's name", "`define N(x) $``x\n", "`N(@T)"),
    Trick("name as an argument, dollar outside", "the same by joining of Icarus", "`define N(x) x\n", "$`N(@T)"),
    Trick("macro's name as an argument", "an argument that is expanded late", "`define M @T\n`define N(x) $`x\n", "`N(M)"),
    Trick("default argument", "the task stands in a default", "`define N(x=@T) $``x\n", "`N()"),
    Trick("dollar alone in a macro", "the dollar comes from a macro", "`define D() $\n", "`D()@T"),
    Trick("body over two lines", "a continued line in the middle of the name", "`define N @H\\\n@L\n", "$`N"),
    Trick("body begins with a space", "space before the text of a macro", "`define N  \t @T\n", "$`N"),
    Trick("redefined", "the second definition counts", "`define N display\n`define N @T\n", "$`N"),
    Trick("defined within a macro", "a macro's body defines another", "`define OUT `define N @T\n`OUT\n", "$`N"),
    Trick("empty argument list", "an empty argument in front of the name", "`define E(x) x\n", "$`E()@T"),
    Trick("macro that looks like a directive", "a macro of a directive's name", "`define pragma_x @T\n", "$`pragma_x"),
    Trick("escaped macro name", "a macro whose name is escaped", "`define \\N @T\n", "$`N"),
    Trick("line number in between", "a built-in macro expands to digits", "`define @T1 x\n", "$@T`__LINE__"),
    Trick("long macro chain", "twenty macros deep", "`define N0 @T\n" + "".join(f"`define N{i} `N{i - 1}\n" for i in range(1, 20)), "$`N19"),
    Trick("quoted mark in the body", "a string mark escaped for macros", "`define N @T `\" //`\"\n", "$`N"),
]  # fmt: skip

BRACKETS = [
    Trick(f"open {name} in an argument", "one reader waits for the bracket's partner, the other ends the argument", "`define SECOND(a, b) b\n`define FIRST(a) a\n", opening=f"`SECOND({text}, ", closing=end)
    for name, text, end in (
        ("square bracket", "[", ")"), ("square bracket, closed later", "[", ") //]"), ("brace", "{", ")"), ("brace, closed later", "{", ") //}"),
        ("closing bracket", "]", ")"), ("closing brace", "}", ")"), ("string with a bracket", '"("', ")"), ("comment with a bracket", "/*(*/", ")"),
        ("line comment with a bracket", "//(\n", ")"), ("escaped name with a bracket", "\\( ", ")"), ("string with a comma", '",("', ")"),
    )
]  # fmt: skip

GUARDS = [
    Trick(f"{word} not defined", "a macro that one reader predefines", opening=f"`ifndef {word}\n", closing="\n`endif")
    for word in (
        "__slang__", "__slang_major__", "__slang_minor__", "SV_COV_START", "SV_COV_STOP", "SV_COV_RESET", "SV_COV_CHECK", "SV_COV_MODULE",
        "SV_COV_HIER", "SV_COV_ASSERTION", "SV_COV_FSM_STATE", "SV_COV_STATEMENT", "SV_COV_TOGGLE", "SV_COV_OVERFLOW", "SV_COV_ERROR",
        "SV_COV_NOCOV", "SV_COV_OK", "SV_COV_PARTIAL",
    )
] + [
    Trick("__slang__ else", "the branch for everybody else", opening="`ifdef __slang__\n`else\n", closing="\n`endif"),
    Trick("__slang__ elsif", "the same in a chain", opening="`ifdef __slang__\n`elsif __slang_major__\n`else\n", closing="\n`endif"),
    Trick("__slang__ redefines", "one reader sees another body", "`ifdef __slang__\n`define N display\n`else\n`define N @T\n`endif\n", "$`N"),
    Trick("__slang__ as text", "its value makes a name", "`define N(x) $``x\n", "`N(@T)", "`ifndef __slang__\n", "\n`endif"),
    Trick("undefineall", "Icarus keeps what is to be forgotten", "`define KEPT\n`undefineall\n", opening="`ifdef KEPT\n", closing="\n`endif"),
    Trick("undefineall of a name", "the same for a macro with a text", "`define N @T\n`define K display\n`undefineall\n", "$`N"),
    Trick("undef with arguments", "what stands behind the name is ignored or not", "`define KEPT\n`undef KEPT_NOT KEPT\n", opening="`ifdef KEPT\n", closing="\n`endif"),
    Trick("resetall", "resets directives, no macros", "`define KEPT\n`resetall\n", opening="`ifdef KEPT\n", closing="\n`endif"),
    Trick("predefined by Icarus", "a macro of the simulator", opening="`ifdef __ICARUS__\n", closing="\n`endif"),
    Trick("predefined by Icarus, negated", "the same in the other branch", opening="`ifndef __ICARUS__\n`else\n", closing="\n`endif"),
    Trick("two else branches", "readers differ in which one counts", opening="`ifdef NO\n`else\n`else\n", closing="\n`endif"),
    Trick("elsif behind else", "the same", opening="`ifdef NO\n`else\nwire w0;\n`elsif NO2\n", closing="\n`endif"),
    Trick("guard with rubbish behind it", "words behind the name are ignored or not", opening="`ifndef NO NO2 NO3\n", closing="\n`endif NO"),
    Trick("guard and code on one line", "a line may hold several directives", opening="`ifndef NO ", closing=" `endif"),
    Trick("guard by a comment", "a comment stands for a space", opening="`ifndef/**/NO\n", closing="\n`endif"),
    Trick("guard by a continued line", "a line end in front of the name", opening="`ifndef\nNO\n", closing="\n`endif"),
    Trick("guard of an escaped name", "an escaped name as a macro", opening="`ifndef \\NO \n", closing="\n`endif"),
    Trick("guard within a macro", "a macro's body holds the condition", "`define ON `ifndef NO\n", opening="`ON\n", closing="\n`endif"),
    Trick("tool macro by a macro", "the guarded name comes from a macro", "`define T __ICARUS__\n", opening="`ifdef `T\n", closing="\n`endif"),
    Trick("keyword as a macro", "a keyword is defined as a macro", "`define begin @T\n", "$`begin"),
]  # fmt: skip

TEXT = [
    Trick("escaped name with a comment in it", "a filter takes the rest of the line for a comment", opening="wire \\// ; "),
    Trick("escaped name that opens a comment", "a filter waits for the comment's end", opening="wire \\/* ; ", closing=" /* */"),
    Trick("escaped name that ends in a comment", "a comment inside a longer name", opening="wire \\a//b ; "),
    Trick("escaped name with a quote", "a filter takes the rest for a string", opening='wire \\" ; ', closing=' // "'),
    Trick("escaped name with a grave", "a macro within an escaped name", "`define X y\n", opening="wire \\`X ; "),
    Trick("escaped name at a line's end", "the line end ends the name", opening="wire \\//\n; "),
    Trick("escaped name ended by a tab", "a tab ends the name", opening="wire \\//\t; "),
    Trick("string that ends in backslashes", "an even number of them", opening='initial $display("\\\\"); ', closing=' // "'),
    Trick("string with a comment", "a comment in a string is none", opening='initial $display("//"); '),
    Trick("string that opens a comment", "the same", opening='initial $display("/*"); ', closing=' // */'),
    Trick("string over a line", "a continued string", opening='initial $display("a\\\nb"); '),
    Trick("comment in a comment", "block comments do not nest", opening="/* /* */ ", closing=" /* */"),
    Trick("comment that looks open", "a slash behind the star", opening="/*/ */ "),
    Trick("line comment that ends in a backslash", "a backslash does not continue a comment", opening="// x \\\n"),
    Trick("line comment that opens a block", "a block in a line comment is none", opening="// /*\n", closing=" // */"),
    Trick("block comment in a macro", "a comment that a macro swallows", "`define C /*\n", opening="`C ", closing=" /* */"),
    Trick("sensitivity that looks like a comment", "a star in brackets", opening="reg z0; always @(*) z0 = 1; ", closing=" // *)"),
    Trick("attribute", "an attribute in front of the call", opening="(* keep = \"//\" *) wire z1; "),
    Trick("line directive", "names another file and line", opening='`line 1 "/*" 0\n'),
    Trick("line directive over its argument", "a line directive in two lines", opening='`line\n1 "x.v" 0\n'),
    Trick("timescale with a comment", "a comment between its parts", opening="`timescale 1ns/ /*\n*/1ns\n"),
    Trick("call over lines", "name and arguments apart", call="$@T\n\n"),
    Trick("comment behind the name", "a comment before the arguments", call="$@T/**/"),
    Trick("escaped call", "an escaped name is not a task, or is it", call="\\$@T "),
    Trick("upper case", "names are case-sensitive", call="$@T"),
] + [
    Trick(f"line comment ended by {name}", "one reader ends a comment there, the other does not", opening=f"// x{char}")
    for name, char in (("CR", "\r"), ("VT", "\v"), ("FF", "\f"), ("FS", "\x1c"), ("NEL", "\x85"), ("LS", "\u2028"), ("PS", "\u2029"))
] + [
    Trick(f"directive with {name}", "one reader takes it for a space, the other does not", f"`define{char}N{char}@T\n", "$`N")
    for name, char in (("a tab", "\t"), ("VT", "\v"), ("FF", "\f"), ("NBSP", "\xa0"), ("CR", "\r"), ("FS", "\x1c"), ("NEL", "\x85"))
] + [
    Trick(f"text behind {name}", "a reader may end there", opening=char) for name, char in
    (("Ctrl-Z", "\x1a"), ("a BOM", "\ufeff"), ("a form feed", "\f"), ("a backspace", "\b"), ("a zero-width space", "\u200b"), ("Ctrl-D", "\x04"))
]  # fmt: skip

TRICKS = [*PASTED, *BRACKETS, *GUARDS, *TEXT]
