"""The starter tier: combinational logic, arithmetic and choice, registers, small machines that watch their
input; easy ones first."""

from __future__ import annotations

from functools import partial
from typing import Any

from rtl_core.starter.spec import WIDTHS, Family, Spec, Words, clocked, clog2

FAMILIES: list[Family] = []
easy, medium, hard = (
    partial(Family.of, FAMILIES, difficulty=difficulty) for difficulty in ("easy", "medium", "hard")
)
OPERATORS = {"and": "&", "or": "|", "xor": "^"}
RELATIONS = {
    "<": "less than",
    ">": "greater than",
    "==": "equal",
    "<=": "less or equal",
    ">=": "greater or equal",
}


def _two_words_to_one(spec: Spec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (spec.width, spec.width), (spec.width,)


def _word_to_word(spec: Spec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (spec.width,), (spec.width,)


@easy(
    roles=("a", "b", "y"),
    options=("and", "or", "xor"),
    textbook=("gates", None),
    sizes=_two_words_to_one,
    describe=lambda s, a, b, y: f"bitwise {s.option}. Inputs {a}, {b}, {s.width} bits. Output {y}.",
    body=lambda s, a, b, y: f"  assign {y} = {a} {OPERATORS[s.option]} {b};\n",
)
def logic(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """One bitwise operation on two words."""
    a, b = inputs
    return state, ({"and": a & b, "or": a | b, "xor": a ^ b}[option],)


@easy(
    roles=("a", "b", "sum", "cout"),
    options=("carry", "plain"),
    textbook=("adder", "carry"),
    sizes=lambda s: ((s.width, s.width), (s.width, 1) if s.option == "carry" else (s.width,)),
    describe=lambda s, a, b, y, carry: (
        f"adder. Inputs {a}, {b}, {s.width} bits. Output {y}, {s.width} bits."
        + (f" Carry {carry}." if s.option == "carry" else "")
    ),
    body=lambda s, a, b, y, carry: (
        f"  assign {f'{{{carry}, {y}}}' if s.option == 'carry' else y} = {a} + {b};\n"
    ),
)
def adder(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Unsigned sum, with or without a carry output."""
    total = inputs[0] + inputs[1]
    low = total & ((1 << width) - 1)
    return state, (low, total >> width) if option == "carry" else (low,)


@easy(
    roles=("a", "b", "sel", "y"),
    options=("second", "first"),
    textbook=("mux", "second"),
    sizes=lambda s: ((s.width, s.width, 1), (s.width,)),
    describe=lambda s, a, b, select, y: (
        f"mux. Inputs {a}, {b}, {s.width} bits. Select {select}, high picks {s.option}. Output {y}."
    ),
    body=lambda s, a, b, select, y: (
        f"  assign {y} = {select} ? {b if s.option == 'second' else a} : {a if s.option == 'second' else b};\n"
    ),
)
def mux(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Two-way multiplexer; which input a high select picks is part of the specification."""
    a, b, select = inputs
    return state, (b if bool(select) == (option == "second") else a,)


@easy(
    roles=("a", "b", "y"),
    options=("<", ">", "==", "<=", ">="),
    textbook=("comparator", None),
    sizes=lambda s: ((s.width, s.width), (1,)),
    describe=lambda s, a, b, y: (
        f"compare {RELATIONS[s.option]}. Inputs {a}, {b}, {s.width} bits. Output {y}."
    ),
    body=lambda s, a, b, y: f"  assign {y} = {a} {s.option} {b};\n",
)
def comparator(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """One relation between two unsigned numbers."""
    a, b = inputs
    return state, (int({"<": a < b, ">": a > b, "==": a == b, "<=": a <= b, ">=": a >= b}[option]),)


@easy(
    roles=("a", "b", "y"),
    options=("minimum", "maximum"),
    textbook=("minmax", None),
    sizes=_two_words_to_one,
    describe=lambda s, a, b, y: f"{s.option}. Inputs {a}, {b}, {s.width} bits. Output {y}.",
    body=lambda s, a, b, y: (
        f"  assign {y} = ({a} {'<' if s.option == 'minimum' else '>'} {b}) ? {a} : {b};\n"
    ),
)
def minmax(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """The smaller or the larger of two unsigned numbers."""
    return state, (min(inputs) if option == "minimum" else max(inputs),)


@easy(
    roles=("data", "p"),
    options=("even", "odd"),
    textbook=("parity", "even"),
    sizes=lambda s: ((s.width,), (1,)),
    describe=lambda s, data, y: f"{s.option} parity bit. Input {data}, {s.width} bits. Output {y}.",
    body=lambda s, data, y: f"  assign {y} = {'~^' if s.option == 'odd' else '^'}{data};\n",
)
def parity(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """The bit that makes the number of ones even or odd."""
    return state, ((inputs[0].bit_count() + (option == "odd")) % 2,)


@easy(
    roles=("t", "q"),
    textbook=("toggle", None),
    reset_state=0,
    sizes=_word_to_word,
    describe=lambda s, t, q: f"toggle flip flops. Input {t}, {s.width} bits. Output {q}.",
    body=lambda s, t, q: clocked(s, q, f"{q} <= {q} ^ {t};"),
)
def toggle(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """A register each bit of which flips when its input bit is high."""
    return state ^ inputs[0], (state,)


@medium(
    roles=("bin", "gray"),
    options=("binary to gray", "gray to binary"),
    textbook=("gray", "binary to gray"),
    sizes=_word_to_word,
    describe=lambda s, word, y: f"{s.option}. Input {word}, {s.width} bits. Output {y}.",
    body=lambda s, word, y: (
        f"  assign {y} = {word} ^ ({word} >> 1);\n"
        if s.option == "binary to gray"
        else f"  integer k;\n  always @(*) begin\n    for (k = 0; k < {s.width}; k = k + 1) {y}[k] = ^({word} >> k);\n  end\n"
    ),
)
def gray(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Binary to Gray code, or back."""
    word = inputs[0]
    if option == "binary to gray":
        return state, (word ^ (word >> 1),)
    binary = 0
    for shift in range(width):
        binary ^= word >> shift
    return state, (binary,)


@medium(
    roles=("a", "b", "y"),
    options=("adder", "subtractor"),
    textbook=("sat_add", "adder"),
    sizes=_two_words_to_one,
    describe=lambda s, a, b, y: (
        f"saturating {s.option}. Inputs {a}, {b}, {s.width} bits. Output {y}."
    ),
    body=lambda s, a, b, y: (
        f"  assign {y} = ({a} > {b}) ? {a} - {b} : 0;\n"
        if s.option == "subtractor"
        else f"  wire [{s.width - 1}:0] s;\n  wire c;\n  assign {{c, s}} = {a} + {b};\n  assign {y} = c ? ~0 : s;\n"
    ),
)
def saturating(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Unsigned sum or difference that stays at the largest or smallest value instead of wrapping."""
    a, b = inputs
    return state, (max(a - b, 0) if option == "subtractor" else min(a + b, (1 << width) - 1),)


@medium(
    roles=("in", "out"),
    options=("high", "low"),
    textbook=("decoder", "high"),
    widths=WIDTHS[1:],
    sizes=lambda s: ((clog2(s.width),), (s.width,)),
    describe=lambda s, number, y: (
        f"decoder, active {s.option}. Input {number}, {clog2(s.width)} bits. Output {y}, {s.width} bits."
    ),
    body=lambda s, number, y: (
        f"  assign {y} = " + (f"~(1 << {number});\n" if s.option == "low" else f"1 << {number};\n")
    ),
)
def decoder(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Number to one-hot (or one-cold); numbers beyond the last output select none."""
    ones = (1 << width) - 1
    hot = (1 << inputs[0]) & ones
    return state, (hot ^ ones if option == "low" else hot,)


@medium(
    roles=("en", "q"),
    options=("up", "down"),
    textbook=("counter", "up"),
    reset_state=0,
    sizes=lambda s: ((1,), (s.width,)),
    describe=lambda s, enable, q: (
        f"{s.option} counter. Enable {enable}. Output {q}, {s.width} bits."
    ),
    body=lambda s, enable, q: clocked(
        s, q, f"if ({enable}) {q} <= {q} {'-' if s.option == 'down' else '+'} 1;"
    ),
    bursts=lambda s: [((1,), 1 << s.width)],
)
def counter(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Up or down counter with enable, wrapping."""
    step = inputs[0] if option == "up" else -inputs[0]
    return (state + step) & ((1 << width) - 1), (state,)


@medium(
    roles=("en", "d", "q"),
    textbook=("register", None),
    reset_state=0,
    sizes=lambda s: ((1, s.width), (s.width,)),
    describe=lambda s, enable, d, q: (
        f"register. Enable {enable}. Input {d}, {s.width} bits. Output {q}."
    ),
    body=lambda s, enable, d, q: clocked(s, q, f"if ({enable}) {q} <= {d};"),
)
def register(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """A register that loads when enabled."""
    enable, d = inputs
    return (d if enable else state), (state,)


@medium(
    roles=("din", "q"),
    options=("left", "right"),
    textbook=("shift_reg", "left"),
    reset_state=0,
    sizes=lambda s: ((1,), (s.width,)),
    describe=lambda s, serial, q: (
        f"shift {s.option} register. Serial input {serial}. Output {q}, {s.width} bits."
    ),
    body=lambda s, serial, q: clocked(
        s,
        q,
        f"{q} <= " + (f"{{{q}, {serial}}};" if s.option == "left" else f"{{{serial}, {q}}} >> 1;"),
    ),
)
def shift(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Serial in, parallel out; the new bit enters at the right (left shift) or at the left (right shift)."""
    serial = inputs[0]
    if option == "left":
        return ((state << 1) | serial) & ((1 << width) - 1), (state,)
    return (state >> 1) | (serial << (width - 1)), (state,)


@medium(
    roles=("en", "d", "q"),
    textbook=("accumulator", None),
    reset_state=0,
    sizes=lambda s: ((1, s.width), (s.width,)),
    describe=lambda s, enable, d, q: (
        f"accumulator. Enable {enable}. Input {d}, {s.width} bits. Output {q}, {s.width} bits."
    ),
    body=lambda s, enable, d, q: clocked(s, q, f"if ({enable}) {q} <= {q} + {d};"),
)
def accumulator(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Adds its input when enabled, wrapping."""
    enable, d = inputs
    return ((state + d) & ((1 << width) - 1) if enable else state), (state,)


@medium(
    roles=("d", "pulse"),
    options=("rising", "falling"),
    textbook=("edge_detector", "rising"),
    reset_state=0,
    sizes=_word_to_word,
    describe=lambda s, d, pulse: (
        f"{s.option} edge detector. Input {d}, {s.width} bits. Output {pulse}."
    ),
    body=lambda s, d, pulse: (
        f"  reg [{s.width - 1}:0] z;\n"
        + clocked(s, "z", f"z <= {d};")
        + f"  assign {pulse} = {f'~{d} & z' if s.option == 'falling' else f'{d} & ~z'};\n"
    ),
)
def edge(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Per bit, high as long as the input differs in the asked direction from what it was at the last rising
    clock edge."""
    d = inputs[0]
    return d, (state & ~d if option == "falling" else d & ~state,)


@hard(
    roles=("d", "found"),
    options=("10", "11", "100", "101", "110", "111"),
    textbook=("seq_detector", "101"),
    widths=(1,),
    reset_state=0,
    sizes=lambda s: ((1,), (1,)),
    describe=lambda s, d, found: (
        f"sequence detector of last bits {s.option}. Input {d}. Output {found}."
    ),
    body=lambda s, d, found: (
        f"  reg [{len(s.option) - 1}:0] z;\n"
        + clocked(s, "z", f"z <= {{z, {d}}};")
        + f"  assign {found} = z == {len(s.option)}'b{s.option};\n"
    ),
)
def sequence(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """A state machine whose state is the last bits seen; its output is high while they are the pattern
    (overlaps count).

    Patterns start with a 1, so that the zeros of a reset never count as seen bits.
    """
    seen = ((state << 1) | inputs[0]) & ((1 << len(option)) - 1)
    return seen, (int(state == int(option, 2)),)


def _priority_loop(spec: Spec, default: str, step: str) -> str:
    """A combinational loop over bit numbers k in which the last assignment, that of the option's first bit, wins."""
    up = f"k = 0; k < {spec.width}; k = k + 1"
    down = f"k = {spec.width - 1}; k >= 0; k = k - 1"
    loop = up if spec.option == "highest" else down
    return f"  integer k;\n  always @(*) begin\n    {default}\n    for ({loop}) {step}\n  end\n"


@hard(
    roles=("in", "out"),
    options=("highest", "lowest"),
    textbook=("priority_encoder", "highest"),
    widths=WIDTHS[1:],
    sizes=lambda s: ((s.width,), (clog2(s.width),)),
    describe=lambda s, word, y: (
        f"priority encoder, {s.option} bit first. Input {word}, {s.width} bits. "
        f"Output {y}, {clog2(s.width)} bits, 0 if none."
    ),
    body=lambda s, word, y: _priority_loop(s, f"{y} = 0;", f"if ({word}[k]) {y} = k;"),
)
def priority_encoder(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Number of the highest or lowest bit that is set; 0 when none is."""
    word = inputs[0]
    hot = word if option == "highest" else word & -word
    return state, (max(hot.bit_length() - 1, 0),)


@hard(
    roles=("req", "grant"),
    options=("highest", "lowest"),
    textbook=("arbiter", "highest"),
    sizes=_word_to_word,
    describe=lambda s, request, grant: (
        f"priority arbiter, {s.option} bit first. Requests {request}, {s.width} bits. Grant {grant}."
    ),
    body=lambda s, request, grant: _priority_loop(
        s, f"{grant} = 0;", f"if ({request}[k]) {grant} = 1 << k;"
    ),
)
def arbiter(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """One-hot grant to the highest or lowest request; none without a request."""
    word = inputs[0]
    hot = word if option == "highest" else word & -word
    return state, ((1 << hot.bit_length()) >> 1,)
