"""Problems on both sides of the border between train and held-out that belong together: found, and moved.

They belong together when they are of one design (problems/design.py) or near-duplicates by one of three measures (Jaccard):

- text: the words that they show the model, in runs of three, overlap by 80 % or more;
- golden answer: its tokens, in runs of five, overlap by 80 %;
- code: an RTL module that one shows the model, or of its golden answer, overlaps by 60 % with one of the other, in runs of eight
  tokens. An identifier counts by how far back it stood before, not by its name (after Baker, "Parameterized duplication in strings",
  1997), so that a design is found under other names, too. Different designs of CVDP and RTLLM overlap by 24 % at most.

Fewer than 60 runs of code, or 20 of text, are too short to tell ("Write the design that the test bench expects."). The training problem
moves: what is held out stays held out, whatever else a set holds.

Left alone: pairs within a generated set, such as the starter set. Its splits share no specification by construction although
all of them sound alike; by code such problems are not judged at all.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rtl_core.problems.design import Design, modules_of, shown_modules
from rtl_core.types.problem import Problem

MIN_CODE_RUNS = 60
MIN_TEXT_RUNS = 20
_CODE = (".v", ".sv", ".vh", ".svh", ".py")
_FAR = 24
_TOKEN = re.compile(r"\$?[A-Za-z_]\w*|\d*'[sS]?[bodhBODH][\da-fA-FxXzZ_?]+|\d[\d_]*|[^\w\s]")
_WORDS = """
always always_comb always_ff always_latch and assign automatic begin bit byte case casex casez const default else end endcase
endfunction endgenerate endmodule endtask enum final for forever function generate genvar if initial inout input int integer
localparam logic module nand negedge nor not or output packed parameter posedge reg repeat return signed struct task typedef
unique unsigned while wire xnor xor
"""
_KEYWORDS = frozenset(_WORDS.split())


@dataclass(frozen=True)
class NearDuplicate:
    """A training problem that belongs to a held-out one."""

    moved: str
    """Id of the training problem that moved to the held-out side."""
    like: str
    """Id of the held-out problem."""
    overlap: float
    """Share of the runs of words (or of tokens) that both have, from 0 to 1; 1 for one design."""
    by: str
    """`text`, `golden answer`, `code`, `design NAME`, `module NAME` or `fingerprint DIGITS`."""

    def __str__(self) -> str:
        if self.by.startswith(("design ", "module ", "fingerprint ")):
            return f"{self.moved} is held out too: it shares the {self.by} with {self.like}"
        return f"{self.moved} is held out too: its {self.by} is {self.overlap:.0%} that of {self.like}"


Runs = list[set[int]]
"""Hashes of the runs of a text, or of each module, of a problem."""


@dataclass(frozen=True)
class Measure:
    """One way to see that two problems ask for nearly the same."""

    by: str
    runs: Callable[[Problem], Runs]
    limit: float
    """The overlap from which on they do."""


def separate(
    train: Sequence[Problem], heldout: Sequence[Problem], designs: Mapping[str, Design] | None = None
) -> tuple[list[Problem], list[Problem], list[NearDuplicate]]:
    """(train, held-out, what was moved), each in its old order, the moved ones at the end of the held-out.

    Repeats until no pair is left across the border: a moved problem may have a near-duplicate of its own.

    Args:
        designs: problem id -> its design. None: near-duplicates by text, however short, and golden answer alone, as for a split by `id`.
    """
    left, out = list(train), list(heldout)
    moved: list[NearDuplicate] = []
    fresh: Sequence[Problem] = out
    while fresh:
        found = {pair.moved: pair for pair in pairs(left, fresh, BY_ID if designs is None else BY_DESIGN)}
        found |= {pair.moved: pair for pair in _of_one_design(left, fresh, designs or {})}
        fresh = [problem for problem in left if problem.id in found]
        left = [problem for problem in left if problem.id not in found]
        out += fresh
        moved += [found[problem.id] for problem in fresh]
    return left, out, moved


def _of_one_design(
    train: Iterable[Problem], heldout: Iterable[Problem], designs: Mapping[str, Design]
) -> Iterable[NearDuplicate]:
    """Training problems that share a design's name, or else a module, with a held-out one, or are the same but for the id."""
    holder: dict[str, str] = {}
    for problem in heldout:
        for mark in _marks(problem, designs):
            holder.setdefault(mark, problem.id)
    for problem in train:
        shared = [mark for mark in _marks(problem, designs) if mark in holder]
        if shared:
            yield NearDuplicate(problem.id, holder[shared[0]], 1.0, shared[0])


def _marks(problem: Problem, designs: Mapping[str, Design]) -> list[str]:
    design = designs.get(problem.id)
    if design is None:
        return []
    modules = (f"module {name}" for name in sorted(design.modules))
    return [f"design {design.name}", *modules, f"fingerprint {problem.fingerprint[:12]}"]


def pairs(train: Iterable[Problem], heldout: Iterable[Problem], measures: Sequence[Measure]) -> list[NearDuplicate]:
    """For each training problem that has a near-duplicate among the held-out ones by one of the measures: the closest."""
    best: dict[str, NearDuplicate] = {}
    train, heldout = list(train), list(heldout)
    set_of = {p.id: p.source for p in (*train, *heldout) if p.generated}
    for measure in measures:
        held = {(p.id, number): runs for p in heldout for number, runs in enumerate(measure.runs(p))}
        holders: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for place, runs in held.items():
            for run in runs:
                holders[run].append(place)
        for problem in train:
            for own in measure.runs(problem):
                shared = Counter(other for run in own for other in holders.get(run, ()))
                for other, count in shared.items():
                    overlap = count / (len(own) + len(held[other]) - count)
                    same_set = problem.generated and set_of.get(other[0]) == problem.source
                    known = best.get(problem.id)
                    if overlap >= measure.limit and not same_set and (known is None or overlap > known.overlap):
                        best[problem.id] = NearDuplicate(problem.id, other[0], overlap, measure.by)
    return list(best.values())


def _text_runs(problem: Problem) -> Runs:
    """Runs of words of all that the model is shown, code excepted."""
    texts = [problem.prompt, *(text for path, text in sorted(problem.context.items()) if not path.endswith(_CODE))]
    return [_runs(re.findall(r"[a-z]+|\d+", "\n".join(texts).lower()), 3)]


def _long_text_runs(problem: Problem) -> Runs:
    return _at_least(MIN_TEXT_RUNS, _text_runs(problem))


def _golden_runs(problem: Problem) -> Runs:
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", "\n".join((problem.golden or {}).values()), flags=re.S)
    return _at_least(MIN_CODE_RUNS, [_runs(re.findall(r"\w+|[^\w\s]", text), 5)])


def _code_runs(problem: Problem) -> Runs:
    """Runs of each module that the model is shown, and of those of the golden answer; none of a generated problem."""
    if problem.generated:
        return []
    golden = [found for text in (problem.golden or {}).values() for found in modules_of(text)]
    return _at_least(MIN_CODE_RUNS, [_runs(_without_names(text), 8) for _, text in (*shown_modules(problem), *golden)])


def _without_names(code: str) -> list[str]:
    """The tokens, each identifier replaced by how many tokens ago it stood last (0: not lately)."""
    last: dict[str, int] = {}
    tokens = []
    for place, token in enumerate(_TOKEN.findall(code)):
        if token in _KEYWORDS or not (token[0].isalpha() or token[0] == "_"):
            tokens.append(token)
            continue
        distance = place - last.get(token, -_FAR - 1)
        last[token] = place
        tokens.append(f"<{distance if distance <= _FAR else 0}>")
    return tokens


def _at_least(least: int, found: Runs) -> Runs:
    return [runs for runs in found if len(runs) >= least]


def _runs(words: list[str], length: int) -> set[int]:
    if len(words) < length:
        return {hash(tuple(words))} if words else set()
    return {hash(tuple(words[i : i + length])) for i in range(len(words) - length + 1)}


_GOLDEN = Measure("golden answer", _golden_runs, 0.8)
BY_ID = (Measure("text", _text_runs, 0.8), _GOLDEN)
"""Measures of a split by `id`: those of older releases, so that their runs go on with the same problems on the same sides."""
_BY_CODE = Measure("code", _code_runs, 0.6)
BY_DESIGN = (Measure("text", _long_text_runs, 0.8), _GOLDEN, _BY_CODE)
STRICT = (*BY_ID, _BY_CODE)
"""For candidates that can be spared: short texts count, too."""
