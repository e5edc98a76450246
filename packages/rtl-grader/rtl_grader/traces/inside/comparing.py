"""Compares what two designs gave for the same stimuli, bit by bit. Runs in the sandbox and beside the grader;
standard library only.

Where the golden design gives 0 or 1 the other one must give the same. Where it gives X anything is right. Where
it drives nothing (Z) the other one must not either, except on a bit that the golden design never drives.
"""

GROUPS = 8
"""Parts of a trace for which results are counted apart."""


class Comparison:
    """Two traces of one design's outputs; `outputs` are (name, bits), the first in the lowest bits."""

    def __init__(self, golden, other, outputs, first=0):
        self.golden = golden
        self.other = other
        self.first = first
        self.size = sum(bits for _, bits in outputs)
        self.slices = {}
        end = self.size
        for name, bits in outputs:
            self.slices[name] = slice(end - bits, end)
            end -= bits
        self.driven = driven_bits(golden)
        self.wrong: dict = {}
        """(output, group) -> the first step in which the output has another value, or is missing."""
        self.unknown: dict = {}
        """(output, group) -> the first step in which it is X or Z where the golden one is 0 or 1."""
        self.unsure = 0
        """Steps in which outputs are unknown and none is wrong."""
        self._look()

    def group(self, step):
        """Number of the group of a step, from 0."""
        return (step - self.first) * GROUPS // max(1, len(self.golden) - self.first)

    def groups(self):
        """Numbers of all groups that have steps."""
        return sorted({self.group(step) for step in range(self.first, len(self.golden))})

    def _look(self):
        known: dict = {}
        for step in range(self.first, len(self.golden)):
            golden = self.golden[step]
            if step >= len(self.other):
                wrong, unsure = self.slices, ()
            else:
                pair = golden, self.other[step]
                if pair[0] == pair[1]:
                    continue
                if pair not in known:
                    known[pair] = self._differences(*pair)
                wrong, unsure = known[pair]
            self.unsure += bool(unsure) and not wrong
            group = self.group(step)
            for name in wrong:
                self.wrong.setdefault((name, group), step)
            for name in unsure:
                self.unknown.setdefault((name, group), step)

    def _differences(self, golden, other):
        """Names of the outputs that (differ; are unknown where the golden one is not) in a step."""
        wrong, unsure = [], []
        for name, place in self.slices.items():
            kinds = set(zip(golden[place], other[place], self.driven[place], strict=True))
            bad = [pair[:2] for pair in kinds if pair[0] != pair[1] and _counts(pair)]
            if any(pair[1] in b"01" or pair[0] in b"z" for pair in bad):
                wrong.append(name)
            elif bad:
                unsure.append(name)
        return wrong, unsure

    def words(self, name, step):
        """`is 5, golden 3`, for an output in a step."""
        if step >= len(self.other):
            return f"there is none: the simulation ended after {len(self.other)} of {len(self.golden)} inputs"
        place = self.slices[name]
        return (
            f"is {number(self.other[step][place])}, golden {number(self.golden[step][place])}"
        )


def _counts(bits):
    golden, _, driven = bits
    return golden in b"01" or (golden in b"z" and driven)


def driven_bits(lines):
    """For each bit whether it is ever 0, 1 or X."""
    bits = 0
    size = len(lines[0]) if lines else 0
    table = bytes.maketrans(b"01xz", b"1110")
    for line in set(lines):
        bits |= int(line.translate(table), 2)
    return [digit == "1" for digit in format(bits, f"0{size}b")] if size else []


def number(bits):
    """A value in Verilog's form: 8'h1f; in binary where a bit is X or Z."""
    text = bits.decode()
    if len(text) == 1:
        return text
    if set(text) <= {"0", "1"}:
        return f"{len(text)}'h{int(text, 2):0{(len(text) + 3) // 4}x}"
    return f"{len(text)}'b{text}" if len(set(text)) > 1 else f"{len(text)}'b{text[0]}"


def stimulus_words(word, inputs):
    """`a=8'h1f, b=1` for a step's vector of all inputs, (name, bits) each."""
    parts = []
    for name, bits in inputs:
        value = number(format(word & ((1 << bits) - 1), f"0{bits}b").encode())
        parts.append(f"{name}={value}")
        word >>= bits
    return ", ".join(parts)


def weakness(golden, outputs, first):
    """Why a golden trace cannot judge, in words; None if it can."""
    if not outputs:
        return "it has no output"
    if not any(driven_bits(golden)):
        return "it drives nothing"
    steps = golden[first:]
    known = sum(b"0" in line or b"1" in line for line in steps)
    if 20 * known < len(steps):
        return "its outputs are X nearly always"
    return None
