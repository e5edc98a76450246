"""From a response to the files it stands for.

The rules, in order:

1. What stands between `<think>` and `</think>` (or `thinking`, `reasoning`, `thought`) is no answer; an unclosed thought
   reaches to the end, and a closing tag without an opening one (the chat template opened it) ends a thought that
   began with the response.
2. JSON, bare or in a fence: `{"code": [{path: text}, ...]}`, `{"code": {path: text}}`, or `{path: text}`.
3. One target: the first fenced block that is HDL by its tag or its text, else the first block, else, without any
   fence, the whole text if it holds a design unit.
4. Several targets: fenced blocks, each labelled with its path in the fence line, in the line before it, or in a
   comment on its first line, or holding the module that the file is named after.

Only declared targets are taken; other offered files are listed in `Answer.ignored`. Line ends become `\\n`, an
unclosed fence reaches to the end. Every step is linear in the length of the response, which is capped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from rtl_core.prompting.answer import Answer

MAX_RESPONSE_CHARS = 2_000_000
MAX_BLOCKS = 1000
MAX_NAMED_IGNORED = 20

_THINK_OPEN = re.compile(r"<(think|thinking|thought|reasoning)>", re.I)
_THINK_CLOSE = re.compile(r"</(think|thinking|thought|reasoning)>", re.I)
_OPENING = re.compile(r"^(?P<before>[^`~\n]*?)(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]*)$")
_JSON_START = re.compile(r"\{\s{0,20}\"(?:code|files)\"\s{0,20}:")
_ONE_LINE = re.compile(r"^[ \t]*```[ \t]*(?:(?:system)?verilog|sv|v)?[ \t]([^`\n]+)```[ \t]*$", re.I)
_HDL_TAGS = {"verilog", "systemverilog", "sv", "v", "vlog", "svh", "vh", "hdl", "rtl"}
_DESIGN_UNIT = re.compile(r"^[ \t]*(?:\(\*[^\n]*\*\)[ \t]*)?(?:module|macromodule|package|interface)\s", re.M)
_HDL_SUFFIXES = (".v", ".sv", ".vh", ".svh")
_MODULE = re.compile(r"^[ \t]*(?:module|package|interface)\s+(?:automatic\s+|static\s+)?(\w+)", re.M)


@dataclass(frozen=True)
class _Block:
    """One fenced block: the fence line's words, the nearest line with text before it, the content."""

    info: str
    before: str
    text: str

    @property
    def tag(self) -> str:
        words = re.split(r"[\s:{]", self.info.strip(), maxsplit=1)
        return words[0].lower()

    @property
    def is_hdl(self) -> bool:
        return self.tag in _HDL_TAGS or (self.tag not in _OTHER_TAGS and bool(_DESIGN_UNIT.search(self.text)))


_OTHER_TAGS = {"json", "python", "py", "bash", "sh", "shell", "console", "text", "txt", "tcl", "makefile", "vhdl", "c"}


def extract_answer(response: str, targets: Sequence[str]) -> Answer:
    """The files that `response` offers for `targets`, or the error that says why there are none. Never raises."""
    if len(response) > MAX_RESPONSE_CHARS:
        return Answer(error=f"the response has {len(response)} characters, more than {MAX_RESPONSE_CHARS}")
    text = response.replace("\r\n", "\n").replace("\r", "\n")
    text = _without_thoughts(text)
    if not text.strip():
        return Answer(
            error="the response is empty" if not response.strip() else "the response ends within its thoughts"
        )
    blocks = [block for block in islice(_blocks(text), MAX_BLOCKS) if block.text.strip()]
    for candidate in (text, *(block.text for block in blocks if block.tag in ("json", ""))):
        offered = _from_json(candidate)
        if offered:
            answer = _accept(offered, targets)
            if answer.files or len(targets) > 1:
                return answer
    if len(targets) == 1:
        return _single(text, blocks, targets[0])
    return _several(blocks, targets)


def _single(text: str, blocks: list[_Block], target: str) -> Answer:
    hdl = target.endswith(_HDL_SUFFIXES)
    block = next((b for b in blocks if b.is_hdl), None) if hdl else None
    block = block or next(iter(blocks), None)
    if block is not None:
        return Answer(files={target: _finished(block.text)})
    if hdl and not _DESIGN_UNIT.search(text):
        return Answer(error="no fenced block and no design unit (module, package, interface) in the response")
    return Answer(files={target: _finished(text)})


def _several(blocks: list[_Block], targets: Sequence[str]) -> Answer:
    offered: dict[str, str] = {}
    unlabelled: list[_Block] = []
    for block in blocks:
        label = _label(block, targets)
        if label is None:
            unlabelled.append(block)
        else:
            offered.setdefault(label, _finished(block.text))
    for block in unlabelled:
        names = set(_MODULE.findall(block.text))
        for target in targets:
            stem = target.rsplit("/", 1)[-1].rsplit(".", 1)[0]
            if target not in offered and stem in names:
                offered[target] = _finished(block.text)
                break
    if offered:
        return Answer(files=offered)
    wanted = ", ".join(targets[:4]) + (", ..." if len(targets) > 4 else "")
    return Answer(error=f'neither JSON `{{"code": [{{path: text}}]}}` nor labelled blocks for {wanted}')


def _label(block: _Block, targets: Sequence[str]) -> str | None:
    """The target that a block names in its fence line, its first line, or the line before it, in that order."""
    first_line = block.text.lstrip().split("\n", 1)[0]
    if not first_line.startswith(("//", "/*", "#")):
        first_line = ""
    for line in (block.info, first_line, block.before):
        words = set(re.findall(r"[\w./-]+", line))
        for target in targets:
            if target in words or f"./{target}" in words or f"/code/{target}" in words:
                return target
        for target in targets:
            if target.rsplit("/", 1)[-1] in words:
                return target
    return None


def _accept(offered: dict[str, str], targets: Sequence[str]) -> Answer:
    """Keeps the declared targets; a path may be written with `./` or `/code/` before it, or as its bare name."""
    names: dict[str, str | None] = {}
    for target in targets:
        bare = target.rsplit("/", 1)[-1]
        names[bare] = None if bare in names else target
    files: dict[str, str] = {}
    ignored: list[str] = []
    for path, text in offered.items():
        plain = path.strip().removeprefix("/code/")
        while plain.startswith("./"):
            plain = plain[2:]
        found = plain if plain in targets else (names.get(plain) if "/" not in plain else None)
        if found is None:
            ignored.append(path[:200])
        else:
            files.setdefault(found, _finished(text))
    named = tuple(ignored[:MAX_NAMED_IGNORED])
    if not files:
        listed = ", ".join(repr(path) for path in ignored[:4])
        return Answer(ignored=named, error=f"none of the offered files ({listed}) is asked for")
    return Answer(files=files, ignored=named)


def _from_json(text: str) -> dict[str, str]:
    """The files of a JSON answer; empty when the text is no such JSON."""
    text = text.strip()
    if not text.startswith("{"):
        start = _JSON_START.search(text)
        if not start:
            return {}
        text = text[start.start() :]
    try:
        value = json.JSONDecoder(strict=False).raw_decode(text)[0]
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, dict):
        for key in ("code", "files"):
            if isinstance(value.get(key), list | dict):
                value = value[key]
                break
    entries = value if isinstance(value, list) else [value]
    files: dict[str, str] = {}
    for entry in entries:
        if isinstance(entry, dict):
            for path, content in entry.items():
                if isinstance(content, str) and re.search(r"\.\w+$", path):
                    files.setdefault(path, content)
    return files


def _blocks(text: str) -> Iterator[_Block]:
    """Fenced blocks in order. A fence may close at the end of a code line, and an unclosed one reaches to the end."""
    before = ""
    fence = ""
    info = ""
    content: list[str] = []
    for line in text.split("\n"):
        stripped = line.strip()
        if fence:
            if stripped.startswith(fence) and not stripped.strip(fence[0]):
                yield _Block(info, before, _untagged("\n".join(content)))
                fence, before = "", ""
            elif fence[0] == "`" and stripped.endswith(fence) and "`" not in stripped.rstrip("`"):
                content.append(line.rstrip().rstrip("`"))
                yield _Block(info, before, _untagged("\n".join(content)))
                fence, before = "", ""
            else:
                content.append(line)
            continue
        if "```" in line or "~~~" in line:
            one_line = _ONE_LINE.match(line)
            if one_line:
                yield _Block("", before, one_line[1])
                before = ""
                continue
            opening = _OPENING.match(line)
            if opening:
                fence, info, content = opening["fence"], opening["info"], []
                before = opening["before"] if opening["before"].strip() else before
                continue
        if stripped:
            before = stripped[:500]
    if fence:
        yield _Block(info, before, _untagged("\n".join(content)))


def _untagged(text: str) -> str:
    """Drops a language tag that stands alone on the first line inside the fence."""
    first, _, rest = text.partition("\n")
    return rest if first.strip().lower() in ("verilog", "systemverilog", "sv") else text


def _without_thoughts(text: str) -> str:
    opened = _THINK_OPEN.search(text)
    closed = _THINK_CLOSE.search(text)
    if closed and (opened is None or closed.start() < opened.start()):
        text = text[closed.end() :]
    kept: list[str] = []
    at = 0
    while opened := _THINK_OPEN.search(text, at):
        fence = text.find("```", at, opened.start())
        if fence >= 0:
            # A tag inside a block is part of the code: go on behind that block.
            end = text.find("\n```", fence + 3)
            if end < 0:
                break
            kept.append(text[at : end + 4])
            at = end + 4
            continue
        kept.append(text[at : opened.start()])
        closed = _THINK_CLOSE.search(text, opened.end())
        if closed is None:
            return "".join(kept)
        at = closed.end()
    return "".join(kept) + text[at:]


def _finished(text: str) -> str:
    """Code with exactly one line end at its end."""
    return text.strip("\n").rstrip() + "\n"
