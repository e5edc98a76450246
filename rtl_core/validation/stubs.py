"""Stubs: modules with the right interface and no design behind it. A harness that pays one pays for nothing.

Three of them: every output 0, every output 1, every output an input passed through. A stub is made from the source text of
the golden answer (or of the context's version) with the module's body taken out, so that parameters keep their meaning;
without either it is written from the problem's interface.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from rtl_core.problems.problem import Interface, Port, Problem
from rtl_core.problems.tree import Edit, Node, SourceTree, children, name_of, tokens, walk

Stub = Literal["zeros", "ones", "inputs"]
STUBS: tuple[Stub, ...] = get_args(Stub)
STUB_WORDS: dict[Stub, str] = {
    "zeros": "all outputs 0",
    "ones": "all outputs 1",
    "inputs": "inputs passed through to the outputs",
}

CLOCK_LIKE = re.compile(r"(^|_)(clk|clock|ck|mclk|tick)|clk|clock", re.I)
RESET_LIKE = re.compile(r"rst|reset|clr|clear", re.I)
_KEPT = {"PortDeclaration", "ParameterDeclarationStatement", "TypedefDeclaration", "PackageImportDeclaration"}


@dataclass(frozen=True)
class Stubs:
    """The stubs of a problem by name, or why there are none."""

    files: dict[Stub, dict[str, str]]
    """Stub -> answer (path -> text)."""
    reason: str = ""


def stubs(problem: Problem) -> Stubs:
    """The stubs of a problem. Other target files keep their golden or given text; without one they are left out."""
    interface = problem.interface
    if interface is None:
        return Stubs({}, "the interface of the top module is not known")
    outputs = [port for port in interface.ports if port.direction == "output"]
    if not outputs:
        return Stubs({}, f"no output is known of {interface.module}")
    inputs = [port for port in interface.ports if port.direction == "input"]
    targets = [path for path in problem.targets if path.endswith((".v", ".sv"))]
    rest = {path: text for path, text in {**problem.context, **(problem.golden or {})}.items() if path in targets}
    found: dict[Stub, dict[str, str]] = {}
    for stub in STUBS:
        drives = {port.name: _value(stub, port, inputs) for port in outputs}
        for path in targets:
            text = _emptied(rest[path], interface.module, drives) if path in rest else None
            if text is not None:
                found[stub] = {**rest, path: text}
                break
        else:
            if interface.source == "golden" or not targets:
                return Stubs({}, f"no target file holds module {interface.module} in a form that can be emptied")
            if any(port.direction is None for port in interface.ports):
                return Stubs({}, "the direction of a port is not known")
            path = next((p for p in targets if p.rsplit("/", 1)[-1].split(".")[0] == interface.module), targets[0])
            found[stub] = {**rest, path: _written(interface, drives)}
    return Stubs(found)


def _value(stub: Stub, port: Port, inputs: list[Port]) -> str:
    if stub == "zeros" or (stub == "inputs" and not inputs):
        return "0"
    if stub == "ones":
        return "~0"  # as wide as the output it is assigned to
    data = [p for p in inputs if not CLOCK_LIKE.search(p.name) and not RESET_LIKE.search(p.name)] or inputs
    return next((p.name for p in data if p.width == port.width), data[0].name)


def _emptied(text: str, module: str, drives: Mapping[str, str]) -> str | None:
    """`text` with the body of `module` replaced by assignments; None when the module is not there or hides in macros."""
    tree = SourceTree(text)
    for node in walk(tree.root):
        if name_of(node) == "ModuleDeclaration" and node.header.name.rawText == module:
            break
    else:
        return None
    edits: list[Edit] = []
    for port in walk(node.header):
        if name_of(port) in ("ImplicitAnsiPort", "ExplicitAnsiPort"):
            edits += _as_net(tree, port)
    for member in node.members:
        if name_of(member) == "PortDeclaration":
            edits += _as_net(tree, member)
        elif name_of(member) not in _KEPT:
            span = tree.span(member)
            if span is None:
                return None
            edits.append(Edit(*span, ""))
    end = tree.span(node.endmodule)
    if end is None:
        return None
    assigns = "".join(f"  assign {name} = {value};\n" for name, value in drives.items())
    edits.append(Edit(end[0], end[0], "\n" + assigns))
    return tree.edited(tuple(edits))


def _as_net(tree: SourceTree, port: Node) -> list[Edit]:
    """Edits that make an output variable a net without an initial value, so that it can be assigned."""
    header = next((child for child in children(port) if name_of(child).endswith("PortHeader")), None)
    if header is None:
        return []
    words = [token.rawText for token in tokens(header)]
    edits = []
    if "output" in words and "wire" not in words and "var" not in words:
        for token in tokens(header):
            span = tree.span(token) if token.rawText in ("reg", "logic") else None
            if span:
                edits.append(Edit(*span, "wire"))
    for part in walk(port):
        span = tree.span(part) if name_of(part) == "EqualsValueClause" else None
        if span:
            edits.append(Edit(*span, ""))
    return edits


def _written(interface: Interface, drives: Mapping[str, str]) -> str:
    """The stub as a new file, from the interface alone; widths are those of the default parameters."""
    parameters = ", ".join(f"parameter {p.name} = {p.default or 0}" for p in interface.parameters)
    ports = ",\n".join(f"  {p.direction} {p.packed}{p.name}" for p in interface.ports)
    assigns = "".join(f"  assign {name} = {value};\n" for name, value in drives.items())
    return f"module {interface.module}{f' #({parameters})' if parameters else ''} (\n{ports}\n);\n{assigns}endmodule\n"
