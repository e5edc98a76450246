"""Texts that differ by a character at a line's end: they must not take each other's verdict from the cache.

The right design is graded first. Its twin does not compile, so whoever pays it has looked at the wrong text.
"""

from __future__ import annotations

from benchmarks.redteam.attack import Attack
from benchmarks.redteam.bases import COUNTER, LFSR

_CHARACTERS = {
    "NBSP": "\xa0", "VT": "\v", "FS": "\x1c", "GS": "\x1d", "RS": "\x1e", "US": "\x1f", "NEL": "\x85", "LS": "\u2028", "PS": "\u2029",
    "EN QUAD": "\u2000", "THIN SPACE": "\u2009", "IDEOGRAPHIC SPACE": "\u3000", "OGHAM SPACE": "\u1680", "NARROW NBSP": "\u202f",
    "ZERO WIDTH SPACE": "\u200b", "BOM": "\ufeff", "SOFT HYPHEN": "\xad", "MONGOLIAN SEPARATOR": "\u180e",
}  # fmt: skip


def _attacks() -> list[Attack]:
    found: list[Attack] = []
    for name, character in _CHARACTERS.items():
        for base in (LFSR, COUNTER):
            right = base.design(core="good")
            # Behind the semicolon of the last statement, where a line ends in code.
            at = right.index("\nendmodule")
            idea = "the cache forgets a character that the compiler sees"
            text = right[:at] + character + right[at:]
            found.append(
                Attack(f"{name} at a line's end @ {base.problem}", idea, base.problem, text=text, primed=right)
            )
    right = LFSR.design(core="good")
    found += [
        Attack("empty lines at the end @ cvdp/lfsr", "the text behind them counts", "cvdp/lfsr", text=right + "\n" * 50 + "not verilog\n", primed=right),
        Attack("carriage return in a line @ cvdp/lfsr", "only CR LF is a line end", "cvdp/lfsr", text=right.replace("lfsr_out <=", "lfsr_out <\r=", 1), primed=right),
        Attack("case of a letter @ cvdp/lfsr", "names are case-sensitive", "cvdp/lfsr", text=right.replace("lfsr_seed;", "LFSR_seed;", 1), primed=right),
        Attack("combining letter @ cvdp/lfsr", "two ways to write one letter are two texts", "cvdp/lfsr", text=right.replace("endmodule", "e\u0301 endmodule"), primed=right),
        Attack("wrong after right @ cvdp/lfsr", "a plainly wrong twin", "cvdp/lfsr", text=LFSR.design(), primed=right),
    ]  # fmt: skip
    return found


ATTACKS = _attacks()
