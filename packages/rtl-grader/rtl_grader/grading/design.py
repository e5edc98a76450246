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
_BETWEEN = """timescale default_nettype define undef include resetall celldefine endcelldefine
ifdef ifndef elsif else endif"""
_BETWEEN_MODULES = frozenset(_BETWEEN.split())
"""Directives allowed between modules, each on its own line."""
_TRANSLATE_OFF = re.compile(r"((?://|/\*)[^\n]*?translate)_(o(?:ff|n))", re.I)
_ASSERTION_CONTROL = re.compile(
    r"\$assert(?:on|off|kill|control|(?:pass|fail|nonvacuous|vacuous)(?:on|off))\b(\s*\([^()]*\))?\s*;"
)
_SYNTHESIS_OFF = re.compile(r"((?://|/\*)[ \t]*synthesis[ \t]+)(?:off|on)\b", re.I)


def as_graded(problem: Problem, files: Files) -> tuple[Files, list[str]]:
    """Return the files prepared for the tools (see the module), and a sentence for each test bench that was removed."""
    several = uses_several_tools(problem.harness)
    design, notes = without_test_benches(problem, files)
    macros: Collection[str] = ()
    if several:
        texts = (design, problem.context, problem.harness)
        macros = macros_in_use(*(files.values() for files in texts))
    neutral = {
        path: neutralise(text, macros, several_tools=several) for path, text in design.items()
    }
    return neutral, notes


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
        text = _ASSERTION_CONTROL.sub(_null_statement, text)
    if re.search("translate_o|synthesis", text, re.I):
        text = _TRANSLATE_OFF.sub(r"\1-\2", text)
        text = _SYNTHESIS_OFF.sub(r"\1(left out)", text)
    return text


def _null_statement(match: re.Match[str]) -> str:
    """A statement without effect on as many lines as the match."""
    lines = match[0].count("\n")
    return "begin end" + "\n" * lines


def without_test_benches(problem: Problem, files: Files) -> tuple[Files, list[str]]:
    """Return the answer's files without test benches, and a sentence for each bench that was removed."""
    result = dict(files)
    notes: list[str] = []
    for path in files:
        if not path.endswith(_HDL) or path.startswith("verif/"):
            continue
        for _ in range(PASSES):
            benches = _benches(result[path])
            if benches:
                others = _words(text for other, text in result.items() if other != path)
                used = others | _names_in(problem)
                benches = [bench for bench in benches if bench.name not in used]
            if not benches:
                break
            result[path] = _without(result[path], benches)
            notes += [f"{path}: the test bench {bench.name[:60]} was left out" for bench in benches]
    return result, notes


def _without(text: str, benches: Iterable[Module]) -> str:
    """The text with empty lines in place of the benches."""
    parts = []
    at = 0
    for bench in benches:
        lines = text.count("\n", bench.start, bench.end)
        parts += [text[at : bench.start], "\n" * lines]
        at = bench.end
    return "".join(parts) + text[at:]


def _benches(text: str) -> list[Module]:
    """Modules that can be removed as far as this text tells; empty if that is not certain."""
    if "initial" not in text or text.count("endmodule") < 2:
        return []
    if len(text) > MAX_FILE_CHARS or _CONTINUED.search(text):
        return []
    code, is_closed = bare(text)
    all_modules = modules(code)
    candidates = {module.start for module in all_modules if module.name and module.is_bench}
    if not is_closed or not candidates:
        return []
    if not _is_plain(code, all_modules):
        return []
    uses = Counter(_WORD.findall(code))
    benches: list[Module] = []
    end = 0
    for module in all_modules:
        gap = code[end : module.start]
        end = module.end
        own = code[module.start : end]
        if module.start not in candidates or "`" in own or not _may_begin_after(gap):
            continue
        if uses[module.name] == _WORD.findall(own).count(module.name):
            benches.append(module)
    if len(benches) < len(all_modules):
        return benches
    return []


def _is_plain(code: str, all_modules: list[Module]) -> bool:
    """Whether the module boundaries are certain: no module is nested, cut by a conditional, or made by a macro."""
    if not all(module.closed for module in all_modules):
        return False
    boundaries = BOUNDARY.findall(code)
    if len(boundaries) != 2 * len(all_modules):
        return False
    if any(map(BOUNDARY.search, _DEFINE.findall(code))):
        return False
    edges = sorted(edge for module in all_modules for edge in (module.start, module.end))
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
        elif directive[1] not in _BETWEEN_MODULES:
            return False
    rest = "\n".join(lines).rstrip()
    return not rest or bool(_ITEM_END.search(rest[-200:]))


def _names_in(problem: Problem) -> set[str]:
    """Names of modules that the problem asks for, and all words in the HDL beside the answer and in the harness."""
    names = set(demanded_modules(problem))
    names.update(basename(path).rsplit(".", 1)[0] for path in problem.targets)
    beside = problem.context.keys() - problem.targets
    texts = [problem.context[path] for path in beside if path.endswith(_HDL)]
    for path, text in problem.harness.items():
        if path.endswith(".py"):
            # Python code names a module in quotes; other words, as in `tb = TB(dut)`, are its own.
            names.update(_QUOTED.findall(text))
        else:
            texts.append(text)
    return names | _words(texts)


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in _WORD.findall(code_of(text))}
