"""Find test benches that stand in one file with a design and can be removed from it.

A test bench is a whole module without ports that nothing else in the text names, with an `initial` block beside
delays, events or the end of the simulation.

Macros are not expanded and directives not followed here. If they could move a module's boundaries, nothing
can be removed: directives or macros inside the bench, conditionals across a module's boundary, macros that
hold `module` or `endmodule`, continued lines, open comments and strings, nested modules.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter

from rtl_grader.hdl.text import BOUNDARY, WORD, Module, bare, modules

_CONTINUED = re.compile(r"\\[ \t\r\f\v]*\n")
_DIRECTIVE = re.compile(r"`(\w*)")
_DEFINE = re.compile(r"`define\b[^\n]*")
_ITEM_END = re.compile(r"(?:;|\bend[a-z]+(?:\s{0,9}:\s{0,9}\w{1,99})?)\Z")
_DEPTH = {"ifdef": 1, "ifndef": 1, "endif": -1}
_BETWEEN = re.compile(
    r"timescale|default_nettype|define|undef|include|resetall|(?:end)?celldefine|ifn?def|elsif|else|endif"
)
"""Directives allowed between modules, each on its own line."""


def removable_benches(text: str) -> list[Module]:
    """Test benches that can be removed as far as this text tells; empty if that is not certain, or if no
    module would be left."""
    if "initial" not in text or text.count("endmodule") < 2 or _CONTINUED.search(text):
        return []
    code, closed = bare(text)
    units = modules(code)
    starts = {unit.start for unit in units if unit.name and unit.is_bench}
    if not closed or not starts or not _has_certain_boundaries(code, units):
        return []
    uses = Counter(WORD.findall(code))
    removable: list[Module] = []
    begin = 0
    for unit in units:
        gap = code[begin : unit.start]
        own = code[unit.start : unit.end]
        begin = unit.end
        if unit.start not in starts or "`" in own or not _may_begin_after(gap):
            continue
        own_uses = WORD.findall(own).count(unit.name)
        if uses[unit.name] == own_uses:
            removable.append(unit)
    return removable if len(removable) < len(units) else []


def _has_certain_boundaries(code: str, units: list[Module]) -> bool:
    """Whether no module is nested, cut by a conditional, or made by a macro."""
    boundaries = BOUNDARY.findall(code)
    if len(boundaries) != 2 * len(units) or not all(unit.closed for unit in units):
        return False
    if any(BOUNDARY.search(macro) for macro in _DEFINE.findall(code)):
        return False
    edges = [edge for unit in units for edge in (unit.start, unit.end)]
    depth = passed = 0
    for directive in _DIRECTIVE.finditer(code):
        before = bisect_right(edges, directive.start())
        if depth and before > passed:
            return False
        passed = before
        if not directive[1]:
            return False  # token pasting, or quotes inside a macro
        depth += _DEPTH.get(directive[1], 0)
    return depth == 0


def _may_begin_after(gap: str) -> bool:
    """Whether a module can begin right after `gap`, the code since the last module."""
    lines = []
    for line in gap.split("\n"):
        directive = _DIRECTIVE.match(line.strip())
        if directive is None:
            lines.append(line)
        elif not _BETWEEN.fullmatch(directive[1]):
            return False
    rest = "\n".join(lines).rstrip()
    return not rest or bool(_ITEM_END.search(rest[-200:]))
