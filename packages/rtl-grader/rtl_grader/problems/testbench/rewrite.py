"""Rewrite a published test bench so that the simulated design can neither forge its verdict nor stop or influence it.

- The verdict is printed to a file that only the bench opens; the simulator's output decides nothing.
- A `$finish` or `$stop` of the bench first writes a mark to that file.
- Random numbers come from the bench's own seeds, with the published values.
- No waves are dumped.
- If errors count, `$error`, `$fatal` and failing assertions of the bench write a mark to that file, too.
- At the end it tells if each output of the design kept one value, or had no known one.
- Modules, instances, tasks, functions and named blocks get a suffix that `run_bench.py` replaces by a word
  that no answer can contain, so both sides may use the same names.

Nothing else changes. Expansions of the bench's macros are not covered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from rtl_grader.hdl.text import HIDDEN, code_of, macros_of
from rtl_grader.hdl.tree import (
    Edit,
    Node,
    SourceTree,
    children,
    is_token,
    name_of,
    tokens,
    walk,
)
from rtl_grader.problems.testbench.names import (
    INSTANCE,
    NAMED,
    escapes,
    names_outside,
    own_names,
    shared_names,
)

WORD = "RTLWORD"
"""Placeholder in the rewritten text for the word that each run derives from its design."""
ENDED = "the test bench ended the simulation"
"""The mark in the verdict file."""
FAULT = "the test bench reported an error"
"""The mark of an error in the verdict file."""
VERDICT_FILE = "verdict"
_WATCH = (
    "reg [1023:0] last_RTLWORD; reg seen_RTLWORD = 0, moved_RTLWORD = 0; "
    "always @(OUTPUTS) begin #0; if (^OUTPUTS !== 1'bx) begin "
    "moved_RTLWORD = moved_RTLWORD | (seen_RTLWORD & last_RTLWORD !== OUTPUTS); "
    "last_RTLWORD = OUTPUTS; seen_RTLWORD = 1; end end "
    'final if (!moved_RTLWORD) $fdisplay(CHANNEL, "no output of the design changed its value"); '
)
"""On one line, so that line numbers stay. After `#0` the outputs have settled."""
_LINKS = (NAMED, "OrderedPortConnection")
_TASK = re.compile(r"\$([A-Za-z_][\w$]*)")
_TIMESCALE = re.compile(r"`(?:timescale[ \t]+([^\n]*)|resetall\b)")
_PRINTS = re.compile(r"\$(display|write|strobe|monitor)[bho]?")
_ENDING = re.compile(r"\$(?:finish|finish_and_return|stop)")
_FAULTS = re.compile(r"\$(?:error|fatal)")
_COUNTED = re.compile(rf"{_FAULTS.pattern}|\$finish_and_return")
_ASSERTIONS = ("ImmediateAssertStatement", "ImmediateAssumeStatement")
_DUMPING = re.compile(r"\$dump.*")
_LEXEME = re.compile(rf"{HIDDEN.pattern}|[$`]?[A-Za-z_][\w$]*", re.A)
Marker = str | tuple[str, ...]
"""What the string literals of a verdict's printing call contain: a text, or one of these words in lower case."""


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


def prints(text: str, marker: Marker) -> bool:
    """Whether a printing call of a bench has `marker` in a string literal."""
    return any(map(name_of, _verdicts(SourceTree(text), marker)))


def printed(text: str) -> list[str]:
    """The string literals of a bench's printing calls, without quotes."""
    calls = _verdicts(SourceTree(text), "")
    literals = (token for call in calls for token in tokens(call.arguments))
    return [token.rawText[1:-1] for token in literals if name_of(token) == "StringLiteral"]


def has_faults(text: str) -> bool:
    """Whether a bench reports errors by `$error`, `$fatal`, an assertion or an exit code."""
    tree = SourceTree(text)
    if tree.of(*_ASSERTIONS):
        return True
    return any(_statements(tree, _COUNTED))


def rewritten(
    sources: Mapping[str, str],
    *,
    dut: str,
    top: str,
    marker: Marker,
    ports: Sequence[tuple[str, str]] = (),
    errors: bool = False,
) -> Rewritten:
    """Rewrite a bench (name -> text, in compilation order); `dut` and `top` are module names, `ports` a
    right design's (name, direction). With `errors` those of the bench count.

    Raises ValueError when no call outside macros prints `marker` (an empty tuple asks for none), or when
    the verdict comes at the end of a simulation that the bench itself does not end.
    """
    files = (f'`line 1 "{name}" 0\n{text}' for name, text in sources.items())
    whole = "\n".join(files)
    tree = SourceTree(whole)
    outside = names_outside(tree)
    shared = shared_names(tree, outside)
    suffixed = own_names(tree) - {dut} | {top} | shared
    home = f"{top}_{WORD}"
    channel = f"{home}.channel_{WORD}"
    calls = list(_verdicts(tree, marker))
    if not calls and marker != ():
        raise ValueError(f"its test bench never prints {marker!r}")
    ended = not calls or any(map(_at_end, calls))
    if ended and not any(_statements(tree, _ENDING)):
        where = "at the end of a simulation that it does not end itself"
        raise ValueError(f"its test bench prints the verdict {where}")

    def with_suffix(lexeme: re.Match[str]) -> str:
        # Only identifiers get the suffix, not words in comments and strings.
        word = lexeme[0]
        return f"{word}_{WORD}" if word in suffixed else word

    instances = [node for node in tree.of(INSTANCE) if node.type.rawText == dut]
    edits = [
        *_to_channel(tree, calls, channel),
        *_seeded(tree, home),
        *_opened(tree, top),
        *_watched(tree, instances, ports, channel),
        *_preceded(_statements(tree, _ENDING), channel, ENDED),
        *(_with_faults(tree, channel) if errors else ()),
        *_without_waves(tree),
        *escapes(tree, outside, shared),
    ]
    body = _LEXEME.sub(with_suffix, tree.edited(edits))
    endings = [f"`undef {name}" for name in macros_of(whole)]
    text = "\n".join([body, *endings, ""])
    links = [node for instance in instances for node in walk(instance)]
    return Rewritten(
        text=text,
        top=home,
        ended=ended,
        tasks=_tasks(text, tree),
        timescale=_timescale(whole),
        overridden=_overridden(links, tree),
        connected=_connected({name_of(node) for node in links}),
    )


def _verdicts(tree: SourceTree, marker: Marker) -> Iterator[Node]:
    """Yield printing calls with the marker in a string literal, except those from macros."""
    for node in tree.of("InvocationExpression"):
        if node.arguments is None or not _PRINTS.fullmatch(_called(node)):
            continue
        for token in tokens(node.arguments):
            if name_of(token) == "StringLiteral" and _has(token.rawText, marker):
                if tree.span(node):
                    yield node
                break


def _has(literal: str, marker: Marker) -> bool:
    if isinstance(marker, str):
        return marker in literal
    return any(word in literal.lower() for word in marker)


def _to_channel(tree: SourceTree, calls: Iterable[Node], channel: str) -> Iterator[Edit]:
    for call in calls:
        name = call.left.systemIdentifier
        base = name.rawText.removeprefix("$")
        yield Edit(*_span(tree, name), f"$f{base}")
        _, opening = _span(tree, call.arguments.openParen)
        yield _inserted(opening, f"{channel}, ")


def _with_faults(tree: SourceTree, channel: str) -> Iterator[Edit]:
    """Write a mark before each `$error` and `$fatal`, and where an assertion fails."""
    mark = f' else $fdisplay({channel}, "{FAULT}");'
    spans = list(_statements(tree, _FAULTS))
    for node in tree.of(*_ASSERTIONS):
        action = node.action
        if action.elseClause:
            spans.append(_span(tree, action.elseClause.clause))
            continue
        start, end = _span(tree, action.statement)
        is_empty = name_of(action.statement) == "EmptyStatement"
        yield Edit(start if is_empty else end, end, mark)
    yield from _preceded(spans, channel, FAULT)


def _preceded(spans: Iterable[tuple[int, int]], channel: str, mark: str) -> Iterator[Edit]:
    """Write a mark before statements, in one block because a statement may belong to an `if`."""
    for start, end in spans:
        yield _inserted(start, f'begin $fdisplay({channel}, "{mark}"); ')
        yield _inserted(end, " end")


def _without_waves(tree: SourceTree) -> Iterator[Edit]:
    """Remove dump calls: nobody reads the waves, and the calls take time to compile."""
    return (Edit(start, end, ";") for start, end in _statements(tree, _DUMPING))


def _seeded(tree: SourceTree, home: str) -> Iterator[Edit]:
    """Draw random numbers from a variable of the bench, with the initial value of the simulator's shared generator."""
    for system in tree.of("SystemName"):
        name = system.systemIdentifier.rawText
        if name not in ("$random", "$urandom", "$urandom_range"):
            continue
        is_call = name_of(system.parent) == "InvocationExpression"
        node = system.parent if is_call else system
        if not tree.span(node):
            continue
        arguments = _arguments(tree, node) if is_call else []
        variable = "seed" if name == "$random" else "useed"
        seed = f"{home}.{variable}_{WORD}"
        if name == "$urandom_range" and arguments:
            first, second = (f"({argument})" for argument in (*arguments, "0")[:2])
            low = f"({first} < {second} ? {first} : {second})"
            high = f"({first} > {second} ? {first} : {second})"
            text = f"$unsigned($dist_uniform({seed}, {low}, {high}))"
            yield Edit(*_span(tree, node), text)
        elif not arguments:
            yield Edit(*_span(tree, node), f"{name}({seed})")


def _opened(tree: SourceTree, top: str) -> Iterator[Edit]:
    """Declare the file and the seeds after the top module's header, on the same line."""
    if node := tree.module(top):
        _, end = _span(tree, node.header.semi)
        file = f'integer channel_{WORD} = $fopen("{VERDICT_FILE}", "w");'
        seeds = f"integer seed_{WORD} = 0; integer useed_{WORD} = 0;"
        yield _inserted(end, f" {file} {seeds}")


def _watched(
    tree: SourceTree, instances: Sequence[Node], ports: Sequence[tuple[str, str]], channel: str
) -> Iterator[Edit]:
    """Watch what the outputs of the only instance of the design are connected to, at the end of its module."""
    members = [node for node in instances if name_of(node.parent) == "ModuleDeclaration"]
    if len(members) != 1:
        return
    directions, outputs = dict(ports), []
    links = [node for node in walk(members[0]) if name_of(node) in _LINKS]
    in_order = chain(directions, repeat(""))
    for link, name in zip(links, in_order, strict=False):
        if name_of(link) == NAMED:
            name = link.name.rawText
        if directions.get(name) != "output":
            continue
        if link.expr:
            outputs.append(tree.text(link.expr))
        elif not link.openParen.rawText:
            outputs.append(name)
    if outputs and all(outputs) and "input" in directions.values():
        end, _ = _span(tree, members[0].parent.endmodule)
        joined = ", ".join(outputs)
        watch = _WATCH.replace("OUTPUTS", f"{{{joined}}}")
        yield _inserted(end, watch.replace("CHANNEL", channel))


def _tasks(text: str, tree: SourceTree) -> tuple[str, ...]:
    names = set(_TASK.findall(code_of(text)))
    if tree.of("ProceduralForceStatement", "ProceduralReleaseStatement"):
        names.add("force")
    return tuple(sorted(names))


def _timescale(text: str) -> str:
    scales = _TIMESCALE.findall(code_of(text))
    return scales[-1].strip() if scales else ""


def _overridden(links: Iterable[Node], tree: SourceTree) -> tuple[str, ...]:
    names = ["*"] if tree.of("DefParam") else []
    for node in links:
        kind = name_of(node)
        if kind == "NamedParamAssignment":
            names.append(node.name.rawText)
        elif kind == "OrderedParamAssignment":
            names.append("*")
    return tuple(dict.fromkeys(names))


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
    if call.arguments is None:
        return []
    texts = [tree.text(child) for child in children(call.arguments) if not is_token(child)]
    return list(filter(None, texts))


def _at_end(node: Node) -> bool:
    """Whether a node is in a `final` block."""
    while node is not None and name_of(node) != "FinalBlock":
        node = node.parent
    return node is not None


def _inserted(at: int, text: str) -> Edit:
    return Edit(at, at, text)


def _span(tree: SourceTree, node: Node) -> tuple[int, int]:
    span = tree.span(node)
    if span is None:
        raise ValueError("a macro of its test bench hides what must be rewritten")
    return span
