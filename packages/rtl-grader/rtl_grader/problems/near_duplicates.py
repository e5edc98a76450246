"""Move training problems that belong to a held-out problem to the held-out side.

Two problems belong together when they have one design (problems/design.py) or are near-duplicates by one of
three measures (Jaccard overlap of runs of consecutive words or tokens):

- text: the words shown to the model, in runs of three, overlap by 80 % or more;
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

from rtl_grader.hdl.text import compact
from rtl_grader.problems.design import Design, modules_of, shown_modules
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


Runs = list[set[int]]
"""Hashes of the runs of each compared text or module of a problem."""
Known = dict[tuple[str, str], "list[array[int]]"]
"""(measure, problem id) -> the runs that are long enough, as arrays: sets take eight times the memory."""


@dataclass(frozen=True)
class Measure:
    """A measure of similarity between two problems."""

    by: str
    runs: Callable[[Problem], Runs]
    limit: float
    """Smallest overlap of near-duplicates."""
    least: int = 0
    """A text or module with fewer runs is ignored."""

    def of(self, problem: Problem, known: Known) -> list[array[int]]:
        """Runs of a problem's texts or modules that are long enough, from `known` if they are there."""
        key = self.by, problem.id
        if key not in known:
            long = [runs for runs in self.runs(problem) if len(runs) >= self.least]
            known[key] = [array("q", runs) for runs in long]
        return known[key]


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
    known: Known = {}
    while fresh:
        moves = {pair.moved: pair for pair in pairs(left, fresh, measures, known)}
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
    known: Known | None = None,
) -> list[NearDuplicate]:
    """Return the closest near-duplicate among the held-out problems for each training problem that has one.

    `known` keeps the runs between calls about the same problems.
    """
    known = {} if known is None else known
    best: dict[str, NearDuplicate] = {}
    train, heldout = list(train), list(heldout)
    for measure in measures:
        index = _Index(measure, heldout, known)
        for problem in train:
            for own in measure.of(problem, known):
                for other, overlap in index.near(own):
                    if problem.generated and other.generated and problem.source == other.source:
                        continue
                    closest = best.get(problem.id)
                    if closest is None or overlap > closest.overlap:
                        pair = NearDuplicate(problem.id, other.id, overlap, measure.by)
                        best[problem.id] = pair
    return list(best.values())


class _Index:
    """The runs of held-out problems by one measure, to find those that overlap with given ones."""

    def __init__(self, measure: Measure, problems: Iterable[Problem], known: Known) -> None:
        self._limit = measure.limit
        self._entries: list[tuple[Problem, array[int]]] = []
        self._holders: dict[int, list[int]] = defaultdict(list)
        """Run -> places in the entries."""
        for problem in sorted(problems, key=lambda problem: problem.id):
            for runs in measure.of(problem, known):
                for run in runs:
                    self._holders[run].append(len(self._entries))
                self._entries.append((problem, runs))

    def near(self, own: array[int]) -> Iterator[tuple[Problem, float]]:
        """Yield (problem, overlap) for the entries that overlap at least by the limit, in the order of ids."""
        # Above the limit at most this share of the runs is not in the other set, so one of a few
        # more is. Of these the rarest are looked up: common phrases are in every problem of a set.
        few = int((1 - self._limit) * len(own)) + 2
        known = self._holders.keys() & own
        few -= len(own) - len(known)  # runs that no entry has are the rarest
        if few <= 0:
            return
        rarest = sorted((self._holders[run] for run in known), key=len)[:few]
        places = sorted(set().union(*rarest))
        own_runs = set(own)
        for place in places:
            problem, runs = self._entries[place]
            common = len(own_runs.intersection(runs))
            overlap = common / (len(own) + len(runs) - common)
            if overlap >= self._limit:
                yield problem, overlap


def _text_runs(problem: Problem) -> Runs:
    """Runs of words of everything shown to the model except code."""
    texts = [problem.prompt]
    for path, text in sorted(problem.context.items()):
        if not path.endswith(_CODE):
            texts.append(text)
    words = re.findall(r"[a-z]+|\d+", "\n".join(texts).lower())
    return [_runs(words, 3)]


def _golden_runs(problem: Problem) -> Runs:
    text = compact("\n".join((problem.golden or {}).values()))
    return [_runs(re.findall(r"\w+|[^\w\s]", text), 5)]


def _code_runs(problem: Problem) -> Runs:
    """Runs of each module shown to the model or in the golden answer; none for a generated problem."""
    if problem.generated:
        return []
    modules = shown_modules(problem)
    for text in (problem.golden or {}).values():
        modules += modules_of(text)
    return [_runs(_without_names(code), 8) for _, code in modules]


def _without_names(code: str) -> list[str]:
    """Tokens, with each identifier replaced by the distance to its previous use (0: none within reach)."""
    last: dict[str, int] = {}
    tokens = []
    for place, token in enumerate(_TOKEN.findall(code)):
        is_name = token[0].isalpha() or token[0] == "_"
        if is_name and token not in _KEYWORDS:
            distance = place - last.get(token, -_FAR - 1)
            last[token] = place
            token = f"<{distance if distance <= _FAR else 0}>"
        tokens.append(token)
    return tokens


def _runs(words: list[str], length: int) -> set[int]:
    """Hashes of the runs of `length` words; of a shorter text one hash, of an empty one none."""
    if len(words) < length:
        return {hash(tuple(words))} if words else set()
    shifted = (words[start:] for start in range(length))
    return set(map(hash, zip(*shifted, strict=False)))


_GOLDEN = Measure("golden answer", _golden_runs, 0.8, MIN_CODE_RUNS)
BY_ID = (Measure("text", _text_runs, 0.8), _GOLDEN)
"""Measures of a split by `id`, unchanged since older releases so that their runs resume with the same split."""
_BY_CODE = Measure("code", _code_runs, 0.6, MIN_CODE_RUNS)
BY_DESIGN = (Measure("text", _text_runs, 0.8, MIN_TEXT_RUNS), _GOLDEN, _BY_CODE)
STRICT = (*BY_ID, _BY_CODE)
"""For candidates that are easily replaced: short texts count too."""
