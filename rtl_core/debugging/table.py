"""A window of waves as a table for the terminal: a row for each signal, a column for each time."""

from __future__ import annotations

import math

from rich import box
from rich.table import Table
from rich.text import Text

from rtl_core.debugging.waves import Waves
from rtl_grader.words import visible

_AFTER = 2
"""Number of times after the failing check that are shown."""


def waves_table(waves: Waves, width: int = 120) -> Table:
    """The times before the failing check and some after it, as many as fit in `width` characters.

    Values are hexadecimal; `x` and `z` are digits with unknown or undriven bits. A signal with another
    value in the bench's reference design is followed by a row `expected`.
    """
    failed = waves.times.index(waves.failed_at)
    times = waves.times[: failed + _AFTER + 1]
    label = max((len(signal.name) for signal in waves.signals), default=0) + 16
    widths = {}
    for time in times:
        values = (len(_hex(signal.at(time))) for signal in waves.signals)
        widths[time] = max(len(_time(waves, time)) + 2, *values, 1) + 2
    total = label + sum(widths.values())
    while len(times) > _AFTER + 2 and total > width:
        first, *times = times
        total -= widths[first]
    table = Table(
        box=box.SIMPLE_HEAD, title_justify="left", title=f"{waves.scope}, times in ns"
    )
    table.add_column("signal", no_wrap=True)
    for time in times:
        mark, style = ("▼ ", "bold red") if time == waves.failed_at else ("", "")
        head = Text(f"{mark}{_time(waves, time)}")
        table.add_column(head, justify="right", no_wrap=True, style=style)
    for signal in waves.signals:
        port = f" {signal.direction or ''} {signal.width}"
        name = Text.assemble(visible(signal.name), (port, "dim"))
        table.add_row(name, *(_hex(signal.at(time)) for time in times))
        if any(signal.expected_at(time) not in ("", signal.at(time)) for time in times):
            expected = (_hex(signal.expected_at(time)) for time in times)
            table.add_row(Text("  expected", style="green"), *expected, style="green")
    return table


def _time(waves: Waves, time: int) -> str:
    return f"{time * waves.step_s * 1e9:.12g}"


def _hex(bits: str) -> str:
    return bits if len(bits) == 1 else hexadecimal(bits)[2:]


def hexadecimal(bits: str) -> str:
    """Bits (`01xz`) as 0x...; a digit with an unknown bit is x, one with only z is z."""
    fill = "0" if bits[:1] in "01" else bits[:1]
    padded = bits.rjust(4 * math.ceil(len(bits) / 4), fill)
    parts = (padded[i : i + 4] for i in range(0, len(padded), 4))
    return "0x" + "".join(map(_digit, parts))


def _digit(bits: str) -> str:
    if bits == "zzzz":
        return "z"
    return "x" if set(bits) & {"x", "z"} else f"{int(bits, 2):x}"
