"""Names of the design that a harness' Python code reads, drives and sets as parameters.

The code is read with `ast`. Comments, strings, uncalled functions, branches under a constant False, and
accesses that the harness guards (`try`, `if hasattr(...)`) do not count. Names computed at run time, calls
through variables, and conditions that only the simulation decides are not followed, so the result is
advice: only running the harness shows what it really does.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from posixpath import basename
from typing import Literal, NamedTuple, get_args

from rtl_grader.problems.executed import (
    FunctionNode,
    Names,
    executed,
    false_names,
    hasattr_names,
    parse_python,
)
from rtl_grader.types.files import Files

_OVERRIDE = re.compile(r"(?<![\w-])-(?:[PG]|gv|defparam)\s*(?:\w+\.)*(\w+)=")
_MACRO = re.compile(r"(?<![\w-])(?:-D\s*|\+define\+)([A-Za-z_]\w*)(?:=(\w+))?()(?![\w=])")
_DEFINE = re.compile(r"['\"](\w+)['\"]\s*:\s*(?:['\"](\w*)['\"]|(\d\w*)|None|True)\s*(?:,|\Z)")
_DEFINES = re.compile(r"\bdefines\s*=\s*\{([^}]*)\}")
_ANY_CHANGE = {"Edge", "ValueChange"}
_WAITS = {"Clock", "RisingEdge", "FallingEdge", "ClockCycles", *_ANY_CHANGE}
_TEST_DECORATORS = {"cocotb.test", "test", "cocotb.parametrize", "cocotb.parameterize"}
_SKIP = re.compile(r"\bskip=True\b|mark\.skip\b(?!if)")
_DUT = frozenset({"dut"})
_Kind = Literal["drives", "touches", "measures", "waits for", "one bit", "spells"]
"""Kind of use of a name; `spells` is a string that may name a parameter."""


class _Use(NamedTuple):
    """A use of a name of the design."""

    kind: _Kind
    name: str
    value: str = ""
    """For `drives` the assigned constant, for `measures` the variable; empty for any other value."""


class _Body(NamedTuple):
    """Statements that may be executed."""

    owner: ast.Module | FunctionNode
    false: Names
    """Names that are always false in its file."""
    duts: Names = _DUT
    """Names of the design's handle."""


class _File(NamedTuple):
    """A Python file of a harness."""

    tree: ast.Module
    false: Names
    functions: tuple[FunctionNode, ...]


@dataclass(frozen=True)
class HarnessUse:
    """Names of the top module that the harness' code uses, each once, in order of first use."""

    driven: tuple[str, ...] = ()
    """Assigned a value or a clock."""
    moved: Names = frozenset()
    """Driven names that get a clock, a computed value, or several values; an output may be cleared with one
    constant."""
    touched: tuple[str, ...] = ()
    """Read, waited for or passed on, but not driven: ports or other objects of the module."""
    scalars: Names = frozenset()
    """One-bit names: clocks, and signals whose rising or falling edge is waited for."""
    measured: Mapping[str, Iterable[str]] = field(default_factory=dict)
    """Name -> variables, in lower case, that get its length."""
    parameters: Names = frozenset()
    """Possible parameter names: read in capitals, or a key or flag of the harness' build call."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.driven, *self.touched)


def harness_use(harness: Files) -> HarnessUse:
    """Find the names that the executed Python code of a harness (path -> text) uses. Never raises for a text.

    When code that is certainly executed names nothing (tests without cocotb's decorator), all functions
    count as executed.
    """
    return _harness_use(tuple(harness.items()))


@lru_cache(maxsize=1024)  # asked again for every answer to a problem
def _harness_use(files: tuple[tuple[str, str], ...]) -> HarnessUse:
    try:
        use = _read(dict(files), everything=False)
        return use if use.names else _read(dict(files), everything=True)
    except RecursionError:
        return HarnessUse()


def _read(harness: Files, *, everything: bool) -> HarnessUse:
    """Names that the executed functions, or with `everything` all functions, use."""
    definitions: dict[str, list[_Body]] = defaultdict(list)
    waiting: list[_Body] = []
    called: set[str] = set()
    for path, text in sorted(harness.items()):
        file = _file(text) if path.endswith(".py") else None
        if file is None or not (everything or is_used(path, harness)):
            continue
        waiting.append(_Body(file.tree, file.false))
        for node in file.functions:
            is_test = _is_cocotb_test(node)
            if everything or is_test or _is_called_by_name(node):
                called.add(node.name)
            if not _is_skipped(node):
                handles = {argument.arg for argument in node.args.args[:is_test]}
                definitions[node.name].append(_Body(node, file.false, _DUT | handles))
    values: dict[_Kind, dict[str, set[str]]] = {kind: {} for kind in get_args(_Kind)}
    while waiting:
        for body in waiting:
            uses, mentioned = _uses(body)
            called |= mentioned
            for use in uses:
                values[use.kind].setdefault(use.name, set()).add(use.value)
        left = called & definitions.keys()
        waiting = definitions.pop(min(left)) if left else []
    driven, touched = values["drives"], values["touches"]
    moved = {
        name for name, constants in driven.items() if len(constants) > 1 or "" in constants
    }
    capitals = {name for name in touched if name.isupper()} - values["waits for"].keys()
    for name in (*driven, *capitals):
        touched.pop(name, None)
    return HarnessUse(
        driven=tuple(driven),
        moved=frozenset(moved),
        touched=tuple(touched),
        scalars=frozenset(values["one bit"].keys() & {*driven, *touched}),
        measured=values["measures"],
        parameters=frozenset(capitals | values["spells"].keys()),
    )


@lru_cache(maxsize=4096)
def _uses(body: _Body) -> tuple[tuple[_Use, ...], Names]:
    """Return the uses by a body's statements, in order, and all names that the statements mention.

    Harnesses with the same file share its bodies, and so the results.
    """
    uses: dict[_Use, None] = {}
    mentioned: set[str] = set()
    for node, guarded in executed(body.owner.body, body.false):
        if isinstance(node, ast.Name):
            mentioned.add(node.id)
        elif isinstance(node, ast.Attribute):
            mentioned.add(node.attr)
        for use in _uses_of(node, body.duts):
            if use.name not in guarded or use.kind not in ("drives", "touches"):
                uses[use] = None
    return tuple(uses), frozenset(mentioned)


def _uses_of(node: ast.AST, duts: Names) -> Iterator[_Use]:
    """Yield the uses by one node."""
    match node:
        case ast.Assign(
            [ast.Name(variable)],
            ast.Call(ast.Name("len"), [ast.Attribute(measured, "value") | measured]),
        ):
            name = _signal(measured, duts) or ""
            yield _Use("measures", name, variable.lower())
        case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
            value = None if isinstance(node, ast.AugAssign) else node.value
            for target in _targets(node):
                if isinstance(target, ast.Attribute) and target.attr == "value":
                    yield from _drives(target.value, duts, value)
        case ast.Expr(ast.Compare(left, [ast.LtE(), *_], [right, *_])):
            # cocotb 1's `dut.x <= value`.
            yield from _drives(left, duts, right)
        case ast.Call(ast.Attribute(target, "setimmediatevalue" | "set"), arguments):
            yield from _drives(target, duts, arguments[0] if arguments else None)
        case ast.Call(ast.Attribute(attr=called) | ast.Name(called), [first, *_]) if (
            called in _WAITS
        ):
            # Waiting for an edge says nothing about the direction: it may be an output's.
            if called == "Clock":
                yield from _drives(first, duts)
            name = _signal(first, duts) or ""
            yield _Use("waits for", name)
            if called not in _ANY_CHANGE and not isinstance(first, ast.Subscript):
                yield _Use("one bit", name)
        case ast.Call(
            ast.Attribute(attr=called) | ast.Name(called),
            [first, ast.Constant(str(name)), *default],
        ):
            is_needed = called == "setattr" or (called == "getattr" and not default)
            if is_needed and _is_dut(first, duts):
                yield from _touches(name)
        case ast.Assert(test):
            for name in hasattr_names(ast.walk(test)):
                yield from _touches(name)
        case ast.Attribute(value, name) if _is_dut(value, duts):
            yield from _touches(name)
        case ast.Constant(str(text)):
            names = [text] if text.isidentifier() else _OVERRIDE.findall(text)
            for name in names:
                yield _Use("spells", name)


def _targets(node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> Iterator[ast.expr]:
    """Yield what is assigned to; of a tuple its parts."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        yield from target.elts if isinstance(target, ast.Tuple) else [target]


def _drives(target: ast.expr, duts: Names, value: ast.expr | None = None) -> Iterator[_Use]:
    if name := _signal(target, duts):
        constant = repr(value.value) if isinstance(value, ast.Constant) else ""
        yield _Use("drives", name, constant)


def _touches(name: str) -> Iterator[_Use]:
    if not name.startswith("_"):  # such names are attributes of cocotb's handle
        yield _Use("touches", name)


def macro_file(harness: Files) -> dict[str, str]:
    """A file with the macros that a harness defines for the design (path -> text); empty if there are none.

    They are in `defines=` of a build, and after `-D` or `+define+` in a command. Computed values are not followed.
    """
    text = "\n".join(harness.values())
    if "define" not in text and "-D" not in text:
        return {}
    arguments = " ".join(_DEFINES.findall(text))
    lines = ""
    for name, word, number in _DEFINE.findall(arguments) + _MACRO.findall(text):
        lines += f"`define {name} {word or number or 1}\n"
    return {"macros.sv": lines} if lines else {}


def is_used(path: str, harness: Files) -> bool:
    """Whether another file of the harness names this one, as a module, in its environment or in a command."""
    name = re.escape(basename(path).removesuffix(".py"))
    word = re.compile(rf"(?<!\w){name}(?!\w)")
    others = [text for other, text in harness.items() if other != path]
    return not others or any(map(word.search, others))


@lru_cache(maxsize=512)  # generated problems share bench files
def _file(text: str) -> _File | None:
    """Read a Python file; None if it is not valid Python."""
    tree = parse_python(text)
    if tree is None:
        return None
    nodes = list(ast.walk(tree))
    functions = tuple(node for node in nodes if isinstance(node, FunctionNode))
    return _File(tree, false_names(nodes), functions)


def _is_dut(node: ast.expr, duts: Names) -> bool:
    if isinstance(node, ast.Name):
        return node.id in duts
    return isinstance(node, ast.Attribute) and node.attr == "dut"


def _signal(node: ast.expr, duts: Names) -> str | None:
    """Return the name in `dut.name` or `dut.name[...]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if not isinstance(node, ast.Attribute) or node.attr.startswith("_"):
        return None
    return node.attr if _is_dut(node.value, duts) else None


def _is_cocotb_test(node: FunctionNode) -> bool:
    for decorator in node.decorator_list:
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(function) in _TEST_DECORATORS:
            return True
    return False


def _is_called_by_name(node: FunctionNode) -> bool:
    """Whether pytest (which ignores async functions) or the language calls it."""
    by_pytest = isinstance(node, ast.FunctionDef) and node.name.startswith("test")
    return by_pytest or node.name.startswith("__")


def _is_skipped(node: FunctionNode) -> bool:
    return any(_SKIP.search(ast.unparse(decorator)) for decorator in node.decorator_list)
