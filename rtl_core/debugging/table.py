"""A window of waves as a table for the terminal: a row for each signal, a column for each time."""

from __future__ import annotations

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
    shown = waves.times[: failed + _AFTER + 1]
    label = max((len(signal.name) for signal in waves.signals), default=0) + 16
    cells = {
        time: max(len(_time(waves, time)) + 2, *(len(_hex(s.at(time))) for s in waves.signals), 1)
        + 2
        for time in shown
    }
    while len(shown) > _AFTER + 2 and label + sum(cells[time] for time in shown) > width:
        shown = shown[1:]
    table = Table(box=box.SIMPLE_HEAD, title_justify="left", title=f"{waves.scope}, times in ns")
    table.add_column("signal", no_wrap=True)
    for time in shown:
        here = time == waves.failed_at
        head, style = (
            Text(f"{'▼ ' if here else ''}{_time(waves, time)}"),
            "bold red" if here else "",
        )
        table.add_column(head, justify="right", no_wrap=True, style=style)
    for signal in waves.signals:
        name = Text.assemble(
            visible(signal.name), (f" {signal.direction or ''} {signal.width}", "dim")
        )
        table.add_row(name, *(_hex(signal.at(time)) for time in shown))
        if any(signal.expected_at(time) not in ("", signal.at(time)) for time in shown):
            table.add_row(
                Text("  expected", style="green"),
                *(_hex(signal.expected_at(time)) for time in shown),
                style="green",
            )
    return table


def _time(waves: Waves, time: int) -> str:
    return f"{time * waves.step_s * 1e9:.12g}"


def _hex(bits: str) -> str:
    return bits if len(bits) == 1 else hexadecimal(bits)[2:]


def hexadecimal(bits: str) -> str:
    """Bits (`01xz`) as 0x...; a digit with an unknown bit is x, one with only z is z."""
    padded = bits.rjust(-(-len(bits) // 4) * 4, "0" if bits[:1] in "01" else bits[:1])
    digits = []
    for i in range(0, len(padded), 4):
        part = padded[i : i + 4]
        digits.append(
            "z" if part == "zzzz" else "x" if set(part) & {"x", "z"} else f"{int(part, 2):x}"
        )
    return "0x" + "".join(digits)
