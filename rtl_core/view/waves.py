"""Lays out the waveform of a failing check for the template that draws it as SVG (page/waves.html).

All intervals between changes have the same width, so that edges stay distinguishable across long idle times.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from rtl_core.debugging.table import hexadecimal
from rtl_core.debugging.waves import Waves

NAMES, ROW, HEAD = 170, 30, 34
"""Pixels: width of the names, height of a signal, height of the header with the failing check."""
LEAST, ROOM = 16, 1090
"""Pixels: minimum width of an interval; total width that the intervals share if that is more."""
_LETTER = 6.4
MOST_SIGNALS = 48


@dataclass(frozen=True)
class Piece:
    """A value of a bus during an interval: a box with its text."""

    x: float
    width: float
    text: str
    words: str
    unknown: bool


@dataclass
class Track:
    """A drawn signal: a line for a single bit, else boxes."""

    name: str
    words: str
    y: float
    wrong: bool
    path: str = ""
    pieces: list[Piece] = field(default_factory=list)


@dataclass
class Drawing:
    """A whole waveform."""

    width: float
    height: float
    moment: float | None
    """Horizontal position of the failing check."""
    ticks: list[tuple[float, str]]
    tracks: list[Track]
    said: str
    left_out: int


def draw(waves: Waves) -> Drawing:
    """The window of a failing check with its signals, and expected values where the bench has them."""
    times = sorted({waves.begin, waves.end, waves.failed_at, *waves.times})
    step = max(LEAST, ROOM / len(times))

    def across(time: float) -> float:
        index = bisect_right(times, time) - 1
        return round(NAMES + step * max(0, index), 1)

    right = NAMES + step * len(times)
    named = waves.check.signal if waves.check else None
    tracks: list[Track] = []
    for signal in waves.signals[:MOST_SIGNALS]:
        width = "" if signal.width == 1 else f" [{signal.width - 1}:0]"
        rows = [(signal.name + width, signal.changes, signal.direction or "", signal.name == named)]
        if signal.expected:
            rows.append(
                (
                    f"{signal.name} expected",
                    signal.expected,
                    "from the bench's reference design",
                    False,
                )
            )
        for name, changes, words, wrong in rows:
            track = Track(name, words, HEAD + ROW * len(tracks), wrong)
            ends = [across(time) for time, _ in changes[1:]] + [right]
            spans = [
                (across(time), end, value) for (time, value), end in zip(changes, ends, strict=True)
            ]
            if signal.width == 1:
                track.path = _line(spans, track.y)
            else:
                track.pieces = [
                    _piece(x, end, value, signal.name) for x, end, value in spans if end > x
                ]
            tracks.append(track)
    every = max(1, len(times) // 8)
    ticks = [(across(time), _seconds(time * waves.step_s)) for time in times[::every]]
    at = None if waves.check is None else across(waves.failed_at)
    return Drawing(
        right + 12,
        HEAD + ROW * len(tracks) + 22,
        at,
        ticks,
        tracks,
        "" if waves.check is None else waves.check.seen or waves.check.words[:90],
        max(0, len(waves.signals) - MOST_SIGNALS),
    )


def _line(spans: list[tuple[float, float, str]], y: float) -> str:
    level = {"1": y + 7, "0": y + ROW - 7}
    return " ".join(
        f"{x},{level.get(value, y + ROW / 2)} {end},{level.get(value, y + ROW / 2)}"
        for x, end, value in spans
    )


def _piece(x: float, end: float, bits: str, name: str) -> Piece:
    number = hexadecimal(bits)
    short = number[2:].lstrip("0") or "0"
    text = next(
        (
            text
            for text in (bits, number, short, f"…{short[-3:]}")
            if len(text) * _LETTER < end - x - 3
        ),
        "",
    )
    return Piece(
        x, round(end - x, 1), text, f"{name} = {bits} ({number})", "x" in bits or "z" in bits
    )


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if value >= size:
            return f"{value / size:.6g} {unit}"
    return f"{value / 1e-12:.6g} ps"
