"""The header of a module, for a specification that does not name the module or its ports."""

from __future__ import annotations

import re
from typing import Literal

from rtl_grader.hdl.text import HIDDEN, WORD, code_of, modules
from rtl_grader.types.problem import Interface

HeaderRule = Literal["missing", "always", "never"]
_SUBROUTINE = re.compile(r"\b(function|task)\b.*?\bend\1\b", re.S)
_PORTS = re.compile(r"\b(?:input|output|inout)\b[^;]*;")
_CONSTANTS = re.compile(r"\b(?:parameter|localparam)\b[^;]*;")
_DIRECTION = re.compile(r"\b(?:input|output|inout)\b")


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
    text = HIDDEN.sub(lambda hidden: "" if hidden[0].startswith("/") else hidden[0], design)
    code = code_of(text)
    module = next((module for module in modules(code) if module.name == name), None)
    if module is None:
        raise ValueError(f"there is no module {name} to take the header from")
    end = code.index(";", module.start) + 1
    lines = [line.rstrip() for line in text[module.start : end].splitlines() if line.strip()]
    body = _SUBROUTINE.sub(lambda match: " " * len(match[0]), code[end : module.end])
    ports = [] if _DIRECTION.search(module.header) else list(_PORTS.finditer(body))
    needed = set(WORD.findall(" ".join([module.header, *(port[0] for port in ports)])))
    constants: list[re.Match[str]] = []
    for constant in reversed(list(_CONSTANTS.finditer(body))):
        words = set(WORD.findall(constant[0])) - {"parameter", "localparam"}
        if words & needed:
            constants.insert(0, constant)
            needed |= words
    for declaration in (*constants, *ports):
        start, stop = declaration.span()
        lines.append("  " + " ".join(text[end + start : end + stop].split()))
    return "\n".join(lines)
