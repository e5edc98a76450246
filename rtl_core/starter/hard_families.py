"""The hard tier: machines with several states, arithmetic with a parameter, words that wait, an arbiter
that remembers."""

from __future__ import annotations

from functools import partial
from typing import Any

from rtl_core.starter.spec import Family, Spec, Words, clocked, clocked_block, clog2

FAMILIES: list[Family] = []
medium, hard = (
    partial(Family.of, FAMILIES, difficulty=difficulty) for difficulty in ("medium", "hard")
)
OPERATORS = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}


def _divider(spec: Spec, enable: str, count: str, last: str) -> str:
    end, restart, step = (
        (spec.width - 1, 0, "+") if spec.option == "up" else (0, spec.width - 1, "-")
    )
    update = f"if ({enable}) {count} <= {last} ? {restart} : {count} {step} 1;"
    return f"  assign {last} = {count} == {end};\n" + clocked(spec, count, update)


@medium(
    roles=("en", "count", "tick"),
    options=("up", "down"),
    textbook=("mod_counter", "up"),
    widths=tuple(range(3, 17)),
    reset_state=0,
    sizes=lambda s: ((1,), (clog2(s.width), 1)),
    describe=lambda s, enable, count, last: (
        f"{s.option} counter modulo {s.width}. Enable {enable}. Output {count}, {clog2(s.width)} "
        f"bits. Last count {last}."
    ),
    body=_divider,
)
def divider(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Counts enabled cycles modulo a number (the width) and marks the last count."""
    step = inputs[0] if option == "up" else -inputs[0]
    return (state + step) % width, (state, int(state == (width - 1 if option == "up" else 0)))


def _stretcher(spec: Spec, trigger: str, pulse: str) -> str:
    load, count = f"if ({trigger}) c <= {spec.width};", "if (c != 0) c <= c - 1;"
    update = f"{load}\n    else {count}" if spec.option == "again" else f"{count}\n    else {load}"
    return (
        f"  reg [{clog2(spec.width + 1) - 1}:0] c;\n"
        + clocked(spec, "c", update)
        + f"  assign {pulse} = c != 0;\n"
    )


@medium(
    roles=("trigger", "pulse"),
    options=("once", "again"),
    textbook=("pulse_stretch", "again"),
    reset_state=0,
    sizes=lambda s: ((1,), (1,)),
    describe=lambda s, trigger, pulse: (
        f"pulse stretcher, {s.width} cycles, {'restarted by' if s.option == 'again' else 'deaf to'} "
        "a trigger in the pulse. "
        f"Trigger {trigger}. Output {pulse}."
    ),
    body=_stretcher,
)
def stretcher(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Its output is high for as many cycles as asked after the last cycle with a high input; width is that number."""
    loads = inputs[0] and (option == "again" or state == 0)
    return (width if loads else max(state - 1, 0)), (int(state != 0),)


def _handshake(spec: Spec, start: str, stop: str, busy: str, done: str) -> str:
    leave = "s <= 0;" if spec.option == "one cycle" else f"if (!{start}) s <= 0;"
    cases = f"case (s)\n      0: if ({start}) s <= 1;\n      1: if ({stop}) s <= 2;\n      default: {leave}\n    endcase"
    return (
        "  reg [1:0] s;\n"
        + clocked(spec, "s", cases)
        + f"  assign {busy} = s == 1;\n  assign {done} = s == 2;\n"
    )


@hard(
    roles=("start", "stop", "busy", "done"),
    options=("one cycle", "until start low"),
    textbook=("control_fsm", "one cycle"),
    widths=(1,),
    reset_state=0,
    sizes=lambda s: ((1, 1), (1, 1)),
    describe=lambda s, start, stop, busy, done: (
        f"state machine idle, busy, done. Start {start}. Stop {stop}. "
        f"Outputs {busy}, {done}, done lasts {s.option.replace('start', start)}."
    ),
    body=_handshake,
)
def handshake(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Idle until start, busy until stop, then done: for one cycle, or until start falls."""
    start, stop = inputs
    stay = option != "one cycle" and start
    following = (int(start), 1 + stop, 2 if stay else 0)[state]
    return following, (int(state == 1), int(state == 2))


def _value(spec: Spec, a: str, b: str) -> str:
    return {"sum": f"{a} + {b}", "product": f"{a} * {b}", "square sum": f"{a} * {a} + {b}"}[
        spec.option
    ]


@hard(
    roles=("a", "b", "y", "WIDTH"),
    options=("sum", "product", "square sum"),
    textbook=("multiplier", "product"),
    widths=tuple(range(2, 13)),
    sizes=lambda s: ((s.width, s.width), (s.width + 1 if s.option == "sum" else 2 * s.width,)),
    describe=lambda s, a, b, y, parameter: (
        f"full precision {_value(s, a, b)}. Parameter {parameter}, default {s.width}. Inputs {a}, "
        f"{b}, {parameter} bits. "
        f"Output {y}, {f'{parameter} + 1' if s.option == 'sum' else f'2 * {parameter}'} bits."
    ),
    parameterised=lambda s, a, b, y, parameter: (
        f"#(parameter {parameter} = {s.width})(input [{parameter} - 1:0] {a}, input [{parameter} - 1:0] {b}, "
        f"output [{parameter if s.option == 'sum' else f'2 * {parameter} - 1'}:0] {y})"
    ),
    body=lambda s, a, b, y, parameter: f"  assign {y} = {_value(s, a, b)};\n",
)
def scaled(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """Full-precision unsigned sum, product, or product plus sum, with a parameter for the width of the inputs.

    The parameter's name is the last role; its default is the width.
    """
    a, b = inputs
    return state, ({"sum": a + b, "product": a * b, "square sum": a * a + b}[option],)


def _pipeline(spec: Spec, a: str, b: str, c: str, y: str) -> str:
    first, second = (OPERATORS[word] for word in spec.option.split(" then "))
    updates = (f"s <= {a} {first} {b};", f"z <= {c};", f"{y} <= s {second} z;")
    return f"  reg [{spec.width - 1}:0] s, z;\n" + clocked_block(spec, ("s", "z", y), updates)


@hard(
    roles=("a", "b", "c", "y"),
    options=(
        "add then sub",
        "add then and",
        "add then xor",
        "sub then add",
        "sub then or",
        "xor then add",
    ),
    textbook=("pipeline", "add then sub"),
    reset_state=(0, 0, 0),
    sizes=lambda s: ((s.width,) * 3, (s.width,)),
    describe=lambda s, a, b, c, y: (
        f"two stage pipeline, {s.option}. Inputs {a}, {b}, {c}, {s.width} bits. Output {y}."
    ),
    body=_pipeline,
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


def _round_robin(spec: Spec, request: str, grant: str) -> str:
    n = spec.width
    bit = f"(z + k) % {n}" if spec.option == "up" else f"(z + {n} - k) % {n}"
    return (
        f"  reg [{clog2(n) - 1}:0] z, i;\n  integer k;\n  always @(*) begin\n    {grant} = 0;\n    i = z;\n"
        f"    for (k = {n}; k > 0; k = k - 1) if ({request}[{bit}]) i = {bit};\n"
        f"    {grant}[i] = {request}[i];\n  end\n"
    ) + clocked(spec, "z", "z <= i;")


@hard(
    roles=("req", "grant"),
    options=("up", "down"),
    textbook=("rr_arbiter", "up"),
    widths=tuple(range(3, 17)),
    reset_state=0,
    sizes=lambda s: ((s.width,), (s.width,)),
    describe=lambda s, request, grant: (
        f"round robin arbiter going {s.option} from last grant, at reset bit 0. "
        f"Requests {request}, {s.width} bits. Grant {grant}."
    ),
    body=_round_robin,
)
def round_robin(width: int, option: str, state: Any, inputs: Words) -> tuple[Any, Words]:
    """One-hot grant to the next request after the last granted one, going up or down; combinational in the requests."""
    step = 1 if option == "up" else -1
    for distance in range(1, width + 1):
        bit = (state + step * distance) % width
        if inputs[0] >> bit & 1:
            return bit, (1 << bit,)
    return state, (0,)


def _fifo(spec: Spec, push: str, pop: str, data: str, y: str, full: str, empty: str) -> str:
    depth = int(spec.option)
    pointer = f"[{clog2(depth) - 1}:0] " if depth > 2 else ""
    return (
        f"  reg [{spec.width - 1}:0] m [0:{depth - 1}];\n"
        f"  reg {pointer}w, r;\n"
        f"  reg [{clog2(depth)}:0] c;\n"
        f"  wire i = {push} & !{full};\n"
        f"  wire o = {pop} & !{empty};\n"
        f"  assign {full} = c == {depth};\n"
        f"  assign {empty} = c == 0;\n"
        f"  assign {y} = {empty} ? 0 : m[r];\n"
    ) + clocked_block(
        spec, "wrc", (f"if (i) m[w] <= {data};", "w <= w + i;", "r <= r + o;", "c <= c + i - o;")
    )


@hard(
    roles=("push", "pop", "din", "dout", "full", "empty"),
    options=("2", "4", "8"),
    textbook=("sync_fifo", "8"),
    reset_state=(),
    sizes=lambda s: ((1, 1, s.width), (s.width, 1, 1)),
    describe=lambda s, push, pop, data, y, full, empty: (
        f"fifo, depth {s.option}. Push {push}. Pop {pop}. Input {data}, {s.width} bits. "
        f"Output {y}, 0 if empty. Full {full}. Empty {empty}."
    ),
    body=_fifo,
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
