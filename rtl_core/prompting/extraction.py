"""Extract the answer's files from a response: choose among the blocks and JSON values that it offers (offers.py).

The rules, in order:

1. Text between `<think>` and `</think>` (or `thinking`, `reasoning`, `thought`) is not an answer; an unclosed thought reaches to
   the end. Of messages in channels (gpt-oss) only `final` is an answer (thoughts.py).
2. JSON, bare or in a fence, offers files: `{"code": [{path: text}, ...]}`, `{"code": {path: text}}`, or `{path: text}`.
   Each fenced block offers its text.
3. One target: the first offer that defines a demanded module completely (`module` to `endmodule`, with a body), else the first that
   begins its definition, else the first with another module that is not a test bench. Failing these: the JSON, else the first
   fenced block that is HDL by its tag or its text, else the first block, else, without any fence, the whole text if it has a design
   unit.
4. Several targets: JSON, or fenced blocks that name their path in the fence line, in the line before it, or in a comment on the
   first line, or that define the module that the file is named after. Several blocks for one target compete as in rule 3; of
   several JSON values, or JSON and blocks, the one that defines most targets is used.

So port lists, usage examples, test benches and examples of the format may come before or after the design. Among equals the first is
used: the public CVDP runner reads the first fenced block, and an answer that passes there must not fail here because of a later variant.

Only declared targets are used; other offered files are listed in `Answer.ignored`. Line ends become `\\n`. An unclosed fence reaches to
the next one with a tag, or to the end. Every step is linear in the length of the response, which is capped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from rtl_core.prompting.offers import MAX_LABEL_CHARS, Block, Source, fenced_blocks, has_design_unit, json_values
from rtl_core.prompting.thoughts import THOUGHT_END, without_thoughts
from rtl_core.types.answer import Answer

MAX_RESPONSE_CHARS = 2_000_000
MAX_NAMED_IGNORED = 20

_HDL_SUFFIXES = (".v", ".sv", ".vh", ".svh")
_WORD = re.compile(r"[\w./-]+")
_LEADING_DOTS = re.compile(r"\A(?:\./)++")


def extract_answer(response: str, targets: Sequence[str], demanded: Sequence[str] = ()) -> Answer:
    """Extract the files for `targets` from a response, or the reason why there are none. Never raises.

    `demanded` names the modules that the answer must define, most important first; `answer_to` takes them from a problem. Modules
    named like a target are always looked for.
    """
    if len(response) > MAX_RESPONSE_CHARS:
        return Answer(error=f"the response has {len(response)} characters, more than {MAX_RESPONSE_CHARS}")
    text = without_thoughts(response.replace("\r\n", "\n").replace("\r", "\n"))
    if not text.strip():
        return Answer(error=_why_empty(response))
    blocks = fenced_blocks(text)
    by_json = [_accept(offered, targets) for offered in json_values(text, blocks)]
    if len(targets) == 1:
        return _single(text, blocks, by_json, targets[0], demanded)
    return _several(blocks, by_json, targets, demanded)


def _why_empty(response: str) -> str:
    if THOUGHT_END.search(response):
        return "the response has thoughts and no answer after them"
    return "the response ends within its thoughts" if response.strip() else "the response is empty"


def _single(
    text: str, blocks: Sequence[Block], by_json: Sequence[Answer], target: str, demanded: Sequence[str]
) -> Answer:
    by_json = [answer for answer in by_json if answer.files]
    hdl = target.endswith(_HDL_SUFFIXES)
    if hdl:
        from_json = [Source(answer.files[target]) for answer in by_json]
        offers = from_json + [block.source for block in blocks if block.is_hdl]
        names = [*demanded, _stem(target)]
        best = _best(offers, names) or _first_complete((block.source for block in blocks if not block.is_hdl), names)
        if best in from_json:
            return by_json[from_json.index(best)]
        if best is not None:
            return Answer(files={target: _finished(best.text)})
    if by_json:
        return by_json[0]
    block = next((b for b in blocks if hdl and b.is_hdl), next(iter(blocks), None))
    if block is not None:
        return Answer(files={target: _finished(block.text)})
    if hdl and not has_design_unit(text):
        return Answer(error="no fenced block and no design unit (module, package, interface) in the response")
    return Answer(files={target: _finished(text)})


def _several(
    blocks: Sequence[Block], by_json: Sequence[Answer], targets: Sequence[str], demanded: Sequence[str]
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


def _from_blocks(blocks: Sequence[Block], targets: Sequence[str], demanded: Sequence[str]) -> dict[str, str]:
    """Map targets to texts of blocks that name the target or define the module that it is named after."""
    labelled: dict[str, list[Source]] = {}
    unlabelled: list[Source] = []
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


def _best(sources: Sequence[Source], names: Sequence[str]) -> Source | None:
    """Return the first source that defines one of `names` completely, else that begins one, else with a design."""
    found = _first_complete(sources, names)
    found = found or next((source for name in names for source in sources if source.begins(name)), None)
    return found or next((source for source in sources if source.holds_design()), None)


def _first_complete(sources: Iterable[Source], names: Sequence[str]) -> Source | None:
    sources = list(sources)
    return next((source for name in names for source in sources if source.completes(name)), None)


def _defined(files: Mapping[str, str], demanded: Sequence[str]) -> int:
    """Number of files with a demanded module, the module that the file is named after, or another design."""
    count = 0
    for path, text in files.items():
        source = Source(text)
        names = [_stem(path), *demanded]
        begun = any(map(source.begins, names))
        hdl = path.endswith(_HDL_SUFFIXES)
        count += (any(map(source.completes, names)) or (not begun and source.holds_design())) if hdl else 1
    return count


def _stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].rsplit(".", 1)[0]


def _label(block: Block, targets: Sequence[str]) -> str | None:
    """Target that a block names in its fence line, its first line, or the line before it, in this order."""
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
    """Keep the declared targets; a path may start with `./` or `/code/`, or be a bare file name."""
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


def _finished(text: str) -> str:
    """Code that ends with exactly one newline."""
    return text.strip("\n").rstrip() + "\n"
