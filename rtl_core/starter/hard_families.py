"""The hard tier: machines with several states, arithmetic with a parameter, words that wait, an arbiter
that remembers."""

from __future__ import annotations

from functools import partial
from typing import Any

from rtl_core.starter.spec import Family, Words

FAMILIES: list[Family] = []
medium, hard = (
    partial(Family.of, FAMILIES, difficulty=difficulty) for difficulty in ("medium", "hard")
)


@medium(
    roles=("en", "count", "tick"),
    options={
        "up": {"last": "{msb}", "restart": "0", "step": "+ 1"},
        "down": {"last": "0", "restart": "{msb}", "step": "- 1"},
    },
    textbook=("mod_counter", "up"),
    widths=tuple(range(3, 17)),
    reset_state=0,
    sizes="1 -> {index_bits} 1",
    describe=(
        "{option} counter modulo {width}. Enable {en}. Output {count}, {index_bits} bits. "
        "Last count {tick}."
    ),
    body="""\
  assign {tick} = {count} == {last};
  always @({edge}) begin
    if ({in_reset}) {count} <= 0;
    else if ({en}) {count} <= {tick} ? {restart} : {count} {step};
  end
""",
)
def divider(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Counts enabled cycles modulo a number (the width) and marks the last count."""
    step = inputs[0] if option == "up" else -inputs[0]
    return (state + step) % width, (state, int(state == (width - 1 if option == "up" else 0)))


@medium(
    roles=("trigger", "pulse"),
    options={
        "once": {
            "attitude": "deaf to",
            "first": "if (c != 0) c <= c - 1;",
            "otherwise": "if ({trigger}) c <= {width};",
        },
        "again": {
            "attitude": "restarted by",
            "first": "if ({trigger}) c <= {width};",
            "otherwise": "if (c != 0) c <= c - 1;",
        },
    },
    textbook=("pulse_stretch", "again"),
    reset_state=0,
    sizes="1 -> 1",
    describe=(
        "pulse stretcher, {width} cycles, {attitude} a trigger in the pulse. "
        "Trigger {trigger}. Output {pulse}."
    ),
    body="""\
  reg [{count_msb}:0] c;
  always @({edge}) begin
    if ({in_reset}) c <= 0;
    else {first}
    else {otherwise}
  end
  assign {pulse} = c != 0;
""",
)
def stretcher(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Its output is high for as many cycles as asked after the last cycle with a high input; width is that number."""
    loads = inputs[0] and (option == "again" or state == 0)
    return (width if loads else max(state - 1, 0)), (int(state != 0),)


@hard(
    roles=("start", "stop", "busy", "done"),
    options={
        "one cycle": {"duration": "one cycle", "leave": "s <= 0;"},
        "until start low": {"duration": "until {start} low", "leave": "if (!{start}) s <= 0;"},
    },
    textbook=("control_fsm", "one cycle"),
    widths=(1,),
    reset_state=0,
    sizes="1 1 -> 1 1",
    describe=(
        "state machine idle, busy, done. Start {start}. Stop {stop}. "
        "Outputs {busy}, {done}, done lasts {duration}."
    ),
    body="""\
  reg [1:0] s;
  always @({edge}) begin
    if ({in_reset}) s <= 0;
    else case (s)
      0: if ({start}) s <= 1;
      1: if ({stop}) s <= 2;
      default: {leave}
    endcase
  end
  assign {busy} = s == 1;
  assign {done} = s == 2;
""",
)
def handshake(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Idle until start, busy until stop, then done: for one cycle, or until start falls."""
    start, stop = inputs
    stay = option != "one cycle" and start
    following = (int(start), 1 + stop, 2 if stay else 0)[state]
    return following, (int(state == 1), int(state == 2))


@hard(
    roles=("a", "b", "y", "WIDTH"),
    options={
        "sum": {"value": "{a} + {b}", "bits": "{WIDTH} + 1", "top": "{WIDTH}"},
        "product": {"value": "{a} * {b}", "bits": "2 * {WIDTH}", "top": "2 * {WIDTH} - 1"},
        "square sum": {
            "value": "{a} * {a} + {b}",
            "bits": "2 * {WIDTH}",
            "top": "2 * {WIDTH} - 1",
        },
    },
    textbook=("multiplier", "product"),
    widths=tuple(range(2, 13)),
    sizes={
        "sum": "{width} {width} -> {sum_bits}",
        "product": "{width} {width} -> {product_bits}",
        "square sum": "{width} {width} -> {product_bits}",
    },
    describe=(
        "full precision {value}. Parameter {WIDTH}, default {width}. Inputs {a}, {b}, {WIDTH} bits. "
        "Output {y}, {bits} bits."
    ),
    parameterised=(
        "#(parameter {WIDTH} = {width})(input [{WIDTH} - 1:0] {a}, input [{WIDTH} - 1:0] {b}, "
        "output [{top}:0] {y})"
    ),
    body="  assign {y} = {value};\n",
)
def scaled(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Full-precision unsigned sum, product, or product plus sum, with a parameter for the width of the inputs.

    The parameter's name is the last role; its default is the width.
    """
    a, b = inputs
    return state, ({"sum": a + b, "product": a * b, "square sum": a * a + b}[option],)


@hard(
    roles=("a", "b", "c", "y"),
    options={
        "add then sub": {"first": "+", "second": "-"},
        "add then and": {"first": "+", "second": "&"},
        "add then xor": {"first": "+", "second": "^"},
        "sub then add": {"first": "-", "second": "+"},
        "sub then or": {"first": "-", "second": "|"},
        "xor then add": {"first": "^", "second": "+"},
    },
    textbook=("pipeline", "add then sub"),
    reset_state=(0, 0, 0),
    sizes="{width} {width} {width} -> {width}",
    describe="two stage pipeline, {option}. Inputs {a}, {b}, {c}, {width} bits. Output {y}.",
    body="""\
  reg [{msb}:0] s, z;
  always @({edge}) begin
    if ({in_reset}) begin s <= 0; z <= 0; {y} <= 0; end
    else begin
      s <= {a} {first} {b};
      z <= {c};
      {y} <= s {second} z;
    end
  end
""",
)
def pipeline(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
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


@hard(
    roles=("req", "grant"),
    options={
        "up": {"bit": "(z + k) % {width}"},
        "down": {"bit": "(z + {width} - k) % {width}"},
    },
    textbook=("rr_arbiter", "up"),
    widths=tuple(range(3, 17)),
    reset_state=0,
    sizes="{width} -> {width}",
    describe=(
        "round robin arbiter going {option} from last grant, at reset bit 0. "
        "Requests {req}, {width} bits. Grant {grant}."
    ),
    body="""\
  reg [{index_msb}:0] z, i;
  integer k;
  always @(*) begin
    {grant} = 0;
    i = z;
    for (k = {width}; k > 0; k = k - 1) if ({req}[{bit}]) i = {bit};
    {grant}[i] = {req}[i];
  end
  always @({edge}) begin
    if ({in_reset}) z <= 0;
    else z <= i;
  end
""",
)
def round_robin(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """One-hot grant to the next request after the last granted one, going up or down; combinational in the requests."""
    step = 1 if option == "up" else -1
    for distance in range(1, width + 1):
        bit = (state + step * distance) % width
        if inputs[0] >> bit & 1:
            return bit, (1 << bit,)
    return state, (0,)


@hard(
    roles=("push", "pop", "din", "dout", "full", "empty"),
    options={
        "2": {"last": "1", "pointer": "", "count_msb": "1"},
        "4": {"last": "3", "pointer": "[1:0] ", "count_msb": "2"},
        "8": {"last": "7", "pointer": "[2:0] ", "count_msb": "3"},
    },
    textbook=("sync_fifo", "8"),
    reset_state=(),
    sizes="1 1 {width} -> {width} 1 1",
    describe=(
        "fifo, depth {option}. Push {push}. Pop {pop}. Input {din}, {width} bits. "
        "Output {dout}, 0 if empty. Full {full}. Empty {empty}."
    ),
    body="""\
  reg [{msb}:0] m [0:{last}];
  reg {pointer}w, r;
  reg [{count_msb}:0] c;
  wire i = {push} & !{full};
  wire o = {pop} & !{empty};
  assign {full} = c == {option};
  assign {empty} = c == 0;
  assign {dout} = {empty} ? 0 : m[r];
  always @({edge}) begin
    if ({in_reset}) begin w <= 0; r <= 0; c <= 0; end
    else begin
      if (i) m[w] <= {din};
      w <= w + i;
      r <= r + o;
      c <= c + i - o;
    end
  end
""",
)
def fifo(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """First in, first out, with full and empty flags; a push when full and a pop when empty are ignored.

    The option is the depth. The oldest word shows at the output, which is 0 when empty.
    """
    push, pop, data = inputs
    full, empty = len(state) == int(option), not state
    words = state[1:] if pop and not empty else state
    words = (*words, data) if push and not full else words
    return words, (0 if empty else state[0], int(full), int(empty))
