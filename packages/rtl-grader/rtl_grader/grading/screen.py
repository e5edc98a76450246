"""The static screen: finds constructs that no honest design has, with pyslang's preprocessor and parser.

Rejected in design code: DPI; `bind` and configurations; `force`; includes of files that were not given; if
the harness has HDL, hierarchical names out of the design; and, if it uses several tools, macros that
distinguish tools, and system tasks and file names that reach outside the simulation. Whatever the problem's
own context uses is allowed.

Constructs that honest designs use for synthesis are not rejected but neutralised before (design.py).

The simulator may read the text differently. The screen only gives early, readable errors. System tasks and
files in Icarus are checked in the compiled program (inside/lib/compiled.py), and results are attested.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from posixpath import basename
from typing import Any, NamedTuple

import pyslang  # the module only: classes held by our globals would be reported as leaked at exit
from pydantic import BaseModel
from pyslang import ast as slang_ast
from pyslang import parsing as slang_parsing

from rtl_grader.grading.inside.lib.compiled import ALLOWED_TASKS, TIMING_CHECKS, WAVES
from rtl_grader.hdl.directives import differences, macros_in_use
from rtl_grader.hdl.interface import HDL_SUFFIXES, compilation_options, hdl_files, syntax_tree
from rtl_grader.hdl.text import code_of
from rtl_grader.types.files import Files

MAX_FILE_CHARS = 1_000_000
MAX_FINDINGS = 20

_NODES = {
    "DPIImport": "a DPI import",
    "DPIExport": "a DPI export",
    "BindDirective": "a `bind`",
    "ConfigDeclaration": "a configuration",
    "ProceduralForceStatement": "a `force`",
    "ProceduralReleaseStatement": "a `release`",
    "RootScope": "a name from `$root`",
    "LibraryDeclaration": "a library declaration",
}
_TASKS = ALLOWED_TASKS | TIMING_CHECKS | {"root", "unit"}
"""Without the dollar sign. For harnesses that run Verilator themselves, which the gate does not see;
`$root` and `$unit` begin names."""
_REACHING = re.compile(
    r"(?<![\w$])\$(?:f(?:open|close|read|scanf|gets|getc|seek|tell)"
    r"|f(?:write|display|strobe|monitor)[bho]?|ungetc|rewind|writemem[bh]|system|c)\b"
)
_NAMING = re.compile(r"\$(readmem[bh]|dumpfile)\s*\(([^;]*)")
_LITERAL = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"")
_DATA_PATH = re.compile(
    r"/|\.(?:hex|mem|memh|memb|txt|dat|data|bin|init|mif|coe|py|xml|sh|env|so)$"
)
_PARSERS = re.compile(r"__slang\w*|\bSV_COV_\w+")
"""Macros that pyslang defines and simulators do not."""


class ScreenFinding(BaseModel, frozen=True):
    """A construct that gets an answer rejected, and its place."""

    what: str
    path: str
    line: int
    """Counted from 1."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def screen(
    answer: Files,
    context: Files,
    top: str | None = None,
    *,
    harness: Collection[str] = (),
    several_tools: bool = True,
) -> list[ScreenFinding]:
    """Return the findings in the answer's HDL files, in order; empty for an honest answer.

    Findings that also occur in `context` (the problem's own files) are allowed. `harness` are the base
    names of the harness' files: a design must not read them or have names that lead into their HDL.
    `several_tools` tells whether the harness uses more than Icarus. `top` is the requested module.
    """
    findings = [finding for path, text in answer.items() for finding in _unfit(path, text)]
    if findings:
        return findings
    hdl = hdl_files(answer)
    design = {**context, **hdl}
    headers = {path: design[path] for path in design if path.endswith((".vh", ".svh", ".h"))}
    files = {basename(path) for path in (*answer, *context)}
    macros = macros_in_use(hdl.values(), context.values(), ()) if several_tools else ()
    rules = _Rules(files, harness, several_tools, macros)
    for path, text in hdl.items():
        beside = {other: headers[other] for other in headers if other != path}
        findings += _File(path, text, beside, rules).screen()
    if findings:
        allowed: set[str] = set()
        for path, text in hdl_files(context).items():
            if len(text) <= MAX_FILE_CHARS:
                allowed.update(
                    finding.what for finding in _File(path, text, {}, rules).screen()
                )
        findings = [finding for finding in findings if finding.what not in allowed]
    if not findings and any(name.endswith(HDL_SUFFIXES) for name in harness):
        findings = [finding for finding in _hierarchical(design, top) if finding.path in hdl]
    return findings[:MAX_FINDINGS]


def _unfit(path: str, text: str) -> Iterator[ScreenFinding]:
    """Findings that make a file unfit for the parser: its size, characters that cannot be encoded, NUL bytes."""
    if len(text) > MAX_FILE_CHARS:
        size = f"the file has {len(text)} characters, more than {MAX_FILE_CHARS}"
        yield ScreenFinding(what=size, path=path, line=1)
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = _line_at(text, error.start)
        yield ScreenFinding(what="a character that is none", path=path, line=line)
    at = text.find("\0")
    if at >= 0:
        yield ScreenFinding(what="a NUL byte", path=path, line=_line_at(text, at))


def _line_at(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


class _Rules(NamedTuple):
    """What the screen of one answer allows."""

    files: Collection[str]
    """Base names of the answer's and the context's files."""
    harness: Collection[str]
    """Base names of the harness' files."""
    several_tools: bool
    """Whether the harness uses more than Icarus."""
    macros: Collection[str]
    """See `macros_in_use`."""


class _File:
    """Screens the tokens and nodes of one file."""

    def __init__(self, path: str, text: str, beside: Files, rules: _Rules) -> None:
        self.path = path
        self.text = text
        self.rules = rules
        name = path if path.endswith((".v", ".sv")) else path + ".sv"
        self.tree, self.manager, _ = syntax_tree({**beside, name: text})
        self.findings: list[ScreenFinding] = []

    def screen(self) -> list[ScreenFinding]:
        self.tree.root.visit(self._visit)
        if self.rules.several_tools:
            self._find_outside_access()
            if not self.findings:
                for at, what in differences(self.text, self.rules.macros):
                    self._add(what, _line_at(self.text, at))
        if macro := _PARSERS.search(self.text):
            line = _line_at(self.text, macro.start())
            self._add(f"a macro of the parser ({macro[0][:40]})", line)
        return self.findings

    def _find_outside_access(self) -> None:
        """Add tasks and file names that reach outside, in all conditional branches: the gate does not see a
        harness' own Verilator builds."""
        code = code_of(self.text)
        for match in _REACHING.finditer(code):
            line = _line_at(code, match.start())
            if not any(finding.line == line for finding in self.findings):
                self._add(f"the system task {match[0]}", line)
        for match in _NAMING.finditer(code):
            task = match[1]
            literals = _LITERAL.findall(self.text[match.start(2) : match.end(2)])
            if not literals and task != "dumpfile":
                # The name comes from a string elsewhere in the file.
                literals = list(filter(_DATA_PATH.search, _LITERAL.findall(self.text)))
            line = _line_at(code, match.start())
            for literal in filter(None, literals):
                if self._is_outside(task, literal):
                    self._add(f"${task} of a file that was not given ({literal[:60]})", line)

    def _is_outside(self, task: str, literal: str) -> bool:
        if task == "dumpfile":
            return not WAVES.fullmatch(literal)
        name = basename(literal)
        if name in self.rules.files:
            return False
        return _is_outside_path(literal) or ".." in literal or name in self.rules.harness

    def _add(self, what: str, line: int) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(ScreenFinding(what=what, path=self.path, line=line))

    def _visit(self, item: Any) -> None:
        if isinstance(item, slang_parsing.Token):
            if (
                self.rules.several_tools
                and item.kind == slang_parsing.TokenKind.SystemIdentifier
            ):
                name = item.valueText.lstrip("$")
                if name not in _TASKS:
                    self._add(
                        f"the system task ${name[:60]}", _line(self.manager, item.location)
                    )
            for trivia in item.trivia:
                if trivia.kind == slang_parsing.TriviaKind.Directive:
                    self._directive(trivia.syntax())
            return
        kind = item.kind.name
        if kind in _NODES:
            self._add(_NODES[kind], _line(self.manager, item.sourceRange.start))
        elif kind == "AttributeSpec" and item.name.valueText in ("blackbox", "whitebox"):
            self._add(
                f"the attribute `{item.name.valueText}`",
                _line(self.manager, item.name.location),
            )

    def _directive(self, node: Any) -> None:
        if node.kind.name == "IncludeDirective":
            name = str(node.fileName).strip().strip('"<>')
            if basename(name) not in self.rules.files or _is_outside_path(name):
                line = _line(self.manager, node.sourceRange.start)
                self._add(f"an include of what was not given ({name[:60]})", line)


def _is_outside_path(path: str) -> bool:
    """Whether it is an absolute path outside the design's own directories."""
    return path.startswith("/") and not re.match(r"/code/(?!src/)[\w/]", path)


def _hierarchical(sources: Files, top: str | None) -> Iterator[ScreenFinding]:
    """Dotted names whose first part is not declared in the design."""
    tree, manager, options = syntax_tree(sources)
    if top is not None:
        options.compilationOptions = compilation_options(top, {})
    compilation = slang_ast.Compilation(options)
    compilation.addSyntaxTree(tree)
    paths = {basename(path): path for path in sources}
    for diagnostic in compilation.getSemanticDiagnostics():
        if diagnostic.code != pyslang.Diags.UndeclaredIdentifier:
            continue
        place = manager.getFullyOriginalLoc(diagnostic.location)
        path = paths[basename(manager.getFileName(place))]
        name = str(diagnostic.args[0])
        rest = sources[path].encode()[place.offset :][: len(name) + 60]
        code = rest.decode(errors="replace").lstrip("\\")
        if re.match(rf"{re.escape(name)}\s*\.", code):
            what = f"a hierarchical name out of the module ({name[:60]}.)"
            yield ScreenFinding(what=what, path=path, line=_line(manager, place))


def _line(manager: pyslang.SourceManager, location: Any) -> int:
    return manager.getLineNumber(manager.getFullyOriginalLoc(location))
