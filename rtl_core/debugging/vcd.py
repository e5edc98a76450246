"""Reads the VCD files that Icarus writes (IEEE 1364-2005, 18.2): scopes, scalars and vectors, changes of value.

Not read: real numbers, strings and events. A file may end anywhere, since its simulator may have been stopped.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

_UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9, "ps": 12, "fs": 15}
_TIMESCALE = re.compile(r"(\d+)\s*([munpf]?s)")
_SKIPPED = frozenset({"real", "realtime", "event", "string"})

Changes = tuple[tuple[int, str], ...]
"""(time, value) in order of time; a value is as many of `01xz` as the signal has bits, the highest first."""


@dataclass(frozen=True)
class Variable:
    """A signal as the file declares it; several in different scopes may be one net and share `code`."""

    name: str
    width: int
    code: str


@dataclass
class Dump:
    """A whole file."""

    step_s: float = 1e-12
    """Seconds of one unit of time."""
    end: int = 0
    """The last time in the file."""
    scopes: dict[str, dict[str, Variable]] = field(default_factory=dict)
    """Path of a scope, `tb.dut` -> its variables by name."""
    codes: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def changes(self, variable: Variable) -> Changes:
        """All values of a variable; of several at one time the last."""
        fill = {"0": "0", "1": "0", "x": "x", "z": "z"}
        at = dict(self.codes.get(variable.code, ()))
        return tuple((time, value.rjust(variable.width, fill.get(value[0], "x"))) for time, value in at.items())


def read_vcd(text: str) -> Dump:
    """Reads a file, empty where its head is not whole: a simulator that is killed early has written nothing."""
    head, found, body = text.partition("\n$enddefinitions")  # at a line's start: within one it may be part of a name
    if not found:
        return Dump()
    dump = Dump()
    if scale := _TIMESCALE.search(head.partition("$timescale")[2]):
        dump.step_s = int(scale[1]) / 10 ** _UNITS[scale[2]]
    path: list[str] = []
    words = iter(head.split())
    for word in words:
        if word == "$scope":
            _kind, name = next(words), next(words)
            path.append(name)
        elif word == "$upscope":
            path.pop()
        elif word == "$var":
            kind, width, code, name = (next(words) for _ in range(4))
            if kind not in _SKIPPED:
                dump.scopes.setdefault(".".join(path), {})[name] = Variable(name, int(width), code)
    _read_changes(dump, body)
    return dump


def _read_changes(dump: Dump, body: str) -> None:
    codes: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    time = 0
    # The last line may be cut off.
    for line in body[: body.rfind("\n") + 1].split("\n"):
        first = line[:1]
        if first == "#":
            time = int(line[1:])
        elif first == "b":
            value, _, code = line[1:].partition(" ")
            codes[code].append((time, value))
        elif first in ("0", "1", "x", "z"):
            codes[line[1:]].append((time, first))
    dump.end = time
    dump.codes = codes
