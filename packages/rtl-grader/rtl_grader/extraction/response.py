"""Extract the answer's files from a response: choose among the texts that it offers (offers.py).
docs/grading.md has the rules as a table.

1. Text between `<think>` and `</think>` (or `thinking`, `reasoning`, `thought`) is not an answer; an
   unclosed thought reaches to the end. Of messages in channels (gpt-oss) only `final` is an answer
   (thoughts.py).
2. If tags `<answer>` hold code, only the last of them counts. Quotation marks before lines of code are
  removed (wrapping.py).
3. Offers are, in this order: JSON, with or without paths; fenced blocks, those with a tag for HDL or none
   first; and for one target, all design units of the response, whatever stands around them.
4. One target: of the offers that define a demanded module completely (`module` to `endmodule`, with a
   body), the last that the line before it presents as corrected or final; else the first that is not
   presented as given or wrong; else the first. If no offer is complete: the first that begins the module,
   else the first with another module that is not a test bench, else the first.
5. Several targets: an offer belongs to the target that it names by path: in JSON, in the fence line, in a
   comment on the first line, or in the line before it; else to the target that is named after a module that
   it defines. Rule 4 chooses among several for one target.
6. Modules, packages and interfaces that the answer uses and that only another offer defines are added. None
  is ever replaced.

So port lists, usage examples, test benches and examples of the format may come before or after the design.
Among equals the first is used: the public CVDP runner reads the first fenced block, and an answer that
passes there must not fail here because of a later variant. Exactly one answer is extracted; what its tests
say has no influence.

Only declared targets are used; other offered files are listed in `Answer.ignored`. Line ends become `\\n`.
An unclosed fence reaches to the next one with a tag, or to the end. Every step is linear in the length of
the response, which is capped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from posixpath import basename

from rtl_grader.extraction.offers import MAX_LABEL_CHARS, Source, fenced_blocks, json_texts
from rtl_grader.extraction.thoughts import THOUGHT_END, without_thoughts
from rtl_grader.extraction.wrapping import design_text, has_design_unit, unwrapped
from rtl_grader.hdl.interface import HDL_SUFFIXES
from rtl_grader.types.answer import Answer
from rtl_grader.types.files import Files
from rtl_grader.types.problem import MASKED

MAX_RESPONSE_CHARS = 2_000_000
MAX_NAMED_IGNORED = 20

_WORD = re.compile(r"[\w./-]+")


def extract_answer(
    response: str,
    targets: Sequence[str],
    demanded: Sequence[str] = (),
    others: Files | None = None,
    *,
    piece: bool = False,
) -> Answer:
    """Extract the files for `targets` from a response, or the reason why there are none. Never raises.

    `demanded` names the modules that the answer must define, most important first; `answer_to` takes them
    from a problem. Modules named like a target are always looked for. `others` are the HDL files that the
    problem provides besides the targets.
    """
    if len(response) > MAX_RESPONSE_CHARS:
        length = f"{len(response)} characters, more than {MAX_RESPONSE_CHARS}"
        return Answer(error=f"the response has {length}")
    text = without_thoughts(response.replace("\r\n", "\n").replace("\r", "\n"))
    if not text.strip():
        if THOUGHT_END.search(response):
            return Answer(error="the response has thoughts and no answer after them")
        if response.strip():
            return Answer(error="the response ends within its thoughts")
        return Answer(error="the response is empty")
    offers = _offers(unwrapped(text), targets)
    if piece:
        offers = [offer for offer in offers if MASKED not in offer.text]
    chosen: dict[str, Source] = {}
    for target in targets:
        unnamed = [offer for offer in offers if offer.target is None]
        free = [offer for offer in unnamed if offer not in chosen.values()]
        source = _chosen(offers, free, target, demanded, alone=len(targets) == 1)
        if source is not None:
            chosen[target] = source
    paths = (offer.target for offer in offers if offer.target and offer.target not in targets)
    ignored = tuple(path[:200] for path in islice(paths, MAX_NAMED_IGNORED))
    if not chosen:
        return Answer(ignored=ignored, error=_why_none(ignored, targets))
    usable = list(chosen.values()) if piece else offers
    files, notes = _with_helpers(chosen, usable, others or {})
    return Answer(files=files, ignored=ignored, notes=notes)


def _why_none(ignored: Sequence[str], targets: Sequence[str]) -> str:
    if ignored:
        paths = ", ".join(map(repr, ignored[:4]))
        return f"none of the offered files ({paths}) is asked for"
    if len(targets) == 1:
        return "no fenced block and no design unit (module, package, interface) in the response"
    names = ", ".join(targets[:4])
    if len(targets) > 4:
        names += ", ..."
    return f'neither JSON `{{"code": [{{path: text}}]}}` nor labelled blocks for {names}'


def _offers(text: str, targets: Sequence[str]) -> list[Source]:
    """Texts that the response offers: of JSON, of blocks (HDL first), and for one target all of its code or text."""
    hdl = targets[0].endswith(HDL_SUFFIXES)
    offers = []
    for path, content in json_texts(text):
        if path:
            offers.append(Source(content, target=_target_of([path], targets) or path))
        else:
            offers.append(Source(design_text(content)))
    blocks = list(enumerate(fenced_blocks(text), 1))
    if hdl:
        blocks.sort(key=lambda numbered: not numbered[1].is_hdl)
    for number, block in blocks:
        first_line = block.text.lstrip().split("\n", 1)[0]
        comment = first_line if first_line.startswith(("//", "/*", "#")) else ""
        target = _target_of([block.info, comment, block.before], targets)
        has_choice = len(blocks) > len(targets)
        place = f"block {number} of {len(blocks)}" if has_choice else ""
        offers.append(Source(block.text, block.before, target, place))
    if len(targets) == 1:
        if not hdl:
            offers.append(Source(text))
        elif has_design_unit(text):
            offers.append(Source(design_text(text)))
    return offers


def _chosen(
    offers: Sequence[Source],
    free: Sequence[Source],
    target: str,
    demanded: Sequence[str],
    *,
    alone: bool,
) -> Source | None:
    """Return the text for a target among those that name it and the `free` ones, which name none."""
    stem = basename(target).rsplit(".", 1)[0]
    own = [offer for offer in offers if offer.target == target]
    names = [stem, *demanded]
    if alone:
        own, names = [*own, *free], [*demanded, stem]
    if not own:
        return _defining(free, [stem])
    designs = (source for source in own if source.holds_design())
    best = None
    if target.endswith(HDL_SUFFIXES):
        best = _defining(own, names) or next(designs, None)
    return best or _standing_best(own)


def _defining(sources: Sequence[Source], names: Sequence[str]) -> Source | None:
    """Return the source that defines the first possible name completely: the last correction, else the
    first; without any the first source that begins the first possible name."""
    for name in names:
        complete = [source for source in sources if name in source.complete]
        if complete:
            return _standing_best(complete)
    for name in names:
        for source in sources:
            if name in source.names:
                return source
    return None


def _standing_best(sources: Sequence[Source]) -> Source:
    """Return the last correction, else the first source, see `Source.standing`."""
    standing = max(source.standing for source in sources)
    equals = [source for source in sources if source.standing == standing]
    return equals[-1 if standing > 0 else 0]


def _target_of(lines: Iterable[str], targets: Sequence[str]) -> str | None:
    """The target that the first possible line names by its path or, failing that, by the bare file name."""
    for line in lines:
        words = set(_WORD.findall(line[:MAX_LABEL_CHARS]))
        for target in targets:
            if not words.isdisjoint((target, f"./{target}", f"/code/{target}")):
                return target
        for target in targets:
            if basename(target) in words:
                return target
    return None


def _with_helpers(
    chosen: Mapping[str, Source], offers: Sequence[Source], others: Files
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the files, and notes on their origin. Modules, packages and interfaces that a file uses and
    that only another offer defines are added, in the order of the response; never a second definition, one
    of `others`, or a test bench.
    """
    own = {name for source in chosen.values() for name in source.names}
    helpers = []
    for offer in offers:
        is_new = offer.names and not offer.names & own
        if is_new and offer.standing >= 0 and offer.holds_design():
            helpers.append(offer)
    if helpers:
        own.update(*(Source(text).names for text in others.values()))
    files, notes = {}, []
    for target, source in chosen.items():
        parts, words = {source}, source.words
        while helper := _helper(helpers, words, own):
            parts.add(helper)
            own, words = own | helper.names, words | helper.words
            names = ", ".join(sorted(helper.names))
            notes.append(f"{target}: with {names} of another block")
        texts = (offer.text for offer in offers if offer in parts)
        files[target] = "\n".join(text.strip("\n").rstrip() + "\n" for text in texts)
        if source.place:
            notes.append(f"{target}: {source.place}")
    return files, tuple(notes)


def _helper(helpers: Iterable[Source], words: set[str], own: set[str]) -> Source | None:
    """Return the first helper that defines one of `words` and none of `own`."""
    for helper in helpers:
        if helper.names & words and not helper.names & own:
            return helper
    return None
