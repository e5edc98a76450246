"""Find modules in HDL text with a lexer for comments, strings and escaped identifiers.

Macros and directives are ignored, so the result is a good guess, not a parse. The lexer accepts unbalanced
text, never raises, and takes time linear in the length of any text, so a model's answers can be read in the
trainer's process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, zip_longest

WORD = re.compile(r"[A-Za-z_][\w$]*")
"""A name or a keyword in a text from `bare`."""
BOUNDARY = re.compile(r"\b(?:(?:macro)?module|endmodule)\b", re.A)
"""Start or end of a module in a text from `bare`."""
HIDDEN = re.compile(
    r'//[^\n]*+|/\*(?s:.*?)(?:\*/|\Z)|"(?:[^"\\\n]++|\\(?s:.))*+"?|\\[^ \t\n\r\f]*+'
)
"""Comments, strings and escaped identifiers. These end where simulators end them, not at each space of Unicode."""
_CLOSED = re.compile(r'//.*|/\*.*\*/|"(?:[^"\\]++|\\.)*+"', re.S)
"""A comment or string from `HIDDEN` that has its end."""
_PLAIN = re.compile(r"\\(?!(?:macro|end)?module\Z)[A-Za-z_][\w$]*", re.A)
"""An escaped identifier that is the same as the name after the backslash; the standard excepts keywords."""
_NAME = re.compile(r"\s+(?:automatic\s+|static\s+)?([A-Za-z_][\w$]*)", re.A)
_DEFINE = re.compile(r"`define[ \t]+([A-Za-z_][\w$]*)", re.A)
_LABEL = re.compile(r"\s*:\s*[A-Za-z_][\w$]*", re.A)
_PARENTHESIS = re.compile(r"[()]")
_NO_PORTS = re.compile(r"(?:\(\s*\))?")
_STATEMENT = re.compile(r"[^;]+")
_DECLARED = re.compile(
    r"\s*(?:(input|output|inout|wire|tri|reg|logic|bit|byte|int|integer|real|time|genvar|var)"
    r"|(?:parameter|localparam|typedef|import))\b"
)
_INITIAL = re.compile(r"\binitial\b")
_STIMULUS = re.compile(r"\$(?:finish|stop|dump[a-z]+)\b|#\s*[\w.]|@")

Words = tuple[tuple[str, str], ...]
"""(path, compact text) of the files of a design."""


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
        for match in _STATEMENT.finditer(self.body):
            statement = match[0]
            declaration = _DECLARED.match(statement)
            is_assigned = declaration is None or (declaration[1] and "=" in statement)
            if is_assigned and statement.strip():
                return True
        return False

    @property
    def is_complete(self) -> bool:
        """Whether it is closed, has a body, and no ellipsis."""
        has_ellipsis = "..." in self.header or "..." in self.body
        return self.closed and self.has_body and not has_ellipsis

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
        return not _NO_PORTS.fullmatch(header)


def bare(text: str) -> tuple[str, bool]:
    """Return the text with comments, strings and odd escaped identifiers masked, and whether all comments
    and strings are closed.

    Length and line ends stay the same. Of an escaped identifier that is a plain name only the backslash is masked.
    """
    closed = True

    def blank(match: re.Match[str]) -> str:
        nonlocal closed
        hidden = match[0]
        if hidden[0] == "\\":
            return f" {hidden[1:]}" if _PLAIN.fullmatch(hidden) else "\\" * len(hidden)
        if not _CLOSED.fullmatch(hidden):
            closed = False
        return "\n".join(" " * len(line) for line in hidden.split("\n"))

    return HIDDEN.sub(blank, text), closed


@lru_cache(maxsize=64)  # several readers look at one text in turn
def code_of(text: str) -> str:
    """The text without comments and string contents, see `bare`."""
    return bare(text)[0]


def words_of(text: str) -> set[str]:
    """Names and keywords in the code of a text."""
    return set(WORD.findall(code_of(text)))


def emptied(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text with only the line ends of these parts, given as (start, end) in ascending order."""
    parts, at = [], 0
    for start, end in spans:
        line_ends = "\n" * text.count("\n", start, end)
        parts += [text[at:start], line_ends]
        at = end
    return "".join([*parts, text[at:]])


def compact(text: str) -> str:
    """The text without comments and with single spaces, the same for two copies of a design.

    Strings stay whole, and line ends stay if there is a directive, which ends with its line.
    """
    if "`__LINE__" in text:
        return text
    pattern = re.compile(r"\S+|\n" if "`" in text else r"\S+", re.A)
    words = ["\n"]
    at = 0
    for hidden in HIDDEN.finditer(text):
        words += pattern.findall(text, at, hidden.start())
        if not hidden[0].startswith("/"):
            words.append(hidden[0])
        at = hidden.end()
    words += pattern.findall(text, at)
    distinct = [word for before, word in pairwise(words) if word != "\n" or before != "\n"]
    return " ".join(distinct).rstrip()


def compact_files(files: Mapping[str, str]) -> Words:
    """The files in a form that is the same for two copies of a design."""
    return tuple(sorted((path, compact(text)) for path, text in files.items()))


def macros_of(text: str) -> list[str]:
    """Names that a text defines as macros, sorted."""
    return sorted(set(_DEFINE.findall(text)))


def module_names(text: str) -> list[str]:
    """Names of the modules that a text begins, in order; a quick scan, not a parse."""
    return [module.name for module in modules(code_of(text)) if module.name]


def modules(code: str) -> list[Module]:
    """Return the modules of a text from `bare`, in order. A nested module leaves the outer one unclosed."""
    boundaries = list(BOUNDARY.finditer(code))
    units: list[Module] = []
    for boundary, following in zip_longest(boundaries, boundaries[1:]):
        if boundary[0] == "endmodule":
            continue
        inner_end = following.start() if following else len(code)
        closed = following is not None and following[0] == "endmodule"
        end = inner_end
        if closed:
            label = _LABEL.match(code, following.end())
            end = (label or following).end()
        name = _NAME.match(code, boundary.end(), inner_end)
        header_start = (name or boundary).end()
        header, _, body = code[header_start:inner_end].partition(";")
        units.append(
            Module(
                name=name[1] if name else "",
                start=boundary.start(),
                end=end,
                closed=closed,
                header=header,
                body=body,
            )
        )
    return units
