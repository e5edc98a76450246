"""Mutants of a golden answer: small, wrong edits that a harness worth its name must notice.

Made on the syntax tree, so that no comment, string or macro is touched, and never so that the interface changes, which the
interface check would find before any test runs. Kinds: operator, constant, bit order, polarity, off by one, dropped branch, swapped
operands and ports, saturation in place of wrapping and the reverse, swapped priority (`mutations.py`); truncated registers, inputs and
parameters without effect, late and missing resets (`module_mutations.py`).

Not covered: whether a mutant really behaves differently. Some do not (`a < b ? a : b` with `<=`); `differential.py` looks for
an input that tells.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from rtl_core.problems.tree import SourceTree
from rtl_core.validation.mutation import KINDS, Kind, Mutation
from rtl_core.validation.mutations import mutations_of

HDL = (".v", ".sv")
MAX_FILE_CHARS = 200_000


@dataclass(frozen=True)
class Mutant:
    """One wrong variant of a golden answer."""

    kind: Kind
    description: str
    """What was changed, with file and line."""
    files: dict[str, str]
    """The whole answer: path -> text."""


def mutants(golden: Mapping[str, str], top: str, limit: int, seed: int) -> list[Mutant]:
    """Up to `limit` different mutants of a golden answer, spread over the kinds; the same for the same arguments.

    A longer list begins with the shorter one. Files that hold module `top` come first when several files could be mutated.

    Args:
        golden: path -> whole text; only `.v` and `.sv` files are mutated.
        top: name of the module that the harness drives.
        limit: how many at the most.
        seed: chooses places and the order of kinds.
    """
    rng = random.Random(f"mutants/{seed}/{top}")
    waiting: dict[Kind, list[tuple[str, SourceTree, Mutation]]] = defaultdict(list)
    for path, text in sorted(golden.items(), key=lambda item: (f"module {top}" not in item[1], item[0])):
        if not path.endswith(HDL) or len(text) > MAX_FILE_CHARS:
            continue
        tree = SourceTree(text)
        for mutation in mutations_of(tree):
            waiting[mutation.kind].append((path, tree, mutation))
    order = list(KINDS)
    rng.shuffle(order)
    for kind in order:
        rng.shuffle(waiting[kind])
    found: list[Mutant] = []
    seen = {tuple(sorted(golden.items()))}
    while len(found) < limit and any(waiting.values()):
        for kind in order:
            if not waiting[kind] or len(found) >= limit:
                continue
            path, tree, mutation = waiting[kind].pop()
            files = {**golden, path: tree.edited(mutation.edits)}
            key = tuple(sorted(files.items()))
            if key in seen or SourceTree(files[path]).errors > tree.errors:
                continue
            seen.add(key)
            place = f"{path}:{tree.line(mutation.edits[0].start)}"
            found.append(Mutant(kind, f"{place}: {mutation.description}", files))
    return found
