"""Rewrite a published test bench so that the simulated design can neither forge its verdict nor stop or influence it.

- The verdict is printed to a file that only the bench opens; the simulator's output decides nothing.
- A `$finish` or `$stop` of the bench first writes a mark to that file.
- Random numbers come from the bench's own seeds, with the published values.
- No waves are dumped.
- At the end it tells if each output of the design kept one value, or had no known one.
- Modules, instances, tasks, functions and named blocks get a suffix that `run_bench.py` replaces by a word
  that no answer can contain, so both sides may use the same names.

Nothing else changes. Expansions of the bench's macros are not covered.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from rtl_grader.hdl.text import HIDDEN, code_of, macros_of
from rtl_grader.hdl.tree import Edit, Node, SourceTree, children, is_token, name_of, tokens, walk

WORD = "RTLWORD"
"""Placeholder in the rewritten text for the word that each run derives from its design."""
ENDED = "the test bench ended the simulation"
"""The mark in the verdict file."""
VERDICT_FILE = "verdict"
_WATCH = """reg [1023:0] last_RTLWORD; reg seen_RTLWORD = 0, moved_RTLWORD = 0; \
always @(OUTPUTS) begin #0; if (^OUTPUTS !== 1'bx) begin \
moved_RTLWORD = moved_RTLWORD | (seen_RTLWORD & last_RTLWORD !== OUTPUTS); last_RTLWORD = OUTPUTS; seen_RTLWORD = 1; end end \
final if (!moved_RTLWORD) $fdisplay(CHANNEL, "no output of the design changed its value"); """
"""On one line, so that line numbers stay. After `#0` the outputs have settled."""
_LINKS = ("NamedPortConnection", "OrderedPortConnection")
_PRINTS = re.compile(r"\$(display|write|strobe|monitor)[bho]?")
_ENDING = re.compile(r"\$(?:finish|stop)")
_DUMPING = re.compile(r"\$dump.*")
_LEXEME = re.compile(rf"{HIDDEN.pattern}|[$`]?[A-Za-z_][\w$]*", re.A)


@dataclass(frozen=True)
class Rewritten:
    """A rewritten bench, and what its runner must know about it."""

    text: str
    top: str
    """Name of the top module in `text`."""
    ended: bool
    """Whether the verdict is printed at the end of the simulation, which only the bench may then end."""
    tasks: tuple[str, ...]
    """System tasks that `text` calls, without the dollar sign; `force` if it forces or releases."""
    timescale: str
    """Arguments of `` `timescale `` in effect after the bench; empty for the simulator's default."""
    overridden: tuple[str, ...]
    """Parameters of the design that the bench sets; `*` for unnamed ones."""
    connected: str
    """Style of port connections: `named`, `positional` or `wildcard`."""


def prints(text: str, marker: str) -> bool:
    """Whether a printing call of a bench has `marker` in a string literal."""
    return any(True for _ in _verdicts(SourceTree(text), marker))


def rewritten(
    sources: Mapping[str, str],
    *,
    dut: str,
    top: str,
    marker: str,
    ports: Sequence[tuple[str, str]] = (),
) -> Rewritten:
    """Rewrite a bench (name -> text, in compilation order); `dut` and `top` are module names, `ports` a
    right design's (name, direction).

    Raises ValueError when no call outside macros prints `marker`, or when the verdict comes at the end of a
    simulation that the bench itself does not end.
    """
    trees = {name: SourceTree(text) for name, text in sources.items()}
    hidden = _hidden(trees.values()) | {top}
    hidden.discard(dut)
    home = f"{top}_{WORD}"
    channel = f"{home}.channel_{WORD}"
    calls = [call for tree in trees.values() for call in _verdicts(tree, marker)]
    if not calls:
        raise ValueError(f"its test bench never prints {marker!r}")
    ended = any(map(_at_end, calls))
    finishes = [call for tree in trees.values() for call in _statements(tree, _ENDING)]
    parts = []
    for name, tree in trees.items():
        prints = _to_channel(tree, marker, channel)
        more = (*_opened(tree, top), *_watched(tree, dut, ports, channel))
        edited = tree.edited(
            (*prints, *_seeded(tree, home), *more, *_marked(tree, channel), *_without_waves(tree))
        )
        # Only identifiers get the suffix, not words in comments and strings.
        suffixed = _LEXEME.sub(
            lambda match: f"{match[0]}_{WORD}" if match[0] in hidden else match[0], edited
        )
        parts += [f'`line 1 "{name}" 0', suffixed]
    if ended and not finishes:
        raise ValueError(
            "its test bench prints the verdict at the end of a simulation that it does not end itself"
        )
    whole = "\n".join(sources.values())
    linked = [node for instance in _instances(trees.values(), dut) for node in walk(instance)]
    text = "\n".join([*parts, *(f"`undef {name}" for name in macros_of(whole)), ""])
    return Rewritten(
        text=text,
        top=home,
        ended=ended,
        tasks=_tasks(text, trees.values()),
        timescale=_timescale(whole),
        overridden=_overridden(linked, trees.values()),
        connected=_connected({name_of(node) for node in linked}),
    )


def _verdicts(tree: SourceTree, marker: str) -> Iterator[Node]:
    """Yield printing calls with the marker in a string literal, except those from macros."""
    for node in tree.of("InvocationExpression"):
        if name_of(node.left) == "SystemName" and node.arguments is not None:
            printing = _PRINTS.fullmatch(node.left.systemIdentifier.rawText)
            literals = (t.rawText for t in tokens(node.arguments) if name_of(t) == "StringLiteral")
            if printing and any(marker in literal for literal in literals) and tree.span(node):
                yield node


def _to_channel(tree: SourceTree, marker: str, channel: str) -> Iterator[Edit]:
    for call in _verdicts(tree, marker):
        name = call.left.systemIdentifier
        yield Edit(*_span(tree, name), "$f" + name.rawText[1:])
        opening = _span(tree, call.arguments.openParen)
        yield Edit(opening[1], opening[1], f"{channel}, ")


def _marked(tree: SourceTree, channel: str) -> Iterator[Edit]:
    """Write the mark before each `$finish` or `$stop`, in one block because the statement may belong to an `if`."""
    for start, end in _statements(tree, _ENDING):
        yield Edit(start, start, f'begin $fdisplay({channel}, "{ENDED}"); ')
        yield Edit(end, end, " end")


def _without_waves(tree: SourceTree) -> Iterator[Edit]:
    """Remove dump calls: nobody reads the waves, and the calls take time to compile."""
    return (Edit(start, end, ";") for start, end in _statements(tree, _DUMPING))


def _seeded(tree: SourceTree, home: str) -> Iterator[Edit]:
    """Draw random numbers from a variable of the bench, with the initial value of the simulator's shared generator."""
    for system in tree.of("SystemName"):
        name = system.systemIdentifier.rawText
        is_call = name_of(system.parent) == "InvocationExpression"
        node = system.parent if is_call else system
        if name not in ("$random", "$urandom", "$urandom_range") or not tree.span(node):
            continue
        given = _arguments(tree, node) if is_call else []
        seed = f"{home}.{'seed' if name == '$random' else 'useed'}_{WORD}"
        if name == "$urandom_range" and given:
            first, second = (*given, "0")[:2]
            low, high = (f"(({first}) {sign} ({second}) ? ({first}) : ({second}))" for sign in "<>")
            yield Edit(*_span(tree, node), f"$unsigned($dist_uniform({seed}, {low}, {high}))")
        elif not given:
            yield Edit(*_span(tree, node), f"{name}({seed})")


def _opened(tree: SourceTree, top: str) -> Iterator[Edit]:
    """Declare the file and the seeds after the top module's header, on the same line."""
    for node in tree.of("ModuleDeclaration"):
        if node.header.name.rawText == top:
            at = _span(tree, node.header.semi)[1]
            opened = f' integer channel_{WORD} = $fopen("{VERDICT_FILE}", "w");'
            yield Edit(at, at, f"{opened} integer seed_{WORD} = 0; integer useed_{WORD} = 0;")


def _watched(
    tree: SourceTree, dut: str, ports: Sequence[tuple[str, str]], channel: str
) -> Iterator[Edit]:
    """Watch what the outputs of the only instance of the design are connected to, at the end of its module."""
    instances = [
        node for node in _instances([tree], dut) if name_of(node.parent) == "ModuleDeclaration"
    ]
    links = [node for instance in instances for node in walk(instance) if name_of(node) in _LINKS]
    directions, outputs = dict(ports), []
    for link, (ordered, _) in zip(links, chain(ports, repeat(("", ""))), strict=False):
        name = link.name.rawText if name_of(link) == _LINKS[0] else ordered
        if directions.get(name) == "output" and (link.expr or not link.openParen.rawText):
            outputs.append(tree.text(link.expr) if link.expr else name)
    if len(instances) == 1 and outputs and all(outputs) and "input" in directions.values():
        at = _span(tree, instances[0].parent.endmodule)[0]
        yield Edit(
            at,
            at,
            _WATCH.replace("OUTPUTS", f"{{{', '.join(outputs)}}}").replace("CHANNEL", channel),
        )


def _hidden(trees: Collection[SourceTree]) -> set[str]:
    """Names of modules, packages, instances, tasks, functions and named blocks that are not also names of
    ports or parameters."""
    found: set[str] = set()
    ports: set[str] = set()
    for tree in trees:
        units = tree.of(
            "ModuleDeclaration", "InterfaceDeclaration", "ProgramDeclaration", "PackageDeclaration"
        )
        found |= {node.header.name.rawText for node in units}
        found |= {node.name.rawText for node in tree.of("InstanceName", "NamedBlockClause")}
        routines = tree.of("TaskDeclaration", "FunctionDeclaration")
        found |= {node.prototype.name.getLastToken().rawText for node in routines}
        ports |= {
            node.name.rawText for node in tree.of("NamedPortConnection", "NamedParamAssignment")
        }
    return {name for name in found - ports if name.isidentifier()}


def _tasks(text: str, trees: Collection[SourceTree]) -> tuple[str, ...]:
    found = set(re.findall(r"\$([A-Za-z_][\w$]*)", code_of(text)))
    if any(tree.of("ProceduralForceStatement", "ProceduralReleaseStatement") for tree in trees):
        found.add("force")
    return tuple(sorted(found))


def _timescale(text: str) -> str:
    found = re.findall(r"`(?:timescale[ \t]+([^\n]*)|resetall\b)", code_of(text))
    return found[-1].strip() if found else ""


def _instances(trees: Collection[SourceTree], dut: str) -> Iterator[Node]:
    for tree in trees:
        for node in tree.of("HierarchyInstantiation"):
            if node.type.rawText == dut:
                yield node


def _overridden(linked: Iterable[Node], trees: Iterable[SourceTree]) -> tuple[str, ...]:
    found = ["*" for tree in trees if tree.of("DefParam")]
    for node in linked:
        if name_of(node) == "NamedParamAssignment":
            found.append(node.name.rawText)
        elif name_of(node) == "OrderedParamAssignment":
            found.append("*")
    return tuple(dict.fromkeys(found))


def _connected(kinds: set[str]) -> str:
    if "WildcardPortConnection" in kinds:
        return "wildcard"
    return "positional" if "OrderedPortConnection" in kinds else "named"


def _statements(tree: SourceTree, task: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield the spans of the statements that call a system task."""
    for node in tree.of("ExpressionStatement"):
        span = tree.span(node)
        if span and task.fullmatch(_called(node.expr)):
            yield span


def _called(node: Node) -> str:
    """Name of the system task or function that an expression calls, else an empty string."""
    if name_of(node) == "InvocationExpression":
        node = node.left
    return node.systemIdentifier.rawText if name_of(node) == "SystemName" else ""


def _arguments(tree: SourceTree, call: Node) -> list[str]:
    inner = children(call.arguments) if call.arguments is not None else []
    return [tree.text(child) for child in inner if not is_token(child) and tree.text(child)]


def _at_end(node: Node) -> bool:
    """Whether a node is in a `final` block."""
    while node is not None and name_of(node) != "FinalBlock":
        node = node.parent
    return node is not None


def _span(tree: SourceTree, node: Node) -> tuple[int, int]:
    span = tree.span(node)
    if span is None:
        raise ValueError("a macro of its test bench hides what must be rewritten")
    return span
