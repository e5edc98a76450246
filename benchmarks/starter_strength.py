"""How many wrong designs the starter benches kill.

    python -m benchmarks.starter_strength [--specs 3] [--seed 0] [--threads 2] [--families counter,fifo]

For every family, `--specs` specifications over its widths, options and reset kinds; for each the designs of
`starter_mutants`, graded like answers. What fails is killed; golden answers must pass. A survivor is then simulated beside
the golden answer by a test bench in Verilog, for at least 40,000 cycles or inputs and through twice all states of a counter:
where the two are told apart it counts against the bench, else it is the same design in other words and is left out.

Exit status 1 where fewer than 99 % of the distinguishable ones were killed, or a golden answer did not pass.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace

from rich.console import Console
from rich.table import Table

from benchmarks.starter_mutants import Wrong, wrong_designs
from rtl_core.grading.executors import make_executor
from rtl_core.grading.executors.base import Executor, Job, Step
from rtl_core.grading.grader import Grader
from rtl_core.grading.limits import Limits
from rtl_core.problems.starter import Spec, golden_answer, problem_of, starter_specs
from rtl_core.problems.starter.catalog import BY_NAME, FAMILIES
from rtl_core.problems.starter.record import target_of
from rtl_core.types.answer import Answer
from rtl_core.types.verdict import Outcome

CYCLES = 40_000
GOAL = 0.99


@dataclass
class Tally:
    """What became of the wrong designs of one family."""

    killed: int = 0
    same: int = 0
    unfit: Counter[str] = field(default_factory=Counter)
    """Designs that never came to a test, by outcome: they say nothing of the bench."""
    survivors: list[str] = field(default_factory=list)

    @property
    def distinguishable(self) -> int:
        return self.killed + len(self.survivors)


def specs_of(family: str, count: int, seed: int) -> list[Spec]:
    """`count` specifications over the family's widths, widest first, with the options and reset kinds in turn."""
    made = BY_NAME[family]
    tier = next(tier for tier, families in FAMILIES.items() if made in families)
    drawn = starter_specs("train", 4 * len(FAMILIES[tier]), seed, tier)
    base = next(spec for spec in drawn if spec.family == family)
    widths, found = made.widths, []
    for number in range(count):
        place = (len(widths) - 1) * (count - 1 - number) // max(1, count - 1)
        spec = replace(base, width=widths[place], option=made.options[(number + seed) % len(made.options)])
        if made.sequential:
            spec = replace(spec, asynchronous=bool(number % 2), active_low=bool(number // 2 % 2))
        found.append(spec)
    return found


def strength(
    executor: Executor,
    specs: Sequence[Spec],
    seed: int,
    threads: int,
    choose: Callable[[list[Wrong]], list[Wrong]] = list,
) -> Tally:
    """Grades the wrong designs of some specifications of one family; raises AssertionError if a golden answer fails."""
    tally = Tally()
    with closing(Grader(executor, seed=seed)) as grader, ThreadPoolExecutor(threads) as pool:
        for spec in specs:
            problem = problem_of(spec)
            verdict = grader.grade(problem, Answer(files=problem.golden or {}))
            assert verdict.passed, f"golden answer of {spec}: {verdict.reasons}"
            wrong = choose(wrong_designs(spec, seed))
            answers = [Answer(files={target_of(spec): one.code}) for one in wrong]
            verdicts = list(pool.map(lambda answer, p=problem: grader.grade(p, answer), answers))
            survived = []
            for one, verdict in zip(wrong, verdicts, strict=True):
                if verdict.passed:
                    survived.append(one)
                elif verdict.outcome in (Outcome.TESTS_FAILED, Outcome.TIMEOUT):
                    tally.killed += 1
                else:
                    tally.unfit[f"{verdict.outcome.value} ({one.kind}, {one.detail})"] += 1
            for one, told in zip(
                survived, pool.map(lambda w, s=spec: told_apart(executor, s, w), survived), strict=True
            ):
                if told:
                    tally.survivors.append(
                        f"{spec.family} {spec.option} {spec.width}: {one.kind}, {one.detail}: {told}"
                    )
                else:
                    tally.same += 1
    return tally


def told_apart(executor: Executor, spec: Spec, wrong: Wrong) -> str:
    """Where a long simulation beside the golden answer first differs, or ""; with other values of a parameter, too."""
    parameter = BY_NAME[spec.family].parameter(spec)
    widths = [spec.width, spec.width + 1, spec.width + 3, 3] if parameter else [spec.width]
    for width in widths:
        code = wrong.code.replace(f"parameter {parameter} = {spec.width}", f"parameter {parameter} = {width}")
        if told := _simulated(executor, replace(spec, width=width), code):
            return told
    return ""


def _simulated(executor: Executor, spec: Spec, code: str) -> str:
    golden = golden_answer(spec).replace(f"module {spec.module}", "module golden_answer", 1)
    files = {"golden.v": golden, "bench.v": side_by_side(spec)}
    compile_ = (
        "iverilog",
        "-g2012",
        "-s",
        "side_by_side",
        "-o",
        "both",
        "/src/bench.v",
        "/src/golden.v",
        f"/code/{target_of(spec)}",
    )
    job = Job(
        files={target_of(spec): code},
        harness={f"src/{path}": text for path, text in files.items()},
        steps=(Step("compile", compile_), Step("simulate", ("vvp", "-n", "both", "-none"))),
        limits=Limits(wall_s=60.0),
        stop_at_failure=True,
    )
    output = "\n".join(step.output for step in executor.run(job).steps)
    if "SAME" in output:
        return ""
    return next((line for line in output.splitlines() if "DIFFERENT" in line), output.strip()[:200] or "no output")


def side_by_side(spec: Spec) -> str:
    """A test bench that holds both designs and compares them after every change."""
    family = BY_NAME[spec.family]
    signals = family.signals(spec)
    inputs, outputs = [s for s in signals if s.is_input], [s for s in signals if not s.is_input]
    lines = ["module side_by_side;", "  reg c = 0, r = 0;", "  integer i, hold, density = 2;"]
    for s in inputs:
        lines.append(f"  reg [{s.width - 1}:0] i_{s.name} = 0;")
    for s in outputs:
        lines.append(f"  wire [{s.width - 1}:0] a_{s.name}, b_{s.name};")
    for module, prefix in (("golden_answer", "a"), (spec.module, "b")):
        ports = [f".{s.name}(i_{s.name})" for s in inputs] + [f".{s.name}({prefix}_{s.name})" for s in outputs]
        ports += [f".{spec.clock}(c)", f".{spec.reset}(r)"] if family.sequential else []
        lines.append(f"  {module} {prefix} ({', '.join(ports)});")
    good, bad = ("{" + ", ".join(f"{side}_{s.name}" for s in outputs) + "}" for side in "ab")
    shown = ", ".join(f"i_{s.name}" for s in inputs)
    lines += [
        "  task check; begin #5",
        f'    if ({good} !== {bad}) begin $display("DIFFERENT after %0d: reset %b, inputs", i, r, {shown}); $finish; end',
        "  end endtask",
        "  task draw; begin",
    ]
    for s in inputs:
        one = f"i_{s.name} = $urandom % 4 < density;"
        spread = (
            f"case ($urandom % 4) 0: i_{s.name} = 1 << $urandom % {s.width}; 1: i_{s.name} = $urandom >> $urandom % 32;"
        )
        close = f"2: i_{s.name} = i_{inputs[0].name} ^ ($urandom % 3 == 0 ? 1 << $urandom % {s.width} : 0);"
        lines.append("    " + (one if s.width == 1 else f"{spread} {close} default: i_{s.name} = $urandom; endcase"))
    every = "{" + shown + "}"
    # Every input changes once before the first check: `always @(*)` waits for a change.
    lines += ["  end endtask", "  initial begin", f"    {every} = ~0; #5 {every} = 0; #5;"]
    if not family.sequential:
        bits = sum(s.width for s in inputs)
        if bits <= 16:
            lines.append(f"    for (i = 0; i < {1 << bits}; i = i + 1) begin {every} = i; check; end")
        lines.append(f"    for (i = 0; i < {CYCLES}; i = i + 1) begin draw; check; end")
    else:
        on, off = ("0", "1") if spec.active_low else ("1", "0")
        rounds = max([2 * count for _, count in family.bursts(spec)], default=0)
        lines += [
            f"    r = {off}; #5 r = {on}; repeat (2) begin #5 c = 1; #5 c = 0; end check; r = {off}; check;",
            f"    for (i = 0; i < {CYCLES} + {rounds}; i = i + 1) begin",
            "      if (i % 64 == 0) density = 1 + $urandom % 3;",
            "      if (i % 256 == 0) density = $urandom % 5;",
            f"      draw; check; c = 1; check; if (i < {CYCLES} && $urandom % 4 == 0) begin draw; check; end c = 0; check;",
            f"      if (i < {CYCLES} && (i / 512) % 2 && $urandom % 32 == 0) begin",
            f"        r = {on}; check; if ($urandom % 2) begin c = 1; check; c = 0; check; end r = {off}; check;",
            "      end",
            f"      if (i >= {CYCLES}) density = 4;",
            "    end",
            f"    r = {on}; check; c = 1; check; c = 0; check;",
        ]
    return "\n".join([*lines, '    $display("SAME"); $finish;', "  end", "endmodule", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--specs", type=int, default=3, help="specifications of each family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--families", default=",".join(BY_NAME), help="comma-separated")
    arguments = parser.parse_args()
    console = Console()
    table = Table(
        "family", "killed", "told apart", "share", "the same", "no test", title="wrong designs of the starter set"
    )
    whole = Tally()
    started = time.monotonic()
    with make_executor("bubblewrap") as executor:
        for family in arguments.families.split(","):
            tally = strength(
                executor, specs_of(family, arguments.specs, arguments.seed), arguments.seed, arguments.threads
            )
            table.add_row(*_row(family, tally))
            print(*_row(family, tally), flush=True)
            whole.killed += tally.killed
            whole.same += tally.same
            whole.survivors += tally.survivors
            whole.unfit.update(tally.unfit)
    table.add_section()
    table.add_row(*_row("all", whole))
    console.print(table)
    for outcome, count in whole.unfit.items():
        console.print(f"not tested: {count} {outcome}")
    for survivor in whole.survivors:
        console.print(f"survived: {survivor}", soft_wrap=True)
    console.print(f"{time.monotonic() - started:.0f} s")
    sys.exit(whole.killed < GOAL * whole.distinguishable)


def _row(name: str, tally: Tally) -> tuple[str, ...]:
    share = tally.killed / tally.distinguishable if tally.distinguishable else 1.0
    return (
        name,
        str(tally.killed),
        str(tally.distinguishable),
        f"{100 * share:.1f} %",
        str(tally.same),
        str(sum(tally.unfit.values())),
    )


if __name__ == "__main__":
    main()
