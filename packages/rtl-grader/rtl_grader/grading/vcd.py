"""Reads time windows of the VCD files that Icarus writes (IEEE 1364-2005, 18.2): scopes, scalars, vectors,
value changes.

Large files are searched as bytes; only the header and the lines around one time are parsed. Real numbers,
strings and events are skipped. A file may be cut off anywhere, since its simulator may have been stopped.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

_UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9, "ps": 12, "fs": 15}
_TIMESCALE = re.compile(r"(\d+)\s*([munpf]?s)")
_SKIPPED = frozenset({"real", "realtime", "event", "string"})
_FILL = {"0": "0", "1": "0", "x": "x", "z": "z"}
_BLOCK = 1 << 16
"""Bytes that are parsed first; four times as many each time they do not contain enough."""

Changes = tuple[tuple[int, str], ...]
"""(time, value) in order of time; a value has one of `01xz` for each bit, the highest first."""


@dataclass(frozen=True)
class Variable:
    """A declared signal. Variables in different scopes that are one net share `code`."""

    name: str
    width: int
    code: str

    def extended(self, value: str) -> str:
        """The value with a character for each bit; a file leaves out leading zeros."""
        return value.rjust(self.width, _FILL.get(value[0], "x"))


@dataclass
class Dump:
    """A VCD file: its parsed header, and its changes as bytes."""

    step_s: float = 1e-12
    """Seconds per time unit."""
    scopes: dict[str, dict[str, Variable]] = field(default_factory=dict)
    """Path of a scope, `tb.dut` -> its variables by name."""
    body: bytes = field(default=b"\n", repr=False)
    """All complete lines of changes."""

    @property
    def end(self) -> int:
        """The last time in the file."""
        return self._time_before(len(self.body))

    def changed(self, variable: Variable) -> bool:
        """Whether the file has a value of a variable."""
        return self._last(variable, len(self.body)) >= 0

    def around(
        self, variables: Collection[Variable], time: int, before: int, after: int
    ) -> dict[str, Changes]:
        """Name of each variable -> its value at the start of a window around `time`, and its changes in the window.

        The window has, if the file does, `before` distinct times with a change up to `time`, and `after` later ones."""
        codes = {variable.code for variable in variables}
        middle = self._behind(time)
        size = _BLOCK
        complete = False
        while not complete:
            start = max(0, self.body.rfind(b"\n#", 0, max(0, middle - size)))
            stop = self._mark(middle + size)
            lines = [line for line in self.lines(start, stop) if line[1] in codes]
            times = {at for at, _, _ in lines}
            earlier = sum(at <= time for at in times)
            complete = not start or earlier > before
            complete &= stop == len(self.body) or len(times) - earlier >= after
            size *= 4
        values: dict[str, dict[int, str]] = {code: {} for code in codes}
        for at, code, value in lines:
            values[code][at] = value
        changes: dict[str, Changes] = {}
        for variable in variables:
            own = {**self._value_before(variable, start), **values[variable.code]}
            changes[variable.name] = tuple((at, variable.extended(own[at])) for at in own)
        return changes

    def lines(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, str, str]]:
        """(time, code, value) of each change between two offsets of the body at line boundaries."""
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
        """The offset after all changes up to `time`."""

        def is_later(place: int) -> bool:
            mark = self._mark(place)
            return mark == len(self.body) or int(self._line(mark)[1:]) > time

        return self._mark(bisect_left(range(len(self.body)), True, key=is_later))

    def _mark(self, place: int) -> int:
        """The offset of the newline in front of the first time from `place` on; the end if there is none."""
        mark = self.body.find(b"\n#", place)
        return mark if mark >= 0 else len(self.body)

    def _time_before(self, place: int) -> int:
        at = self.body.rfind(b"\n#", 0, place)
        if at >= 0:
            return int(self._line(at)[1:])
        return 0

    def _line(self, at: int) -> bytes:
        """The line after the newline at an offset."""
        return self.body[at + 1 : self.body.index(b"\n", at + 1)]

    def _value_before(self, variable: Variable, place: int) -> dict[int, str]:
        """{time: value} of the last change before an offset; empty if there is none."""
        at = self._last(variable, place)
        if at < 0:
            return {}
        line = self._line(at).decode()
        value = line[1:].partition(" ")[0] if line[0] == "b" else line[0]
        return {self._time_before(at): value}

    def _last(self, variable: Variable, place: int) -> int:
        """Offset of the newline in front of the last change before `place`; negative if there is none."""
        code = b"%s\n" % variable.code.encode()
        last = -1
        if variable.width > 1:
            vector = self.body.rfind(b" " + code, 0, place + 1)
            return vector if vector < 0 else self.body.rfind(b"\n", 0, vector)
        for value in b"01xz":
            change = b"\n%c%s" % (value, code)
            last = max(last, self.body.rfind(change, max(last, 0), place + 1))
        return last


def read_vcd(data: bytes) -> Dump:
    """Parse a file. The result is empty if its header is incomplete, as after a simulator was killed early."""
    head, end, body = data.partition(
        b"\n$enddefinitions"
    )  # within a line it may be part of a name
    if not end:
        return Dump()
    complete = body[: body.rfind(b"\n") + 1]  # the last line may be cut off
    dump = Dump(body=complete or b"\n")
    text = head.decode("utf-8", "replace")
    if scale := _TIMESCALE.search(text.partition("$timescale")[2]):
        dump.step_s = int(scale[1]) / 10 ** _UNITS[scale[2]]
    path: list[str] = []
    words = iter(text.split())
    for word in words:
        if word == "$scope":
            next(words)  # its kind
            path.append(next(words))
        elif word == "$upscope":
            path.pop()
        elif word == "$var":
            kind, width, code, name = (next(words) for _ in range(4))
            if kind not in _SKIPPED:
                scope = dump.scopes.setdefault(".".join(path), {})
                scope[name] = Variable(name, int(width), code)
    return dump
