"""Find modules in HDL text with a lexer for comments, strings and escaped identifiers.

Macros and directives are ignored, so the result is a good guess, not a parse. The lexer accepts unbalanced
text, never raises, and takes time linear in the length of any text, so a model's answers can be read in the
trainer's process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

BOUNDARY = re.compile(r"\b(?:(?:macro)?module|endmodule)\b", re.A)
"""Start or end of a module in a text from `bare`."""
HIDDEN = re.compile(
    r'//[^\n]*+|/\*(?s:.*?)(?:\*/|\Z)|"(?:[^"\\\n]++|\\(?s:.))*+"?|\\[^ \t\n\r\f]*+'
)
"""Comments, strings and escaped identifiers. These end where simulators end them, not at each space of Unicode."""
_NO_LINE_END = re.compile(r"[^\n]+")
_PLAIN = re.compile(r"\\(?!(?:macro|end)?module\Z)[A-Za-z_][\w$]*", re.A)
"""An escaped identifier that is the same as the name after the backslash; the standard excepts keywords."""
_NAME = re.compile(r"\s+(?:automatic\s+|static\s+)?([A-Za-z_][\w$]*)", re.A)
_DEFINE = re.compile(r"`define[ \t]+([A-Za-z_][\w$]*)", re.A)
_LABEL = re.compile(r"\s*:\s*[A-Za-z_][\w$]*", re.A)
_PARENTHESIS = re.compile(r"[()]")
_STATEMENT = re.compile(r"[^;]+")
_DECLARED = re.compile(
    r"\s*(?:(input|output|inout|wire|tri|reg|logic|bit|byte|int|integer|real|time|genvar|var)"
    r"|(?:parameter|localparam|typedef|import))\b"
)
_INITIAL = re.compile(r"\binitial\b")
_STIMULUS = re.compile(r"\$(?:finish|stop|dump[a-z]+)\b|#\s*[\w.]|@")


@dataclass(frozen=True)
class Module:
    """A module in the text."""

    name: str
    """Empty if the name is missing or an odd escaped identifier."""
    start: int
    """Offset of the keyword `module`."""
    end: int
    """Offset after `endmodule` and its label, or of the next boundary if `endmodule` is missing."""
    closed: bool
    """Whether `endmodule` comes before another module starts."""
    header: str
    """Text between the name and the first semicolon: parameters and ports."""
    body: str
    """Text after the first semicolon, without comments and strings."""

    @property
    def has_body(self) -> bool:
        """Whether a statement beside declarations could drive an output."""
        statements = (match[0] for match in _STATEMENT.finditer(self.body))
        declarations = ((text, _DECLARED.match(text)) for text in statements if text.strip())
        return any(
            declared is None or (declared[1] and "=" in text) for text, declared in declarations
        )

    @property
    def is_complete(self) -> bool:
        """Whether it is closed, has a body, and no ellipsis."""
        return self.closed and self.has_body and "..." not in self.header and "..." not in self.body

    @property
    def is_bench(self) -> bool:
        """Whether it looks like a test bench: no ports, an `initial` block, and delays, events or the end
        of the simulation."""
        return (
            not self._has_ports()
            and bool(_INITIAL.search(self.body))
            and bool(_STIMULUS.search(self.body))
        )

    def _has_ports(self) -> bool:
        header = self.header.strip()
        if header.startswith("#"):
            depth = 0
            for match in _PARENTHESIS.finditer(header):
                depth += 1 if match[0] == "(" else -1
                if depth == 0:
                    header = header[match.end() :].strip()
                    break
        return not (
            header == "" or (header[0] == "(" and header[-1] == ")" and not header[1:-1].strip())
        )


def bare(text: str) -> tuple[str, bool]:
    """Return the text with comments, strings and odd escaped identifiers masked, and whether all comments
    and strings are closed.

    Length and line ends stay the same. Of an escaped identifier that is a plain name only the backslash is masked.
    """
    closed = True

    def blank(match: re.Match[str]) -> str:
        nonlocal closed
        found = match[0]
        if found[0] == "\\":
            return f" {found[1:]}" if _PLAIN.fullmatch(found) else "\\" * len(found)
        if found[0] == '"' and (len(found) == 1 or found[-1] != '"' or _escaped_quote(found)):
            closed = False
        if found.startswith("/*") and (len(found) < 4 or not found.endswith("*/")):
            closed = False
        if "\n" not in found:
            return " " * len(found)
        return _NO_LINE_END.sub(lambda part: " " * len(part[0]), found)

    return HIDDEN.sub(blank, text), closed


def code_of(text: str) -> str:
    """The text without comments and string contents, see `bare`."""
    return bare(text)[0]


def compact(text: str) -> str:
    """The text without comments and with single spaces, the same for two copies of a design.

    Strings stay whole, and line ends stay if there is a directive, which ends with its line.
    """
    word = re.compile(r"\S+|\n" if "`" in text else r"\S+", re.A)
    words: list[str] = []
    at = 0
    for hidden in HIDDEN.finditer(text):
        words += word.findall(text, at, hidden.start())
        words += [] if hidden[0].startswith("/") else [hidden[0]]
        at = hidden.end()
    words += word.findall(text, at)
    return " ".join(
        now
        for now, before in zip(words, ["\n", *words], strict=False)
        if (now, before) != ("\n", "\n")
    ).rstrip()


def macros_of(text: str) -> list[str]:
    """Names that a text defines as macros, sorted."""
    return sorted(set(_DEFINE.findall(text)))


def module_names(text: str) -> list[str]:
    """Names of the modules that a text begins, in order; a quick scan, not a parse."""
    return [module.name for module in modules(code_of(text)) if module.name]


def modules(code: str) -> list[Module]:
    """Return the modules of a text from `bare`, in order. A nested module leaves the outer one unclosed."""
    boundaries = list(BOUNDARY.finditer(code))
    found: list[Module] = []
    for index, boundary in enumerate(boundaries):
        if boundary[0] == "endmodule":
            continue
        following = boundaries[index + 1] if index + 1 < len(boundaries) else None
        inner_end = following.start() if following else len(code)
        closed = following is not None and following[0] == "endmodule"
        end = inner_end
        if following is not None and closed:
            label = _LABEL.match(code, following.end())
            end = label.end() if label else following.end()
        name = _NAME.match(code, boundary.end(), inner_end)
        header_start = name.end() if name else boundary.end()
        semicolon = code.find(";", header_start, inner_end)
        header_end = semicolon if semicolon >= 0 else inner_end
        found.append(
            Module(
                name=name[1] if name else "",
                start=boundary.start(),
                end=end,
                closed=closed,
                header=code[header_start:header_end],
                body=code[header_end + 1 : inner_end],
            )
        )
    return found


def _escaped_quote(string: str) -> bool:
    """Whether the final quote of a string is escaped by an odd number of backslashes."""
    before = string[:-1]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1
