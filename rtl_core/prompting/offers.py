"""What a response offers: fenced blocks and JSON values, and what each text defines. Its thoughts are left out before (thoughts.py).

Every step is linear in the length of the response: no regular expression here can match one stretch of text in two ways, and the
number of blocks and of JSON values that are tried is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from rtl_core.prompting.verilog_text import Module, bare, modules

MAX_BLOCKS = 1000
MAX_JSON_TRIES = 16
MAX_JSON_CHARS = 4_000_000
"""How much text all tries in a response may read together, when one begins within another."""
MAX_LABEL_CHARS = 500

_FENCE = re.compile("```|~~~")
_FENCE_RUN = re.compile(r"`+|~+")
_WORD_BEHIND = re.compile(r"(?:`++|~++)\w")
_JSON_START = re.compile(r"\{\s{0,20}\"(?:code|files)\"\s{0,20}:")
_ONE_LINE_TAG = re.compile(r"(?:(?:system)?verilog|sv|v)?[ \t]", re.I)
_HDL_TAGS = {"verilog", "systemverilog", "sv", "v", "vlog", "svh", "vh", "hdl", "rtl"}
_OTHER_TAGS = {"json", "python", "py", "bash", "sh", "shell", "console", "text", "txt", "tcl", "makefile", "vhdl", "c"}
_DESIGN_UNIT = re.compile(r"^[ \t]*(?:\(\*[^\n]*\*\)[ \t]*)?(?:module|macromodule|package|interface)\s", re.M)
_NOT_MODULE = re.compile(r"^[ \t]*(?:package|interface)\s+(?:automatic\s+|static\s+)?(\w+)", re.M)


class Source:
    """The text of one file as it is offered, and what it defines."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _code(self) -> str:
        return bare(self.text)[0]

    @cached_property
    def _modules(self) -> list[Module]:
        return modules(self._code)

    @cached_property
    def _complete(self) -> set[str]:
        """Names that it defines in full: modules, and packages and interfaces, whose bodies are not looked at."""
        return {module.name for module in self._modules if module.is_complete} | self._others

    @cached_property
    def _begun(self) -> set[str]:
        return {module.name for module in self._modules} | self._others

    @cached_property
    def _others(self) -> set[str]:
        return set(_NOT_MODULE.findall(self._code))

    def completes(self, name: str) -> bool:
        return name in self._complete

    def begins(self, name: str) -> bool:
        return name in self._begun

    def holds_design(self) -> bool:
        """Whether it holds a whole module that is no test bench, or a package or interface."""
        return bool(self._others) or any(module.closed and not module.is_bench for module in self._modules)


@dataclass(frozen=True)
class Block:
    """One fenced block: the fence line's words, the nearest line with text before it, the content, and where it stands in the response."""

    info: str
    before: str
    source: Source
    span: tuple[int, int]
    broken_off: bool = False
    """Whether the next block opens before this one is closed."""

    @property
    def text(self) -> str:
        return self.source.text

    @property
    def tag(self) -> str:
        words = re.split(r"[\s:{]", self.info.strip(), maxsplit=1)
        return words[0].lower()

    @property
    def is_hdl(self) -> bool:
        return self.tag in _HDL_TAGS or (self.tag not in _OTHER_TAGS and has_design_unit(self.text))


def has_design_unit(text: str) -> bool:
    """Whether a line begins a module, package or interface."""
    return bool(_DESIGN_UNIT.search(text))


def json_values(text: str, blocks: Sequence[Block]) -> Iterator[dict[str, str]]:
    """The files (path -> text) that each JSON value of a response offers, in order; the number of values tried is bounded."""
    yield from _values_in(text, MAX_JSON_TRIES)
    tries = 0
    for block in blocks:
        if tries < MAX_JSON_TRIES and block.tag in ("json", "") and block.text.lstrip().startswith("{"):
            tries += 1
            yield from _values_in(block.text, 1)


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


# Numbers are kept as text: to convert a long one takes time that grows with the square of its length.
_JSON = json.JSONDecoder(strict=False, parse_int=str, parse_float=str)


def _files_of(value: object) -> dict[str, str]:
    """The files of a decoded JSON answer; empty when it is no such JSON."""
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
    """The blocks of a response that hold any text, in order."""
    return [block for block in islice(blocks_in(text), MAX_BLOCKS) if block.text.strip()]


def blocks_in(text: str) -> Iterator[Block]:
    """Fenced blocks in order. A fence may close at the end of a code line, and an unclosed one reaches to the next, or to the end.

    A line that begins with the fence closes it, whatever follows on it (`</answer>`, an end of turn, prose), but opens the next
    block where a word follows at once.
    """
    at = 0
    outside = 0  # where the text behind the last block begins
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
    """The content of the block that begins at `at`, where the text behind its fence begins, and whether that opens the next block."""
    begin = at
    while (found := text.find(fence, at)) >= 0:
        start, end = text.rfind("\n", 0, found) + 1, _line_end(text, found)
        at = end + 1
        line = text[start:end]
        stripped = line.strip()
        if stripped.startswith(fence):
            opens = bool(_WORD_BEHIND.match(stripped))
            return text[begin : max(begin, start - 1)], start if opens else found + len(fence), opens
        if fence[0] == "`" and stripped.endswith(fence) and "`" not in stripped.rstrip("`"):
            return text[begin:start] + line.rstrip().rstrip("`"), end, False
    return text[begin:], len(text), False


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


def _last_line(text: str) -> str:
    """The last line with text in it, cut."""
    return text.rstrip().rpartition("\n")[2].strip()[:MAX_LABEL_CHARS]


def _opening(line: str) -> tuple[str, str, str] | None:
    """(text before the fence, fence, fence line's words) of a line that opens a block."""
    run = _FENCE_RUN.search(line)
    if run is None or len(run[0]) < 3 or "`" in line[run.end() :]:
        return None
    return line[: run.start()], run[0], line[run.end() :]


def _one_line(line: str) -> str | None:
    """The code of a line that is a whole block: a fence, perhaps a tag, a space, code, and the fence again."""
    stripped = line.strip(" \t")
    if not (len(stripped) > 6 and stripped.startswith("```") and stripped.endswith("```")):
        return None
    inside = stripped[3:-3]
    if "`" in inside:
        return None
    spaced = inside[:1] in (" ", "\t")
    inside = inside.lstrip(" \t")
    tag = _ONE_LINE_TAG.match(inside)
    if tag is not None:
        return inside[tag.end() :] or None
    return inside if spaced and inside else None


def _untagged(text: str) -> str:
    """Drops a language tag that stands alone on the first line inside the fence."""
    first, _, rest = text.partition("\n")
    return rest if first.strip().lower() in ("verilog", "systemverilog", "sv") else text
