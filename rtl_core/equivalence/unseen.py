"""Constructs of a design that behave otherwise in a simulator than in a proof, because the proof's front end ignores or completes them.

Delays and waits; values of time or chance; sensitivity lists that lack a signal; variables that are read before they are assigned; races
between processes; strengths; names from outside the design. A nonblocking assignment after a short constant delay is not one of
them: its value is there when a clock cycle ends.

The text is parsed with all branches of `generate`, and names are compared within a module.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from rtl_core.problems.tree import Node, SourceTree, children, is_token, name_of, tokens, walk

LONGEST = 10.0
"""Largest delay of a nonblocking assignment that surely ends within a cycle, in units of at most a nanosecond."""
_KINDS = {
    "WaitStatement": "a `wait`",
    "IffEventClause": "an `iff`",
    "RepeatedEventControl": "a repeated event",
    "TimeLiteralExpression": "a literal of time",
    "DriveStrength": "a strength",
    "PullStrength": "a strength",
    "ChargeStrength": "a strength",
}
_RESOLVED = frozenset({"pullup", "pulldown", "tri0", "tri1", "triand", "trior", "trireg", "wand", "wor"})
_SYSTEM = re.compile(r"\$(?:s?time|realtime|u?random\w*|(?:test|value)\$plusargs)")
_NO_VALUES = re.compile(r"\$(?!(?:un)?signed|clog2|count|onehot|isunknown)\w+")
"""System tasks and functions that compute nothing from the values of their arguments."""
_COARSE = re.compile(r"(?:`timescale|\btimeunit)\s+(?:10+\s*ns|10*\s*[um]?s)\b")
_NAMED = (
    "Declarator",
    "InstanceName",
    "NamedBlockClause",
    "NamedLabel",
    "ModuleHeader",
    "PackageHeader",
    "InterfaceHeader",
)
_NAMES = ("IdentifierName", "IdentifierSelectName")
_ALWAYS = ("AlwaysBlock", "AlwaysFFBlock", "AlwaysCombBlock", "AlwaysLatchBlock")
_EVENTS = ("EventControl", "EventControlWithExpression", "ImplicitEventControl")
_SIGNALS = ("DataDeclaration", "NetDeclaration", "ImplicitAnsiPort", "PortDeclaration")
_BLOCKS = ("SequentialBlockStatement", "FunctionDeclaration", "TaskDeclaration")
_PORTS = ("ImplicitAnsiPort", "PortDeclaration")


class Use(NamedTuple):
    """A name that a statement reads or assigns."""

    how: str
    """`read`, or `=` or `<=` if it is assigned."""
    name: str
    text: str
    """With its selects."""


def unseen(text: str) -> dict[str, str]:
    """Such constructs of a design: kind -> words. `text` is that of all its files."""
    tree = SourceTree(text)
    found = {"syntax": "text that the parser cannot read"} if tree.errors else {}
    found |= {kind: words for kind, words in _KINDS.items() if tree.of(kind)}
    for node in tree.of("NetDeclaration", "NetPortHeader", "PrimitiveInstantiation"):
        net = getattr(node, "netType", None) or node.type
        if net.rawText in _RESOLVED:
            found["net"] = f"`{net.rawText}`"
    for node in tree.of("SystemName"):
        if _SYSTEM.fullmatch(_plain(node)) and not _is_shown(node):
            found["system"] = f"`{_plain(node)}`"
    values = {_plain(node.name): _plain(node.initializer.expr) for node in tree.of("Declarator") if node.initializer}
    for node in tree.of("DelayControl", "Delay3"):
        if _COARSE.search(text) or not _is_short(node, values):
            found["delay"] = f"the delay `{_plain(node)}`"
    for node in tree.of(*_EVENTS):
        if name_of(node.parent.parent) not in _ALWAYS:
            found["event"] = "an event inside a process"
    named = {node.name.rawText for node in tree.of(*_NAMED)}
    for node in tree.of("ScopedName"):
        first = _plain(node).split(".")[0].split("[")[0]
        if node.separator.rawText == "." and first not in named and not first.startswith("genblk"):
            found["outside"] = f"`{_plain(node)}`, a name from outside"
    inner = {node.type.rawText for node in tree.of("HierarchyInstantiation")}
    for module in tree.of("ModuleDeclaration"):
        found |= _Module(module, module.header.name.rawText in inner).unseen()
    return found


def _plain(node: Node) -> str:
    return "".join(token.rawText for token in ([node] if is_token(node) else tokens(node)))


def _is_shown(node: Node) -> bool:
    """Whether a value is only an argument of a system task, such as `$display`."""
    while node is not None and name_of(node) != "ExpressionStatement":
        node = node.parent
    return node is not None and _plain(node).startswith("$")


def _is_short(delay: Node, values: dict[str, str]) -> bool:
    """Whether a delay is a small constant of a nonblocking assignment."""
    text = _plain(delay).strip("#()")
    value = values.get(text, text)
    if not re.fullmatch(r"\d+(?:\.\d+)?", value) or float(value) > LONGEST:
        return False
    return name_of(delay.parent.parent) == "NonblockingAssignmentExpression"


def uses(root: Node) -> Iterator[Use]:
    """What a statement reads and assigns, in the order in which it does."""
    stack: list[Node | Use] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Use):
            yield node
            continue
        kind, below = name_of(node), [child for child in children(node) if not is_token(child)]
        if kind.endswith("AssignmentExpression") or "crement" in kind:
            how = "<=" if kind.startswith("Nonblocking") else "="
            names = [name for name in walk(below[0], frozenset({"ElementSelect"})) if name_of(name) in _NAMES]
            stack += [_use(how, name) for name in names]
            if kind not in ("AssignmentExpression", "NonblockingAssignmentExpression"):
                stack += [_use("read", name) for name in names]
            stack += [select for select in walk(below[0]) if name_of(select) == "ElementSelect"]
            stack += below[1:]
        elif kind == "Declarator":
            stack += [Use("=", node.name.rawText, "")] if node.initializer else []
            stack += below
        elif kind == "ScopedName":
            stack += below[:1]
        elif kind == "VariableDimension" or (
            kind == "InvocationExpression" and _NO_VALUES.fullmatch(_plain(node.left))
        ):
            continue
        else:
            stack += reversed(below)
            if kind in _NAMES:
                yield _use("read", node)


def _use(how: str, node: Node) -> Use:
    return Use(how, node.identifier.rawText, _plain(node))


class _Process:
    """An `always`, `initial` or `assign` of a module."""

    def __init__(self, body: Node, module: _Module) -> None:
        found = [use for use in uses(body) if use.name in module.signals or use.name in module.subroutines]
        self.hidden = [use for call in found for use in module.subroutines.get(call.name, ())]
        """What subroutines that it calls read and assign."""
        self.early: list[Use] = []
        """Reads before an assignment of its own."""
        self.assigned: dict[str, str] = {}
        """Name -> `=` or `<=`."""
        for use in found:
            if use.how != "read":
                self.assigned[use.name] = use.how
            elif use.name not in module.subroutines and self.assigned.get(use.name) != "=":
                self.early.append(use)
        self.assigned |= {use.name: use.how for use in self.hidden if use.how != "read"}
        self.reads = {use.name for use in (*self.early, *self.hidden)}


class _Module:
    def __init__(self, module: Node, is_inner: bool) -> None:
        self.of: dict[str, list[Node]] = defaultdict(list)
        for node in walk(module):
            self.of[name_of(node)].append(node)
        declared = [(node.name.rawText, name_of(node.parent)) for node in self.of["Declarator"]]
        self.signals = {name for name, kind in declared if kind in _SIGNALS}
        self.subroutines: dict[str, list[Use]] = {}
        for node in (*self.of["FunctionDeclaration"], *self.of["TaskDeclaration"]):
            own = {one.name.rawText for one in walk(node) if name_of(one) == "Declarator"}
            outer = self.signals - own
            self.subroutines[_plain(node.prototype.name)] = [use for use in uses(node) if use.name in outer]
        connected = (use.name for node in self.of["HierarchyInstantiation"] for use in uses(node))
        ports = (name for name, kind in declared if is_inner and kind in _PORTS)
        self.elsewhere = {*connected, *ports}
        """Names that other modules may read."""

    def unseen(self) -> dict[str, str]:
        found: dict[str, str] = {}
        wires = [_Process(node, self) for kind in ("ContinuousAssign", "NetDeclaration") for node in self.of[kind]]
        for process in wires:
            found |= _insensitive(process, {use.name for use in process.early})
        clocked: dict[_Process, set[str]] = {}
        for node in (one for kind in _ALWAYS for one in self.of[kind]):
            edges, listed, process = self._always(node)
            if edges:
                clocked[process] = edges
                continue
            wires.append(process)
            is_comb = name_of(node) == "AlwaysCombBlock"
            for use in process.early:
                if process.assigned.get(use.name) == "=" or (is_comb and use.name in process.assigned):
                    found["order"] = f"`{use.text}`, which a process reads before it assigns it"
            visible = listed or {use.name for use in process.early}
            if not is_comb:
                found |= _insensitive(process, visible)
                found |= {} if visible else {"trigger": "a process that nothing triggers"}
        for node in (*self.of["InitialBlock"], *self.of["DataDeclaration"]):
            process = _Process(node, self)
            for use in process.early:
                if use.name not in process.assigned:
                    found["initial"] = f"`{use.text}`, which is read once at the start"
            if process.assigned and name_of(node.parent) in _BLOCKS and "automatic" not in _plain(node):
                found["static"] = f"`{node.declarators[0].name.rawText}`, which is set once at the start"
        return found | self._races(clocked, wires)

    def _always(self, node: Node) -> tuple[set[str], set[str], _Process]:
        """(names whose edges trigger it, all of its sensitivity list, the process)."""
        body = node.statement
        if name_of(body) != "TimingControlStatement":
            return set(), set(), _Process(body, self)
        events = [one for one in walk(body.timingControl) if name_of(one) == "SignalEventExpression"]
        listed = {_plain(one.expr) for one in events}
        if name_of(body.timingControl) == "EventControl":
            listed.add(_plain(body.timingControl)[1:])
        return {_plain(one.expr) for one in events if one.edge.rawText}, listed, _Process(body.statement, self)

    def _races(self, clocked: dict[_Process, set[str]], wires: list[_Process]) -> dict[str, str]:
        """Between clocked processes, by blocking assignments and by clocks that registers drive."""
        found: dict[str, str] = {}
        registers = {name for process in clocked for name, how in process.assigned.items() if how == "<="}
        for process, edges in clocked.items():
            for clock in edges & registers - process.reads:
                found["clock"] = f"`{clock}`, a clock that a register drives"
            moved = {name for name, how in process.assigned.items() if how == "="}
            for _ in wires:
                moved |= {name for wire in wires if wire.reads & moved for name in wire.assigned}
            others = (other.reads for other in clocked if other is not process)
            for name in moved & self.elsewhere.union(*others):
                found["race"] = f"a blocking assignment that changes `{name}` while other processes read it"
        return found


def _insensitive(process: _Process, visible: set[str]) -> dict[str, str]:
    """The first signal that a process reads and that does not start it."""
    for use in (*process.early, *process.hidden):
        is_own = process.assigned.get(use.name) == "="
        if use.how == "read" and not is_own and not {use.name, use.text} & visible:
            return {"sensitivity": f"a process that is not sensitive to `{use.text}`"}
    return {}
