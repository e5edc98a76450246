"""Parse an HDL file into pyslang's syntax tree, and edit its text token by token.

Edits do not touch comments and strings, unless a whole branch is replaced. Tokens from macro expansions
have no place in the file and cannot be edited.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyslang  # the module: pyslang reports classes held by our globals as leaked when the process ends
from pyslang import parsing as slang_parsing
from pyslang import syntax as slang_syntax

Node = Any
"""A `pyslang.syntax.SyntaxNode` or `pyslang.parsing.Token`; the binding has no useful static types."""


NOWHERE = "/nowhere-on-disk/"
"""A folder that no machine has."""
_ERROR = re.compile(r":(\d+):\d+: (?:fatal )?error: (.*)")

Span = tuple[int, int]
"""First and past-the-last byte in a file."""


@dataclass(frozen=True)
class Edit:
    """Replacement of the UTF-8 bytes from `start` to `end` of a file."""

    start: int
    end: int
    text: str


class SourceTree:
    """A parsed file. Keep it alive as long as its nodes are in use."""

    def __init__(
        self,
        text: str,
        path: str = "source",
        headers: Mapping[str, str] | None = None,
        define: Mapping[str, str] | None = None,
    ) -> None:
        """Parse a file.

        Args:
            headers: path -> text of each file that it includes, directly or not. They must be all; without any no
                include is followed, so that no file of this machine is read.
            define: macros that are defined from outside.
        """
        self.data = text.encode()
        self._manager = pyslang.SourceManager()
        given = headers or {}
        for place, header in given.items():
            self._manager.assignText(NOWHERE + place, header)
        self._buffer = self._manager.assignText(NOWHERE + path, text)
        depth = 8 if given else 0
        options = parsing_options(depth, define)
        self._tree = slang_syntax.SyntaxTree.fromBuffers([self._buffer], self._manager, options)
        self.root: Node = self._tree.root

    @property
    def errors(self) -> int:
        """Number of parse errors."""
        return sum(diagnostic.isError() for diagnostic in self._tree.diagnostics)

    def syntax_error(self) -> str:
        """The first error that is not about a macro or an include: `line 3: expected ';'`; empty without one."""
        for diagnostic in self._tree.diagnostics:
            place = diagnostic.location
            if not diagnostic.isError() or place.buffer != self._buffer.id:
                continue
            words = pyslang.DiagnosticEngine.reportAll(self._manager, [diagnostic])
            match = _ERROR.search(words)
            if match is None:
                continue
            line, reason = match.groups()
            if "macro" not in reason and "directive" not in reason:
                return f"line {line}: {reason}"
        return ""

    def is_own(self, node: Node) -> bool:
        """Whether a node stands in this file, perhaps as a macro, and not in one that it includes."""
        first = node.getFirstToken()
        place = self._manager.getFullyExpandedLoc(first.location)
        return bool(place.buffer == self._buffer.id)

    @cached_property
    def _by_kind(self) -> dict[str, list[Node]]:
        nodes: dict[str, list[Node]] = defaultdict(list)
        for node in walk(self.root):
            nodes[name_of(node)].append(node)
        return nodes

    def of(self, *kinds: str) -> list[Node]:
        """Return the nodes of these kinds, kind by kind, each from the top down. The tree is walked once."""
        return [node for kind in kinds for node in self._by_kind.get(kind, ())]

    def module(self, name: str) -> Node | None:
        """The module of this name; None if there is none."""
        modules = self.of("ModuleDeclaration")
        return next((node for node in modules if node.header.name.rawText == name), None)

    def span(self, node: Node) -> Span | None:
        """First and past-the-last byte of a node or token; None when it is not literally in this file."""
        first, last = node, node
        if not is_token(node):
            first, last = node.getFirstToken(), node.getLastToken()
        places = (first.location, last.location)
        if last.isMissing or any(place.buffer != self._buffer.id for place in places):
            return None
        start, length = first.location.offset, len(last.rawText.encode())
        end = last.location.offset + length
        return (start, end) if start < end else None

    def text(self, node: Node) -> str:
        """Source text of a node, including comments inside it; empty when it is not literally in this file."""
        start, end = self.span(node) or (0, 0)
        return self.data[start:end].decode()

    def line(self, offset: int) -> int:
        """Line number, from 1, of a byte offset."""
        return self.data.count(b"\n", 0, offset) + 1

    def edited(self, edits: Iterable[Edit]) -> str:
        """Return the file's text with edits applied. Raises ValueError when two of them overlap."""
        return edited(self.data, edits)


def parsing_options(
    include_depth: int = 0, define: Mapping[str, str] | None = None
) -> pyslang.Bag:
    """Options of the parser. By default no include is followed, so that no file of this machine is read."""
    preprocessor = slang_parsing.PreprocessorOptions()
    preprocessor.maxIncludeDepth = include_depth
    macros = define or {}
    preprocessor.predefines = [f"{name}={value}" for name, value in macros.items()]
    parser = slang_parsing.ParserOptions()
    parser.maxRecursionDepth = 512
    return pyslang.Bag([preprocessor, parser])


def edited(data: bytes, edits: Iterable[Edit]) -> str:
    """Apply edits to UTF-8 text. Raises ValueError when two of them overlap."""
    parts, at = [], 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if edit.start < at:
            raise ValueError("edits overlap")
        parts += [data[at : edit.start], edit.text.encode()]
        at = edit.end
    return b"".join([*parts, data[at:]]).decode()


def is_token(node: Node) -> bool:
    return isinstance(node, slang_parsing.Token)


def name_of(node: Node) -> str:
    """Kind of a node or token: `AddExpression`, `IntegerLiteral`."""
    return node.kind.name


def children(node: Node) -> list[Node]:
    """Child nodes and tokens in order; empty for a token."""
    return [] if is_token(node) else [child for child in node if child is not None]


def walk(node: Node, skip: frozenset[str] = frozenset()) -> Iterator[Node]:
    """Yield `node` and the nodes below it, without tokens, from the top down; kinds in `skip` are left out
    with what is below.

    Iterative, because an expression of a thousand terms is a thousand levels deep.
    """
    stack = [node]
    while stack:
        current = stack.pop()
        if is_token(current) or name_of(current) in skip:
            continue
        yield current
        stack.extend(reversed(children(current)))


def find(node: Node, *kinds: str, skip: frozenset[str] = frozenset()) -> Iterator[Node]:
    """Yield the nodes of some kinds that `walk` yields."""
    return (part for part in walk(node, skip) if name_of(part) in kinds)


def tokens(node: Node) -> Iterator[Node]:
    """Yield all tokens below a node, in order."""
    stack = [node]
    while stack:
        current = stack.pop()
        if is_token(current):
            yield current
        stack.extend(reversed(children(current)))
