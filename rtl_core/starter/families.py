"""The starter tier: combinational logic, arithmetic and choice, registers, small machines that watch their
input; easy ones first."""

from __future__ import annotations

from functools import partial
from typing import Any

from rtl_core.starter.spec import WIDTHS, Family, Words

FAMILIES: list[Family] = []
easy, medium, hard = (
    partial(Family.of, FAMILIES, difficulty=difficulty)
    for difficulty in ("easy", "medium", "hard")
)
TWO_WORDS_TO_ONE = "{width} {width} -> {width}"
WORD_TO_WORD = "{width} -> {width}"
PATTERNS = ("10", "11", "100", "101", "110", "111")
RELATIONS = {
    "<": "less than",
    ">": "greater than",
    "==": "equal",
    "<=": "less or equal",
    ">=": "greater or equal",
}
UP, DOWN = "k = 0; k < {width}; k = k + 1", "k = {msb}; k >= 0; k = k - 1"
LAST_WINS = {"highest": {"loop": UP}, "lowest": {"loop": DOWN}}
"""Loops over bit numbers k in which the last assignment, that of the option's first bit, wins."""


@easy(
    roles=("a", "b", "y"),
    options={"and": {"operator": "&"}, "or": {"operator": "|"}, "xor": {"operator": "^"}},
    textbook=("gates", None),
    sizes=TWO_WORDS_TO_ONE,
    describe="bitwise {option}. Inputs {a}, {b}, {width} bits. Output {y}.",
    body="  assign {y} = {a} {operator} {b};\n",
)
def logic(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """One bitwise operation on two words."""
    a, b = inputs
    return state, ({"and": a & b, "or": a | b, "xor": a ^ b}[option],)


@easy(
    roles=("a", "b", "sum", "cout"),
    options=("carry", "plain"),
    textbook=("adder", "carry"),
    sizes={"carry": "{width} {width} -> {width} 1", "plain": TWO_WORDS_TO_ONE},
    describe={
        "carry": "adder. Inputs {a}, {b}, {width} bits. Output {sum}, {width} bits. Carry {cout}.",
        "plain": "adder. Inputs {a}, {b}, {width} bits. Output {sum}, {width} bits.",
    },
    body={
        "carry": "  assign {{{cout}, {sum}}} = {a} + {b};\n",
        "plain": "  assign {sum} = {a} + {b};\n",
    },
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
    sizes="{width} {width} 1 -> {width}",
    describe="mux. Inputs {a}, {b}, {width} bits. Select {sel}, high picks {option}. Output {y}.",
    body={
        "second": "  assign {y} = {sel} ? {b} : {a};\n",
        "first": "  assign {y} = {sel} ? {a} : {b};\n",
    },
)
def mux(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Two-way multiplexer; which input a high select picks is part of the specification."""
    a, b, select = inputs
    return state, (b if bool(select) == (option == "second") else a,)


@easy(
    roles=("a", "b", "y"),
    options={option: {"relation": relation} for option, relation in RELATIONS.items()},
    textbook=("comparator", None),
    sizes="{width} {width} -> 1",
    describe="compare {relation}. Inputs {a}, {b}, {width} bits. Output {y}.",
    body="  assign {y} = {a} {option} {b};\n",
)
def comparator(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """One relation between two unsigned numbers."""
    a, b = inputs
    return state, (
        int({"<": a < b, ">": a > b, "==": a == b, "<=": a <= b, ">=": a >= b}[option]),
    )


@easy(
    roles=("a", "b", "y"),
    options=("minimum", "maximum"),
    textbook=("minmax", None),
    sizes=TWO_WORDS_TO_ONE,
    describe="{option}. Inputs {a}, {b}, {width} bits. Output {y}.",
    body={
        "minimum": "  assign {y} = ({a} < {b}) ? {a} : {b};\n",
        "maximum": "  assign {y} = ({a} > {b}) ? {a} : {b};\n",
    },
)
def minmax(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """The smaller or the larger of two unsigned numbers."""
    return state, (min(inputs) if option == "minimum" else max(inputs),)


@easy(
    roles=("data", "p"),
    options=("even", "odd"),
    textbook=("parity", "even"),
    sizes="{width} -> 1",
    describe="{option} parity bit. Input {data}, {width} bits. Output {p}.",
    body={"even": "  assign {p} = ^{data};\n", "odd": "  assign {p} = ~^{data};\n"},
)
def parity(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """The bit that makes the number of ones even or odd."""
    return state, ((inputs[0].bit_count() + (option == "odd")) % 2,)


@easy(
    roles=("t", "q"),
    textbook=("toggle", None),
    reset_state=0,
    sizes=WORD_TO_WORD,
    describe="toggle flip flops. Input {t}, {width} bits. Output {q}.",
    body="""\
  always @({edge}) begin
    if ({in_reset}) {q} <= 0;
    else {q} <= {q} ^ {t};
  end
""",
)
def toggle(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """A register each bit of which flips when its input bit is high."""
    return state ^ inputs[0], (state,)


@medium(
    roles=("bin", "gray"),
    options=("binary to gray", "gray to binary"),
    textbook=("gray", "binary to gray"),
    sizes=WORD_TO_WORD,
    describe="{option}. Input {bin}, {width} bits. Output {gray}.",
    body={
        "binary to gray": "  assign {gray} = {bin} ^ ({bin} >> 1);\n",
        "gray to binary": """\
  integer k;
  always @(*) begin
    for (k = 0; k < {width}; k = k + 1) {gray}[k] = ^({bin} >> k);
  end
""",
    },
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
    sizes=TWO_WORDS_TO_ONE,
    describe="saturating {option}. Inputs {a}, {b}, {width} bits. Output {y}.",
    body={
        "adder": """\
  wire [{msb}:0] s;
  wire c;
  assign {{c, s}} = {a} + {b};
  assign {y} = c ? ~0 : s;
""",
        "subtractor": "  assign {y} = ({a} > {b}) ? {a} - {b} : 0;\n",
    },
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
    sizes="{index_bits} -> {width}",
    describe=(
        "decoder, active {option}. Input {in}, {index_bits} bits. Output {out}, {width} bits."
    ),
    body={
        "high": "  assign {out} = 1 << {in};\n",
        "low": "  assign {out} = ~(1 << {in});\n",
    },
)
def decoder(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Number to one-hot (or one-cold); numbers beyond the last output select none."""
    ones = (1 << width) - 1
    hot = (1 << inputs[0]) & ones
    return state, (hot ^ ones if option == "low" else hot,)


@medium(
    roles=("en", "q"),
    options={"up": {"step": "+ 1"}, "down": {"step": "- 1"}},
    textbook=("counter", "up"),
    reset_state=0,
    sizes="1 -> {width}",
    describe="{option} counter. Enable {en}. Output {q}, {width} bits.",
    body="""\
  always @({edge}) begin
    if ({in_reset}) {q} <= 0;
    else if ({en}) {q} <= {q} {step};
  end
""",
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
    sizes="1 {width} -> {width}",
    describe="register. Enable {en}. Input {d}, {width} bits. Output {q}.",
    body="""\
  always @({edge}) begin
    if ({in_reset}) {q} <= 0;
    else if ({en}) {q} <= {d};
  end
""",
)
def register(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """A register that loads when enabled."""
    enable, d = inputs
    return (d if enable else state), (state,)


@medium(
    roles=("din", "q"),
    options={
        "left": {"shifted": "{{{q}, {din}}}"},
        "right": {"shifted": "{{{din}, {q}}} >> 1"},
    },
    textbook=("shift_reg", "left"),
    reset_state=0,
    sizes="1 -> {width}",
    describe="shift {option} register. Serial input {din}. Output {q}, {width} bits.",
    body="""\
  always @({edge}) begin
    if ({in_reset}) {q} <= 0;
    else {q} <= {shifted};
  end
""",
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
    sizes="1 {width} -> {width}",
    describe="accumulator. Enable {en}. Input {d}, {width} bits. Output {q}, {width} bits.",
    body="""\
  always @({edge}) begin
    if ({in_reset}) {q} <= 0;
    else if ({en}) {q} <= {q} + {d};
  end
""",
)
def accumulator(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Adds its input when enabled, wrapping."""
    enable, d = inputs
    return ((state + d) & ((1 << width) - 1) if enable else state), (state,)


@medium(
    roles=("d", "pulse"),
    options={"rising": {"changed": "{d} & ~z"}, "falling": {"changed": "~{d} & z"}},
    textbook=("edge_detector", "rising"),
    reset_state=0,
    sizes=WORD_TO_WORD,
    describe="{option} edge detector. Input {d}, {width} bits. Output {pulse}.",
    body="""\
  reg [{msb}:0] z;
  always @({edge}) begin
    if ({in_reset}) z <= 0;
    else z <= {d};
  end
  assign {pulse} = {changed};
""",
)
def edge(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Per bit, high as long as the input differs in the asked direction from what it was at the last rising
    clock edge."""
    d = inputs[0]
    return d, (state & ~d if option == "falling" else d & ~state,)


@hard(
    roles=("d", "found"),
    options={
        bits: {"length": f"{len(bits)}", "oldest": f"{len(bits) - 1}"} for bits in PATTERNS
    },
    textbook=("seq_detector", "101"),
    widths=(1,),
    reset_state=0,
    sizes="1 -> 1",
    describe="sequence detector of last bits {option}. Input {d}. Output {found}.",
    body="""\
  reg [{oldest}:0] z;
  always @({edge}) begin
    if ({in_reset}) z <= 0;
    else z <= {{z, {d}}};
  end
  assign {found} = z == {length}'b{option};
""",
)
def sequence(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """A state machine whose state is the last bits seen; its output is high while they are the pattern
    (overlaps count).

    Patterns start with a 1, so that the zeros of a reset never count as seen bits.
    """
    seen = ((state << 1) | inputs[0]) & ((1 << len(option)) - 1)
    return seen, (int(state == int(option, 2)),)


@hard(
    roles=("in", "out"),
    options=LAST_WINS,
    textbook=("priority_encoder", "highest"),
    widths=WIDTHS[1:],
    sizes="{width} -> {index_bits}",
    describe=(
        "priority encoder, {option} bit first. Input {in}, {width} bits. "
        "Output {out}, {index_bits} bits, 0 if none."
    ),
    body="""\
  integer k;
  always @(*) begin
    {out} = 0;
    for ({loop}) if ({in}[k]) {out} = k;
  end
""",
)
def priority_encoder(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Number of the highest or lowest bit that is set; 0 when none is."""
    word = inputs[0]
    hot = word if option == "highest" else word & -word
    return state, (max(hot.bit_length() - 1, 0),)


@hard(
    roles=("req", "grant"),
    options=LAST_WINS,
    textbook=("arbiter", "highest"),
    sizes=WORD_TO_WORD,
    describe=(
        "priority arbiter, {option} bit first. Requests {req}, {width} bits. Grant {grant}."
    ),
    body="""\
  integer k;
  always @(*) begin
    {grant} = 0;
    for ({loop}) if ({req}[k]) {grant} = 1 << k;
  end
""",
)
def arbiter(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """One-hot grant to the highest or lowest request; none without a request."""
    word = inputs[0]
    hot = word if option == "highest" else word & -word
    return state, ((1 << hot.bit_length()) >> 1,)
