"""Reads windows of the VCD files that Icarus writes (IEEE 1364-2005, 18.2): scopes, scalars and vectors, changes of value.

Of a file of many megabytes only the head and the lines around one time are taken apart; the rest is searched as bytes. Not read:
real numbers, strings and events. A file may end anywhere, since its simulator may have been stopped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

_UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9, "ps": 12, "fs": 15}
_TIMESCALE = re.compile(r"(\d+)\s*([munpf]?s)")
_SKIPPED = frozenset({"real", "realtime", "event", "string"})
_FILL = {"0": "0", "1": "0", "x": "x", "z": "z"}
_BLOCK = 1 << 16
"""Bytes that are taken apart first; four times as many each time they do not hold enough."""

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
    """A file: its head taken apart, its changes as bytes."""

    step_s: float = 1e-12
    """Seconds of one unit of time."""
    scopes: dict[str, dict[str, Variable]] = field(default_factory=dict)
    """Path of a scope, `tb.dut` -> its variables by name."""
    body: bytes = field(default=b"\n", repr=False)
    """All whole lines of changes."""

    @property
    def end(self) -> int:
        """The last time in the file."""
        return self._time_before(len(self.body))

    def changed(self, variable: Variable) -> bool:
        """Whether the file has any value of a variable."""
        return self._last(variable, len(self.body)) is not None

    def around(self, variables: Collection[Variable], time: int, before: int, after: int) -> dict[str, Changes]:
        """Name of each variable -> its changes around a time: at least `before` moments at which one of them changes up to that time,
        and `after` behind it, or as many as there are. What stands at the begin comes first."""
        codes = {variable.code for variable in variables}
        middle = self._behind(time)
        start, stop, size = middle, middle, _BLOCK
        while start and len({at for at, code, _ in self.lines(start, middle) if code in codes}) <= before:
            start, size = max(0, self.body.rfind(b"\n#", 0, max(0, middle - size))), size * 4
        size = _BLOCK
        while stop < len(self.body) and len({at for at, code, _ in self.lines(middle, stop) if code in codes}) < after:
            found = self.body.find(b"\n#", middle + size)
            stop, size = len(self.body) if found < 0 else found, size * 4
        values: dict[str, dict[int, str]] = {code: {} for code in codes}
        for at, code, value in self.lines(start, stop):
            if code in codes:
                values[code][at] = value
        return {
            one.name: tuple(_padded(one, {**self._standing(one, start), **values[one.code]}).items())
            for one in variables
        }

    def lines(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, str, str]]:
        """(time, code, value) of each change between two places of the body that lie between lines."""
        time = self._time_before(start)
        for line in self.body[start:stop].decode("utf-8", "replace").split("\n"):
            first = line[:1]
            if first == "#":
                time = int(line[1:])
            elif first == "b":
                value, _, code = line[1:].partition(" ")
                yield time, code, value
            elif first in _FILL:
                yield time, line[1:], first

    def _behind(self, time: int) -> int:
        """The place behind all that stands at `time` or before."""
        low, high = 0, len(self.body)  # all before `low` is at `time` or before
        while low < high:
            middle = self.body.find(b"\n#", (low + high) // 2, high)
            if middle < 0:
                middle = self.body.find(b"\n#", low, high)
            if middle < 0:
                return high
            if int(self.body[middle + 2 : self.body.index(b"\n", middle + 1)]) <= time:
                low = middle + 1
            else:
                high = middle
        return high

    def _time_before(self, place: int) -> int:
        at = self.body.rfind(b"\n#", 0, place)
        return int(self.body[at + 2 : self.body.index(b"\n", at + 1)]) if at >= 0 else 0

    def _standing(self, variable: Variable, place: int) -> dict[int, str]:
        """{time: value} of the last change before a place; empty where there is none."""
        at = self._last(variable, place)
        if at is None:
            return {}
        word = self.body[at + 1 : self.body.index(b"\n", at + 1)].decode()
        return {self._time_before(at): word[1:].partition(" ")[0] if word[0] == "b" else word[0]}

    def _last(self, variable: Variable, place: int) -> int | None:
        """Where the line of the last change before a place begins, at the end of the line before it."""
        code, last = b"%s\n" % variable.code.encode(), -1
        if variable.width > 1:
            vector = self.body.rfind(b" " + code, 0, place + 1)
            return self.body.rfind(b"\n", 0, vector) if vector >= 0 else None
        for value in b"01xz":
            last = max(last, self.body.rfind(b"\n%c%s" % (value, code), max(last, 0), place + 1))
        return last if last >= 0 else None


def _padded(variable: Variable, values: dict[int, str]) -> dict[int, str]:
    return {at: value.rjust(variable.width, _FILL.get(value[0], "x")) for at, value in values.items()}


def read_vcd(data: bytes) -> Dump:
    """Reads a file, empty where its head is not whole: a simulator that is killed early has written nothing."""
    head, found, body = data.partition(b"\n$enddefinitions")  # at a line's start: within one it may be part of a name
    if not found:
        return Dump()
    # The last line may be cut off.
    dump, text = Dump(body=body[: body.rfind(b"\n") + 1] or b"\n"), head.decode("utf-8", "replace")
    if scale := _TIMESCALE.search(text.partition("$timescale")[2]):
        dump.step_s = int(scale[1]) / 10 ** _UNITS[scale[2]]
    path: list[str] = []
    words = iter(text.split())
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
    return dump
