"""Prepares an answer's files for the tools: removes test benches and text by which tools could see different designs.

A test bench in the same file as the design is removed. A test bench is a whole module without ports that nothing
instantiates or names and the problem does not ask for, with an `initial` block beside delays, events or the end of the
simulation. A harness that names its top level would not elaborate it. All other text and the line numbers stay.

Macros are not expanded and directives not followed here. If they could move a module's boundaries, the text
stays as it is: directives or macros inside the bench, conditionals across a module's boundary, macros that
hold `module` or `endmodule`, continued lines, open comments and strings, nested modules.

Text of honest designs that tools read differently is made the same for all of them, not rejected. If a
harness uses several tools, conditions on macros that only a tool may define are decided as in Icarus; if it
uses only Icarus, they stay. translate_off comments are disabled, and all lines end in one way. Assertion
control tasks, which Icarus lacks, are removed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from posixpath import basename

from rtl_grader.extraction.answer_to import demanded_modules
from rtl_grader.grading.requirements import uses_several_tools
from rtl_grader.grading.screen import MAX_FILE_CHARS
from rtl_grader.hdl.directives import decided, macros_in_use
from rtl_grader.hdl.text import BOUNDARY, Module, bare, code_of, modules
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Problem

PASSES = 3
"""Passes over a file. A helper of a bench can be removed only in a pass after the bench."""

_HDL = (".v", ".sv")
_WORD = re.compile(r"[A-Za-z_][\w$]*")
_QUOTED = re.compile(r"[\"']([A-Za-z_]\w*)[\"']")
_CONTINUED = re.compile(r"\\[ \t\r\f\v]*\n")
_DIRECTIVE = re.compile(r"`(\w*)")
_DEFINE = re.compile(r"`define\b[^\n]*")
_ITEM_END = re.compile(r"(?:;|\bend[a-z]+(?:\s{0,9}:\s{0,9}\w{1,99})?)\Z")
_OPENING = frozenset({"ifdef", "ifndef"})
_BETWEEN = frozenset(
    {
        "timescale",
        "default_nettype",
        "define",
        "undef",
        "include",
        "resetall",
        "celldefine",
        "endcelldefine",
        "ifdef",
        "ifndef",
        "elsif",
        "else",
        "endif",
    }
)
"""Directives allowed between modules, each on its own line."""
_TRANSLATE_OFF = re.compile(r"((?://|/\*)[^\n]*?translate)_(o(?:ff|n))", re.I)
_ASSERTION_CONTROL = re.compile(
    r"\$assert(?:on|off|kill|control|(?:pass|fail|nonvacuous|vacuous)(?:on|off))\b(\s*\([^()]*\))?\s*;"
)
_SYNTHESIS_OFF = re.compile(r"((?://|/\*)[ \t]*synthesis[ \t]+)(?:off|on)\b", re.I)


def as_graded(problem: Problem, files: Files) -> tuple[dict[str, str], list[str]]:
    """Return the files prepared for the tools (see the module), and a sentence for each test bench that was removed."""
    several = uses_several_tools(problem.harness)
    design, left_out = without_test_benches(problem, files)
    macros = (
        macros_in_use(design.values(), problem.context.values(), problem.harness.values())
        if several
        else ()
    )
    return {
        path: neutralise(text, macros, several_tools=several) for path, text in design.items()
    }, left_out


def neutralise(text: str, macros: Collection[str] = (), *, several_tools: bool = True) -> str:
    """Return the text such that every tool reads the same design; line numbers are kept.

    `macros` are those that the problem or the answer defines: `directives.macros_in_use`.
    """
    if "\r" in text:
        # Tools end lines, and line comments, at different ones of these.
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if several_tools and "`" in text:
        text = decided(text, macros)
    if "$assert" in text:
        # Icarus ignores concurrent assertions and lacks the tasks that control them.
        text = _ASSERTION_CONTROL.sub(lambda match: "begin end" + "\n" * match[0].count("\n"), text)
    if re.search("translate_o|synthesis", text, re.I):
        text = _TRANSLATE_OFF.sub(r"\1-\2", text)
        text = _SYNTHESIS_OFF.sub(r"\1(left out)", text)
    return text


def without_test_benches(problem: Problem, files: Files) -> tuple[dict[str, str], list[str]]:
    """Return the answer's files without test benches, and a sentence for each bench that was removed."""
    kept: set[str] | None = None
    result = dict(files)
    removed: list[str] = []
    for path, text in files.items():
        if not path.endswith(_HDL) or path.startswith("verif/"):
            continue
        for _ in range(PASSES):
            benches = _benches(text)
            if not benches:
                break
            if kept is None:
                kept = _names_in(problem)
            elsewhere = _words(other for at, other in result.items() if at != path)
            benches = [
                bench for bench in benches if bench.name not in kept and bench.name not in elsewhere
            ]
            if not benches:
                break
            text = _without(text, benches)
            removed += [
                f"{path}: the test bench {bench.name[:60]} was left out" for bench in benches
            ]
            result[path] = text
    return result, removed


def _without(text: str, benches: Iterable[Module]) -> str:
    """The text with empty lines in place of the benches."""
    parts, at = [], 0
    for bench in benches:
        parts += [text[at : bench.start], "\n" * text.count("\n", bench.start, bench.end)]
        at = bench.end
    return "".join(parts) + text[at:]


def _benches(text: str) -> list[Module]:
    """Modules that can be removed as far as this text tells; empty if that is not certain."""
    if (
        "initial" not in text
        or text.count("endmodule") < 2
        or len(text) > MAX_FILE_CHARS
        or _CONTINUED.search(text)
    ):
        return []
    code, closed = bare(text)
    found = modules(code)
    looks = {module.start for module in found if module.name and module.is_bench}
    if not closed or not looks or not _is_plain(code, found):
        return []
    said = Counter(_WORD.findall(code))
    alone: list[Module] = []
    begin = 0
    for module in found:
        end, gap = module.end, code[begin : module.start]
        own = code[module.start : end]
        begin = end
        if module.start not in looks or "`" in own or not _may_begin_after(gap):
            continue
        if said[module.name] == _WORD.findall(own).count(module.name):
            alone.append(module)
    return alone if len(alone) < len(found) else []


def _is_plain(code: str, found: list[Module]) -> bool:
    """Whether the module boundaries are certain: no module is nested, cut by a conditional, or made by a macro."""
    if not all(module.closed for module in found) or len(BOUNDARY.findall(code)) != 2 * len(found):
        return False
    if any(BOUNDARY.search(macro) for macro in _DEFINE.findall(code)):
        return False
    edges = sorted(edge for module in found for edge in (module.start, module.end))
    depth = at = 0
    for directive in _DIRECTIVE.finditer(code):
        while at < len(edges) and edges[at] <= directive.start():
            if depth:
                return False
            at += 1
        if not directive[1]:
            return False  # token pasting, or quotes inside a macro
        depth += (directive[1] in _OPENING) - (directive[1] == "endif")
    return depth == 0


def _may_begin_after(gap: str) -> bool:
    """Whether a module can begin right after `gap`, the code since the last module."""
    lines = []
    for line in gap.split("\n"):
        directive = _DIRECTIVE.match(line.strip())
        if directive is None:
            lines.append(line)
        elif directive[1] not in _BETWEEN:
            return False
    rest = "\n".join(lines).rstrip()
    return not rest or bool(_ITEM_END.search(rest[-200:]))


def _names_in(problem: Problem) -> set[str]:
    """Names of modules that the problem asks for, and all words in the HDL beside the answer and in the harness."""
    names = {
        *demanded_modules(problem),
        *(basename(path).rsplit(".", 1)[0] for path in problem.targets),
    }
    given = [
        text
        for path, text in problem.context.items()
        if path.endswith(_HDL) and path not in problem.targets
    ]
    for path, text in problem.harness.items():
        if path.endswith(".py"):
            # Python code names a module in quotes; other words, as in `tb = TB(dut)`, are its own.
            names.update(_QUOTED.findall(text))
        else:
            given.append(text)
    return names | _words(given)


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in _WORD.findall(code_of(text))}
