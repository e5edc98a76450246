"""The hard tier: machines with several states, arithmetic with a parameter, words that wait, an arbiter
that remembers. hard_families.toml says what the design of each model looks like.

Each model is a `Reference` (spec.py); the text behind its docstring becomes a part of the harness.
"""

from __future__ import annotations


def divider(width, option, state, inputs):
    """Counts enabled cycles modulo a number (the width) and marks the last count."""
    step = inputs[0] if option == "up" else -inputs[0]
    return (state + step) % width, (state, int(state == (width - 1 if option == "up" else 0)))


def stretcher(width, option, state, inputs):
    """Its output is high for as many cycles as asked after the last cycle with a high input; width is that number."""
    loads = inputs[0] and (option == "again" or state == 0)
    return (width if loads else max(state - 1, 0)), (int(state != 0),)


def handshake(width, option, state, inputs):
    """Idle until start, busy until stop, then done: for one cycle, or until start falls."""
    start, stop = inputs
    stay = option != "one cycle" and start
    following = (int(start), 1 + stop, 2 if stay else 0)[state]
    return following, (int(state == 1), int(state == 2))


def scaled(width, option, state, inputs):
    """Full-precision unsigned sum, product, or product plus sum, with a parameter for the width of the inputs.

    The parameter's name is the last role; its default is the width.
    """
    a, b = inputs
    return state, ({"sum": a + b, "product": a * b, "square sum": a * a + b}[option],)


def pipeline(width, option, state, inputs):
    """Two registered stages: the first combines a and b, the second the result with c of the same cycle."""

    def apply(word: str, left: int, right: int) -> int:
        results = {
            "add": left + right,
            "sub": left - right,
            "and": left & right,
            "or": left | right,
        }
        return results.get(word, left ^ right) & ((1 << width) - 1)

    first, second = option.split(" then ")
    a, b, c = inputs
    partial, waiting, result = state
    return (apply(first, a, b), c, apply(second, partial, waiting)), (result,)


def round_robin(width, option, state, inputs):
    """One-hot grant to the next request after the last granted one, going up or down; combinational in the requests."""
    step = 1 if option == "up" else -1
    for distance in range(1, width + 1):
        bit = (state + step * distance) % width
        if inputs[0] >> bit & 1:
            return bit, (1 << bit,)
    return state, (0,)


def fifo(width, option, state, inputs):
    """First in, first out, with full and empty flags; a push when full and a pop when empty are ignored.

    The option is the depth. The oldest word shows at the output, which is 0 when empty.
    """
    push, pop, data = inputs
    full, empty = len(state) == int(option), not state
    words = state[1:] if pop and not empty else state
    words = (*words, data) if push and not full else words
    return words, (0 if empty else state[0], int(full), int(empty))
