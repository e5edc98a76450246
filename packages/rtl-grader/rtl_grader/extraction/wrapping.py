"""Take code out of what a response wraps around it: quotation marks, tags, HTML, patches, and prose beside
code without a fence.

Every step is linear in the length of the response.
"""

from __future__ import annotations

import html
import re

from rtl_grader.hdl.text import code_of

_INVISIBLE = {0xA0: " ", 0x200B: None, 0xFEFF: None}
"""No-break spaces become spaces; zero-width spaces and byte order marks are removed."""
_ONE_LINE = re.compile(
    r"(?im)^[ \t]*+```(?:[ \t]*+(?:(?:system)?verilog|sv|v)(?=[ \t])|(?=[ \t]))[ \t]*+([^`\n]++)```[ \t]*$"
)
"""A whole block on a line: a fence, an optional tag, a space, code, and the fence again."""
_QUOTE = re.compile(r"(?m)(?:^ {0,3}>[^\n]*(?:\n|\Z))+")
_QUOTE_MARK = re.compile(r"(?m)^ {0,3}> ?")
_ANSWER = re.compile(r"(?is)<(answer|final_answer|final|solution)>(.*?)(?:</\1>|\Z)")
_HTML = re.compile(r"(?i)<(?:pre|code)\b[^<>]*>")
PATCH = re.compile(r"(?m)^(?:-|\+\+\+|@@|diff |index )[^\n]*\n|^[+ ]")
"""What is left out of a patch of a whole file to get its new text."""
_DIRECTIVE = (
    r"`(?:timescale|define|undef|default_nettype|include|ifn?def|elsif|else|endif|resetall"
    r"|(?:end)?celldefine)\b"
)
_UNIT = r"""(?mx) ^[ \t]* (?: (?: <[^<>\n]*> | \[\w+\] | \w+: | ['"] ) [ \t]* )* (?=
    (?: \(\*[^\n)]*\) \s* )* (?:(?:macro)?module|package|interface|program|primitive)
    \s+ (?:automatic\s+|static\s+)? [^\s(#;]+ \s* (?: [(#;] | import\b )"""
_UNIT_LINE = re.compile(_UNIT + ")")
_FIRST_LINE = re.compile(
    _UNIT
    + "|"
    + _DIRECTIVE
    + r"""|(?<!:)// | /\* | \(\* | typedef\s+\w | (?:localparam|parameter)\s[^;\n]*=
    | (?:function|task|class)[ \t][^.:\n]*[(;] | [a-z]\w*[ \t][^.?!\n]*;[ \t]*$ )"""
)
_UNIT_END = re.compile(
    r"\bend(?:module|package|interface|program|primitive)\b(?:[ \t]*:[ \t]*\w+)?"
)
_BEHIND = re.compile(r"(?:[ \t]*(?://[^\n]*)?\n|[ \t]*" + _DIRECTIVE + r"[^\n]*\n?)*")


def unwrapped(text: str) -> str:
    """Return a response without quotation marks before code, and only the last `<answer>` if one holds code."""
    text = _ONE_LINE.sub(r"```\n\1\n```", text.translate(_INVISIBLE))
    text = _QUOTE.sub(_unquoted, text)
    answers = (match[2] for match in _ANSWER.finditer(text))
    *_, text = [text, *filter(_holds_code, answers)]
    if _HTML.search(text) and "```" not in text:
        return html.unescape(text)
    return text


def _unquoted(quote: re.Match[str]) -> str:
    """The quoted lines without their marks, after a line that says so, if they hold code."""
    inside = _QUOTE_MARK.sub("", quote[0])
    return f"quoted:\n{inside}" if _holds_code(inside) else quote[0]


def _holds_code(text: str) -> bool:
    return "```" in text or has_design_unit(text)


def has_design_unit(text: str) -> bool:
    """Whether a module, package or interface starts on any line."""
    return bool(_UNIT_LINE.search(text))


def design_text(text: str) -> str:
    """Return the design units of a text with the directives, comments and types around them, without prose and tags.

    A text without a design unit stays whole. A unit without its end reaches to the end of the text.
    """
    code, parts, at = code_of(text), "", 0
    while (first := _FIRST_LINE.search(text, at)) is not None:
        end = _UNIT_END.search(code, first.end())
        if end is None:
            if _UNIT_LINE.search(text, first.start()):
                parts += text[first.end() :]
            break
        at = _BEHIND.match(text, end.end()).end()  # type: ignore[union-attr]  # it matches nothing, too
        parts += text[first.end() : at]
    return parts or text
