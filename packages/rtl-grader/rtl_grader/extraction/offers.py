"""Fenced blocks and JSON values of a response whose thoughts were removed (thoughts.py), and the modules
that they define.

Every step is linear in the length of the response: no regular expression here can match the same text in
two ways, and the number of blocks and of JSON values is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from rtl_grader.extraction.wrapping import PATCH, design_text, has_design_unit
from rtl_grader.hdl.text import WORD, Module, code_of, modules

MAX_BLOCKS = 1000
MAX_JSON_TRIES = 16
MAX_JSON_CHARS = 4_000_000
"""Limit on the text that all attempts to read JSON in a response scan together, since they may overlap."""
MAX_JSON_DEPTH = 5
MAX_LABEL_CHARS = 500

_FENCE = re.compile("```|~~~")
_FENCE_RUN = re.compile(r"`+|~+")
_WORD_AFTER = re.compile(r"(?:`++|~++)\w")
_JSON_START = re.compile(r"\{\s*+\"[^\"\n]{1,200}\"\s*+:")
_PATH = re.compile(r"[\w./-]*\.\w+\Z")
_OTHER_TAG = re.compile(
    "json|yaml|python|py|bash|sh|shell|console|text|txt|plaintext|tcl|makefile|vhdl|c|cpp|html|xml"
)
_CORRECTION = re.compile(
    r"(?i)^(?!.*\b(?:alternativ|variant|another|option|also\b|instead\b|if you\b))"
    r".*(?:\b(?:fix(?:ed|es)?|correct(?:ed|ion)?|repaired|revised|improved|modified|updated"
    r"|complete|full|final|answer|solution)\b|^\W*after\W*$)"
)
"""A line that introduces the better one of two designs."""
_QUOTATION = re.compile(
    r"(?i)\b(?:quoted|buggy|faulty|wrong|incorrect|broken|draft|attempt|you (?:gave|provided|sent)|"
    r"(?:given|original|existing|provided|current|previous|old|initial)\s+(?:\w+\s+)?"
    r"(?:code|module|design|rtl|file|implementation|version|snippet|verilog))\b|^\W*before\W*$"
)
"""A line that introduces a design that is not the answer."""
_NOT_MODULE = re.compile(
    r"^[ \t]*(?:package|interface)\s+(?:automatic\s+|static\s+)?(\w+)", re.M
)


@dataclass(eq=False)
class Source:
    """A text that a response offers, and the design units in it.

    The bodies of packages and interfaces are not checked.
    """

    text: str
    before: str = ""
    """The line that introduces it."""
    target: str | None = None
    """The target or other path that it is offered for; None if it names none."""
    place: str = ""
    """Where it stands in the response, if that is worth a note."""

    @cached_property
    def standing(self) -> int:
        """1 if it is introduced as a correction, -1 if as a quotation or a wrong attempt, else 0."""
        if _CORRECTION.match(self.before):
            return 1
        return -1 if _QUOTATION.search(self.before) else 0

    @cached_property
    def _code(self) -> str:
        return code_of(self.text)

    @cached_property
    def words(self) -> set[str]:
        """All identifiers in the code."""
        return set(WORD.findall(self._code))

    @cached_property
    def _modules(self) -> list[Module]:
        return modules(self._code)

    @cached_property
    def _other_units(self) -> set[str]:
        """Names of packages and interfaces."""
        return set(_NOT_MODULE.findall(self._code))

    @cached_property
    def names(self) -> set[str]:
        """Names of the design units that it begins."""
        return self._other_units.union(module.name for module in self._modules)

    @cached_property
    def complete(self) -> set[str]:
        """Names of the design units that it defines completely."""
        complete = (module.name for module in self._modules if module.is_complete)
        return self._other_units.union(complete)

    def holds_design(self) -> bool:
        """Whether it has a closed module that is not a test bench, or a package or interface."""
        designs = (module for module in self._modules if module.closed and not module.is_bench)
        return bool(self._other_units) or any(True for _ in designs)


@dataclass(frozen=True)
class Block:
    """A fenced block: text of the fence line, the nearest non-blank line before it, content, and (start,
    end) in the response."""

    info: str
    before: str
    text: str
    span: tuple[int, int]
    broken_off: bool = False
    """Whether the next block opens before this one closes."""

    @property
    def tag(self) -> str:
        return re.split(r"[\s:{]", self.info.strip(), maxsplit=1)[0].lower()

    @property
    def is_hdl(self) -> bool:
        """Whether its tag, if it has one, may stand before HDL."""
        return not _OTHER_TAG.fullmatch(self.tag)


def json_texts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the paths and texts that the JSON values of a response offer, in order; the number of attempts
    is bounded."""
    at, budget = 0, MAX_JSON_CHARS
    for _ in range(MAX_JSON_TRIES):
        start = _JSON_START.search(text, at)
        if start is None or budget < 0:
            return
        at = start.start()
        budget -= len(text) - at
        try:
            value, at = _JSON.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
        else:
            yield from _texts_in(value)


# Numbers stay text: converting a long one takes time quadratic in its length.
_JSON = json.JSONDecoder(strict=False, parse_int=str, parse_float=str)


def _texts_in(
    value: object, path: str = "", has_path: bool = False, depth: int = 0
) -> Iterator[tuple[str, str]]:
    """Yield paths and texts of a JSON value: strings with a path as their key (`has_path`), and strings that hold code.

    The path of code is the next key above it that is one, or a string beside it: `{"path": "m.sv",
    "content": "module ..."}`.
    """
    if isinstance(value, list):
        is_lines = bool(value) and all(isinstance(part, str) for part in value)
        value = "\n".join(value) if is_lines else dict(enumerate(value))
    if isinstance(value, str) and (has_path or "```" in value or has_design_unit(value)):
        yield path, value
    elif isinstance(value, dict) and depth < MAX_JSON_DEPTH:
        for part in value.values():
            if isinstance(part, str) and _PATH.fullmatch(part):
                path = part
                break
        for key, part in value.items():
            if _PATH.search(str(key)):
                yield from _texts_in(part, str(key), True, depth + 1)
            else:
                yield from _texts_in(part, path, False, depth + 1)


def fenced_blocks(text: str) -> list[Block]:
    """Non-blank blocks of a response, in order. Of a block that holds blocks, those within it."""
    return [block for block in islice(_blocks_of(text), MAX_BLOCKS) if block.text.strip()]


def _blocks_of(text: str) -> Iterator[Block]:
    for block in blocks_in(text):
        _, end = block.span
        closed = text[end - 3 : end] in ("```", "~~~")
        if block.tag in ("", "markdown", "md") and _FENCE.search(block.text):
            yield from blocks_in(block.text)
        elif block.tag in ("diff", "patch"):
            yield replace(block, text=PATCH.sub("", block.text))
        else:
            is_whole = closed and block.tag and block.is_hdl
            yield block if is_whole else replace(block, text=design_text(block.text))


def blocks_in(text: str) -> Iterator[Block]:
    """Yield fenced blocks in order. A fence may close at the end of a code line; an unclosed one reaches to
    the next, or to the end.

    A line that starts with the fence closes it, whatever follows (`</answer>`, an end of turn, prose). If a
    word follows immediately, the line opens the next block instead.
    """
    at = 0
    ended = 0  # end of the last block
    while (fence_at := _FENCE.search(text, at)) is not None:
        start, end = _line_around(text, fence_at.start())
        line = text[start:end]
        at = end + 1
        opening = _opening(line)
        if opening is None:
            continue
        before, fence, info = opening
        begin = start + len(before)
        label = before.strip()[:MAX_LABEL_CHARS] or _last_line(text[ended:start])
        content, ended, broken_off = _content(text, at, fence)
        yield Block(info, label, content, (begin, ended), broken_off)
        at = ended
        if not broken_off:
            _, line_end = _line_around(text, ended)
            at = line_end + 1


def _content(text: str, at: int, fence: str) -> tuple[str, int, bool]:
    """Return the content of the block that starts at `at`, its end, and whether the next block opens there."""
    begin = at
    while (fence_at := text.find(fence, at)) >= 0:
        start, end = _line_around(text, fence_at)
        at = end + 1
        line = text[start:end].rstrip()
        stripped = line.lstrip()
        if stripped.startswith(fence):
            content = text[begin : max(begin, start - 1)]
            if _WORD_AFTER.match(stripped):
                return content, start, True
            return content, fence_at + len(fence), False
        last_code = stripped.rstrip("`")
        if fence[0] == "`" and stripped.endswith(fence) and "`" not in last_code:
            return text[begin:start] + line.rstrip("`"), start + len(line), False
    return text[begin:], len(text), False


def _line_around(text: str, at: int) -> tuple[int, int]:
    """Offsets of the line at `at`: its first character, and its line end or the end of the text."""
    start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    return start, end if end >= 0 else len(text)


def _last_line(text: str) -> str:
    """Last non-blank line, cut."""
    return text.rstrip().rpartition("\n")[2].strip()[:MAX_LABEL_CHARS]


def _opening(line: str) -> tuple[str, str, str] | None:
    """(text before the fence, fence, text after it) of a line that opens a block."""
    run = _FENCE_RUN.search(line)
    if run is None or len(run[0]) < 3:
        return None
    before, after = line[: run.start()], line[run.end() :]
    return None if "`" in after else (before, run[0], after)
