"""Macros and directives in HDL text by which tools could read one text as several designs.

Each tool defines macros of its own, and no two preprocessors agree on everything: Icarus' one knows neither escaped
identifiers nor, in text that it skips, strings. `decided` makes conditions the same for all tools; `differences` finds
what remains.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from rtl_grader.hdl.text import HIDDEN, bare, code_of, macros_of

_OF_TOOLS = re.compile(
    r"SYNTHESIS|(?:YOSYS|VERILATOR|verilator|systemc_|SV_COV_|__slang|COCOTB)\w*|coverage_block_off|SYSTEMVERILOG"
    r"|__ICARUS__|ICARUS|IVERILOG",
    re.A,
)
"""Macros that a tool defines, or that designs use to tell tools apart."""
_PLAIN = re.compile(
    r"else|endif|include|timescale|default_nettype|resetall|(?:end)?celldefine|(?:no)?unconnected_drive"
    r"|(?:begin|end)_keywords|__FILE__|__LINE__"
)
"""Directives without the name of a macro, on which all tools agree."""
_USE = re.compile(
    r"(?<!`)`(?:``)*+(?:(define|undef|ifdef|ifndef|elsif)[ \t]+)?([A-Za-z_][\w$]*+)(``)?",
    re.A,
)
"""A directive with its macro, another directive, or the use of a macro; and whether the name is pasted to others."""
_CONDITION = re.compile(r"(`(?:ifdef|ifndef|elsif)[ \t]+)(?!__ICARUS__\b)([A-Za-z_][\w$]*+)", re.A)
_ICARUS = re.compile(r"`(ifdef|ifndef)([ \t]+)__ICARUS__\b", re.A)
_NEVER = "RTL_NO_TOOL"
"""A macro that is never defined."""
_DEAD = re.compile(
    rf"^[ \t]*`ifdef[ \t]+{_NEVER}[ \t]*\n((?:(?!`(?:if|els|endif))[\s\S])*)(?=`els|`endif)", re.M
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
_CONTROL = re.compile(r"[\0-\x08\x0b\x0e-\x1f\x7f]")


def macros_in_use(
    files: Iterable[str], context: Iterable[str], harness: Iterable[str]
) -> frozenset[str]:
    """Macros that the texts of an answer name and that the answer, its context or the harness may define.

    The harness defines them in many ways (`-DW=4`, `defines={"W": 4}`), so a name that it mentions counts.
    """
    files, given = list(files), "\n".join(harness)
    named = {use[2] for text in files for use in _USE.finditer(text)}
    defined = {name for text in (*files, *context) for name in macros_of(text)} if named else set()
    return frozenset(
        name
        for name in named
        if (name in defined or name in given) and not _OF_TOOLS.fullmatch(name)
    )


def decided(text: str, macros: Collection[str]) -> str:
    """The text with conditions on macros that only a tool may define decided as in Icarus; `macros` are the others.

    Branches that no tool reads are left empty, so that nobody has to judge what is in them.
    """
    text = _CONDITION.sub(
        lambda m: m[0] if m[2] in macros else f"{m[1]}{_NEVER}", _SPACED.sub("\\\\\n", text)
    )
    text = _ICARUS.sub(lambda m: f"`{'ifndef' if m[1] == 'ifdef' else 'ifdef'}{m[2]}{_NEVER}", text)
    parts, at = [], 0
    for dead in _DEAD.finditer(code_of(text)):
        parts += [text[at : dead.start(1)], "\n" * text.count("\n", *dead.span(1))]
        at = dead.end(1)
    return "".join([*parts, text[at:]])


def differences(text: str, macros: Collection[str]) -> Iterator[tuple[int, str]]:
    """(offset, description) of what tools may read differently in a text from `decided`."""
    code = code_of(text)
    for control in _CONTROL.finditer(code):
        yield control.start(), f"a control character ({control[0]!a})"
    for time in _TIME.finditer(code):
        if time["value"]:
            yield time.start(), f"the value of the time {time['value'][:60]}"
    for hidden in HIDDEN.finditer(text):
        if _ODD.match(text, hidden.start()):
            yield hidden.start(), "an escaped name or a string that preprocessors read differently"
    for attribute in _ATTRIBUTE.finditer(code):
        if "*)" in text[attribute.start() : attribute.end() - 1]:
            yield attribute.start(), "an attribute that preprocessors end differently"
    for use in _USE.finditer(code):
        directive, name, pasted = use.groups()
        if _OF_TOOLS.fullmatch(name):
            yield use.start(), f"the tool macro {name[:60]}"
        elif pasted:
            yield use.start(), f"the macro name {name[:60]}, which is pasted to another"
        elif (
            not directive
            and not _PLAIN.fullmatch(name)
            and name not in macros
            and (macros or name[0].islower())
        ):
            # Without it a simulator goes on; other macros may paste it to the name of one that a tool defines.
            yield (
                use.start(),
                f"`{name[:60]}, no directive for all tools and no macro of the problem or the answer",
            )
    if "``" in _DEFINITION.sub("", code):
        yield code.index("``"), "a name that is pasted outside of a macro"
    for definition in _DEFINITION.finditer(text):
        body, closed = bare(definition[0])
        comment = any(
            hidden[0][0] == '"' and "//" in hidden[0] for hidden in HIDDEN.finditer(definition[0])
        )
        if code[definition.start()] == "`" and (
            comment or not closed or _UNEVEN.search(_WHOLE.sub("", body))
        ):
            yield definition.start(), "a macro that preprocessors read differently"
