"""From a response to the files it stands for.

The rules, in order:

1. What stands between `<think>` and `</think>` (or `thinking`, `reasoning`, `thought`) is no answer; an unclosed thought
   reaches to the end, and a closing tag without an opening one (the chat template opened it) ends a thought that
   began with the response.
2. JSON, bare or in a fence, offers files: `{"code": [{path: text}, ...]}`, `{"code": {path: text}}`, or `{path: text}`.
   Each fenced block offers its text.
3. One target: the first offer that defines a demanded module in full (`module` to `endmodule`, with a body), else the
   first that begins its definition, else the first that holds another module which is no test bench. Without any of
   these: the JSON, else the first fenced block that is HDL by its tag or its text, else the first block, else, without
   any fence, the whole text if it holds a design unit.
4. Several targets: JSON, or fenced blocks, each labelled with its path in the fence line, in the line before it, or in
   a comment on its first line, or holding the module that the file is named after. Of several blocks for one target the
   choice is as for one target; of several JSON values, or JSON and blocks, the one that defines most targets.

So a port list, a usage example, a test bench or an example of the format may stand before or after the design. Among
equals the first counts, not the last: the public CVDP runner reads the first fenced block, and an answer that it passes
must not fail here for a variant that is shown afterwards.

Only declared targets are taken; other offered files are listed in `Answer.ignored`. Line ends become `\\n`, an
unclosed fence reaches to the end. Every step is linear in the length of the response, which is capped: no regular
expression here can match one stretch of text in two ways, and the number of JSON values that are tried is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from rtl_core.prompting.answer import Answer
from rtl_core.prompting.verilog_text import Module, bare, modules

MAX_RESPONSE_CHARS = 2_000_000
MAX_BLOCKS = 1000
MAX_NAMED_IGNORED = 20
MAX_JSON_TRIES = 16
MAX_LABEL_CHARS = 500

_THINK_OPEN = re.compile(r"<(think|thinking|thought|reasoning)>", re.I)
_THINK_CLOSE = re.compile(r"</(think|thinking|thought|reasoning)>", re.I)
_FENCE = re.compile("```|~~~")
_FENCE_RUN = re.compile(r"`+|~+")
_JSON_START = re.compile(r"\{\s{0,20}\"(?:code|files)\"\s{0,20}:")
_ONE_LINE_TAG = re.compile(r"(?:(?:system)?verilog|sv|v)?[ \t]", re.I)
_HDL_TAGS = {"verilog", "systemverilog", "sv", "v", "vlog", "svh", "vh", "hdl", "rtl"}
_OTHER_TAGS = {"json", "python", "py", "bash", "sh", "shell", "console", "text", "txt", "tcl", "makefile", "vhdl", "c"}
_DESIGN_UNIT = re.compile(r"^[ \t]*(?:\(\*[^\n]*\*\)[ \t]*)?(?:module|macromodule|package|interface)\s", re.M)
_NOT_MODULE = re.compile(r"^[ \t]*(?:package|interface)\s+(?:automatic\s+|static\s+)?(\w+)", re.M)
_HDL_SUFFIXES = (".v", ".sv", ".vh", ".svh")
_WORD = re.compile(r"[\w./-]+")
_LEADING_DOTS = re.compile(r"\A(?:\./)++")


class _Source:
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
class _Block:
    """One fenced block: the fence line's words, the nearest line with text before it, the content."""

    info: str
    before: str
    source: _Source

    @property
    def text(self) -> str:
        return self.source.text

    @property
    def tag(self) -> str:
        words = re.split(r"[\s:{]", self.info.strip(), maxsplit=1)
        return words[0].lower()

    @property
    def is_hdl(self) -> bool:
        return self.tag in _HDL_TAGS or (self.tag not in _OTHER_TAGS and bool(_DESIGN_UNIT.search(self.text)))


def extract_answer(response: str, targets: Sequence[str], demanded: Sequence[str] = ()) -> Answer:
    """The files that `response` offers for `targets`, or the error that says why there are none. Never raises.

    `demanded` names the modules that the answer must define, most wanted first; where a problem is at hand, use
    `answer_to`, which knows them. The module that a target is named after is looked for in any case.
    """
    if len(response) > MAX_RESPONSE_CHARS:
        return Answer(error=f"the response has {len(response)} characters, more than {MAX_RESPONSE_CHARS}")
    text = response.replace("\r\n", "\n").replace("\r", "\n")
    text = _without_thoughts(text)
    if not text.strip():
        return Answer(
            error="the response is empty" if not response.strip() else "the response ends within its thoughts"
        )
    blocks = [block for block in islice(_blocks(text), MAX_BLOCKS) if block.text.strip()]
    by_json = [_accept(offered, targets) for offered in _json_values(text, blocks)]
    if len(targets) == 1:
        return _single(text, blocks, by_json, targets[0], demanded)
    return _several(blocks, by_json, targets, demanded)


def _single(
    text: str, blocks: Sequence[_Block], by_json: Sequence[Answer], target: str, demanded: Sequence[str]
) -> Answer:
    by_json = [answer for answer in by_json if answer.files]
    hdl = target.endswith(_HDL_SUFFIXES)
    if hdl:
        from_json = [_Source(answer.files[target]) for answer in by_json]
        offers = from_json + [block.source for block in blocks if block.is_hdl]
        names = [*demanded, _stem(target)]
        best = _best(offers, names) or _first_complete((block.source for block in blocks if not block.is_hdl), names)
        if best in from_json:
            return by_json[from_json.index(best)]
        if best is not None:
            return Answer(files={target: _finished(best.text)})
    if by_json:
        return by_json[0]
    block = next((b for b in blocks if b.is_hdl), None) if hdl else None
    block = block or next(iter(blocks), None)
    if block is not None:
        return Answer(files={target: _finished(block.text)})
    if hdl and not _DESIGN_UNIT.search(text):
        return Answer(error="no fenced block and no design unit (module, package, interface) in the response")
    return Answer(files={target: _finished(text)})


def _several(
    blocks: Sequence[_Block], by_json: Sequence[Answer], targets: Sequence[str], demanded: Sequence[str]
) -> Answer:
    answers = [answer for answer in by_json if answer.files]
    labelled = _from_blocks(blocks, targets, demanded)
    if labelled:
        answers.append(Answer(files=labelled))
    if answers:
        return max(answers, key=lambda answer: _defined(answer.files, demanded))  # the first of equals
    if by_json:
        return by_json[0]
    wanted = ", ".join(targets[:4]) + (", ..." if len(targets) > 4 else "")
    return Answer(error=f'neither JSON `{{"code": [{{path: text}}]}}` nor labelled blocks for {wanted}')


def _from_blocks(blocks: Sequence[_Block], targets: Sequence[str], demanded: Sequence[str]) -> dict[str, str]:
    """Target -> text, from blocks that name their target or define the module that it is named after."""
    labelled: dict[str, list[_Source]] = {}
    unlabelled: list[_Source] = []
    for block in blocks:
        label = _label(block, targets)
        if label is None:
            unlabelled.append(block.source)
        else:
            labelled.setdefault(label, []).append(block.source)
    files: dict[str, str] = {}
    for target, sources in labelled.items():
        files[target] = _finished((_best(sources, [_stem(target), *demanded]) or sources[0]).text)
    for target in targets:
        if target not in files:
            stem = _stem(target)
            source = _first_complete(unlabelled, [stem]) or next((s for s in unlabelled if s.begins(stem)), None)
            if source is not None:
                unlabelled.remove(source)
                files[target] = _finished(source.text)
    return files


def _best(sources: Sequence[_Source], names: Sequence[str]) -> _Source | None:
    """The first that defines one of `names` in full, most wanted name first; else that begins one; else with a design."""
    found = _first_complete(sources, names)
    found = found or next((source for name in names for source in sources if source.begins(name)), None)
    return found or next((source for source in sources if source.holds_design()), None)


def _first_complete(sources: Iterable[_Source], names: Sequence[str]) -> _Source | None:
    sources = list(sources)
    return next((source for name in names for source in sources if source.completes(name)), None)


def _defined(files: Mapping[str, str], demanded: Sequence[str]) -> int:
    """How many files hold what they are there for: a demanded module, the one they are named after, or some design."""
    count = 0
    for path, text in files.items():
        source = _Source(text)
        names = [_stem(path), *demanded]
        begun = any(map(source.begins, names))
        hdl = path.endswith(_HDL_SUFFIXES)
        count += (any(map(source.completes, names)) or (not begun and source.holds_design())) if hdl else 1
    return count


def _stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].rsplit(".", 1)[0]


def _label(block: _Block, targets: Sequence[str]) -> str | None:
    """The target that a block names in its fence line, its first line, or the line before it, in that order."""
    first_line = block.text.lstrip().split("\n", 1)[0]
    if not first_line.startswith(("//", "/*", "#")):
        first_line = ""
    for line in (block.info, first_line, block.before):
        words = set(_WORD.findall(line[:MAX_LABEL_CHARS]))
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
        bare_name = target.rsplit("/", 1)[-1]
        names[bare_name] = None if bare_name in names else target
    names.update({target: target for target in targets})
    files: dict[str, str] = {}
    ignored: list[str] = []
    for path, text in offered.items():
        found = names.get(_LEADING_DOTS.sub("", path.strip().removeprefix("/code/")))
        if found is None:
            ignored.append(path[:200])
        else:
            files.setdefault(found, _finished(text))
    named = tuple(ignored[:MAX_NAMED_IGNORED])
    if not files:
        listed = ", ".join(repr(path) for path in ignored[:4])
        return Answer(ignored=named, error=f"none of the offered files ({listed}) is asked for")
    return Answer(files=files, ignored=named)


def _json_values(text: str, blocks: Sequence[_Block]) -> Iterator[dict[str, str]]:
    """The files that each JSON value of a response offers, in order; bounded in number and in the text that is read."""
    yield from _values_in(text, MAX_JSON_TRIES)
    tries = 0
    for block in blocks:
        if tries < MAX_JSON_TRIES and block.tag in ("json", "") and block.text.lstrip().startswith("{"):
            tries += 1
            yield from _values_in(block.text, 1)


def _values_in(text: str, tries: int) -> Iterator[dict[str, str]]:
    at = len(text) - len(text.lstrip())
    budget = 2 * MAX_RESPONSE_CHARS
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


def _blocks(text: str) -> Iterator[_Block]:
    """Fenced blocks in order. A fence may close at the end of a code line, and an unclosed one reaches to the end."""
    at = 0
    outside = 0  # where the text behind the last block begins
    while (fence_at := _FENCE.search(text, at)) is not None:
        start, end = text.rfind("\n", 0, fence_at.start()) + 1, _line_end(text, fence_at.start())
        line = text[start:end]
        at = end + 1
        inline = _one_line(line)
        if inline is not None:
            yield _Block("", _last_line(text[outside:start]), _Source(inline))
            outside = at
            continue
        opening = _opening(line)
        if opening is None:
            continue
        before, fence, info = opening
        before = before.strip()[:MAX_LABEL_CHARS] or _last_line(text[outside:start])
        content, at = _content(text, at, fence)
        yield _Block(info, before, _Source(_untagged(content)))
        outside = at


def _content(text: str, at: int, fence: str) -> tuple[str, int]:
    """The content of the block that begins at `at`, and where the text behind it begins."""
    begin = at
    while (found := text.find(fence, at)) >= 0:
        start, end = text.rfind("\n", 0, found) + 1, _line_end(text, found)
        at = end + 1
        line = text[start:end]
        stripped = line.strip()
        if not stripped.strip(fence[0]):
            return text[begin : max(begin, start - 1)], at
        if fence[0] == "`" and stripped.endswith(fence) and "`" not in stripped.rstrip("`"):
            return text[begin:start] + line.rstrip().rstrip("`"), at
    return text[begin:], len(text)


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


def _without_thoughts(text: str) -> str:
    opened = _THINK_OPEN.search(text)
    closed = _THINK_CLOSE.search(text)
    if closed and (opened is None or closed.start() < opened.start()):
        text = text[closed.end() :]
        opened = _THINK_OPEN.search(text)
    kept: list[str] = []
    at = 0
    while opened:
        fence = text.find("```", at, opened.start())
        if fence >= 0:
            # A tag inside a block is part of the code: go on behind that block.
            end = text.find("\n```", fence + 3)
            if end < 0:
                break
            kept.append(text[at : end + 4])
            at = end + 4
            if at > opened.start():
                opened = _THINK_OPEN.search(text, at)
            continue
        kept.append(text[at : opened.start()])
        closed = _THINK_CLOSE.search(text, opened.end())
        if closed is None:
            return "".join(kept)
        at = closed.end()
        opened = _THINK_OPEN.search(text, at)
    return "".join(kept) + text[at:]


def _finished(text: str) -> str:
    """Code with exactly one line end at its end."""
    return text.strip("\n").rstrip() + "\n"
