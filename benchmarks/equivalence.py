"""What the proof of equivalence decides about golden answers, harmless rewrites of them, and mutants.

    python -m benchmarks.equivalence [--sets starter,VerilogEval,RTLLM] [--mutants 6] [--starter 78] [--cpu
    10] [--data ../shared/data]

Each golden answer is compared with itself, three rewrites (renamed internal signals; blocks in another
order; `always` blocks instead of `assign`) and mutants. `told apart` counts mutants that a simulation
beside the golden answer detects, `rarely wrong` designs that are wrong for one value of an input and escape
it. Every difference is replayed in the simulator; one that does not show there counts as undecided. The
exit code is 1 if a design that the simulation tells apart, or a rarely wrong one, is called equal, or a
golden answer or a rewrite different.
"""

import os
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import options, show
from benchmarks.starter_strength import rarely_wrong
from rtl_core.starter import starter_problems
from rtl_grader.equivalence.effort import USUAL
from rtl_grader.equivalence.pair import IncomparableError, Pair
from rtl_grader.equivalence.proof import Proof, prove
from rtl_grader.grading.executors import Executor, make_executor
from rtl_grader.grading.limits import Limits
from rtl_grader.hdl.tree import Edit, SourceTree, name_of
from rtl_grader.problems.sources.rtllm import read_rtllm
from rtl_grader.problems.sources.verilog_eval import read_verilog_eval
from rtl_grader.traces.races import PROCESSES, reordered, write_one_variable
from rtl_grader.types.problem import Problem
from rtl_grader.validation.mutants import mutants

RARE = (4, 8, 12, 16, 24)
"""Input bits that must match for a design that is rarely wrong: once in 16 to once in 16 million inputs."""
LIMITS = Limits(wall_s=300.0, cpu_s=120.0)
EQUAL = ("itself", "renamed", "reordered", "always for assign")
"""Kinds of answers that equal the golden one."""
SETS: dict[str, Callable[[Path, int], Sequence[Problem]]] = {
    "starter": lambda data, count: starter_problems("heldout", count, 0),
    "VerilogEval": lambda data, count: read_verilog_eval(data / "verilog-eval").problems,
    "RTLLM": lambda data, count: read_rtllm(data / "RTLLM").problems,
}
Files = Mapping[str, str]


def renamed(tree: SourceTree) -> str:
    """Rename the signals that a module declares, other than ports."""
    text = tree.data.decode()
    kinds = ("DataDeclaration", "NetDeclaration")
    named = {
        tree.text(node.name) for node in tree.of("Declarator") if name_of(node.parent) in kinds
    }
    ports = {node.declarator.name.rawText for node in tree.of("ImplicitAnsiPort")}
    ports |= set(re.findall(r"\.\s*(\w+)\s*\(", text))
    ports |= {
        name
        for node in tree.of("PortDeclaration")
        for name in re.findall(r"\w+", tree.text(node))
    }
    plain = (name for name in named - ports if re.fullmatch(r"\w+", name))
    for name in sorted(plain):
        text = re.sub(rf"(?<![\w$.`\\]){re.escape(name)}\b", f"{name}_other", text)
    return text


def procedural(tree: SourceTree) -> str:
    """Replace each `assign` by `always_comb`, unless two processes write one variable: then the moment at which a
    signal changes matters. Concatenations and elements of arrays stay: Icarus 11 declares `$bits` of one as one bit."""
    arrays = {tree.text(node.name) for node in tree.of("Declarator") if len(node.dimensions)}
    assigns = []
    for module in tree.of("ModuleDeclaration"):
        processes = [member for member in module.members if name_of(member) in PROCESSES[1:]]
        if not write_one_variable(tree, processes):
            assigns += [node for node in module.members if name_of(node) == PROCESSES[0]]
    edits = []
    for number, node in enumerate(assigns):
        if (
            len(node.assignments) != 1
            or not tree.span(node)
            or node.delay is not None
            or node.strength is not None
        ):
            continue
        left, right = (
            tree.text(side) for side in (node.assignments[0].left, node.assignments[0].right)
        )
        if left.startswith("{") or left.split("[")[0].strip() in arrays:
            continue
        new = f"other_{number}"
        body = f"logic [$bits({left})-1:0] {new}; always_comb {new} = {right}; assign {left} = {new};"
        edits.append(Edit(*tree.span(node), body))  # type: ignore[misc]
    return tree.edited(tuple(edits))


def answers(problem: Problem, count: int) -> Iterator[tuple[str, Files]]:
    """Yield (kind, files) to compare with the golden answer."""
    golden = problem.golden or {}
    yield "itself", golden
    for kind, change in zip(EQUAL[1:], (renamed, reordered, procedural), strict=True):
        hdl = {path for path in golden if path.endswith((".v", ".sv"))}
        yield (
            kind,
            {
                path: change(SourceTree(text)) if path in hdl else text
                for path, text in golden.items()
            },
        )
    assert problem.interface is not None
    for mutant in mutants(golden, problem.interface.module, count, 0):
        yield f"mutant: {mutant.description}", mutant.files
    if problem.source == "starter":
        for name, files in rarely_wrong(problem, random.Random(problem.id), RARE):
            if name.startswith(
                "one input"
            ):  # outputs may never have the value that makes the other kind wrong
                yield f"rarely wrong: {name}", files


@dataclass(frozen=True)
class Held:
    """The comparison of an answer with the golden one."""

    kind: str
    simulated: str
    proof: Proof
    cpu_s: float

    @property
    def row(self) -> str:
        if self.kind in EQUAL:
            return self.kind
        if self.simulated == "different":
            return "told apart"
        return "rarely wrong" if self.kind.startswith("rarely") else "mutant, not told apart"

    @property
    def wrong(self) -> bool:
        outcome = self.proof.outcome
        if self.kind in EQUAL:
            return outcome == "different"
        return outcome == "equal" and self.row != "mutant, not told apart"


def hold(
    executor: Executor, problem: Problem, kind: str, files: Files, cpu_s: float
) -> Held | None:
    """Compare an answer with the golden one; None where they cannot be compared, or do not compile side by side."""
    try:
        pair = Pair.of(executor, problem, problem.golden or {}, files, LIMITS)
    except IncomparableError:
        return None
    simulated = pair.simulate(pair.design, USUAL)
    if "compile" in simulated.detail or (
        kind.startswith("rarely") and simulated.result == "different"
    ):
        return None
    if kind in EQUAL[1:] and simulated.result == "different":
        return None  # not a rewrite: a race, or another object's name was changed
    before = pair.cpu_s
    proof = prove(pair, pair.design, cpu_s)
    cpu = pair.cpu_s - before
    if (
        proof.outcome == "different"
        and pair.replay(pair.design, proof.trace, proof.clock).result != "different"
    ):
        proof = Proof(
            "undecided", why="a difference only in X, or one that the simulator does not show"
        )
    return Held(kind, simulated.result, proof, cpu)


def problems_of(name: str, data: Path, starter: int) -> list[Problem]:
    """The comparable problems of a set; `starter` problems of the starter set."""
    return [
        problem for problem in SETS[name](data, starter) if problem.golden and problem.interface
    ]


def main() -> None:
    arguments = options(
        __doc__,
        data=True,
        sets=[*SETS],
        mutants=(6, "of each golden answer"),
        starter=(78, "starter problems"),
        cpu=(10.0, "CPU seconds of ABC for each proof"),
        executor="bubblewrap",
    ).parse_args()
    wrong, lines = 0, []
    with (
        make_executor(arguments.executor) as executor,
        ThreadPoolExecutor(os.cpu_count() or 1) as pool,
    ):
        for name in arguments.sets:
            todo = [
                (p, kind, files)
                for p in problems_of(name, arguments.data, arguments.starter)
                for kind, files in answers(p, arguments.mutants)
            ]
            found = list(
                pool.map(lambda one: (one[0], hold(executor, *one, arguments.cpu)), todo)
            )
            rows: dict[str, list[Held]] = defaultdict(list)
            for problem, held in found:
                if held is None:
                    continue
                rows[held.row].append(held)
                if held.wrong:
                    wrong += 1
                    told = (
                        f"{held.kind}: {held.simulated}, {held.proof.outcome} {held.proof.why}"
                    )
                    print(f"WRONG: {problem.id}: {told}")
                elif held.proof.outcome == "undecided" and held.kind == "itself":
                    print(f"undecided: {problem.id}: {held.proof.why}")
            for kind in sorted(rows, key=lambda row: (row not in EQUAL, row)):
                lines.append((name, kind, *_counts(rows[kind])))
    figures = ("equal", "bounded", "different", "undecided", "decided", "CPU s, median", "most")
    show("proofs beside golden answers", ("set", "answer", "pairs", *figures), lines, width=140)
    sys.exit(bool(wrong))


def _counts(rows: list[Held]) -> list[str]:
    counts = Counter(held.proof.outcome for held in rows)
    spent = sorted(held.cpu_s for held in rows)
    decided = counts["equal"] + counts["different"]
    return [
        *map(
            str,
            (
                len(rows),
                *(
                    counts[outcome]
                    for outcome in ("equal", "bounded", "different", "undecided")
                ),
            ),
        ),
        *(
            f"{100 * decided / len(rows):.0f} %",
            f"{spent[len(spent) // 2]:.2f}",
            f"{spent[-1]:.1f}",
        ),
    ]


if __name__ == "__main__":
    main()
