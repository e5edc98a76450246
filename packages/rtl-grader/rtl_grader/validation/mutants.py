"""Mutants of a golden answer: small, wrong edits that a good harness must notice.

The edits are made on the syntax tree, so comments, strings and macros stay unchanged. The interface also
stays, because the interface check would find a change before any test runs. `mutations.py` and
`module_mutations.py` define the kinds.

A mutant may still behave like the golden answer (`a < b ? a : b` with `<=`); `differential.py` searches for
an input that tells them apart.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from rtl_grader.hdl.tree import SourceTree
from rtl_grader.types.files import Files
from rtl_grader.validation.mutation import KINDS, Kind, Mutation
from rtl_grader.validation.mutations import mutations_of

HDL = (".v", ".sv")
MAX_FILE_CHARS = 200_000


@dataclass(frozen=True)
class Mutant:
    """A wrong variant of a golden answer."""

    kind: Kind
    description: str
    """The change, with file and line."""
    files: dict[str, str]
    """The whole answer: path -> text."""


def mutants(golden: Files, top: str, limit: int, seed: int) -> list[Mutant]:
    """Return up to `limit` different mutants of a golden answer, spread over the kinds. The result is deterministic.

    A larger `limit` extends the list. Files with module `top` come first.

    Args:
        golden: path -> whole text; only `.v` and `.sv` files are mutated.
        top: name of the module that the harness drives.
        limit: maximum number of mutants.
        seed: random seed for the places and the order of kinds.
    """
    rng = random.Random(f"mutants/{seed}/{top}")
    waiting: dict[Kind, list[tuple[str, SourceTree, Mutation]]] = {kind: [] for kind in KINDS}
    for path, text in sorted(
        golden.items(), key=lambda file: (f"module {top}" not in file[1], file)
    ):
        if not path.endswith(HDL) or len(text) > MAX_FILE_CHARS:
            continue
        tree = SourceTree(text)
        for mutation in mutations_of(tree):
            waiting[mutation.kind].append((path, tree, mutation))
    order = list(KINDS)
    rng.shuffle(order)
    for kind in order:
        rng.shuffle(waiting[kind])
    results: list[Mutant] = []
    texts = {tuple(sorted(golden.items()))}
    while len(results) < limit and any(waiting.values()):
        for kind in order:
            if not waiting[kind] or len(results) >= limit:
                continue
            path, tree, mutation = waiting[kind].pop()
            files = {**golden, path: tree.edited(mutation.edits)}
            key = tuple(sorted(files.items()))
            if key in texts or SourceTree(files[path]).errors > tree.errors:
                continue
            texts.add(key)
            line = tree.line(mutation.edits[0].start)
            results.append(Mutant(kind, f"{path}:{line}: {mutation.description}", files))
    return results
