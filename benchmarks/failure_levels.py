"""Does the level of a failed answer say what is wrong with it? Starter golden answers, broken in a known way, against `failure_levels`.

    python -m benchmarks.failure_levels [--answers 360] [--seed 0] [--families counter,fifo] [--cost]

Each way to break an answer (`WAYS`) is labelled with the level that it must get; the ways of a label, and the families, take turns until each label
has its share of the answers. Answers are graded like any other and recorded in a history, whose view gives the level. Broken answers that pass are left
out: where an input cannot occur, nothing is wrong. Printed: a table of labels against levels, and each way that got another level. With --cost
also the CPU time of the answers that fail tests, with and without the checks behind the first wrong one.

Exit status 1 where less than 90 % of the answers get the level of their label.
"""

import itertools
import random
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.answers import golden, graded, grader_on
from benchmarks.common import options, show
from benchmarks.history import rollouts as made_up
from benchmarks.starter_strength import specs_of
from rtl_core.history.store import History
from rtl_core.problems.starter import BY_NAME, Spec, problem_of
from rtl_core.prompting.answer_to import answer_to
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Outcome, Verdict
from rtl_core.validation.stubs import INNER, AroundGolden

GOAL = 0.9
SPECS = 6
"""Specifications of each family, over its widths, options and kinds of reset."""
BENCH = "src/starter_bench.py"


@dataclass(frozen=True)
class Broken:
    """A golden answer that is to be broken."""

    spec: Spec
    problem: Problem
    text: str
    rng: random.Random

    @property
    def port(self) -> str:
        """Name of a data port."""
        return self.rng.choice(self.spec.ports)

    @property
    def reset(self) -> str:
        """The condition of being in reset."""
        return f"{'!' * self.spec.active_low}{self.spec.reset}"

    @property
    def moved(self) -> str:
        """Declares `moved__`: whether a clock edge out of reset has followed the reset; 1 without a clock."""
        if not self.clocked:
            return "wire moved__ = 1;"
        reset = f" or {'neg' if self.spec.active_low else 'pos'}edge {self.spec.reset}" * self.spec.asynchronous
        return f"reg moved__; always @(posedge {self.spec.clock}{reset}) moved__ <= !({self.reset});"

    @property
    def clocked(self) -> bool:
        return BY_NAME[self.spec.family].sequential

    def around(self, value: Callable[[str, str, int], str], body: str = "") -> str:
        """The golden answer within a module whose outputs, one or all of them, are `value` of name, right value and width."""
        right = AroundGolden(self.problem)
        changed = right.outputs if self.rng.random() < 0.5 else [self.rng.choice(right.outputs)]
        values = {p.name: value(p.name, f"{p.name}{INNER}", p.width or 1) for p in changed}
        lines = [body, *(f"assign {name} = {values.get(name, name + INNER)};" for name in right.ranges)]
        (text,) = (right.answer("".join(f"  {line}\n" for line in lines)) or {}).values()
        return text

    def delayed(self, cleared: bool) -> str:
        """One output, or all of them, a clock edge late; the register behind it is cleared in reset, or is not."""
        reset = f"({self.reset}) ? 0 : " * cleared
        registers = {
            p.name: f"reg [{(p.width or 1) - 1}:0] {p.name}__late; always @(posedge {self.spec.clock}) {p.name}__late <= {reset}{p.name}{INNER};"
            for p in AroundGolden(self.problem).outputs
        }
        return self.around(lambda name, right, width: f"{name}__late", " ".join(registers.values()))

    def other(self, **changes: object) -> str:
        """What another specification of the family asks for."""
        return BY_NAME[self.spec.family].code(replace(self.spec, **changes))  # type: ignore[arg-type]

    def where(self, condition: str) -> str:
        """Outputs, one or all of them, complemented while a condition holds; empty for an empty condition."""
        return self.around(lambda name, right, width: f"({condition}) ? ~{right} : {right}") if condition else ""

    @property
    def bits(self) -> list[str]:
        """The bits of the data inputs and, of a clocked design, of the right outputs, in random order."""
        ports = [p for p in BY_NAME[self.spec.family].signals(self.spec) if p.is_input or self.clocked]
        bits = [
            f"{p.name}{'' if p.is_input else INNER}{f'[{i}]' if p.width > 1 else ''}"
            for p in ports
            for i in range(p.width)
        ]
        return self.rng.sample(bits, len(bits))

    def corner(self, count: int) -> str:
        """True while so many bits have one value; empty where there are not so many."""
        bits = self.bits[:count]
        return f"{{{', '.join(bits)}}} == {self.rng.getrandbits(count)}" if len(bits) == count else ""

    def quarter(self) -> str:
        """True a quarter of the time, whatever the inputs are like: two parities, each of half of the bits."""
        bits = self.bits
        middle = len(bits) // 2
        return f"^{{{', '.join(bits[:middle])}}} & ^{{{', '.join(bits[middle:])}}}" if middle else ""


def _clocked(make: Callable[[Broken], str]) -> Callable[[Broken], str]:
    """Of a design without a clock nothing."""
    return lambda broken: make(broken) if broken.clocked else ""


def _lines(*lines: str) -> Callable[[Broken], str]:
    """The golden answer with further lines in its module."""
    return lambda broken: broken.text.replace("endmodule", "".join(f"  {line}\n" for line in lines) + "endmodule")


WAYS: dict[str, dict[str, Callable[[Broken], str]]] = {
    "no answer": {
        "words alone": lambda b: f"The specification of {b.spec.module} is not clear to me.",
        "cut in its thought": lambda b: f"<think>\nThe module has a port {b.port}",
        "empty block": lambda b: "```verilog\n```",
    },
    "does not parse": {
        "no endmodule": lambda b: b.text.replace("endmodule", ""),
        "no semicolon": lambda b: re.sub(r";(\s*)", r"\1", b.text, count=2),
        "open begin": _lines("always @(*) begin"),
        "foreign words": _lines("let the output be right"),
        "open bracket": lambda b: b.text.replace(");", ";", 1),
    },
    "wrong interface": {
        "port renamed": lambda b: re.sub(rf"\b{b.port}\b", "other_name", b.text),
        "module renamed": lambda b: b.text.replace(f"module {b.spec.module}", "module other_name"),
        "width": lambda b: re.sub(r"^(module.*?)\[", r"\1[1+", b.text),
        "direction": lambda b: re.sub(r"\boutput( reg)?\b", "inout", b.text, count=1),
    },
    "does not elaborate": {
        "undefined module": _lines("helper_cell u0(.a(1'b0));"),
        "undeclared name": _lines("wire w__ = not_declared[3:0] == 0;"),
        "undefined function": _lines("wire w__ = clog_of(3);"),
        "net as a variable": _lines("wire w__;", "always @(*) w__ = 1;"),
    },
    "times out": {
        "endless process": _lines("reg z__;", "initial forever z__ = 0;"),
        "endless loop": _lines("integer i__;", "initial for (i__ = 0; i__ < 4; i__ = i__) ;"),
        "ring": _lines("reg z__ = 0;", "always @(z__) z__ <= ~z__;", "initial #1 z__ = 1;"),
    },
    "X on outputs": {
        "not driven": lambda b: b.around(lambda name, right, width: f"{width}'bz"),
        "one bit": lambda b: b.around(lambda name, right, width: f"{right} ^ 1'bx"),
        "register never set": lambda b: b.around(lambda name, right, width: f"{right} ^ never__", "reg never__;"),
    },
    "off by a cycle": {
        "delayed, cleared in reset": _clocked(lambda b: b.delayed(cleared=True)),
        "delayed": _clocked(lambda b: b.delayed(cleared=False)),
    },
    "reset wrong": {
        "value": _clocked(lambda b: b.text.replace("<= 0;", "<= 1;", 1)),
        "polarity": _clocked(lambda b: b.other(active_low=not b.spec.active_low)),
        "kind": _clocked(lambda b: b.other(asynchronous=not b.spec.asynchronous)),
        "edge": _clocked(lambda b: re.sub(rf"(pos|neg)(?=edge {b.spec.reset}\b)", lambda m: {"pos": "neg", "neg": "pos"}[m[1]], b.text)),
    },
    "wrong in corner values only": {
        "at six bits": lambda b: b.where(b.corner(6)),
        "at eight bits": lambda b: b.where(b.corner(8)),
    },
    "wrong in some checks": {"a quarter": lambda b: b.where(b.quarter())},
    "wrong in most checks": {
        "complement": lambda b: b.around(lambda name, right, width: f"moved__ ? ~{right} : {right}", b.moved),
        "one more": lambda b: b.around(lambda name, right, width: f"{right} + moved__", b.moved),
    },
}  # fmt: skip
"""Level -> way -> maker of a text that is wrong in this way; empty, or the golden answer, where a specification has no such text."""


def made(families: list[str], answers: int, seed: int) -> Iterator[tuple[str, str, Problem, Answer]]:
    """(label, way, problem, answer): about as many as asked for, the same number of each label as far as there are ways to make them."""
    specs = {family: specs_of(family, SPECS, seed) for family in families}
    rng = random.Random(f"failure levels {seed}")
    each = -(-answers // len(WAYS))
    for label, ways in WAYS.items():
        seen: set[tuple[str, str]] = set()
        turns = itertools.islice(zip(itertools.cycle(ways.items()), _in_turn(specs, rng), strict=False), 40 * each)
        for (way, make), spec in turns:
            problem = problem_of(spec)
            ((path, text),) = (problem.golden or {}).items()
            wrong = make(Broken(spec, problem, text, rng))
            if wrong in ("", text) or (problem.id, wrong) in seen:
                continue
            seen.add((problem.id, wrong))
            answer = answer_to(problem, wrong) if label == "no answer" else Answer(files={path: wrong})
            yield label, way, problem, answer
            if len(seen) == each:
                break


def _in_turn(specs: dict[str, list[Spec]], rng: random.Random) -> Iterator[Spec]:
    for number in itertools.count():
        families = list(specs)
        rng.shuffle(families)
        for family in families:
            yield specs[family][number % SPECS]


def levels_of(found: list[tuple[str, str, Problem, Answer]], verdicts: list[Verdict]) -> list[str]:
    """The level of each answer as a history gives it; empty where there is none, since it passed."""
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "history.duckdb")
        rollouts = made_up(0, problems=len(found), samples=1)
        history.record_rollouts(rollouts)
        history.record_verdicts([(r.key, verdict, None) for r, verdict in zip(rollouts, verdicts, strict=True)])
        rows = history.query("SELECT rollout, level FROM failure_levels").to_pylist()
    levels = {row["rollout"]: row["level"] for row in rows}
    return [levels.get(r.key, "") for r in rollouts]


def without_record(problem: Problem) -> Problem:
    """The problem with a bench whose tests end at their first wrong check."""
    bench = re.sub(r"^MORE = \d+", "MORE = 0", problem.harness[BENCH], flags=re.M)
    return Problem(**(dict(problem) | {"harness": {**problem.harness, BENCH: bench}}))


def confusion(counted: dict[str, Counter[str]]) -> None:
    """Print labels against levels."""
    short = {level: re.sub(r"wrong in | values only| checks|does not | on outputs", "", level) for level in counted}
    rows = [(short[label], *(row[level] or "·" for level in counted)) for label, row in counted.items()]
    show("level of the answer", ("made as", *short.values()), rows, width=160)


def main() -> None:
    cost = (False, "grade what fails tests a second time, without the record")
    arguments = options(__doc__, answers=360, seed=0, families=[*BY_NAME], cost=cost).parse_args()
    found = list(made(arguments.families, arguments.answers, arguments.seed))
    with grader_on("bubblewrap") as grader:
        # Known-good answers tell how long others may take.
        graded(grader, [(problem, golden(problem)) for problem in {p.id: p for _, _, p, _ in found}.values()])
        verdicts = graded(grader, [(problem, answer) for _, _, problem, answer in found])
        failing = [
            (p, a, v) for (_, _, p, a), v in zip(found, verdicts, strict=True) if v.outcome is Outcome.TESTS_FAILED
        ]
        again = graded(grader, [(without_record(p), a) for p, a, _ in failing]) if arguments.cost else []
    levels = levels_of(found, verdicts)
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for (label, way, problem, _), verdict, level in zip(found, verdicts, levels, strict=True):
        if level:
            counted[label][level] += 1
        if level not in ("", label):
            print(f"{label}, {way} ({problem.id}): {level}; {'; '.join(verdict.reasons)[:900]}")
    confusion(counted)
    total, agreed = sum(map(Counter.total, counted.values())), sum(row[label] for label, row in counted.items())
    print(f"{agreed} of {total} as made ({agreed / total:.1%}); {levels.count('')} passed and are left out")
    if again:
        costs = [sum(v.cpu_s for v in some) / len(again) for some in ([v for _, _, v in failing], again)]
        print(
            f"CPU of {len(again)} answers that fail tests: {costs[0]:.3f} s each, {costs[1]:.3f} s without the record"
        )
    sys.exit(agreed < GOAL * total)


if __name__ == "__main__":
    main()
