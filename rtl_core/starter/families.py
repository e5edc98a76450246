"""The starter tier: combinational logic, arithmetic and choice, registers, small machines that watch their
input; easy ones first. families.toml says what the design of each model looks like.

Each model is a `Reference` (spec.py); the text behind its docstring becomes a part of the harness.
"""

from __future__ import annotations


def logic(width, option, state, inputs):
    """One bitwise operation on two words."""
    a, b = inputs
    return state, ({"and": a & b, "or": a | b, "xor": a ^ b}[option],)


def adder(width, option, state, inputs):
    """Unsigned sum, with or without a carry output."""
    total = inputs[0] + inputs[1]
    low = total & ((1 << width) - 1)
    return state, (low, total >> width) if option == "carry" else (low,)


def mux(width, option, state, inputs):
    """Two-way multiplexer; which input a high select picks is part of the specification."""
    a, b, select = inputs
    return state, (b if bool(select) == (option == "second") else a,)


def comparator(width, option, state, inputs):
    """One relation between two unsigned numbers."""
    a, b = inputs
    return state, (
        int({"<": a < b, ">": a > b, "==": a == b, "<=": a <= b, ">=": a >= b}[option]),
    )


def minmax(width, option, state, inputs):
    """The smaller or the larger of two unsigned numbers."""
    return state, (min(inputs) if option == "minimum" else max(inputs),)


def parity(width, option, state, inputs):
    """The bit that makes the number of ones even or odd."""
    return state, ((inputs[0].bit_count() + (option == "odd")) % 2,)


def toggle(width, option, state, inputs):
    """A register each bit of which flips when its input bit is high."""
    return state ^ inputs[0], (state,)


def gray(width, option, state, inputs):
    """Binary to Gray code, or back."""
    word = inputs[0]
    if option == "binary to gray":
        return state, (word ^ (word >> 1),)
    binary = 0
    for shift in range(width):
        binary ^= word >> shift
    return state, (binary,)


def saturating(width, option, state, inputs):
    """Unsigned sum or difference that stays at the largest or smallest value instead of wrapping."""
    a, b = inputs
    return state, (max(a - b, 0) if option == "subtractor" else min(a + b, (1 << width) - 1),)


def decoder(width, option, state, inputs):
    """Number to one-hot (or one-cold); numbers beyond the last output select none."""
    ones = (1 << width) - 1
    hot = (1 << inputs[0]) & ones
    return state, (hot ^ ones if option == "low" else hot,)


def counter(width, option, state, inputs):
    """Up or down counter with enable, wrapping."""
    step = inputs[0] if option == "up" else -inputs[0]
    return (state + step) & ((1 << width) - 1), (state,)


def register(width, option, state, inputs):
    """A register that loads when enabled."""
    enable, d = inputs
    return (d if enable else state), (state,)


def shift(width, option, state, inputs):
    """Serial in, parallel out; the new bit enters at the right (left shift) or at the left (right shift)."""
    serial = inputs[0]
    if option == "left":
        return ((state << 1) | serial) & ((1 << width) - 1), (state,)
    return (state >> 1) | (serial << (width - 1)), (state,)


def accumulator(width, option, state, inputs):
    """Adds its input when enabled, wrapping."""
    enable, d = inputs
    return ((state + d) & ((1 << width) - 1) if enable else state), (state,)


def edge(width, option, state, inputs):
    """Per bit, high as long as the input differs in the asked direction from what it was at the last rising
    clock edge."""
    d = inputs[0]
    return d, (state & ~d if option == "falling" else d & ~state,)


def sequence(width, option, state, inputs):
    """A state machine whose state is the last bits seen; its output is high while they are the pattern
    (overlaps count).

    Patterns start with a 1, so that the zeros of a reset never count as seen bits.
    """
    seen = ((state << 1) | inputs[0]) & ((1 << len(option)) - 1)
    return seen, (int(state == int(option, 2)),)


def priority_encoder(width, option, state, inputs):
    """Number of the highest or lowest bit that is set; 0 when none is."""
    word = inputs[0]
    hot = word if option == "highest" else word & -word
    return state, (max(hot.bit_length() - 1, 0),)


def arbiter(width, option, state, inputs):
    """One-hot grant to the highest or lowest request; none without a request."""
    word = inputs[0]
    hot = word if option == "highest" else word & -word
    return state, ((1 << hot.bit_length()) >> 1,)
