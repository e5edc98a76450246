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
    failure: str
    """What the failing check says; empty without one."""
    left_out: int


def draw(waves: Waves) -> Drawing:
    """The window of a failing check with its signals, and expected values where the bench has them."""
    times = sorted({waves.begin, waves.end, waves.failed_at, *waves.times})
    step = max(LEAST, ROOM / len(times))

    def across(time: float) -> float:
        index = bisect_right(times, time) - 1
        return round(NAMES + step * max(0, index), 1)

    right = NAMES + step * len(times)
    wrong = waves.check.signal if waves.check else None
    failure = waves.check.seen or waves.check.words[:90] if waves.check else ""
    tracks: list[Track] = []
    for signal in waves.signals[:MOST_SIGNALS]:
        width = "" if signal.width == 1 else f" [{signal.width - 1}:0]"
        own = Track(signal.name + width, signal.direction or "", 0.0, signal.name == wrong)
        rows = [(own, signal.changes)]
        if signal.expected:
            words = "from the bench's reference design"
            rows.append((Track(f"{signal.name} expected", words, 0.0, False), signal.expected))
        for track, changes in rows:
            track.y = HEAD + ROW * len(tracks)
            starts = [across(time) for time, _ in changes]
            values = [value for _, value in changes]
            spans = list(zip(starts, [*starts[1:], right], values, strict=True))
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
        failure,
        max(0, len(waves.signals) - MOST_SIGNALS),
    )


def _line(spans: list[tuple[float, float, str]], y: float) -> str:
    levels = {"1": y + 7, "0": y + ROW - 7}
    points = []
    for x, end, value in spans:
        level = levels.get(value, y + ROW / 2)
        points.append(f"{x},{level} {end},{level}")
    return " ".join(points)


def _piece(x: float, end: float, bits: str, name: str) -> Piece:
    number = hexadecimal(bits)
    short = number[2:].lstrip("0") or "0"
    room = (end - x - 3) / _LETTER
    texts = (bits, number, short, f"…{short[-3:]}")
    text = next((text for text in texts if len(text) < room), "")
    width = round(end - x, 1)
    return Piece(x, width, text, f"{name} = {bits} ({number})", unknown=bool({*bits} & {*"xz"}))


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if value >= size:
            return f"{value / size:.6g} {unit}"
    return f"{value / 1e-12:.6g} ps"
