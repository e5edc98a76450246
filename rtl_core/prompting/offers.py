"""Fenced blocks and JSON values of a response whose thoughts were removed (thoughts.py), and the modules that they define.

Every step is linear in the length of the response: no regular expression here can match the same text in two ways, and the number of
blocks and of JSON values is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from rtl_core.problems.verilog_text import Module, code_of, modules

MAX_BLOCKS = 1000
MAX_JSON_TRIES = 16
MAX_JSON_CHARS = 4_000_000
"""Limit on the text that all attempts to read JSON in a response scan together, since they may overlap."""
MAX_LABEL_CHARS = 500

_FENCE = re.compile("```|~~~")
_FENCE_RUN = re.compile(r"`+|~+")
_WORD_AFTER = re.compile(r"(?:`++|~++)\w")
_JSON_START = re.compile(r"\{\s{0,20}\"(?:code|files)\"\s{0,20}:")
_ONE_LINE = re.compile(r"```([^`]+)```")
_ONE_LINE_TAG = re.compile(r"(?:(?:system)?verilog|sv|v)?[ \t]", re.I)
_HDL_TAGS = {"verilog", "systemverilog", "sv", "v", "vlog", "svh", "vh", "hdl", "rtl"}
_OTHER_TAGS = {"json", "python", "py", "bash", "sh", "shell", "console", "text", "txt", "tcl", "makefile", "vhdl", "c"}
_DESIGN_UNIT = re.compile(r"^[ \t]*(?:\(\*[^\n]*\*\)[ \t]*)?(?:module|macromodule|package|interface)\s", re.M)
_NOT_MODULE = re.compile(r"^[ \t]*(?:package|interface)\s+(?:automatic\s+|static\s+)?(\w+)", re.M)


class Source:
    """The text of an offered file, and the design units in it. The bodies of packages and interfaces are not checked."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _units(self) -> tuple[list[Module], set[str]]:
        """Modules, and names of packages and interfaces."""
        code = code_of(self.text)
        return modules(code), set(_NOT_MODULE.findall(code))

    @cached_property
    def _begun(self) -> set[str]:
        return {module.name for module in self._units[0]} | self._units[1]

    @cached_property
    def _complete(self) -> set[str]:
        return {module.name for module in self._units[0] if module.is_complete} | self._units[1]

    def completes(self, name: str) -> bool:
        """Whether it defines a design unit completely."""
        return name in self._complete

    def begins(self, name: str) -> bool:
        return name in self._begun

    def holds_design(self) -> bool:
        """Whether it has a closed module that is not a test bench, or a package or interface."""
        return bool(self._units[1]) or any(module.closed and not module.is_bench for module in self._units[0])


@dataclass(frozen=True)
class Block:
    """A fenced block: text of the fence line, the nearest non-blank line before it, content, and (start, end) in the response."""

    info: str
    before: str
    source: Source
    span: tuple[int, int]
    broken_off: bool = False
    """Whether the next block opens before this one closes."""

    @property
    def text(self) -> str:
        return self.source.text

    @property
    def tag(self) -> str:
        return re.split(r"[\s:{]", self.info.strip(), maxsplit=1)[0].lower()

    @property
    def is_hdl(self) -> bool:
        return self.tag in _HDL_TAGS or (self.tag not in _OTHER_TAGS and has_design_unit(self.text))


def has_design_unit(text: str) -> bool:
    """Whether a module, package or interface starts on any line."""
    return bool(_DESIGN_UNIT.search(text))


def json_values(text: str, blocks: Sequence[Block]) -> Iterator[dict[str, str]]:
    """Yield the files (path -> text) that each JSON value of a response offers, in order; the number of attempts is bounded."""
    yield from _values_in(text, MAX_JSON_TRIES)
    in_blocks = (block.text for block in blocks if block.tag in ("json", "") and block.text.lstrip().startswith("{"))
    for content in islice(in_blocks, MAX_JSON_TRIES):
        yield from _values_in(content, 1)


def _values_in(text: str, tries: int) -> Iterator[dict[str, str]]:
    at = len(text) - len(text.lstrip())
    budget = MAX_JSON_CHARS
    while tries > 0 and budget >= 0:
        if not text.startswith("{", at):
            start = _JSON_START.search(text, at)
            if start is None:
                return
            at = start.start()
        tries -= 1
        budget -= len(text) - at
        try:
            value, at = _JSON.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        if offered := _files_of(value):
            yield offered


# Numbers stay text: converting a long one takes time quadratic in its length.
_JSON = json.JSONDecoder(strict=False, parse_int=str, parse_float=str)


def _files_of(value: object) -> dict[str, str]:
    """Files of a decoded JSON answer; empty when it has another form."""
    if isinstance(value, dict):
        for key in ("code", "files"):
            if isinstance(value.get(key), list | dict):
                value = value[key]
                break
    files: dict[str, str] = {}
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, dict):
            for path, content in entry.items():
                if isinstance(content, str) and re.search(r"\.\w+$", path):
                    files.setdefault(path, content)
    return files


def fenced_blocks(text: str) -> list[Block]:
    """Non-blank blocks of a response, in order."""
    return [block for block in islice(blocks_in(text), MAX_BLOCKS) if block.text.strip()]


def blocks_in(text: str) -> Iterator[Block]:
    """Yield fenced blocks in order. A fence may close at the end of a code line; an unclosed one reaches to the next, or to the end.

    A line that starts with the fence closes it, whatever follows (`</answer>`, an end of turn, prose). If a word follows immediately,
    the line opens the next block instead.
    """
    at = 0
    outside = 0  # end of the last block
    while (fence_at := _FENCE.search(text, at)) is not None:
        start, end = text.rfind("\n", 0, fence_at.start()) + 1, _line_end(text, fence_at.start())
        line = text[start:end]
        at = end + 1
        inline = _one_line(line)
        if inline is not None:
            yield Block("", _last_line(text[outside:start]), Source(inline), (start, at))
            outside = at
            continue
        opening = _opening(line)
        if opening is None:
            continue
        before, fence, info = opening
        begin = start + len(before)
        before = before.strip()[:MAX_LABEL_CHARS] or _last_line(text[outside:start])
        content, outside, broken_off = _content(text, at, fence)
        yield Block(info, before, Source(_untagged(content)), (begin, outside), broken_off)
        at = outside if broken_off else _line_end(text, outside) + 1


def _content(text: str, at: int, fence: str) -> tuple[str, int, bool]:
    """Return the content of the block that starts at `at`, its end, and whether the next block opens there."""
    begin = at
    while (found := text.find(fence, at)) >= 0:
        start, end = text.rfind("\n", 0, found) + 1, _line_end(text, found)
        at = end + 1
        line = text[start:end]
        stripped = line.strip()
        if stripped.startswith(fence):
            opens = bool(_WORD_AFTER.match(stripped))
            return text[begin : max(begin, start - 1)], start if opens else found + len(fence), opens
        if fence[0] == "`" and stripped.endswith(fence) and "`" not in stripped.rstrip("`"):
            return text[begin:start] + line.rstrip().rstrip("`"), end, False
    return text[begin:], len(text), False


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


def _last_line(text: str) -> str:
    """Last non-blank line, cut."""
    return text.rstrip().rpartition("\n")[2].strip()[:MAX_LABEL_CHARS]


def _opening(line: str) -> tuple[str, str, str] | None:
    """(text before the fence, fence, text after it) of a line that opens a block."""
    run = _FENCE_RUN.search(line)
    if run is None or len(run[0]) < 3 or "`" in line[run.end() :]:
        return None
    return line[: run.start()], run[0], line[run.end() :]


def _one_line(line: str) -> str | None:
    """Code of a line that is a whole block: a fence, an optional tag, a space, code, and the fence again."""
    whole = _ONE_LINE.fullmatch(line.strip(" \t"))
    if whole is None:
        return None
    inside = whole[1].lstrip(" \t")
    tag = _ONE_LINE_TAG.match(inside)
    if tag is not None:
        return inside[tag.end() :] or None
    return inside if inside != whole[1] and inside else None


def _untagged(text: str) -> str:
    """Drop a language tag that is alone on the first line inside the fence."""
    first, _, rest = text.partition("\n")
    return rest if first.strip().lower() in ("verilog", "systemverilog", "sv") else text
