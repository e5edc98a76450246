"""The module that compares two encoded designs, in SystemVerilog. Runs in the sandbox, see `prover.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template

Ports = Sequence[tuple[str, int]]
"""(name, bits) of each."""


class _Text(Template):
    """A part of a module with words such as `@name`; a dollar sign begins Verilog's own names."""

    delimiter = "@"


_SEEN = _Text("""\
  reg @range before = 0, rose = 0, fell = 0; reg on = 0, seen = 0;
  wire @range hold = {@count{on & (@acts)}};
  always @@($global_clock) begin before <= @clocks; on <= @acts;
    rose <= rose | (hold & ~before & @clocks); fell <= fell | (hold & before & ~@clocks);
    seen <= seen | (&rose & &fell);
  end
""")
_SEEN_AT_ONCE = _Text("""\
  reg seen = 0;
  always @@($global_clock) seen <= seen | @acts;
""")
_MITER = _Text("""\
module miter (input @range in, output bad);
@golden
@other
@seen
  assign bad = seen & (@wrong);
endmodule
""")
_COVERED = _Text("""\
module covered (input @range in, output every);
@golden
@seen
  reg @bits known = 0;
  wire @bits now = seen ? known | ~{@unknown} : known;
  always @@($global_clock) known <= now;
  assign every = &(now | @idle);
endmodule
""")
_WRONG = "|(~g{0}x & (o{0}x | (g{0}d ^ o{0}d)))"


def miter(
    inputs: Ports,
    outputs: Ports,
    resets: Sequence[tuple[str, bool]],
    clocks: Sequence[str],
    idle: Mapping[str, str],
) -> str:
    """Two modules: `miter` outputs whether the designs differ, `covered` whether every output bit of the
    golden one that is not `idle` (see `Netlist.idle`) has been 0 or 1.

    The inputs form one vector, in the order of `inputs`, with the first in the lowest bits. `resets`:
    (name, whether it is active low).
    """
    size, place = 0, dict[str, str]()
    for name, bits in inputs:
        place[name] = f"in[{size + bits - 1}:{size}]"
        size += bits
    acts = []
    for name, low in resets:
        if name in place:
            acts.append(f"~{place[name]}" if low else place[name])
    ticks = [place[name] for name in clocks if name in place]
    words = {
        "range": _range(max(size, 1)),
        "golden": _instance("golden", "g", place, outputs),
        "seen": _seen(" | ".join(acts), ticks),
    }
    numbers = range(len(outputs))
    both = _MITER.substitute(
        words,
        other=_instance("other", "o", place, outputs),
        wrong=" | ".join(map(_WRONG.format, numbers)),
    )
    whole = sum(bits for _, bits in outputs)
    mask = "".join(idle[name] for name, _ in outputs)
    covered = _COVERED.substitute(
        words,
        bits=_range(whole),
        unknown=", ".join(f"g{at}x" for at in numbers),
        idle=f"{whole}'b{mask}",
    )
    return both + covered


def _range(bits: int) -> str:
    return f"[{bits - 1}:0]"


def _instance(module: str, side: str, place: Mapping[str, str], outputs: Ports) -> str:
    """One of the designs, whose outputs are the wires `g0d` (value) and `g0x` (whether it is X), ..."""
    lines = []
    wires = [f".\\{name} ({where})" for name, where in place.items()]
    for at, (name, bits) in enumerate(outputs):
        wire = f"{side}{at}"
        lines.append(f"  wire {_range(bits)} {wire}d, {wire}x;")
        wires.append(f".\\{name}_d ({wire}d)")
        wires.append(f".\\{name}_x ({wire}x)")
    ports = ", ".join(wires)
    lines.append(f"  {module} {side} ({ports});")
    return "\n".join(lines)


def _seen(acts: str, ticks: list[str]) -> str:
    """The signal `seen`: a reset has been active for a whole cycle; before that registers may have any value.

    If a step is any change of the inputs, a cycle is a rising and a falling edge of each clock (`ticks`).
    """
    if not acts:
        return "  wire seen = 1;"
    if not ticks:
        return _SEEN_AT_ONCE.substitute(acts=acts)
    clocks = f"{{{', '.join(ticks)}}}"
    return _SEEN.substitute(
        range=_range(len(ticks)), count=len(ticks), acts=acts, clocks=clocks
    )
