"""Move training problems that belong to a held-out problem to the held-out side.

Two problems belong together when they have one design (problems/design.py) or are near-duplicates by one of
three measures (Jaccard overlap of runs of consecutive words or tokens):

- text: the words shown to the model, in runs of three, overlap by 80 % or more; a file with a mask counts whole;
- golden answer: its tokens, in runs of five, overlap by 80 %;
- code: RTL modules that are shown to the model, or in the golden answers, overlap by 60 % in runs of eight
  tokens. An identifier is represented by the distance to its previous use (after Baker, "Parameterized
  duplication in strings", 1997), so renaming does not hide a design. Different designs of CVDP and RTLLM
  overlap by 24 % at most.

Fewer than 60 runs of code, or 20 of text, are too short to tell ("Write the design that the test bench
expects."). Held-out problems never move. Pairs within a generated set, such as the starter set, are
ignored: its texts sound alike, but its splits share no specification by construction. Generated problems
are not compared by code at all.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rtl_grader.hdl.text import compact
from rtl_grader.problems.design import Design, is_rtl, modules_of
from rtl_grader.types.problem import Problem

MIN_CODE_RUNS = 60
MIN_TEXT_RUNS = 20
_CODE = (".v", ".sv", ".vh", ".svh", ".py")
_FAR = 24
_TOKEN = re.compile(r"\$?[A-Za-z_]\w*|\d*'[sS]?[bodhBODH][\da-fA-FxXzZ_?]+|\d[\d_]*|[^\w\s]")
_WORDS = """
always always_comb always_ff always_latch and assign automatic begin bit byte case casex casez const default else
end endcase endfunction endgenerate endmodule endtask enum final for forever function generate genvar if initial
inout input int integer localparam logic module nand negedge nor not or output packed parameter posedge reg repeat
return signed struct task typedef unique unsigned while wire xnor xor
"""
_KEYWORDS = frozenset(_WORDS.split())


@dataclass(frozen=True)
class NearDuplicate:
    """A training problem that moved because it belongs to a held-out one."""

    moved: str
    """Id of the training problem."""
    like: str
    """Id of the held-out problem."""
    overlap: float
    """Jaccard overlap of the runs, from 0 to 1; 1 for one design."""
    by: str
    """`text`, `golden answer`, `code`, `design NAME`, `module NAME` or `fingerprint DIGITS`."""

    def __str__(self) -> str:
        reason = f"its {self.by} is {self.overlap:.0%} that of {self.like}"
        if self.by.startswith(("design ", "module ", "fingerprint ")):
            reason = f"it shares the {self.by} with {self.like}"
        return f"{self.moved} is held out too: {reason}"


RunSets = list[set[int]]
"""Hashes of the runs of a text, or of each of its modules."""
Runs: TypeAlias = "array[int]"
"""Such a set as an array: sets take eight times the memory."""
Place = tuple[int, str | None]
"""Identity of runs, and the generated set of their problem."""


@dataclass(frozen=True)
class Measure:
    """A measure of similarity between two problems."""

    by: str
    texts: Callable[[Problem], Iterable[str]]
    """What is compared of a problem."""
    runs: Callable[[str], RunSets]
    limit: float
    """Smallest overlap of near-duplicates."""
    least: int = 0
    """A text or module with fewer runs is ignored."""


class Library:
    """The runs of texts, computed once for each: the problems of a design share most of theirs."""

    def __init__(self) -> None:
        self._by_text: dict[tuple[str, str], list[Runs]] = {}
        """(measure, text) -> runs."""

    def runs(self, measure: Measure, problem: Problem) -> list[Runs]:
        """The runs that are long enough. Those of equal texts are the same objects."""
        every: list[Runs] = []
        for text in measure.texts(problem):
            key = measure.by, text
            if key not in self._by_text:
                long = [runs for runs in measure.runs(text) if len(runs) >= measure.least]
                self._by_text[key] = [array("q", runs) for runs in long]
            every += self._by_text[key]
        return every


def separate(
    train: Sequence[Problem],
    heldout: Sequence[Problem],
    designs: Mapping[str, Design] | None = None,
) -> tuple[list[Problem], list[Problem], list[NearDuplicate]]:
    """Return (train, held-out, moves). Order is kept; moved problems come last in the held-out list.

    Repeats until no pair is left, since a moved problem may have near-duplicates of its own.

    Args:
        designs: problem id -> its design. None: compare only text, however short, and golden answer, as for
            a split by `id`.
    """
    measures = BY_ID if designs is None else BY_DESIGN
    left, out = list(train), list(heldout)
    moved: list[NearDuplicate] = []
    fresh: Sequence[Problem] = out
    library = Library()
    while fresh:
        moves = {pair.moved: pair for pair in pairs(left, fresh, measures, library)}
        moves |= {pair.moved: pair for pair in _of_one_design(left, fresh, designs or {})}
        fresh = [problem for problem in left if problem.id in moves]
        left = [problem for problem in left if problem.id not in moves]
        out += fresh
        moved += [moves[problem.id] for problem in fresh]
    return left, out, moved


def _of_one_design(
    train: Iterable[Problem], heldout: Iterable[Problem], designs: Mapping[str, Design]
) -> Iterator[NearDuplicate]:
    """Yield training problems that share a design name, a module or the fingerprint with a held-out one."""
    holder: dict[str, str] = {}
    for problem in heldout:
        for mark in _marks(problem, designs):
            holder.setdefault(mark, problem.id)
    for problem in train:
        for mark in _marks(problem, designs):
            if mark in holder:
                yield NearDuplicate(problem.id, holder[mark], 1.0, mark)
                break


def _marks(problem: Problem, designs: Mapping[str, Design]) -> list[str]:
    design = designs.get(problem.id)
    if design is None:
        return []
    marks = [f"design {design.name}"]
    marks += [f"module {name}" for name in sorted(design.modules)]
    marks.append(f"fingerprint {problem.fingerprint[:12]}")
    return marks


def pairs(
    train: Iterable[Problem],
    heldout: Iterable[Problem],
    measures: Sequence[Measure],
    library: Library | None = None,
) -> list[NearDuplicate]:
    """Return the closest near-duplicate among the held-out problems for each training problem that has one.

    `library` keeps the runs between calls about the same problems.
    """
    library = library or Library()
    best: dict[str, NearDuplicate] = {}
    train, heldout = list(train), list(heldout)
    for measure in measures:
        index = _Index(measure, heldout, library)
        for problem in train:
            for own in library.runs(measure, problem):
                other, overlap = index.closest(own, _set_of(problem))
                closest = best.get(problem.id)
                if overlap and (closest is None or overlap > closest.overlap):
                    best[problem.id] = NearDuplicate(problem.id, other, overlap, measure.by)
    return list(best.values())


def _set_of(problem: Problem) -> str | None:
    """The generated set that a problem is of; None for other problems."""
    return problem.source if problem.generated else None


@dataclass(frozen=True)
class _Entry:
    """Runs of held-out problems of one set, and the first of these problems by id."""

    id: str
    set: str | None
    runs: Runs


class _Index:
    """The runs of held-out problems by one measure, to find those that overlap with given ones."""

    def __init__(self, measure: Measure, problems: Iterable[Problem], library: Library) -> None:
        self._limit = measure.limit
        self._holders: dict[int, list[int]] = defaultdict(list)
        """Run -> places in the entries."""
        self._answers: dict[Place, tuple[str, float]] = {}
        entries: dict[Place, _Entry] = {}
        for problem in sorted(problems, key=lambda problem: problem.id):
            for runs in library.runs(measure, problem):
                own_set = _set_of(problem)
                entries.setdefault((id(runs), own_set), _Entry(problem.id, own_set, runs))
        self._entries = list(entries.values())
        for place, entry in enumerate(self._entries):
            for run in entry.runs:
                self._holders[run].append(place)

    def closest(self, own: Runs, own_set: str | None) -> tuple[str, float]:
        """(problem id, overlap) of the closest entry within the limit, the first by id; overlap 0 without one.

        Entries of the same generated set are ignored.
        """
        key = id(own), own_set
        if key not in self._answers:
            closest = "", 0.0
            for entry, overlap in self._near(own):
                is_other = own_set is None or entry.set != own_set
                if is_other and overlap > closest[1]:
                    closest = entry.id, overlap
            self._answers[key] = closest
        return self._answers[key]

    def _near(self, own: Runs) -> Iterator[tuple[_Entry, float]]:
        """Yield (entry, overlap) for the entries that overlap at least by the limit, in the order of ids."""
        # Above the limit at most this share of the runs is not in the other set, so one of a few
        # more is. Of these the rarest are looked up: common phrases are in every problem of a set.
        size = len(own)
        few = int((1 - self._limit) * size) + 2
        known = self._holders.keys() & own
        few -= size - len(known)  # runs that no entry has are the rarest
        if few <= 0:
            return
        holders = [self._holders[run] for run in known]
        rarest = sorted(holders, key=len)[:few]
        own_runs = set(own)
        for place in sorted(set().union(*rarest)):
            entry = self._entries[place]
            common = len(own_runs.intersection(entry.runs))
            either = size + len(entry.runs) - common
            overlap = common / either
            if overlap >= self._limit:
                yield entry, overlap


def _texts(problem: Problem) -> list[str]:
    """Everything shown to the model except code."""
    texts = _prompt(problem)
    for path, text in sorted(problem.context.items()):
        if not path.endswith(_CODE):
            texts.append(text)
    return ["\n".join(texts)]


def _prompt(problem: Problem) -> list[str]:
    """The prompt. A file that it shows with a mask is apart from it, and whole: it is that of other problems too."""
    prompt, files = problem.prompt, []
    for path, frame in problem.frame.items():
        shown, whole = frame.rstrip(), (problem.golden or {}).get(path)
        if whole and shown in prompt:
            prompt = prompt.replace(shown, "")
            files.append(whole)
    return [prompt, *files]


def _text_runs(text: str) -> RunSets:
    return [_runs(re.findall(r"[a-z]+|\d+", text.lower()), 3)]


def _goldens(problem: Problem) -> list[str]:
    return ["\n".join((problem.golden or {}).values())]


def _golden_runs(text: str) -> RunSets:
    return [_runs(re.findall(r"\w+|[^\w\s]", compact(text)), 5)]


def _codes(problem: Problem) -> Iterable[str]:
    """Texts with modules: those shown to the model, and the golden answer; none for a generated problem."""
    if problem.generated:
        return ()
    shown = [text for path, text in sorted(problem.context.items()) if is_rtl(path)]
    return dict.fromkeys([*shown, *_prompt(problem), *(problem.golden or {}).values()])


def _code_runs(text: str) -> RunSets:
    return [_runs(_without_names(code), 8) for _, code in modules_of(text)]


def _without_names(code: str) -> list[str]:
    """Tokens, with each identifier replaced by the distance to its previous use (0: none within reach)."""
    last: dict[str, int] = {}
    tokens = []
    for place, token in enumerate(_TOKEN.findall(code)):
        is_name = token[0].isalpha() or token[0] == "_"
        if not is_name or token in _KEYWORDS:
            tokens.append(token)
            continue
        distance = place - last.get(token, -_FAR - 1)
        last[token] = place
        reach = distance if distance <= _FAR else 0
        tokens.append(f"<{reach}>")
    return tokens


def _runs(words: list[str], length: int) -> set[int]:
    """Hashes of the runs of `length` words; of a shorter text one hash, of an empty one none."""
    if len(words) < length:
        return {hash(tuple(words))} if words else set()
    shifted = (words[start:] for start in range(length))
    return set(map(hash, zip(*shifted, strict=False)))


_GOLDEN = Measure("golden answer", _goldens, _golden_runs, 0.8, MIN_CODE_RUNS)
BY_ID = (Measure("text", _texts, _text_runs, 0.8), _GOLDEN)
"""Measures of a split by `id`, unchanged since older releases so that their runs resume with the same split."""
_BY_CODE = Measure("code", _codes, _code_runs, 0.6, MIN_CODE_RUNS)
BY_DESIGN = (Measure("text", _texts, _text_runs, 0.8, MIN_TEXT_RUNS), _GOLDEN, _BY_CODE)
STRICT = (*BY_ID, _BY_CODE)
"""For candidates that are easily replaced: short texts count too."""
