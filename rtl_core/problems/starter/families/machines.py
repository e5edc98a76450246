"""Hard tier: small machines with several states. Handshake controller, pulse stretcher, clock-enable divider."""

from __future__ import annotations

from typing import Any

from rtl_core.problems.starter.spec import Family, Signal, Spec, clocked, clog2


class Handshake(Family):
    """Idle until start, busy until stop, then done: for one cycle, or until start falls."""

    name = "handshake"
    difficulty = "hard"
    roles = ("start", "stop", "busy", "done")
    options = ("one cycle", "until start low")
    textbook_option = "one cycle"
    textbook_module = "control_fsm"
    widths = (1,)
    sequential = True

    def describe(self, spec: Spec) -> str:
        start, stop, busy, done = spec.ports
        return (
            f"state machine idle, busy, done. Start {start}. Stop {stop}. "
            f"Outputs {busy}, {done}, done lasts {spec.option.replace('start', start)}."
        )

    def signals(self, spec: Spec) -> list[Signal]:
        start, stop, busy, done = spec.ports
        return [Signal(start, "input"), Signal(stop, "input"), Signal(busy, "output"), Signal(done, "output")]

    def body(self, spec: Spec) -> str:
        start, stop, busy, done = spec.ports
        leave = "s <= 0;" if spec.option == "one cycle" else f"if (!{start}) s <= 0;"
        cases = (
            f"case (s)\n      0: if ({start}) s <= 1;\n      1: if ({stop}) s <= 2;\n"
            f"      default: {leave}\n    endcase"
        )
        return (
            "  reg [1:0] s;\n" + clocked(spec, "s", cases) + f"  assign {busy} = s == 1;\n  assign {done} = s == 2;\n"
        )

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        start, stop = inputs
        stay = option != "one cycle" and start
        following = (int(start), 1 + stop, 2 if stay else 0)[state]
        return following, (int(state == 1), int(state == 2))


class PulseStretcher(Family):
    """Its output is high for as many cycles as asked after the last cycle with a high input; width is that number."""

    name = "stretcher"
    difficulty = "medium"
    roles = ("trigger", "pulse")
    options = ("once", "again")
    textbook_option = "again"
    textbook_module = "pulse_stretch"
    sequential = True

    def describe(self, spec: Spec) -> str:
        trigger, pulse = spec.ports
        retrigger = "restarted by" if spec.option == "again" else "deaf to"
        return f"pulse stretcher, {spec.width} cycles, {retrigger} a trigger in the pulse. Trigger {trigger}. Output {pulse}."

    def signals(self, spec: Spec) -> list[Signal]:
        trigger, pulse = spec.ports
        return [Signal(trigger, "input"), Signal(pulse, "output")]

    def body(self, spec: Spec) -> str:
        trigger, pulse = spec.ports
        load = f"if ({trigger}) c <= {spec.width};"
        count = "if (c != 0) c <= c - 1;"
        update = f"{load}\n    else {count}" if spec.option == "again" else f"{count}\n    else {load}"
        return (
            f"  reg [{clog2(spec.width + 1) - 1}:0] c;\n" + clocked(spec, "c", update) + f"  assign {pulse} = c != 0;\n"
        )

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        loads = inputs[0] and (option == "again" or state == 0)
        return (width if loads else max(state - 1, 0)), (int(state != 0),)


class Divider(Family):
    """Counts enabled cycles modulo a number (the width) and marks the last count."""

    name = "divider"
    difficulty = "medium"
    roles = ("en", "count", "tick")
    options = ("up", "down")
    textbook_option = "up"
    textbook_module = "mod_counter"
    widths = tuple(range(3, 17))
    sequential = True

    def describe(self, spec: Spec) -> str:
        enable, count, last = spec.ports
        return (
            f"{spec.option} counter modulo {spec.width}. Enable {enable}. "
            f"Output {count}, {clog2(spec.width)} bits. Last count {last}."
        )

    def signals(self, spec: Spec) -> list[Signal]:
        enable, count, last = spec.ports
        return [Signal(enable, "input"), Signal(count, "output reg", clog2(spec.width)), Signal(last, "output")]

    def body(self, spec: Spec) -> str:
        enable, count, last = spec.ports
        top = spec.width - 1
        end, restart, step = (top, 0, "+") if spec.option == "up" else (0, top, "-")
        update = f"if ({enable}) {count} <= {last} ? {restart} : {count} {step} 1;"
        return f"  assign {last} = {count} == {end};\n" + clocked(spec, count, update)

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        step = inputs[0] if option == "up" else -inputs[0]
        return (state + step) % width, (state, int(state == (width - 1 if option == "up" else 0)))
