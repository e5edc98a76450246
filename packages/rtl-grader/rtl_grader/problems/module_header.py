"""The header of a module, for a specification that does not name the module or its ports."""

from __future__ import annotations

import re
from typing import Literal

from rtl_grader.hdl.text import HIDDEN, WORD
from rtl_grader.hdl.tree import SourceTree, name_of
from rtl_grader.types.problem import Interface

HeaderRule = Literal["missing", "always", "never"]


def with_header(text: str, design: str, interface: Interface, rule: HeaderRule) -> str:
    """A specification with the module's header, if the rule demands it.

    Args:
        design: the golden answer; its module is that of the interface.
        rule: `missing`: only when the text does not name the module and all its ports.
    """
    if rule == "never" or (rule == "missing" and _names_all(text, interface)):
        return text
    header = module_header(design, interface.module)
    return f"{text.rstrip()}\n\nUse this module header:\n\n```verilog\n{header}\n```\n"


def _names_all(text: str, interface: Interface) -> bool:
    names = {interface.module, *(port.name for port in interface.ports)}
    return names <= set(WORD.findall(text))


def module_header(design: str, name: str) -> str:
    """The header of a module without comments: to its first semicolon, and of its body the declarations of
    ports and of the constants that the ports use.

    Raises ValueError when there is no such module.
    """
    tree = SourceTree(HIDDEN.sub(_without_comment, design))
    module = tree.module(name)
    if module is None:
        raise ValueError(f"there is no module {name} to take the header from")
    header = tree.text(module.header)
    lines = [line.rstrip() for line in header.splitlines() if line.strip()]
    members = [(name_of(member), tree.text(member)) for member in module.members]
    ports = [text for kind, text in members if kind == "PortDeclaration"]
    needed = _words("\n".join([header, *ports]))
    constants: list[str] = []
    for kind, text in reversed(members):
        if kind == "ParameterDeclarationStatement" and _words(text) & needed:
            constants.insert(0, text)
            needed |= _words(text)
    for declaration in (*constants, *ports):
        _, _, plain = declaration.rpartition("*)")  # without attributes
        lines.append("  " + " ".join(plain.split()))
    return "\n".join(lines)


def _without_comment(hidden: re.Match[str]) -> str:
    return "" if hidden[0].startswith("/") else hidden[0]


def _words(text: str) -> set[str]:
    return set(WORD.findall(text)) - {"parameter", "localparam"}
