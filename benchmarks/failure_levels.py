"""Check that the failure level of an answer says what is wrong with it, on starter golden answers that are
broken in known ways.

    python -m benchmarks.failure_levels [--answers 360] [--seed 0] [--families counter,fifo]

Each way to break an answer (`WAYS`) is labelled with the level that it should get. Ways and families take
turns until each label has its share of the answers. These are graded and recorded in a history, whose view
`failure_levels` gives the level. Broken answers that pass are left out: the change had no effect. Prints a
table of labels against levels, and each answer with another level.

The exit code is 1 if less than 90 % of the answers get the level of their label.
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

from benchmarks.answers import golden, grade_all, grader_on
from benchmarks.common import options, show
from benchmarks.history import rollouts as made_up
from benchmarks.starter_strength import specs_of
from rtl_core.history.store import History
from rtl_core.starter import BY_NAME, Spec, problem_of
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Verdict
from rtl_grader.validation.stubs import INNER, AroundGolden

GOAL = 0.9
SPECS = 6
"""Specifications of each family."""


@dataclass(frozen=True)
class Broken:
    """A golden answer to break."""

    spec: Spec
    problem: Problem
    text: str
    rng: random.Random

    @property
    def port(self) -> str:
        """A random data port."""
        return self.rng.choice(self.spec.ports)

    @property
    def reset(self) -> str:
        """A Verilog expression that is true in reset."""
        return f"{'!' * self.spec.active_low}{self.spec.reset}"

    @property
    def moved(self) -> str:
        """Declare `moved__`: whether there was a clock edge out of reset since the last reset; always 1
        without a clock."""
        if not self.clocked:
            return "wire moved__ = 1;"
        reset = (
            f" or {'neg' if self.spec.active_low else 'pos'}edge {self.spec.reset}"
            * self.spec.asynchronous
        )
        return f"reg moved__; always @(posedge {self.spec.clock}{reset}) moved__ <= !({self.reset});"

    @property
    def clocked(self) -> bool:
        return BY_NAME[self.spec.family].sequential

    def around(self, value: Callable[[str, str, int], str], body: str = "") -> str:
        """Wrap the golden answer so that one or all outputs are `value(name, right value, width)`."""
        right = AroundGolden(self.problem)
        changed = right.outputs if self.rng.random() < 0.5 else [self.rng.choice(right.outputs)]
        values = {p.name: value(p.name, f"{p.name}{INNER}", p.width or 1) for p in changed}
        lines = [
            body,
            *(f"assign {name} = {values.get(name, name + INNER)};" for name in right.ranges),
        ]
        (text,) = (right.answer("".join(f"  {line}\n" for line in lines)) or {}).values()
        return text

    def delayed(self, cleared: bool) -> str:
        """Delay one or all outputs by a clock edge, through registers that reset clears or does not."""
        reset = f"({self.reset}) ? 0 : " * cleared
        registers = " ".join(
            f"reg [{(p.width or 1) - 1}:0] {p.name}__late; always @(posedge {self.spec.clock}) "
            f"{p.name}__late <= {reset}{p.name}{INNER};"
            for p in AroundGolden(self.problem).outputs
        )
        return self.around(lambda name, right, width: f"{name}__late", registers)

    def other(self, **changes: object) -> str:
        """The golden answer to a changed specification of the same family."""
        return BY_NAME[self.spec.family].code(replace(self.spec, **changes))  # type: ignore[arg-type]

    def where(self, condition: str) -> str:
        """Complement one or all outputs while a condition holds; empty for an empty condition."""
        return (
            self.around(lambda name, right, width: f"({condition}) ? ~{right} : {right}")
            if condition
            else ""
        )

    @property
    def bits(self) -> list[str]:
        """The bits of the data inputs and, in a clocked design, of the right outputs, in random order."""
        ports = [
            p
            for p in BY_NAME[self.spec.family].signals(self.spec)
            if p.is_input or self.clocked
        ]
        names = [(f"{p.name}{'' if p.is_input else INNER}", p.width) for p in ports]
        bits = [
            f"{name}[{i}]" if width > 1 else name for name, width in names for i in range(width)
        ]
        return self.rng.sample(bits, len(bits))

    def corner(self, count: int) -> str:
        """A condition that `count` bits have one value; empty if there are fewer bits."""
        bits = self.bits[:count]
        return (
            f"{{{', '.join(bits)}}} == {self.rng.getrandbits(count)}"
            if len(bits) == count
            else ""
        )

    def quarter(self) -> str:
        """A condition that is true a quarter of the time for any inputs: two parities, each of half of the bits."""
        bits = self.bits
        middle = len(bits) // 2
        return (
            f"^{{{', '.join(bits[:middle])}}} & ^{{{', '.join(bits[middle:])}}}"
            if middle
            else ""
        )


def _clocked(make: Callable[[Broken], str]) -> Callable[[Broken], str]:
    """Apply only to designs with a clock."""
    return lambda broken: make(broken) if broken.clocked else ""


def _lines(*lines: str) -> Callable[[Broken], str]:
    """Add lines to the golden answer's module."""
    return lambda broken: broken.text.replace(
        "endmodule", "".join(f"  {line}\n" for line in lines) + "endmodule"
    )


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
        "module renamed": lambda b: b.text.replace(
            f"module {b.spec.module}", "module other_name"
        ),
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
        "register never set": lambda b: b.around(
            lambda name, right, width: f"{right} ^ never__", "reg never__;"
        ),
    },
    "off by a cycle": {
        "delayed, cleared in reset": _clocked(lambda b: b.delayed(cleared=True)),
        "delayed": _clocked(lambda b: b.delayed(cleared=False)),
    },
    "reset wrong": {
        "value": _clocked(lambda b: b.text.replace("<= 0;", "<= 1;", 1)),
        "polarity": _clocked(lambda b: b.other(active_low=not b.spec.active_low)),
        "kind": _clocked(lambda b: b.other(asynchronous=not b.spec.asynchronous)),
        "edge": _clocked(
            lambda b: re.sub(
                rf"(pos|neg)(?=edge {b.spec.reset}\b)",
                lambda m: {"pos": "neg", "neg": "pos"}[m[1]],
                b.text,
            )
        ),
    },
    "wrong in corner values only": {
        "at six bits": lambda b: b.where(b.corner(6)),
        "at eight bits": lambda b: b.where(b.corner(8)),
    },
    "wrong in some checks": {"a quarter": lambda b: b.where(b.quarter())},
    "wrong in most checks": {
        "complement": lambda b: b.around(
            lambda name, right, width: f"moved__ ? ~{right} : {right}", b.moved
        ),
        "one more": lambda b: b.around(
            lambda name, right, width: f"{right} + moved__", b.moved
        ),
    },
}
"""Level -> way -> function that breaks an answer; it returns an empty or unchanged text where the way does
not apply."""


def broken_answers(
    families: list[str], answers: int, seed: int
) -> Iterator[tuple[str, str, Problem, Answer]]:
    """Yield (label, way, problem, answer): about `answers` in all, the same number for each label if there
    are enough ways."""
    specs = {family: specs_of(family, SPECS, seed) for family in families}
    rng = random.Random(f"failure levels {seed}")
    each = -(-answers // len(WAYS))
    for label, ways in WAYS.items():
        seen: set[tuple[str, str]] = set()
        turns = itertools.islice(
            zip(itertools.cycle(ways.items()), _in_turn(specs, rng), strict=False), 40 * each
        )
        for (way, make), spec in turns:
            problem = problem_of(spec)
            ((path, text),) = (problem.golden or {}).items()
            wrong = make(Broken(spec, problem, text, rng))
            if wrong in ("", text) or (problem.id, wrong) in seen:
                continue
            seen.add((problem.id, wrong))
            answer = (
                answer_to(problem, wrong)
                if label == "no answer"
                else Answer(files={path: wrong})
            )
            yield label, way, problem, answer
            if len(seen) == each:
                break


def _in_turn(specs: dict[str, list[Spec]], rng: random.Random) -> Iterator[Spec]:
    for number in itertools.count():
        families = list(specs)
        rng.shuffle(families)
        for family in families:
            yield specs[family][number % SPECS]


def levels_of(
    found: list[tuple[str, str, Problem, Answer]], verdicts: list[Verdict]
) -> list[str]:
    """The level of each answer in a history; empty for one that passed."""
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "history.duckdb")
        rollouts = made_up(0, problems=len(found), samples=1)
        history.record_rollouts(rollouts)
        history.record_verdicts(
            [(r.key, verdict, None) for r, verdict in zip(rollouts, verdicts, strict=True)]
        )
        levels = {
            row["rollout"]: row["level"]
            for row in history.query("FROM failure_levels").to_pylist()
        }
    return [levels.get(r.key, "") for r in rollouts]


def main() -> None:
    arguments = options(__doc__, answers=360, seed=0, families=[*BY_NAME]).parse_args()
    found = list(broken_answers(arguments.families, arguments.answers, arguments.seed))
    with grader_on("bubblewrap") as grader:
        # Known-good answers set the time that others may take.
        grade_all(
            grader,
            [
                (problem, golden(problem))
                for problem in {p.id: p for _, _, p, _ in found}.values()
            ],
        )
        verdicts = grade_all(grader, [(p, answer) for _, _, p, answer in found])
    levels = levels_of(found, verdicts)
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for (label, way, problem, _), verdict, level in zip(found, verdicts, levels, strict=True):
        if level:
            counted[label][level] += 1
        if level not in ("", label):
            print(f"{label}, {way} ({problem.id}): {level}; {'; '.join(verdict.reasons)[:900]}")
    short = {
        level: re.sub(r"wrong in | values only| checks|does not | on outputs", "", level)
        for level in counted
    }
    rows = [
        (short[label], *(row[level] or "·" for level in counted))
        for label, row in counted.items()
    ]
    show("level of the answer", ("made as", *short.values()), rows, width=160)
    total, agreed = (
        sum(map(Counter.total, counted.values())),
        sum(row[label] for label, row in counted.items()),
    )
    if not total:
        sys.exit("no answer was judged wrong")
    print(
        f"{agreed} of {total} as made ({agreed / total:.1%}); {levels.count('')} passed and are left out"
    )
    sys.exit(agreed < GOAL * total)


if __name__ == "__main__":
    main()
