"""Compares what two designs gave for the same stimuli. Runs in the sandbox and beside the grader; standard library
only.

Bit by bit: where the golden design gives 0 or 1 the other one must give the same. Where it gives X anything is
right. Where it drives nothing (Z) the other one must not either, except on a bit that the golden design never
drives. In order: the same for the values of outputs while an output marks them as valid, whenever they come.
"""

from itertools import zip_longest

GROUPS = 8
"""Parts of a trace for which results are counted apart, fewer for a design with many outputs."""
MOST_RESULTS = 1_000
LATENCY = 64
"""Clock cycles within which a value must come after it came from the other design, or a reset."""
LEAST_VALUES = 8
"""Values that a golden design must mark as valid to judge by them."""


class Comparison:
    """Two traces of one design's outputs, step by step; the first output has the lowest bits of a line.

    `wrong` maps (output, group of steps) to the first step in which the output has another value or is missing,
    `unknown` to the first step in which it is X or Z where the golden one is 0 or 1.
    """

    def __init__(self, golden, other, outputs, first=0):
        self.golden = golden
        self.other = other
        self.first = first
        self.slices = {}
        end = sum(bits for _, bits in outputs)
        for name, bits in outputs:
            self.slices[name] = slice(end - bits, end)
            end -= bits
        self.parts = max(1, min(GROUPS, MOST_RESULTS // max(1, len(outputs))))
        self.wrong: dict = {}
        self.unknown: dict = {}
        self.unsure = 0
        """Steps in which outputs are unknown and none is wrong."""
        self.driven: list = []
        self.known: dict = {}
        if golden != other:
            self.driven = driven_bits(golden)
            self.look()

    def group(self, step):
        """Number of the group of a step, from 0."""
        return (step - self.first) * self.parts // max(1, len(self.golden) - self.first)

    def groups(self):
        """Numbers of all groups that have steps."""
        return sorted(set(map(self.group, range(self.first, len(self.golden)))))

    def look(self):
        """Fill `wrong` and `unknown`."""
        for step in range(self.first, len(self.golden)):
            if step >= len(self.other):
                wrong, unsure = list(self.slices), []
            elif self.golden[step] == self.other[step]:
                continue
            else:
                wrong, unsure = self.differences(self.golden[step], self.other[step])
            self.unsure += bool(unsure) and not wrong
            self.note(step, wrong, unsure)

    def note(self, step, wrong, unsure=()):
        group = self.group(step)
        for name in wrong:
            self.wrong.setdefault((name, group), step)
        for name in unsure:
            self.unknown.setdefault((name, group), step)

    def differences(self, golden, other):
        """Names of the outputs that (differ; are unknown where the golden one is not) between two lines."""
        pair = golden, other
        if pair not in self.known:
            wrong, unsure = [], []
            for name, place in self.slices.items():
                bits = zip(golden[place], other[place], self.driven[place], strict=True)
                bad = {(good, got) for good, got, driven in bits if _differ(good, got, driven)}
                if any(got in b"01" or good in b"z" for good, got in bad):
                    wrong.append(name)
                elif bad:
                    unsure.append(name)
            self.known[pair] = wrong, unsure
        return self.known[pair]

    def first_differences(self):
        """(output, group) -> (step, what is there in words), where an output is wrong or unknown."""
        steps = dict(self.unknown)
        for place, step in self.wrong.items():
            steps[place] = min(step, steps.get(place, step))
        return {place: (step, self.words(place[0], step)) for place, step in steps.items()}

    def words(self, name, step):
        """`is 5, golden 3`, for an output in a step."""
        if step >= len(self.other):
            ended = f"the simulation ended after {len(self.other)} of {len(self.golden)} inputs"
            return f"is missing: {ended}"
        place = self.slices[name]
        return (
            f"is {number(self.other[step][place])}, golden {number(self.golden[step][place])}"
        )


class InOrder(Comparison):
    """The values of outputs in the clock cycles in which `valid` is 1, in order: the first with the first, and so on.

    Between resets; a value of one design may come up to `LATENCY` cycles after the other one's. `each` describes
    the design as `trace.json` does; `stimuli` are its steps.
    """

    def __init__(self, golden, other, each, stimuli, valid):
        self.valid = valid
        self.stimuli = stimuli
        self.clock, self.active, self.idle = controls(each)
        self.texts: dict = {}
        super().__init__(golden, other, each["outputs"], each["first"])

    def look(self):
        good, got = self.queues(self.golden), self.queues(self.other)
        count = 0
        for (end, expected), (_, actual) in zip_longest(good, got, fillvalue=(0, ())):
            for one, two in zip_longest(expected, actual):
                count += 1
                if one and two:
                    wrong, unsure = self.differences(self.golden[one[1]], self.other[two[1]])
                    self.note(one[1], set(wrong) - {self.valid}, set(unsure) - {self.valid})
                    for name in {*wrong, *unsure} - {self.valid}:
                        self.texts.setdefault((name, one[1]), self.value(name, one, two, count))
                elif (one or two)[0] + LATENCY <= end:
                    self.note((one or two)[1], [self.valid])
                    text = f"is 1 {'less' if one else 'more'} often than in the golden answer"
                    self.texts.setdefault((self.valid, (one or two)[1]), text)
                    break

    def queues(self, lines):
        """For each time between resets: (its number of cycles, [(cycle, step) of each value])."""
        results: list = [[0, []]]
        before = 0
        place = self.slices[self.valid]
        for step, line in enumerate(lines):
            word = self.stimuli[step]
            if word & self.active ^ self.idle:
                if results[-1][0]:
                    results.append([0, []])
            elif word & ~before & self.clock and step >= self.first:
                results[-1][0] += 1
                if line[place] == b"1":
                    results[-1][1].append((results[-1][0], step))
            before = word
        return results

    def value(self, name, one, two, count):
        place = self.slices[name]
        good, got = self.golden[one[1]][place], self.other[two[1]][place]
        return f"value {count} while {self.valid} is 1 is {number(got)}, golden {number(good)}"

    def words(self, name, step):
        return self.texts[name, step]


def controls(each):
    """Masks in the vector of all inputs: (the first clock, all resets, those resets that are active low)."""
    clock = active = idle = start = 0
    resets = dict(each["resets"])
    for name, bits in each["inputs"]:
        if name in each["clocks"][:1]:
            clock = 1 << start
        if name in resets:
            active |= 1 << start
            idle |= resets[name] << start
        start += bits
    return clock, active, idle


def _differ(golden, other, driven):
    """Whether a bit is not what it must be."""
    return golden != other and (golden in b"01" or (golden in b"z" and driven))


def driven_bits(lines):
    """For each bit whether it is ever 0, 1 or X."""
    bits = 0
    size = len(lines[0]) if lines else 0
    table = bytes.maketrans(b"01xz", b"1110")
    for line in set(lines):
        bits |= int(line.translate(table), 2)
    return [digit == "1" for digit in format(bits, f"0{size}b")] if size else []


def number(bits):
    """A value in Verilog's form, 8'h1f; in binary where a bit is X or Z."""
    text = bits.decode()
    if len(text) == 1:
        return text
    if set(text) <= {"0", "1"}:
        digits = (len(text) + 3) // 4
        return f"{len(text)}'h{int(text, 2):0{digits}x}"
    return f"{len(text)}'b{text if len(set(text)) > 1 else text[0]}"


def stimulus_words(word, inputs):
    """`a=8'h1f, b=1` for a step's vector of all inputs, (name, bits) each."""
    parts = []
    for name, bits in inputs:
        value = format(word & ((1 << bits) - 1), f"0{bits}b")
        parts.append(f"{name}={number(value.encode())}")
        word >>= bits
    return ", ".join(parts)


def replay_steps(inputs, trace, clocks, clock):
    """The vectors of all inputs for a trace, {input: value} by step.

    `clock` is (the designs' only clock, whether its rising edge counts); then each step of the trace is a cycle,
    of three vectors. Else it is two: registers sample the inputs before the step in which their clock changes.
    """
    names = {name for name, _ in inputs}
    now = dict.fromkeys(names, 0)
    steps = []

    def put(values):
        now.update((name, value) for name, value in values.items() if name in names)
        word = start = 0
        for name, bits in inputs:
            word |= (now[name] & ((1 << bits) - 1)) << start
            start += bits
        steps.append(word)

    for values in trace:
        if clock:
            name, rises = clock
            put({**values, name: int(not rises)})
            put({name: int(rises)})
            put({name: int(not rises)})
        else:
            put({name: value for name, value in values.items() if name in clocks})
            put(values)
    return steps


def weakness(golden, outputs, first):
    """Why nothing can be compared with a golden trace, in words; None if something can."""
    if not outputs:
        return "it has no output"
    if not any(driven_bits(golden)):
        return "it drives nothing"
    steps = golden[first:]
    known = sum(b"0" in line or b"1" in line for line in steps)
    if 20 * known < len(steps):
        return "its outputs are X nearly always"
    return None
