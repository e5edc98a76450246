"""The code of a Python file that is executed when a test calls its functions.

Comments, strings, branches under a constant False, and accesses that the code guards (`try`, `if hasattr(...)`) do
not count. Conditions that only running the code decides are taken as possible.
"""

from __future__ import annotations

import ast
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache

_parsing = threading.Lock()
_INNER = (ast.stmt, ast.ExceptHandler, ast.match_case)
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_CATCHES = {"AttributeError", "Exception", "BaseException"}
Names = frozenset[str]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=512)
def parse_python(text: str) -> ast.Module | None:
    """Parse a Python file; None if it is not valid Python. Trees are cached: do not modify them."""
    # CPython before 3.12 shares one recursion counter between threads that build a tree, and fails when two do.
    with _parsing:
        try:
            try:
                return ast.parse(text)
            except SystemError:
                # A thread of another library was parsing too, which our lock cannot prevent.
                return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            # MemoryError: nested too deeply.
            return None


def executed(
    body: Iterable[ast.stmt], false: Names, guarded: Names = frozenset()
) -> Iterator[tuple[ast.AST, Names]]:
    """Yield the nodes that a body executes, in order, each with the names that a `hasattr` in its statement
    or around it guards.

    Skips inner functions, which are read when they are called, code that a constant condition or a `return`
    makes unreachable, handlers, and `try` bodies whose handler catches a missing name.
    """
    for statement in body:
        if isinstance(statement, FunctionNode):
            continue
        own = list(_expressions(statement))
        inner = guarded
        if not isinstance(statement, ast.Assert):
            inner = guarded.union(hasattr_names(own))
        for node in own:
            yield node, inner
        first = getattr(statement, "body", [])
        blocks = [getattr(statement, field, []) for field in ("orelse", "finalbody")]
        match statement:
            case ast.If(test) | ast.While(test) if (truth := _truth(test, false)) is not None:
                first, blocks = (first, []) if truth else ([], blocks)
            case ast.Try() | ast.TryStar() if any(map(_catches, statement.handlers)):
                first = []
            case ast.Match():
                blocks = [case.body for case in statement.cases]
        for block in (first, *blocks):
            yield from executed(block, false, inner)
        if isinstance(statement, _ENDS):
            return


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the statement and its own expressions, but not its inner statements."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        children = [
            child for child in ast.iter_child_nodes(node) if not isinstance(child, _INNER)
        ]
        waiting += reversed(children)


def false_names(nodes: list[ast.AST]) -> Names:
    """Names that are only ever bound to constants that count as False."""
    bound, false = Counter[str](), Counter[str]()
    for node in nodes:
        match node:
            case ast.Name(name, ast.Store()) | ast.arg(name):
                bound[name] += 1
            case ast.Global(names) | ast.Nonlocal(names):
                bound.update(names)
            case ast.Assign(targets, ast.Constant(value)) if not value:
                false.update(target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(ast.Name(name), value=ast.Constant(value)) if not value:
                false[name] += 1
    return frozenset(name for name, count in false.items() if count == bound[name])


def _truth(test: ast.expr, false: Names) -> bool | None:
    """A condition's constant value, or None if it is not constant."""
    match test:
        case ast.Constant(value):
            return bool(value)
        case ast.Name(name) if name in false:
            return False
        case ast.Compare(ast.Name("__name__")):
            return False  # the files are imported, not run
        case ast.UnaryOp(ast.Not(), operand):
            truth = _truth(operand, false)
            return None if truth is None else not truth
        case ast.BoolOp(operator, values):
            decisive = isinstance(operator, ast.Or)
            truths = {_truth(value, false) for value in values}
            if decisive in truths:
                return decisive
            return None if None in truths else not decisive
    return None


def hasattr_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Call(ast.Name("hasattr"), [_, ast.Constant(str(name)), *_]):
                yield name


def _catches(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches a missing name."""
    if handler.type is None:
        return True
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
    return not names.isdisjoint(_CATCHES)
