"""Constructs of a design that a proof does not see as a simulator does: the proof's front end ignores or
completes them.

Delays and waits; values of time or chance; sensitivity lists that lack a signal; variables that are read
before they are assigned; races between processes; strengths, switches and primitives; real numbers; Z, and
X that is compared; names from outside the design. A nonblocking assignment after a short constant delay is
not one of them: its value is there when a clock cycle ends.

Patterns are matched in preprocessed text with a space between all tokens; names are compared within a module.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Set

from rtl_grader.hdl.directives import decided, differences, macros_in_use
from rtl_grader.hdl.tree import Node, SourceTree, find, name_of, tokens, walk
from rtl_grader.traces.races import RACE

Words = dict[str, str]
_WORD = re.compile(
    r" (wait|iff|casex|pull(?:up|down)|tri(?:0|1|and|or|reg)|w(?:and|or)"
    r"|(?:strong|weak|pull|highz)[01]|small|medium|large|primitive"
    r"|(?:short)?real|(?:buf|not)if[01]|r?(?:[npc]mos|tran(?:if[01])?)"
    r"|[\d.]+[munpf]?s|\$(?:s?time|realtime|u?random\w*|(?:test|value)\$plusargs)|(?!always)\S+ @|always(?! @)) "
)
_CLEARED = re.compile(
    r" \(\* .*?\*\)(?= )|(?<= )\\(?=[A-Za-z_]\w* )| \"\S*|(?<= begin) : \S+| time(?:unit|precision) [^;]*(?= ;)"
    r"| \$(?:bits|size|left|right|high|low) \( [^()]* \)"
    r"| \$(?:display|write|strobe|monitor|error|info|warning|fatal|readmem)\w*[^;]*(?= ;)"
)
"""Attributes, strings, labels, units of time, backslashes of plain names, and calls whose arguments do not matter."""
_DELAYS = ("DelayControl", "Delay3", "CycleDelay")
_SHORT = re.compile(r"(?:\d|10)(?:\.\d+)?")
"""Units of at most a nanosecond that surely pass within a clock cycle."""
_COARSE = re.compile(r"(?:`timescale|\btimeunit)\s+(?:10+\s*ns|10*\s*[um]?s)\b")
_PATH = re.compile(r" (?!genblk)([A-Za-z_]\w*) (?:\[ \S+ \] )?\. \w+")
_PROCESS = re.compile(
    r"Always\w+|InitialBlock|ContinuousAssign|(?:Data|Net|Function|Task)Declaration|HierarchyInstantiation"
)
_CONTROL = re.compile(r" always\w* @ ?(\*|\( [^()]*(?:\([^()]*\)[^()]*)*\)|\S+)")
_USE = re.compile(
    r"(?<! \.)(?:(?<=[;:)])|(?<=begin)|(?<=else)|(?P<inner>)) (?P<name>[A-Za-z_\\]\S*)"
    r"(?=(?P<select>(?: \[ [^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\])*)"
    r"(?P<parts>(?: ,[^{}=;()]*)? \}(?= <?= ))? (?P<next>\S+))"
)
_ASSIGNS = re.compile(r"[-+*/%&|^]?=|<<<?=|>>>?=|\+\+|--")
_RETURNS_MORE = re.compile(r" (?:output|inout|ref) ")
_ONCE = {
    "FunctionDeclaration": "a subroutine that reads",
    "TaskDeclaration": "a subroutine that reads",
    "InitialBlock": "an initial value of",
    "DataDeclaration": "an initial value of",
}
_LITERALS = ("IntegerVectorExpression", "UnbasedUnsizedLiteralExpression")
_COMPARING = (
    "ParameterDeclaration",
    "CaseEqualityExpression",
    "CaseInequalityExpression",
    "case",
)
_GIVING = (
    "AssignmentExpression",
    "NonblockingAssignmentExpression",
    "NetDeclaration",
    "DataDeclaration",
)
_DIGITS = {
    **dict.fromkeys(_COMPARING, "xz?"),
    **dict.fromkeys((*_GIVING, "ModuleDeclaration"), "z?"),
    "casez": "x",
    "casex": "",
}
"""Where a literal stands -> its digits of which a proof takes another view than a simulator: X only where
it is compared."""
_SOMETIMES = (
    "ConditionalExpression",
    "LogicalAndExpression",
    "LogicalOrExpression",
    "LogicalImplicationExpression",
    "ImmediateAssertStatement",
    "ImmediateAssumeStatement",
    "ImmediateCoverStatement",
    "InvocationExpression",
)
"""Where a simulator may leave out a part, or a proof's front end all of it."""
_CHANGE = re.compile(r"(?!Nonblocking)\w*Assignment\w*Expression|\w+(?:in|de)crementExpression")
_NO_ACTION = frozenset({";", "else", "begin", "end"})
_DECLARES = ("Declarator", "InstanceName", "NamedBlockClause")
_SIGNALS = re.compile(
    r"(?:Data|Net|Port)Declaration|ImplicitAnsiPort|HierarchicalInstance|GenerateBlock"
)


def unseen(text: str) -> Words:
    """Such constructs of a design: kind -> the first name or word. `text` is that of all its files."""
    macros = macros_in_use([text], (), ())
    text = decided(text, macros)
    tree = SourceTree(text)
    code = _spaced(tree.root)
    words = [what for _, what in differences(text, macros)]
    words += _WORD.findall(code)
    constructs = dict.fromkeys(words, "")
    if tree.errors:
        constructs["text that slang cannot read"] = ""
    is_coarse = bool(_COARSE.search(text))
    for delay in tree.of(*_DELAYS):
        if is_coarse or not _passes_at_once(delay, code):
            constructs["a delay of"] = _spaced(delay).strip("# ()")
    constructs |= dict(_effects(tree))
    paths = _PATH.findall(code)
    labels = {label.name.valueText for label in tree.of("NamedBlockClause")}
    for name in {*paths} - labels:
        if code.count(f" {name} ") == paths.count(name):
            constructs["a name from outside,"] = name
    for module in tree.of("ModuleDeclaration"):
        constructs |= dict(_in_module(module))
    return constructs


def _passes_at_once(delay: Node, code: str) -> bool:
    """Whether a value is there when a clock cycle ends, as in `q <= #1 d`."""
    within = delay.parent
    kind = name_of(delay)
    if kind != "DelayControl" or name_of(within) != "TimingControlExpression":
        return False
    if name_of(within.parent) != "NonblockingAssignmentExpression":
        return False
    value = _spaced(delay)
    value = value.strip("# ()")
    values = []
    if value.isidentifier():
        pattern = rf" {value} (?:=|\() ([^,;)]*) [,;)]"
        values = re.findall(pattern, code)
    return all(map(_SHORT.fullmatch, values or [value]))


def _effects(tree: SourceTree) -> Iterator[tuple[str, str]]:
    """Changes of signals that only a simulator makes, or that only a proof makes."""
    for action in tree.of("ActionBlock"):
        words = _spaced(action).split()
        for word in words:
            if word not in _NO_ACTION:
                yield "an action of an assertion,", word
    for node in tree.of(*_SOMETIMES):
        kind = name_of(node)
        if name_of(node.parent) in _SOMETIMES:
            continue
        if kind == "InvocationExpression" and name_of(node.left) != "SystemName":
            continue
        for part in walk(node):
            kind = name_of(part)
            if _CHANGE.fullmatch(kind):
                yield "an assignment within an expression,", _spaced(part).strip()


def _spaced(node: Node) -> str:
    words = [token.rawText for token in tokens(node)]
    text = " ".join(filter(None, words))
    return _CLEARED.sub("", f" {text} ")


def _flow(text: str, signals: set[str]) -> tuple[Words, Words]:
    """Signals that a process reads before it assigns them -> with selects; those that it assigns -> `=` or `<=`."""
    early: Words = {}
    assigned: Words = {}
    ends: dict[str, int] = {}
    for use in _USE.finditer(text):
        name, following = use["name"], use["next"]
        if name not in signals:
            continue
        if following == "<=" and (use["inner"] is None or use["parts"]):
            assigned.setdefault(name, "<=")
            continue
        is_assigned_before = 0 < ends.get(name, 0) < use.end()
        if following != "=" and not is_assigned_before:
            early[name] = name + use["select"]
        if _ASSIGNS.fullmatch(following):
            assigned[name] = "="
            ends.setdefault(name, text.find(";", use.end()))
    return early, assigned


def _stale(process: Node, text: str) -> Iterator[tuple[str, str]]:
    """Variables of a process or function that it reads before it assigns them: a simulator gives the value that they
    had at its end the time before."""
    names = set[str]()
    for declaration in find(process, "DataDeclaration"):
        words = _spaced(declaration)
        if declaration is process or " = " in words:
            continue
        for declarator in find(declaration, "Declarator"):
            names.add(declarator.name.valueText)
        text = text.replace(words, " ; ")
    if not names:
        return
    early, assigned = _flow(f";{text}", names)
    for name in early.keys() & assigned.keys():
        yield "a variable that keeps its value,", name


def _changing(function: Node) -> Iterator[tuple[str, str]]:
    """A function that changes more than its value, if an expression may call it: not every part of one is computed."""
    prototype = function.prototype
    result = _spaced(prototype.returnType)
    if result.strip() != "void":
        name = prototype.name.getLastToken()
        yield "a function that changes signals,", name.rawText


def _place(node: Node) -> str:
    """Where a literal of a module stands, as in `_DIGITS`."""
    while (kind := name_of(node)) not in _DIGITS:
        if kind == "CaseStatement":
            return str(node.caseKeyword.rawText)
        node = node.parent
    return kind


def _in_module(module: Node) -> Iterator[tuple[str, str]]:
    signals = set[str]()
    for node in walk(module):
        if name_of(node) in _DECLARES and _SIGNALS.fullmatch(name_of(node.parent)):
            signals.add(node.name.valueText)
    processes = _Processes(signals)
    for node in walk(module):
        kind = name_of(node)
        if kind in _LITERALS:
            value = _spaced(node).lower()
            if set(value) & set(_DIGITS[_place(node)]):
                yield "a literal", value.strip()
        elif _PROCESS.fullmatch(kind):
            yield from processes.add(kind, node)
    yield from processes.races()


class _Processes:
    """The processes of a module, and what a proof does not see of each and of their order."""

    def __init__(self, signals: set[str]) -> None:
        self._signals = signals
        self._wires: list[tuple[Set[str], Set[str]]] = []
        """(reads, assigned) of each process without a clock."""
        self._clocked: list[tuple[set[str], Words]] = []
        """(assigned with `=`, reads before an assignment) of each process with a clock."""
        self._registers: set[str] = set()
        self._clocks: set[str] = set()

    def add(self, kind: str, node: Node) -> Iterator[tuple[str, str]]:
        """Yield what a proof does not see of a process."""
        text = _spaced(node)
        inner = set[str]()
        for part in walk(node) if kind != "NetDeclaration" else ():
            if name_of(part) == "Declarator":
                inner.add(part.name.valueText)
        control, body = "", text
        if _CONTROL.match(text):
            _, control, body = _CONTROL.split(text, 1)
        early, assigned = _flow(f";{body}", self._signals - inner)
        own = {name for name, how in assigned.items() if how == "="}
        events = set(re.split(" or | , ", control.strip("() *"))) - {""}
        if "edge " in control or kind == "HierarchyInstantiation":
            edges = {event.split()[-1] for event in events}
            reads_its_clock = len(edges) == 1 and edges <= early.keys()
            if "[" in control or reads_its_clock:
                yield "an edge of data,", control.strip()
            self._clocks |= edges - early.keys()
            self._registers |= assigned.keys() - own
            self._clocked.append((own, early))
        elif label := _ONCE.get(kind):
            for name in early.keys() - assigned.keys():
                yield label, name
            if kind in ("FunctionDeclaration", "TaskDeclaration"):
                yield from _stale(node, body)
            changes = assigned or _RETURNS_MORE.search(text)
            if kind == "FunctionDeclaration" and changes:
                yield from _changing(node)
        else:
            self._wires.append((early.keys(), assigned.keys()))
            yield from _stale(node, body)
            if kind == "AlwaysBlock" and not (events or early):
                yield "an empty sensitivity list", ""
            for name, whole in early.items() if "Always" in kind else ():
                if name in own or (events and not {name, whole} & events):
                    yield "a sensitivity list without", name

    def races(self) -> Iterator[tuple[str, str]]:
        """Yield what depends on the order of the processes."""
        for name in self._clocks & self._registers:
            yield "a clock from the register", name
        readers = Counter(name for _, early in self._clocked for name in early)
        follows = defaultdict[str, list[Set[str]]](list)
        for reads, assigned in self._wires:
            for name in reads:
                follows[name].append(assigned)
        for own, early in self._clocked:
            names, waiting = set(own), list(own)
            while waiting:
                for assigned in follows.get(waiting.pop(), ()):
                    waiting += assigned - names
                    names |= assigned
            for name in names:
                if readers[name] > (name in early):
                    yield RACE, name
