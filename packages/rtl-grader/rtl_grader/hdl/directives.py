"""Macros and directives in HDL text by which tools could read one text as several designs.

Each tool defines macros of its own, and no two preprocessors agree on everything: Icarus' one knows neither escaped
identifiers nor, in text that it skips, strings. `decided` makes conditions the same for all tools; `differences` finds
what remains.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from rtl_grader.hdl.text import HIDDEN, bare, code_of, emptied, macros_of

_OF_TOOLS = re.compile(
    r"SYNTHESIS|(?:YOSYS|VERILATOR|verilator|systemc_|SV_COV_|__slang|COCOTB)\w*|coverage_block_off|SYSTEMVERILOG"
    r"|__ICARUS__|ICARUS|IVERILOG",
    re.A,
)
"""Macros that a tool defines, or that designs use to tell tools apart."""
PLAIN_DIRECTIVE = re.compile(
    r"else|endif|include|timescale|default_nettype|resetall|(?:end)?celldefine|(?:no)?unconnected_drive"
    r"|(?:begin|end)_keywords|__FILE__|__LINE__"
)
"""Directives without the name of a macro, on which all tools agree."""
_USE = re.compile(
    r"(?<!`)`(?:``)*+(?:(define|undef|ifdef|ifndef|elsif)[ \t]+)?([A-Za-z_][\w$]*+)(``)?",
    re.A,
)
"""A directive with its macro, another directive, or the use of a macro; and whether the name is pasted to others."""
_CONDITION = re.compile(
    r"(`(?:ifdef|ifndef|elsif)[ \t]+)(?!__ICARUS__\b)([A-Za-z_][\w$]*+)", re.A
)
_ICARUS = re.compile(r"`(ifdef|ifndef)([ \t]+)__ICARUS__\b", re.A)
_NEVER = "RTL_NO_TOOL"
"""A macro that is never defined."""
_DEAD = re.compile(
    rf"^[ \t]*`ifdef[ \t]+{_NEVER}[ \t]*\n((?:(?!`(?:if|els|endif))[\s\S])*)(?=`els|`endif)",
    re.M,
)
"""A branch that no tool reads, without conditions in it and outside of definitions."""
_SPACED = re.compile(r"\\[ \t\f]+\n")
"""A backslash that continues a line for Icarus only."""
_DEFINITION = re.compile(r"`define(?:\\\n|[^\n])*+")
_WHOLE = re.compile(r"`ifn?def\b(?:(?!`if|`endif)[\s\S])*`endif\b")
_UNEVEN = re.compile(r"(?<!\\)\n|`(?:if|els|endif)")
"""In the code of a definition: a line end whose backslash is in a comment or a string, or a part of a condition."""
_ODD = re.compile(
    r"""\\[^ \t\n\r\f]*?(?:["`\0-\x08\x0b\x0e-\x1f\x7f]|/[/*]|\(\*)|\"""|"(?:\\.|[^"\\\n])*?(?:`\w|/\*|//[^\n]*`\w)""",
    re.S,
)
"""An escaped name or a string in which a preprocessor sees a comment, a macro, or its end."""
_ATTRIBUTE = re.compile(r"\(\*(?!\s*\)).*?\*\)", re.S)
_TIME = re.compile(
    r"(?:`timescale|\btimeunit|\btimeprecision)[^;\n]*|#\s*\(?\s*[\d._]+\s*[munpf]?s\b"
    r"|(?<![\w'$.])(?P<value>\d[\d._]*[munpf]?s)\b",
    re.A,
)
"""A literal of time. Its value depends on the time unit, which only some tools are given, except as a delay."""
_MISREAD = re.compile(r"[`\"]|/[/*]|\*/")
"""What a tool may act on in a skipped string, comment or escaped name that it does not take for one."""
_SYNTHESIS_COMMENT = re.compile("translate_o|synthesis", re.I)
_TRANSLATE_OFF = re.compile(r"((?://|/\*)[^\n]*?translate)_(o(?:ff|n))", re.I)
_ASSERTION_CONTROL = re.compile(
    r"\$assert(?:on|off|kill|control|(?:pass|fail|nonvacuous|vacuous)(?:on|off))\b(\s*\([^()]*\))?\s*;"
)
_SYNTHESIS_OFF = re.compile(r"((?://|/\*)[ \t]*synthesis[ \t]+)(?:off|on)\b", re.I)
_CONTROL = re.compile(r"[\0-\x08\x0b\x0e-\x1f\x7f]")


def macros_in_use(
    files: Iterable[str], context: Iterable[str], harness: Iterable[str]
) -> frozenset[str]:
    """Macros that the texts of an answer name and that the answer, its context or the harness may define.

    The harness defines them in many ways (`-DW=4`, `defines={"W": 4}`), so a name that it mentions counts.
    """
    files, harness_text = list(files), "\n".join(harness)
    names = {use[2] for text in files for use in _USE.finditer(text)}
    names = {name for name in names if not _OF_TOOLS.fullmatch(name)}
    if not names:
        return frozenset()
    definitions = {name for text in (*files, *context) for name in macros_of(text)}
    return frozenset(name for name in names if name in definitions or name in harness_text)


def decided(text: str, macros: Collection[str]) -> str:
    """The text with conditions on macros that only a tool may define decided as in Icarus; `macros` are the others.

    Branches that no tool reads are left empty, so that nobody has to judge what is in them.
    """

    def unless_known(condition: re.Match[str]) -> str:
        return condition[0] if condition[2] in macros else condition[1] + _NEVER

    def reversed_condition(condition: re.Match[str]) -> str:
        word = "ifndef" if condition[1] == "ifdef" else "ifdef"
        return f"`{word}{condition[2]}{_NEVER}"

    text = _SPACED.sub("\\\\\n", text)
    text = _CONDITION.sub(unless_known, text)
    text = _ICARUS.sub(reversed_condition, text)
    spans = [branch.span(1) for branch in _DEAD.finditer(code_of(text))]
    return emptied(text, (span for span in spans if _ends_alike(text, *span)))


def _ends_alike(text: str, start: int, end: int) -> bool:
    """Whether all tools end a skipped branch at the same place: not all of them know its strings, comments
    and escaped names as such."""
    for hidden in HIDDEN.finditer(text, start, end):
        marks = 2 if hidden[0][0] == "/" else 1  # `//` and `/*`, or a quote or a backslash
        if _MISREAD.search(hidden[0][marks:].removesuffix("*/").removesuffix('"')):
            return False
    return True


def neutralise(text: str, macros: Collection[str] = (), *, several_tools: bool = True) -> str:
    """Return the text such that every tool reads the same design; line numbers are kept.

    `macros` are those that the problem or the answer defines, from `macros_in_use`. With `several_tools` false,
    which is for harnesses that use only Icarus, conditions stay.
    """
    text = text.removeprefix("\ufeff")  # Icarus takes a byte order mark for code
    if "\r" in text:
        # Tools end lines, and line comments, at different ones of these.
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if several_tools and "`" in text:
        text = decided(text, macros)
    if "$assert" in text:
        # Icarus ignores concurrent assertions and lacks the tasks that control them.
        text = _ASSERTION_CONTROL.sub(_empty_statement, text)
    if _SYNTHESIS_COMMENT.search(text):
        text = _TRANSLATE_OFF.sub(r"\1-\2", text)
        text = _SYNTHESIS_OFF.sub(r"\1(left out)", text)
    return text


def _empty_statement(call: re.Match[str]) -> str:
    line_ends = "\n" * call[0].count("\n")
    return f"begin end{line_ends}"


def differences(text: str, macros: Collection[str]) -> Iterator[tuple[int, str]]:
    """(offset, description) of what tools may read differently in a text from `decided`."""
    code = code_of(text)
    for control in _CONTROL.finditer(code):
        yield control.start(), f"a control character ({control[0]!a})"
    for time in _TIME.finditer(code):
        if time["value"]:
            yield time.start(), f"the value of the time {time['value'][:60]}"
    for hidden in HIDDEN.finditer(text):
        start = hidden.start()
        if _ODD.match(text, start):
            yield start, "an escaped name or a string that preprocessors read differently"
    last = code.rfind("*)") + 2  # behind it a search for the end of each would take long
    for attribute in _ATTRIBUTE.finditer(code, 0, last):
        start, end = attribute.span()
        if "*)" in text[start : end - 1]:
            yield start, "an attribute that preprocessors end differently"
    for use in _USE.finditer(code):
        if description := _difference(use, macros):
            yield use.start(), description
    if "``" in _DEFINITION.sub("", code):
        yield code.index("``"), "a name that is pasted outside of a macro"
    for definition in _DEFINITION.finditer(text):
        if code[definition.start()] == "`" and _is_uneven(definition[0]):
            yield definition.start(), "a macro that preprocessors read differently"


def _difference(use: re.Match[str], macros: Collection[str]) -> str | None:
    """What tools may read differently in one match of `_USE`; None if they agree."""
    directive, name, pasted = use.groups()
    if _OF_TOOLS.fullmatch(name):
        return f"the tool macro {name[:60]}"
    if pasted:
        return f"the macro name {name[:60]}, which is pasted to another"
    if directive or name in macros or PLAIN_DIRECTIVE.fullmatch(name):
        return None
    if macros or name[0].islower():
        # Without it a simulator goes on; other macros may paste it to the name of one that a tool defines.
        return f"`{name[:60]}, no directive for all tools and no macro of the problem or the answer"
    return None


def _is_uneven(definition: str) -> bool:
    """Whether preprocessors may end a definition, or something in it, at different places."""
    body, closed = bare(definition)
    if not closed or _UNEVEN.search(_WHOLE.sub("", body)):
        return True
    hidden = (match[0] for match in HIDDEN.finditer(definition))
    return any("//" in part and part[0] == '"' for part in hidden)
