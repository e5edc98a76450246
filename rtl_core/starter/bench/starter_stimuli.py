"""What the starter benches drive: vectors for combinational designs, phases of clock cycles for clocked ones.

Plain functions over a `random.Random` and the widths of the inputs in header order; nothing here knows the simulator.
"""

import itertools

EXHAUSTIVE_BITS = 11
VECTORS = 2048
PHASES = 24
PHASE_CYCLES = 64
RESET_RATE = 0.06
HIGH_CHANGE_RATE = 0.1
LEVELS = (0.03, 0.2, 0.5, 0.8, 0.97)


def word(random, width):
    """A word that is uniform in two of three cases, else one-hot, one-cold, a corner case, or with zeros at one end."""
    value, style = random.getrandbits(width), random.getrandbits(4)
    if style < 11:
        return value
    top = (1 << width) - 1
    if style == 11:
        return 1 << random.randrange(width)
    if style == 12:
        return top ^ (1 << random.randrange(width))
    if style == 13:
        return value >> random.randrange(width)
    if style == 14:
        return value << random.randrange(width) & top
    return random.choice((0, 1, top, top - 1, (top >> 1) + 1, top >> 1))


def related(random, value, width):
    """A word that is close to `value` in a way that arithmetic and comparisons must tell: equal, a neighbour, the
    complement, the two's complement, or one bit apart.
    """
    top = (1 << width) - 1
    style = random.randrange(8)
    if style < 4:
        return value ^ (1 << random.randrange(width))
    return (value, value + random.choice((-1, 1)), ~value, -value)[style - 4] & top


def vectors(random, widths):
    """Input tuples for a combinational design in random order: all of them where they are few, else
    `directed` and random ones.
    """
    if sum(widths) <= EXHAUSTIVE_BITS:
        every = list(itertools.product(*(range(1 << width) for width in widths)))
        random.shuffle(every)
        return every
    chosen = directed(random, widths)
    random.shuffle(chosen)
    while len(chosen) < VECTORS:
        chosen.append(_drawn(random, widths))
    return chosen


def _drawn(random, widths):
    values: list[int] = []
    for width in widths:
        if width == 1:
            values.append(random.getrandbits(1))
        elif values and random.getrandbits(1):
            values.append(related(random, values[-1], width))
        else:
            values.append(word(random, width))
    return tuple(values)


def directed(random, widths):
    """Input tuples for one or two words of one width, with one-bit inputs at random: corner values crossed,
    and for every bit the pairs that hang on that bit alone; for one word every pair of bits and every run
    of ones.
    """
    width = max(widths)
    top = (1 << width) - 1
    pairs: list[tuple[int, ...]]
    if sum(w > 1 for w in widths) == 1:
        words = {
            (value,)
            for bit in range(width)
            for value in (top >> bit, (top << bit) & top, top ^ (1 << bit))
        }
        words |= {
            ((1 << bit) | (1 << other),) for bit in range(width) for other in range(bit + 1)
        }
        pairs = [(0,), *sorted(words)]
    else:
        corners = (0, 1, top, top - 1, top >> 1, (top >> 1) + 1)
        pairs = list(itertools.product(corners, corners))
        for bit in range(width):
            one, some = 1 << bit, random.getrandbits(width)
            for pair in (
                (one, 0),
                (one, top),
                (top ^ one, top),
                (some, some ^ one),
                (top >> bit, 1),
                (one, one),
            ):
                pairs += [pair, pair[::-1]]
    return [_placed(random, widths, pair) for pair in pairs]


def _placed(random, widths, words):
    """The words at the places of the words, a random bit at every other."""
    left = iter(words)
    return tuple(next(left) if width > 1 else random.getrandbits(1) for width in widths)


def cycles(random, widths):
    """(inputs, reset, inputs while the clock is high or None) for each clock cycle of a long run.

    The run is made of phases. In a phase each one-bit input is high with its own probability: first every combination
    of seldom and mostly, so that what fills also empties and what counts also comes to rest, then random ones. Resets
    come in every other phase of the first half, so that deep states are reached as well.
    """
    single = [index for index, width in enumerate(widths) if width == 1]
    sharp = list(itertools.product((0.06, 0.94), repeat=len(single)))[:4]
    for number in range(PHASES):
        high = sharp[number] if number < len(sharp) else random.choices(LEVELS, k=len(single))
        densities = dict(zip(single, high, strict=True))
        keep = random.choice((0, 0, 0, 0.3))
        before = None
        for _ in range(PHASE_CYCLES):
            inputs = before = draw(
                random, widths, densities, before if random.random() < keep else None
            )
            change = (
                draw(random, widths, densities) if random.random() < HIGH_CHANGE_RATE else None
            )
            yield (
                inputs,
                number < PHASES // 2 and number % 2 == 1 and random.random() < RESET_RATE,
                change,
            )


def draw(random, widths, densities, before=None):
    """Random inputs: one-bit inputs are high with the probability at their index in `densities`, words are those of
    `before`, or drawn by `word`, or one in four times `related` to the word to their left.
    """
    values: list[int] = []
    left = None
    for index, width in enumerate(widths):
        if width == 1:
            values.append(int(random.random() < densities[index]))
            continue
        if before:
            left = before[index]
        elif left is None or random.getrandbits(2):
            left = word(random, width)
        else:
            left = related(random, left, width)
        values.append(left)
    return tuple(values)
