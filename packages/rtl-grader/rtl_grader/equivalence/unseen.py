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
from collections.abc import Iterator

from rtl_grader.hdl.directives import decided, differences, macros_in_use
from rtl_grader.hdl.tree import Node, SourceTree, name_of, tokens, walk

_WORD = re.compile(
    r" (wait|iff|casex|pull(?:up|down)|tri(?:0|1|and|or|reg)|w(?:and|or)|(?:strong|weak|pull|highz)[01]|small|medium|large"
    r"|primitive|(?:short)?real|(?:buf|not)if[01]|r?(?:[npc]mos|tran(?:if[01])?)"
    r"|[\d.]+[munpf]?s|\$(?:s?time|realtime|u?random\w*|(?:test|value)\$plusargs)|(?!always)\S+ @|always(?! @)) "
)
_CLEARED = re.compile(
    r" \(\* .*?\*\)(?= )|(?<= )\\(?=[A-Za-z_]\w* )| \"\S*|(?<= begin) : \S+| time(?:unit|precision) [^;]*(?= ;)"
    r"| \$(?:bits|size|left|right|high|low) \( \S+ \)"
    r"| \$(?:display|write|strobe|monitor|error|info|warning|fatal|readmem)\w*[^;]*(?= ;)"
)
"""Attributes, strings, labels, units of time, backslashes of plain names, and calls whose arguments do not matter."""
_DELAY = re.compile(
    r" ((?:assign|always|initial|forever|begin|else|fork|wire|x?n?or|n?and|not|buf\w*|notif\d|[^\w\s\\]\S*)(?= # \()"
    r"|\S+(?= # [^(]))( # (?:\( )?)(\S+)( \))?"
)
"""Not the parameters of an instance."""
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
_ONCE = {
    "FunctionDeclaration": "a subroutine that reads",
    "TaskDeclaration": "a subroutine that reads",
    "InitialBlock": "an initial value of",
    "DataDeclaration": "an initial value of",
}
_LITERALS = ("IntegerVectorExpression", "UnbasedUnsizedLiteralExpression")
_COMPARING = ("ParameterDeclaration", "CaseEqualityExpression", "CaseInequalityExpression", "case")
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
_DECLARES = ("Declarator", "InstanceName", "NamedBlockClause")
_SIGNALS = re.compile(
    r"(?:Data|Net|Port)Declaration|ImplicitAnsiPort|HierarchicalInstance|GenerateBlock"
)


def unseen(text: str) -> dict[str, str]:
    """Such constructs of a design: kind -> the first name or word. `text` is that of all its files."""
    macros = macros_in_use([text], (), ())
    text = decided(text, macros)
    tree = SourceTree(text)
    code = _spaced(tree.root)
    found = dict.fromkeys(
        [*(what for _, what in differences(text, macros)), *_WORD.findall(code)], ""
    )
    if tree.errors:
        found["text that slang cannot read"] = ""
    for before, opened, value, closed in _DELAY.findall(code):
        values = re.findall(rf" {re.escape(value)} (?:=|\() ([^,;)]*) [,;)]", code) or [value]
        is_usual = before + opened + closed in ("<= # ", "<= # (  )")
        if not is_usual or not all(map(_SHORT.fullmatch, values)) or _COARSE.search(text):
            found["a delay of"] = value
    paths = _PATH.findall(code)
    for name in {*paths} - {label.name.valueText for label in tree.of("NamedBlockClause")}:
        if code.count(f" {name} ") == paths.count(name):
            found["a name from outside,"] = name
    for module in tree.of("ModuleDeclaration"):
        found |= dict(_in_module(module))
    return found


def _spaced(node: Node) -> str:
    return _CLEARED.sub(
        "", f" {' '.join(token.rawText for token in tokens(node) if token.rawText)} "
    )


def _flow(text: str, signals: set[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Signals that a process reads before it assigns them -> with selects; those that it assigns -> `=` or `<=`."""
    early, assigned, ends = dict[str, str](), dict[str, str](), dict[str, int]()
    for use in _USE.finditer(text):
        name, following = use["name"], use["next"]
        if name not in signals:
            continue
        if following == "<=" and (use["inner"] is None or use["parts"]):
            assigned.setdefault(name, "<=")
            continue
        if following != "=" and not 0 < ends.get(name, 0) < use.end():
            early[name] = name + use["select"]
        if _ASSIGNS.fullmatch(following):
            assigned[name] = "="
            ends.setdefault(name, text.find(";", use.end()))
    return early, assigned


def _place(node: Node) -> str:
    """Where a literal of a module stands, as in `_DIGITS`."""
    while (kind := name_of(node)) not in _DIGITS:
        if kind == "CaseStatement":
            return str(node.caseKeyword.rawText)
        node = node.parent
    return kind


def _in_module(module: Node) -> Iterator[tuple[str, str]]:
    nodes = [(name_of(node), node) for node in walk(module)]
    declared = [
        (name_of(node.parent), node.name.valueText) for kind, node in nodes if kind in _DECLARES
    ]
    signals = {name for kind, name in declared if _SIGNALS.fullmatch(kind)}
    wires, clocked, registers, clocks = [], [], set[str](), set[str]()
    for kind, node in nodes:
        if kind in _LITERALS and set(value := _spaced(node).lower()) & set(_DIGITS[_place(node)]):
            yield "a literal", value.strip()
        if not _PROCESS.fullmatch(kind):
            continue
        text, inner = _spaced(node), set[str]()
        if kind != "NetDeclaration":
            inner = {one.name.valueText for one in walk(node) if name_of(one) == "Declarator"}
        _, control, body = _CONTROL.split(text, 1) if _CONTROL.match(text) else ("", "", text)
        early, assigned = _flow(f";{body}", signals - inner)
        own = {name for name, how in assigned.items() if how == "="}
        events = set(re.split(" or | , ", control.strip("() *"))) - {""}
        if "edge " in control or kind == "HierarchyInstantiation":
            edges = {event.split()[-1] for event in events}
            if "[" in control or (len(edges) == 1 and edges <= early.keys()):
                yield "an edge of data,", control.strip()
            clocks |= edges - early.keys()
            registers |= assigned.keys() - own
            clocked.append((own, early))
        elif label := _ONCE.get(kind):
            yield from ((label, name) for name in early.keys() - assigned.keys())
        else:
            wires.append((early.keys(), assigned.keys()))
            if kind == "AlwaysBlock" and not (events or early):
                yield "an empty sensitivity list", ""
            for name, whole in early.items() if "Always" in kind else ():
                if name in own or (events and not {name, whole} & events):
                    yield "a sensitivity list without", name
    yield from (("a clock from the register", name) for name in clocks & registers)
    for names, early in clocked:
        for _ in wires:
            names = names.union(*(assigned for read, assigned in wires if read & names))
        others = set[str]().union(*(reads for _, reads in clocked if reads is not early))
        yield from (("a race of", name) for name in names & others)
