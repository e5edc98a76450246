"""Wrong designs for a starter specification: what a model writes that has half understood it, and what pays a weak bench.

Each has the right interface and compiles. Most are the golden answer inside a wrapper that spoils one thing (an input or
output bit, the reset, one input pattern); others edit its text (one state, one register's reset, saturation), are another
member of the family (a narrower one behind wide ports, another option or reset), or come from the mutation kinds of
`rtl-distill validate`. Some behave like the golden answer after all: that is for `starter_strength` to judge.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rtl_core.problems.starter import Signal, Spec, golden_answer
from rtl_core.problems.starter.catalog import BY_NAME
from rtl_core.problems.starter.record import target_of
from rtl_core.validation.mutants import mutants as edits_of

RARITIES = (2, 4, 6, 8)
"""Bits that an input must match for a design that is wrong for one pattern: once in 4 to once in 256 random inputs."""
STATE_BITS = 8
"""Bits of a register that must match for a design that is wrong in one state, where random data set the state."""
COUNTING = ("counter", "divider", "stretcher", "handshake", "sequence")
EACH = 3
"""How many of each kind that offers many."""


@dataclass(frozen=True)
class Wrong:
    """One wrong design."""

    kind: str
    detail: str
    code: str


def wrong_designs(spec: Spec, seed: int = 0) -> list[Wrong]:
    """All kinds for one specification, texts that differ, the same for the same arguments."""
    maker = _Maker(spec, random.Random(f"{seed}/{spec}"))
    found = {golden_answer(spec): Wrong("", "", "")}
    for wrong in maker.all():
        found.setdefault(wrong.code, wrong)
    return list(found.values())[1:]


class _Maker:
    def __init__(self, spec: Spec, rng: random.Random):
        self.spec, self.rng, self.family = spec, rng, BY_NAME[spec.family]
        self.golden = golden_answer(spec)
        self.header, self.text = self.golden.split("\n", 1)
        signals = self.family.signals(spec)
        self.inputs = [signal for signal in signals if signal.is_input]
        self.outputs = [signal for signal in signals if not signal.is_input]

    def all(self) -> Iterator[Wrong]:
        yield from self.stubs()
        yield from self.ports()
        yield from self.patterns()
        yield from self.relatives()
        if self.family.sequential:
            yield from self.resets()
            yield from self.registers()
        if self.family.parameter(self.spec):
            yield from self.parameters()
        target = target_of(self.spec)
        for mutant in edits_of({target: self.golden}, self.spec.module, 12, self.rng.randrange(1000)):
            yield Wrong(f"edit: {mutant.kind}", mutant.description, mutant.files[target])

    def wrapped(self, connections: dict[str, str], outputs: dict[str, str], extra: str = "", inner: str = "") -> str:
        """The golden answer (or `inner`) with other expressions at some inputs, and outputs made of its `g_` wires."""
        inner = inner or self.golden
        header = self.header.replace("output reg", "output")
        parameter = self.family.parameter(self.spec)
        ports = {signal.name: signal.name for signal in self.family.header(self.spec) if signal.is_input} | connections
        lines = [header, extra] if extra else [header]
        for signal in self.outputs:
            lines.append(f"  wire {self.range_of(signal)} g_{signal.name};")
            ports[signal.name] = f"g_{signal.name}"
            lines.append(f"  assign {signal.name} = {outputs.get(signal.name, f'g_{signal.name}')};")
        binding = f"#(.{parameter}({parameter})) " if parameter else ""
        lines.append(f"  inner {binding}g ({', '.join(f'.{name}({value})' for name, value in ports.items())});")
        return "\n".join([*lines, "endmodule", inner.replace(f"module {self.spec.module}", "module inner", 1)])

    def range_of(self, signal: Signal) -> str:
        match = re.search(rf"(\[[^\]]*\]) {re.escape(signal.name)}\b", self.header)
        return match[1] if match else ""

    def stubs(self) -> Iterator[Wrong]:
        header = self.header.replace("output reg", "output")
        values = {"zeros": "0", "ones": "~0", "input": self.inputs[0].name}
        if self.family.sequential:
            values["clock"] = f"{{16{{{self.spec.clock}}}}}"
        for name, value in values.items():
            assigned = "".join(f"  assign {signal.name} = {value};\n" for signal in self.outputs)
            yield Wrong("stub", name, f"{header}\n{assigned}endmodule\n")
        if len(self.outputs) > 1:
            for signal in self.outputs:
                for value in ("0", "~0"):
                    yield Wrong("stub", f"{signal.name} = {value}", self.wrapped({}, {signal.name: value}))

    def ports(self) -> Iterator[Wrong]:
        """Bits of inputs and outputs stuck, swapped, cut off; inputs ignored."""
        for signal in self.outputs:
            wire = f"g_{signal.name}"
            for bit in self.bits(signal):
                for value, text in ((0, f"{wire} & ~(1 << {bit})"), (1, f"{wire} | (1 << {bit})")):
                    yield Wrong(
                        "output bit stuck", f"{signal.name}[{bit}] = {value}", self.wrapped({}, {signal.name: text})
                    )
                if signal.width > 1:
                    other = (bit + 1) % signal.width
                    text = f"{wire} & ~(1 << {bit}) | ({wire}[{other}] << {bit})"
                    yield Wrong("output bit dropped", f"{signal.name}[{bit}]", self.wrapped({}, {signal.name: text}))
        for signal in self.inputs:
            name = signal.name
            for value in ("0", "~0"):
                yield Wrong("input ignored", f"{name} = {value}", self.spoiled(signal, value))
            if signal.width == 1:
                continue
            for bit in self.bits(signal):
                yield Wrong("input bit stuck", f"{name}[{bit}] = 0", self.spoiled(signal, f"{name} & ~(1 << {bit})"))
                yield Wrong("input bit stuck", f"{name}[{bit}] = 1", self.spoiled(signal, f"{name} | (1 << {bit})"))
            low = self.rng.randrange(1, signal.width)
            yield Wrong("low bits only", f"{name}[{low - 1}:0]", self.spoiled(signal, f"{name} & {(1 << low) - 1}"))
            one, two = self.rng.sample(range(signal.width), 2)
            swap = f"{name} ^ ((({name} >> {one}) ^ ({name} >> {two})) & 1) * {(1 << one) | (1 << two)}"
            yield Wrong("input bits swapped", f"{name}[{one}], [{two}]", self.spoiled(signal, swap))
            yield Wrong("input off by one", name, self.spoiled(signal, f"{name} + 1"))

    def spoiled(self, signal: Signal, value: str) -> str:
        extra = f"  wire {self.range_of(signal)} s_{signal.name} = {value};"
        return self.wrapped({signal.name: f"s_{signal.name}"}, {}, extra)

    def bits(self, signal: Signal) -> list[int]:
        """The outermost bits and some between."""
        some = self.rng.sample(range(signal.width), min(EACH, signal.width))
        return sorted({0, signal.width - 1, *some})

    def patterns(self) -> Iterator[Wrong]:
        """One output bit is wrong while the inputs match one pattern."""
        bits = [
            f"{signal.name}[{bit}]" if signal.width > 1 else signal.name
            for signal in self.inputs
            for bit in range(signal.width)
        ]
        conditions = {}
        for rarity in RARITIES:
            if rarity <= len(bits):
                chosen = self.rng.sample(bits, rarity)
                conditions[f"1 in {1 << rarity}"] = f"{{{', '.join(chosen)}}} == {self.rng.randrange(1 << rarity)}"
        words = [signal.name for signal in self.inputs if signal.width > 1]
        for name in words:
            conditions |= {f"{name} is 0": f"{name} == 0", f"{name} is all ones": f"&{name}"}
        if len(words) > 1:
            conditions["equal words"] = f"{words[0]} == {words[1]}"
            conditions["words add up to 0"] = f"{words[0]} == -{words[1]}"
        for name, condition in conditions.items():
            signal = self.rng.choice(self.outputs)
            flipped = f"g_{signal.name} ^ (({condition}) << {self.rng.randrange(signal.width)})"
            yield Wrong("one pattern", name, self.wrapped({}, {signal.name: flipped}))

    def relatives(self) -> Iterator[Wrong]:
        """Other members of the family behind this one's ports: narrower ones, other options."""
        for option in self.family.options:
            other = self.family.code(replace(self.spec, option=option))
            if other.split("\n", 1)[0] == self.header:
                yield Wrong("other option", option, other)
        if self.family.parameter(self.spec) or self.family.widths == (1,):
            return
        for width in sorted({self.spec.width - 1, self.spec.width // 2, min(8, self.spec.width - 1)}):
            if width not in self.family.widths:
                continue
            narrow = replace(self.spec, width=width)
            inner = self.family.code(narrow)
            sizes = {signal.name: signal.width for signal in self.family.signals(narrow)}
            cut = {s.name: f"{s.name}[{sizes[s.name] - 1}:0]" for s in self.inputs if 1 < s.width != sizes[s.name]}
            for extended, sign in (("zeros", "1'b0"), ("its top bit", "{name}[{top}]")):
                outputs = {
                    s.name: f"{{{{{s.width - sizes[s.name]}{{{sign.format(name=f'g_{s.name}', top=sizes[s.name] - 1)}}}}}, "
                    f"g_{s.name}[{sizes[s.name] - 1}:0]}}"
                    for s in self.outputs
                    if s.width > sizes[s.name] > 1
                }
                if extended == "zeros" or outputs:
                    detail = f"{width} bits, extended with {extended}"
                    yield Wrong("narrower inside", detail, self.wrapped(cut, outputs, inner=inner))

    def resets(self) -> Iterator[Wrong]:
        """The clock's edge, the reset's polarity, kind and time."""
        spec = self.spec
        for field in ("active_low", "asynchronous"):
            yield Wrong("reset", f"other {field}", self.family.code(replace(spec, **{field: not getattr(spec, field)})))
        yield Wrong("clock", "falling edge", self.golden.replace(f"posedge {spec.clock}", f"negedge {spec.clock}"))
        yield Wrong("clock", "both edges", self.golden.replace(f"posedge {spec.clock}", spec.clock, 1))
        on = f"!{spec.reset}" if spec.active_low else spec.reset
        flop = f"  wire on = {on};\n  reg was; always @(posedge {spec.clock}) was <= on;"
        single = next((signal.name for signal in self.inputs if signal.width == 1), f"{self.inputs[0].name}[0]")
        times = {
            "one edge late": "was",
            "lasts one edge longer": "on | was",
            "needs two edges": "on & was",
            f"not while {single}": f"on & !{single}",
            f"only while {single}": f"on & {single}",
        }
        if spec.asynchronous:  # a synchronous one would race with the clock
            times |= {"not at a high clock": f"on & !{spec.clock}", "only at a high clock": f"on & {spec.clock}"}
        for name, active in times.items():
            value = f"!({active})" if spec.active_low else active
            yield Wrong("reset", name, self.wrapped({spec.reset: value}, {}, flop))
        for signal in self.outputs:
            late = f"  reg {self.range_of(signal)} late; always @(posedge {spec.clock}) late <= g_{signal.name};"
            yield Wrong("output a cycle late", signal.name, self.wrapped({}, {signal.name: "late"}, late))

    def registers(self) -> Iterator[Wrong]:
        """Registers that are not wholly cleared, one state that is left wrongly, saturation instead of wrapping."""
        cleared = list(dict.fromkeys(re.findall(r"(\w+) <= 0;", self.text.split("else", 1)[0])))
        for name in cleared:
            bits = self.bits_of(name)
            start = f"\n  initial {name} = 0;\nendmodule"
            for bit in sorted({0, bits - 1, self.rng.randrange(bits)}):
                code = self.golden.replace(f"{name} <= 0;", f"{name} <= {name} & (1 << {bit});", 1)
                yield Wrong("reset", f"{name}[{bit}] stays", code.replace("endmodule", start))
            # Random data meet one state of 2^16 too seldom to ask for it; what counts meets every state.
            low = bits if self.spec.family in COUNTING else min(bits, STATE_BITS)
            for match in list(re.finditer(rf"\b{name} <= ((?!0;)[^;]+);", self.text))[:2]:
                for state in sorted({self.rng.randrange(1 << low) for _ in range(EACH)} | {(1 << low) - 1}):
                    at = f"({name} & {(1 << low) - 1}) == {state}"
                    for kind, other in (("stays", name), ("skips", f"({match[1]}) + 1"), ("falls to 0", "0")):
                        code = self.golden.replace(match[0], f"{name} <= {at} ? {other} : {match[1]};", 1)
                        yield Wrong("one state", f"{name} {kind} at {state}, {low} bits", code)
        if self.spec.family in ("counter", "accumulator"):
            name = cleared[0]
            top = (1 << self.spec.width) - 1
            amount = "1" if self.spec.family == "counter" else self.inputs[1].name
            if self.spec.option == "down":
                old, new = f"{name} - 1", f"({name} == 0 ? 0 : {name} - 1)"
            else:
                old, new = f"{name} + {amount}", f"({name} > {top} - {amount} ? {top} : {name} + {amount})"
            yield Wrong("saturates", name, self.golden.replace(old, new))

    def bits_of(self, register: str) -> int:
        match = re.search(rf"reg (?:\[(\d+):0\] )?(?:\w+, )*{register}\b", self.golden)
        return int(match[1]) + 1 if match and match[1] else 1

    def parameters(self) -> Iterator[Wrong]:
        """The module parameter has no effect, or only on the ports."""
        parameter, default = self.family.parameter(self.spec), self.spec.width
        fixed = self.header.split("(", 2)
        ports = re.sub(rf"\b{parameter}\b", str(default), fixed[2])
        yield Wrong("parameter ignored", "ports", "\n".join([f"{fixed[0]}({fixed[1]}({ports}", self.text]))
        for signal in self.inputs:
            cut = f"{signal.name} & {(1 << default) - 1}"
            yield Wrong("parameter ignored", f"only {default} bits of {signal.name}", self.spoiled(signal, cut))
        for signal in self.outputs:
            cut = f"g_{signal.name} & {(1 << signal.width) - 1}"
            yield Wrong(
                "parameter ignored", f"only {signal.width} bits of {signal.name}", self.wrapped({}, {signal.name: cut})
            )
            short = f"g_{signal.name} << 0 & ~(1 << ({parameter} - 1))"
            yield Wrong("parameter ignored", f"bit {parameter} - 1 lost", self.wrapped({}, {signal.name: short}))
