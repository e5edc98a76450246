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


def places(ports):
    """The place of each port, (name, bits), in one vector: name -> (lowest bit, bits)."""
    result = {}
    start = 0
    for name, bits in ports:
        result[name] = start, bits
        start += bits
    return result


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
        total = sum(bits for _, bits in outputs)
        for name, (start, bits) in places(outputs).items():
            end = total - start
            self.slices[name] = slice(end - bits, end)
        most = MOST_RESULTS // max(1, len(outputs))
        self.parts = max(1, min(GROUPS, most))
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
        steps = max(1, len(self.golden) - self.first)
        return (step - self.first) * self.parts // steps

    def groups(self):
        """Numbers of all groups that have steps."""
        steps = range(self.first, len(self.golden))
        if len(steps) >= self.parts:
            return range(self.parts)
        return sorted(set(map(self.group, steps)))

    def look(self):
        """Fill `wrong` and `unknown`."""
        for step in range(self.first, len(self.golden)):
            if step < len(self.other):
                wrong, unsure = self.differences(step, step)
            else:
                wrong, unsure = list(self.slices), []
            self.unsure += bool(unsure) and not wrong
            self.note(step, wrong, unsure)

    def note(self, step, wrong, unsure=()):
        group = self.group(step)
        for name in wrong:
            self.wrong.setdefault((name, group), step)
        for name in unsure:
            self.unknown.setdefault((name, group), step)

    def differences(self, step, other_step):
        """Names of the outputs that (differ; are unknown where the golden one is not) between a step of the
        golden design and one of the other."""
        golden = self.golden[step]
        other = self.other[other_step]
        if golden == other:
            return [], []
        if (golden, other) in self.known:
            return self.known[golden, other]
        wrong, unsure = [], []
        for name, place in self.slices.items():
            bits = zip(golden[place], other[place], self.driven[place], strict=True)
            bad = [bit for bit in set(bits) if _differ(*bit)]
            if any(got in b"01" or good in b"z" for good, got, _ in bad):
                wrong.append(name)
            elif bad:
                unsure.append(name)
        self.known[golden, other] = wrong, unsure
        return wrong, unsure

    def first_differences(self):
        """(output, group) -> (step, what is there in words), where an output is wrong or unknown."""
        steps = dict(self.unknown)
        for place, step in self.wrong.items():
            steps[place] = min(step, steps.get(place, step))
        result = {}
        for place, step in steps.items():
            name, _ = place
            result[place] = step, self.words(name, step)
        return result

    def words(self, name, step):
        """`is 5, golden 3`, for an output in a step."""
        done, planned = len(self.other), len(self.golden)
        if step >= done:
            return f"is missing: the simulation ended after {done} of {planned} inputs"
        return f"is {self.values(name, step, step)}"

    def values(self, name, step, other_step):
        """`5, golden 3`, for an output in a step of the golden design and in one of the other."""
        place = self.slices[name]
        good = number(self.golden[step][place])
        got = number(self.other[other_step][place])
        return f"{got}, golden {good}"


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
        self.count = 0
        """Number of the value that is looked at."""
        super().__init__(golden, other, each["outputs"], each["first"])

    def look(self):
        good = self.queues(self.golden)
        got = self.queues(self.other)
        for (end, expected), (_, actual) in zip_longest(good, got, fillvalue=(0, ())):
            for one, two in zip_longest(expected, actual):
                self.count += 1
                if one and two:
                    self.look_at(one[1], two[1])
                    continue
                cycle, step = one or two
                if cycle + LATENCY <= end:
                    self.note(step, [self.valid])
                    often = "less" if one else "more"
                    text = f"is 1 {often} often than in the golden answer"
                    self.texts.setdefault((self.valid, step), text)
                    break
        self.look_in_resets()

    def look_in_resets(self):
        """A design that marks a value whenever it is reset is wrong, but not one that runs empty in a reset."""
        place = self.slices[self.valid]
        steps = [step for step in self.in_reset() if self.golden[step][place] == b"0"]
        marks = [self.other[step][place] for step in steps]
        if len(marks) >= LEAST_VALUES and b"0" not in marks:
            step = steps[0]
            self.note(step, [self.valid])
            self.texts.setdefault((self.valid, step), "is never 0 in a reset")

    def in_reset(self):
        """The steps in which the clock rises while a reset is active."""
        before = 0
        done = min(len(self.golden), len(self.other))
        for step, word in enumerate(self.stimuli[:done]):
            rises = word & ~before & self.clock
            before = word
            if rises and word & self.active ^ self.idle and step >= self.first:
                yield step

    def look_at(self, step, other_step):
        """Compare a value of the golden design with one of the other."""
        wrong, unsure = self.differences(step, other_step)
        wrong = set(wrong) - {self.valid}
        unsure = set(unsure) - {self.valid}
        self.note(step, wrong, unsure)
        for name in wrong | unsure:
            values = self.values(name, step, other_step)
            text = f"value {self.count} while {self.valid} is 1 is {values}"
            self.texts.setdefault((name, step), text)

    def queues(self, lines):
        """For each time between resets: (its number of cycles, [(cycle, step) of each value])."""
        results: list = []
        values: list = []
        cycle = before = 0
        place = self.slices[self.valid]
        for step, line in enumerate(lines):
            word = self.stimuli[step]
            rises = word & ~before & self.clock
            before = word
            if word & self.active ^ self.idle:
                if cycle:
                    results.append((cycle, values))
                    cycle, values = 0, []
            elif rises and step >= self.first:
                cycle += 1
                is_valid = line[place] == b"1"
                if is_valid:
                    values.append((cycle, step))
        return [*results, (cycle, values)]

    def words(self, name, step):
        return self.texts[name, step]


def controls(each):
    """Masks in the vector of all inputs: (the first clock, all resets, those resets that are active low)."""
    clock = active = idle = 0
    where = places(each["inputs"])
    for name in each["clocks"][:1]:
        clock = 1 << where[name][0]
    for name, low in each["resets"]:
        bit = 1 << where[name][0]
        active |= bit
        if low:
            idle |= bit
    return clock, active, idle


def _differ(golden, other, driven):
    """Whether a bit is not what it must be."""
    if golden == other:
        return False
    return golden in b"01" or (golden in b"z" and driven)


def driven_bits(lines):
    """For each bit whether it is ever 0, 1 or X."""
    if not lines:
        return []
    bits = 0
    table = bytes.maketrans(b"01xz", b"1110")
    for line in set(lines):
        bits |= int(line.translate(table), 2)
    size = len(lines[0])
    return [digit == "1" for digit in format(bits, f"0{size}b")]


def number(bits):
    """A value in Verilog's form, 8'h1f; in binary where a bit is X or Z."""
    text = bits.decode()
    size = len(text)
    kinds = set(text)
    if size == 1:
        return text
    if kinds <= {"0", "1"}:
        digits = (size + 3) // 4
        return f"{size}'h{int(text, 2):0{digits}x}"
    if len(kinds) == 1:
        text = text[0]
    return f"{size}'b{text}"


def assignments(values):
    """`a=1, b=2` for {a: 1, b: 2}."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def with_inputs(difference, step, word, inputs):
    """`DIFFERENCE; after 3 inputs: a=8'h1f, b=1`, for a step and its vector of all inputs, (name, bits) each.

    The inputs are last, since a reason is cut to a length that many of them exceed.
    """
    values = {}
    for name, bits in inputs:
        value = word & ((1 << bits) - 1)
        values[name] = number(format(value, f"0{bits}b").encode())
        word >>= bits
    return f"{difference}; after {step + 1} inputs: {assignments(values) or 'none'}"


def replay_steps(inputs, trace, clocks, clock):
    """The vectors of all inputs for a trace, {input: value} by step.

    `clock` is (the designs' only clock, whether its rising edge counts); then each step of the trace is a cycle,
    of three vectors. Else it is two: registers sample the inputs before the step in which their clock changes.
    """
    where = places(inputs)
    steps = []
    word = 0

    def put(values):
        nonlocal word
        for name in values.keys() & where.keys():
            start, bits = where[name]
            mask = (1 << bits) - 1
            word &= ~(mask << start)
            word |= (values[name] & mask) << start
        steps.append(word)

    for values in trace:
        if clock:
            name, rises = clock
            put({**values, name: int(not rises)})
            put({name: int(rises)})
            put({name: int(not rises)})
        else:
            put({name: values[name] for name in values.keys() & set(clocks)})
            put(values)
    return steps


def weakness(golden, outputs, first):
    """Why nothing can be compared with a golden trace, in words; None if something can."""
    if not outputs:
        return "it has no output"
    if not any(driven_bits(golden)):
        return "it drives nothing"
    steps = golden[first:]
    if 20 * known_steps(steps) < len(steps):
        return "its outputs are X nearly always"
    return None


def known_steps(lines):
    """Number of the lines that have a bit that is 0 or 1."""
    return sum(b"0" in line or b"1" in line for line in lines)
