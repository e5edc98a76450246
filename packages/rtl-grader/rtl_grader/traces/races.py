"""Designs whose outputs depend on the order in which a simulator runs their processes, which the language leaves open.

Such a golden answer is simulated once more, with its processes in reverse order. What the two orders give
differently counts as X: anything is right there. Races between modules, and between processes that write one
variable, are not covered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from rtl_grader.hdl.interface import hdl_files
from rtl_grader.hdl.tree import Edit, Node, SourceTree, name_of
from rtl_grader.types.files import Files

RACE = "a race of"
"""The kind of such a construct in `unseen`."""
PROCESSES = ("ContinuousAssign", "AlwaysBlock", "AlwaysFFBlock", "AlwaysCombBlock")
"""Members of a module whose order does not matter, unless they race."""
_WRITES = re.compile(r"(\w+)\s*(?:\[[^]]*\]\s*)*<?=(?!=)")
"""A name before an assignment, perhaps with selects."""
_X = ord("x")
_ZEROS, _ONES = bytes.maketrans(b"01xz", b"1000"), bytes.maketrans(b"xz", b"00")


def in_reverse(files: Files) -> Files:
    """The files with the processes of each module in reverse order."""
    hdl = {path: reordered(SourceTree(text)) for path, text in hdl_files(files).items()}
    return {**files, **hdl}


def reordered(tree: SourceTree) -> str:
    """Reverse the order of the processes of each module, unless two write one variable: then the last wins."""
    edits = []
    for module in tree.of("ModuleDeclaration"):
        blocks = [member for member in module.members if name_of(member) in PROCESSES]
        if write_one_variable(tree, blocks):
            continue
        for here, there in zip(blocks, reversed(blocks), strict=True):
            if (span := tree.span(here)) and tree.span(there):
                edits.append(Edit(*span, tree.text(there)))
    return tree.edited(edits)


def write_one_variable(tree: SourceTree, blocks: Sequence[Node]) -> bool:
    """Whether several blocks write a variable, so that their order may matter."""
    written = Counter(
        name for block in blocks for name in set(_WRITES.findall(tree.text(block)))
    )
    return any(count > 1 for count in written.values())


def agreed(one: bytes, two: bytes) -> bytes:
    """The traces of a design with its processes in either order: X where they differ. The first one if the
    second is incomplete."""
    if one == two or len(one) != len(two):
        return one
    return bytes(a if a == b else _X for a, b in zip(one, two, strict=True))


def varies(lines: Sequence[bytes]) -> bool:
    """Whether a bit of a trace is 0 in one step and 1 in another."""
    zeros = ones = 0
    for line in set(lines):
        zeros |= int(line.translate(_ZEROS), 2)
        ones |= int(line.translate(_ONES), 2)
    return bool(zeros & ones)
