"""The static screen: what no honest design holds, found with pyslang's own preprocessor and parser.

Rejected in design code: system tasks that read or write files or ask for the simulation's surroundings; DPI; `bind` and
configurations; `force`; names that lead out of the design; includes of what was not given; encrypted regions; and, where a
harness uses several tools, macros that tell them apart. What the problem's own context does is allowed to the answer too.

What honest designs do for synthesis is made the same for every tool beforehand (neutralise.py), not rejected.

This reading of the text is not the simulator's, and nothing rests on it: it says early and in words what is wrong. What is
simulated is judged by the compiled program (inside/lib/compiled.py), and results are attested.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyslang  # whole: classes that our globals held would be listed as leaked when the process ends
from pydantic import BaseModel, ConfigDict
from pyslang import parsing as slang_parsing
from pyslang import syntax as slang_syntax

from rtl_core.grading.inside.lib.compiled import WAVES
from rtl_core.grading.vocabulary import ALLOWED_TASKS, DIRECTIVES, NODES, PARSER_MACROS, TOOL_MACROS
from rtl_core.problems.interface import HDL_SUFFIXES, syntax_tree

MAX_FILE_CHARS = 1_000_000
MAX_FINDINGS = 20

_CONDITIONS = ("IfDefDirective", "IfNDefDirective", "ElsIfDirective")
_DANGEROUS = re.compile(
    r"(?<![\w$])\$(?:fopen|fclose|f(?:write|display|strobe|monitor)[bho]?|fread|fscanf|fgets|fgetc|ungetc|fseek|ftell|rewind"
    r"|writemem[bh]|system|c)\b|\b(?:import|export)\s+\"DPI"
)
_SKIPPED = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:[^\"\\\n]|\\.)*\"|\\[!-~]+", re.S)
_UNNAMED = re.compile(r"genblk0*\d+")
"""What IEEE 1800 (27.6) calls generate blocks without a name."""
_PARSERS = re.compile(PARSER_MACROS)
_DATA_PATH = re.compile(r"/|\.(?:hex|mem|memh|memb|txt|dat|data|bin|init|mif|coe|py|xml|sh|env|so)$")


class Finding(BaseModel):
    """One thing that gets an answer rejected, and where."""

    model_config = ConfigDict(frozen=True)
    what: str
    path: str
    line: int
    """Counted from 1."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def screen(
    answer: Mapping[str, str],
    context: Mapping[str, str],
    *,
    harness: Iterable[str] = (),
    several_tools: bool = True,
) -> list[Finding]:
    """Findings in the answer's HDL files, in order; empty for an honest answer.

    What the same words find in `context` (the problem's own files) is no finding in the answer. `harness` are the base
    names of the harness' files, which no design reads; `several_tools` says whether it uses more than Icarus.
    """
    hdl = {path: text for path, text in answer.items() if path.endswith(HDL_SUFFIXES)}
    found: list[Finding] = []
    for path, text in answer.items():
        found += _plain(path, text)
    if found:
        return found
    given = {path.rsplit("/", 1)[-1] for path in (*answer, *context)}
    rules = _Rules(given, frozenset(harness), several_tools)
    for path, text in hdl.items():
        beside = {p: t for p, t in {**context, **hdl}.items() if p != path and p.endswith((".vh", ".svh", ".h"))}
        found += _File(path, text, beside, rules).findings()
    if found:
        habits = _habits(context, rules)
        found = [finding for finding in found if finding.what not in habits]
    return found[:MAX_FINDINGS]


def _plain(path: str, text: str) -> Iterator[Finding]:
    if len(text) > MAX_FILE_CHARS:
        yield Finding(what=f"the file has {len(text)} characters, more than {MAX_FILE_CHARS}", path=path, line=1)
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        yield Finding(what="a character that is none", path=path, line=text.count("\n", 0, error.start) + 1)
    at = text.find("\0")
    if at >= 0:
        yield Finding(what="a NUL byte", path=path, line=text.count("\n", 0, at) + 1)


@dataclass(frozen=True)
class _Rules:
    """What decides whether a name of a file or macro is a finding: base names of given and of harness files, the tools."""

    given: Collection[str]
    harness: Collection[str]
    several_tools: bool


def _habits(context: Mapping[str, str], rules: _Rules) -> set[str]:
    """What the problem's own files do, and an answer may therefore do too."""
    habits: set[str] = set()
    for path, text in context.items():
        if path.endswith(HDL_SUFFIXES) and len(text) <= MAX_FILE_CHARS:
            habits.update(finding.what for finding in _File(path, text, {}, rules).findings())
    return habits


class _File:
    """One walk over the tokens and nodes of one file."""

    def __init__(self, path: str, text: str, beside: Mapping[str, str], rules: _Rules) -> None:
        self.path, self.text, self.rules = path, text, rules
        name = path if path.endswith((".v", ".sv")) else path + ".sv"
        self.tree, self.manager, _ = syntax_tree({**beside, name: text})
        self.found: list[Finding] = []
        self.dotted: list[tuple[object, str, int]] = []

    def findings(self) -> list[Finding]:
        self.tree.root.visit(self._visit)
        self._leading_out()
        self._hidden()
        return self.found

    def _add(self, what: str, line: int) -> None:
        if len(self.found) < MAX_FINDINGS:
            self.found.append(Finding(what=what, path=self.path, line=line))

    def _line(self, location: object) -> int:
        return _line(self.manager, location)

    def _visit(self, item: object) -> None:
        if isinstance(item, slang_parsing.Token):
            if item.kind == slang_parsing.TokenKind.SystemIdentifier:
                self._task(item)
            for trivia in item.trivia:
                if trivia.kind == slang_parsing.TriviaKind.Directive:
                    self._directive(trivia.syntax())
            return
        kind = item.kind.name  # type: ignore[attr-defined]
        if kind in NODES:
            self._add(NODES[kind], self._line(item.sourceRange.start))  # type: ignore[attr-defined]
        elif kind == "InvocationExpression":
            self._call(item)
        elif kind == "ScopedName":
            self._dots(item)
        elif kind == "AttributeSpec" and item.name.valueText in ("blackbox", "whitebox"):  # type: ignore[attr-defined]
            self._add(f"the attribute `{item.name.valueText}`", self._line(item.name.location))  # type: ignore[attr-defined]

    def _task(self, token: slang_parsing.Token) -> None:
        name = token.valueText.lstrip("$")
        if name not in ALLOWED_TASKS:
            self._add(f"the system task ${name[:60]}", self._line(token.location))

    def _call(self, node: object) -> None:
        """Tasks that may name a file: only a given one, or a plain name for waves."""
        name = str(node.left).strip()  # type: ignore[attr-defined]
        if name not in ("$readmemh", "$readmemb", "$dumpfile"):
            return
        line = self._line(node.sourceRange.start)  # type: ignore[attr-defined]
        literals = re.findall(r"\"((?:[^\"\\]|\\.)*)\"", str(node.arguments))  # type: ignore[attr-defined]
        if name == "$dumpfile":
            if literals and not all(WAVES.fullmatch(literal) for literal in literals):
                self._add("a $dumpfile that is no plain wave file", line)
            return
        # A name that is no literal comes from a string elsewhere in the file.
        literals = literals or [text for text in re.findall(r"\"([^\"\n]*)\"", self.text) if _DATA_PATH.search(text)]
        for literal in filter(None, literals):
            name_only = literal.rsplit("/", 1)[-1]
            outside = _leads_out(literal) or ".." in literal or name_only in self.rules.harness
            if name_only not in self.rules.given and outside:
                self._add(f"{name} of a file that was not given ({literal[:60]})", line)

    def _directive(self, node: object) -> None:
        kind = node.kind.name  # type: ignore[attr-defined]
        line = self._line(node.sourceRange.start)  # type: ignore[attr-defined]
        if kind == "BeginKeywordsDirective" and '"1800-' in str(node):
            return  # the keywords that every tool here starts with
        if kind in DIRECTIVES:
            self._add(DIRECTIVES[kind], line)
        elif kind == "IncludeDirective":
            name = str(node.fileName).strip().strip('"<>')  # type: ignore[attr-defined]
            if name.rsplit("/", 1)[-1] not in self.rules.given or _leads_out(name):
                self._add(f"an include of what was not given ({name[:60]})", line)
        elif kind in _CONDITIONS:
            for name in re.findall(r"\w+", str(node.expr)):  # type: ignore[attr-defined]
                self._macro(name, line)
        elif kind in ("DefineDirective", "UndefDirective"):
            self._macro(node.name.valueText, line)  # type: ignore[attr-defined]
        elif kind == "PragmaDirective":
            if re.match(r"\s*`pragma\s+protect\b", str(node)):
                self._add("`pragma protect", line)
        elif kind == "MacroUsage":
            name = node.directive.valueText.lstrip("`").strip("\\ ")  # type: ignore[attr-defined]
            if name.startswith(("systemc_", "verilator")):
                self._add(f"the tool macro {name}", line)
            self._macro(name, line)

    def _macro(self, name: str, line: int) -> None:
        if self.rules.several_tools and name in TOOL_MACROS:
            self._add(f"the tool macro {name}", line)

    def _dots(self, node: object) -> None:
        """Remembers the first name of a dotted path; whether it leads out is known once all names are."""
        if getattr(getattr(node, "parent", None), "kind", None) == slang_syntax.SyntaxKind.ScopedName:
            return
        first = node
        dotted = False
        while first.kind == slang_syntax.SyntaxKind.ScopedName:  # type: ignore[attr-defined]
            dotted = dotted or first.separator.kind == slang_parsing.TokenKind.Dot  # type: ignore[attr-defined]
            first = first.left  # type: ignore[attr-defined]
        identifier = getattr(first, "identifier", None)
        if dotted and identifier is not None:
            self.dotted.append((node, identifier.valueText, self._line(identifier.location)))

    def _leading_out(self) -> None:
        """Dotted names whose first part nothing in the enclosing module, package or file declares."""
        declared: dict[object, set[str]] = {}
        for node, name, line in self.dotted:
            scope = _enclosing(node)
            key = None if scope is None else (scope.sourceRange.start.offset, scope.sourceRange.end.offset)  # type: ignore[attr-defined]
            if key not in declared:
                declared[key] = _names(scope if scope is not None else self.tree.root)
            if name not in declared[key] and name not in self._package_names and not _UNNAMED.fullmatch(name):
                self._add(f"a hierarchical name out of the module ({name[:60]}.)", line)

    @cached_property
    def _package_names(self) -> set[str]:
        names: set[str] = set()

        def collect(item: object) -> None:
            if getattr(item, "kind", None) == slang_syntax.SyntaxKind.PackageDeclaration:
                names.update(_names(item))

        self.tree.root.visit(collect)
        return names

    def _hidden(self) -> None:
        """What a preprocessor might see that this one did not: dangerous words outside comments and strings."""
        if parsers := _PARSERS.search(self.text):
            self._add(f"a macro of the parser ({parsers[0][:40]})", self.text.count("\n", 0, parsers.start()) + 1)
        if not _DANGEROUS.search(self.text):
            return
        bare = _SKIPPED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), self.text)
        for match in _DANGEROUS.finditer(self.text):
            # An import shows its first word outside a comment; its string is blanked like any other.
            if bare[match.start()] == " ":
                continue
            line = bare.count("\n", 0, match.start()) + 1
            if not any(finding.line == line for finding in self.found):
                self._add(f"the system task {match[0].split()[0]}", line)


def _leads_out(path: str) -> bool:
    """Whether it is an absolute path to another place than the design's own directories."""
    return path.startswith("/") and not re.match(r"/code/(?!src/)[\w/]", path)


def _line(manager: pyslang.SourceManager, location: object) -> int:
    return manager.getLineNumber(manager.getFullyOriginalLoc(location))  # type: ignore[arg-type]


def _enclosing(node: object) -> object | None:
    """The module, interface or program around a node."""
    while node is not None:
        kind = getattr(node, "kind", None)
        if kind is not None and kind.name in ("ModuleDeclaration", "InterfaceDeclaration", "ProgramDeclaration"):
            return node
        node = getattr(node, "parent", None)
    return None


def _names(scope: object) -> set[str]:
    """Names that are declared within a node: variables, ports, parameters, instances, blocks, routines."""
    names: set[str] = set()

    def collect(item: object) -> None:
        kind = getattr(item, "kind", None)
        name = None if kind is None else kind.name
        if name in (
            "Declarator",
            "InstanceName",
            "NamedBlockClause",
            "NamedLabel",
            "TypedefDeclaration",
            "ForVariableDeclaration",
        ):
            token = getattr(item, "name", None)
            if token is not None:
                names.add(token.valueText)
        elif name in ("LoopGenerate", "GenvarDeclaration"):
            token = getattr(item, "identifier", None)
            if token is not None:
                names.add(token.valueText)
        elif name == "FunctionPrototype":
            names.update(re.findall(r"[A-Za-z_]\w*", str(item.name)))  # type: ignore[attr-defined]
        elif name == "IdentifierName" and getattr(getattr(item, "parent", None), "kind", None) is not None:
            parent = item.parent.kind.name  # type: ignore[attr-defined]
            if parent in ("SeparatedList", "GenvarDeclaration"):
                names.add(item.identifier.valueText)  # type: ignore[attr-defined]

    scope.visit(collect)  # type: ignore[attr-defined]
    header = getattr(scope, "header", None)
    if header is not None:
        names.add(header.name.valueText)
    return names
