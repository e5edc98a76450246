"""Macros and directives in HDL text by which tools could read one text as several designs.

Each tool defines macros of its own, and no two preprocessors agree on everything: Icarus' one knows neither escaped identifiers
nor, in text that it skips, strings. `decided` makes conditions the same for all tools; `differences` finds what remains.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from rtl_core.problems.verilog_text import HIDDEN, bare, code_of, macros_of

_NEVER = "RTL_NO_TOOL"
"""A macro that is never defined."""
_OF_TOOLS = re.compile(
    r"SYNTHESIS|(?:YOSYS|VERILATOR|verilator|systemc_|SV_COV_|__slang|COCOTB)\w*|coverage_block_off|SYSTEMVERILOG"
    r"|__ICARUS__|ICARUS|IVERILOG",
    re.A,
)
"""Macros that a tool defines, or that designs use to tell tools apart."""
_STANDARD = frozenset(
    """
    define undef ifdef ifndef elsif else endif include timescale default_nettype resetall celldefine endcelldefine
    unconnected_drive nounconnected_drive begin_keywords end_keywords __FILE__ __LINE__
    """.split()
)
"""Directives on which all tools agree."""
_CONDITION = re.compile(r"(`(?:ifdef|ifndef|elsif)[ \t]+)([A-Za-z_][\w$]*+)(?!`)", re.A)
_ICARUS = re.compile(r"`(ifdef|ifndef)([ \t]+)__ICARUS__\b", re.A)
_NAMED = re.compile(r"`(?:(?:ifdef|ifndef|elsif)[ \t]+)?([A-Za-z_][\w$]*+)", re.A)
_USE = re.compile(r"(?<!`)`(?:``)*+([A-Za-z_][\w$]*+)(``)?(?:[ \t]+([A-Za-z_][\w$]*+))?", re.A)
"""A directive or a use of a macro, not a pasted word: its name, whether it is pasted to what follows, and the next name."""
_DEFINITION = re.compile(r"(?:\\\n|[^\n])*+")
_UNEVEN = re.compile(r"(?<!\\)\n")
"""A line end that is not continued, in code. Its backslash is in a comment or a string."""
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"', re.S)
_SPACED = re.compile(r"\\[ \t\f]+\n")
"""A backslash that continues a line for Icarus only."""
_CONTROL = r"\0-\x08\x0b\x0e-\x1f\x7f"
_ODD_NAME = re.compile(rf"""\\.*?(?:["`{_CONTROL}]|/[/*])""", re.S)
_ODD_STRING = re.compile(r'"(?:\\.|[^"\\\n])*?(?:`(?!")|/\*|//[^\n]*`)', re.S)


def macros_in_use(files: Iterable[str], context: Iterable[str], harness: Iterable[str]) -> frozenset[str]:
    """Macros that the texts of an answer name and that the answer, its context or the harness may define.

    The harness defines them in many ways (`-DW=4`, `defines={"W": 4}`), so a name that it mentions counts.
    """
    files = list(files)
    named = {name for text in files for name in _NAMED.findall(text)}
    defined = {name for text in (*files, *context) for name in macros_of(text)} if named else set()
    return frozenset(name for name in named if name in defined or any(name in text for text in harness))


def decided(text: str, macros: Collection[str]) -> str:
    """The text with conditions on macros that only a tool may define decided as in Icarus; `macros` are the others."""

    def never(match: re.Match[str]) -> str:
        known = match[2] in macros and not _OF_TOOLS.fullmatch(match[2])
        return match[0] if known or match[2] == "__ICARUS__" else f"{match[1]}{_NEVER}"

    text = _CONDITION.sub(never, _SPACED.sub("\\\\\n", text))
    return _ICARUS.sub(lambda m: f"`{'ifndef' if m[1] == 'ifdef' else 'ifdef'}{m[2]}{_NEVER}", text)


def differences(text: str, macros: Collection[str]) -> Iterator[tuple[int, str]]:
    """(offset, description) of what tools may read differently in a text from `decided`."""
    code = code_of(text)
    for control in re.finditer(f"[{_CONTROL}]", code):
        yield control.start(), f"a control character ({control[0]!a})"
    conditional = "`if" in code or "`define" in code
    for hidden in HIDDEN.finditer(text):
        if _ODD_NAME.match(hidden[0]):
            yield hidden.start(), f"an escaped name that preprocessors read differently ({hidden[0][:40]!a})"
        elif conditional and _ODD_STRING.match(text, hidden.start()):
            yield hidden.start(), f"a string that preprocessors read differently ({hidden[0][:40]!a})"
    for use in _USE.finditer(code):
        name, pasted, argument = use.groups()
        names = {name} | ({argument} if name in ("define", "undef", "ifdef", "ifndef", "elsif") else set())
        tools = sorted(filter(_OF_TOOLS.fullmatch, filter(None, names)))
        if tools:
            yield use.start(), f"the tool macro {tools[0][:60]}"
        elif name not in _STANDARD and name not in macros:
            yield use.start(), f"`{name[:60]}, no directive for all tools and no macro of the problem or the answer"
        elif pasted or (name in ("ifdef", "ifndef", "elsif") and not _CONDITION.match(code, use.start())):
            yield use.start(), "a macro name that is pasted or not plain"
        elif name == "define" and not _is_plain(text[use.start() : _DEFINITION.match(text, use.start()).end()]):
            yield use.start(), f"the macro {argument}, which preprocessors end or read differently"


def _is_plain(definition: str) -> bool:
    """Whether a definition ends where it seems to, and each condition in it ends in it."""
    code, closed = bare(definition)
    if not closed or _UNEVEN.search(code) or any("//" in text for text in _STRING.findall(definition)):
        return False
    depths = [0]
    for name, *_ in _USE.findall(code):
        depths.append(depths[-1] + (name in ("ifdef", "ifndef")) - (name == "endif"))
        if name in ("else", "elsif") and not depths[-1]:
            return False
    return min(depths) == 0 == depths[-1]
