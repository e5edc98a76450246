"""Our judge beside the public checker that CodeV-R1's reward uses, on the same pairs of real designs.

    python -m benchmarks.checkers FILE.jsonl [MORE...] --checker verify.py [--designs 300] [--jobs 2]
    [--log FILE.jsonl]

`verify.py` is that file of the repository IPRC-DIP/CodeV-R1 (verl/verl/utils/reward_score/codev_eval_toolkit); it is
no part of this project. It puts both designs in one Icarus test bench and compares them with 100 sequences of
1,000 random steps. Ports, clocks and resets, which its data set stores with each design, are given by our
analysis. It runs without a sandbox: use designs that you trust.

Each design is compared with itself, a rewrite and two mutants. The truth: itself and a rewrite are right; a
mutant is wrong if our longest simulation (`--longest` cycles) or a proof tells it apart, right if it is proved
equal, and left out if neither decides. `judge` is our judge with its default effort, `judge and proof` the same with
a proof of what passes, `proof` a proof alone.

A pair is not comparable if a checker gives no verdict on it: it does not compile, or the golden answer could not
even be compared with itself. A pair that crashes the simulator is left out. The exit code is 1 if a proof calls a
mutant equal that the longest simulation tells apart.
"""

import importlib.util
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import Log, options, show
from benchmarks.equivalence import procedural, renamed
from benchmarks.itself import designs, problem_of, spread
from rtl_grader.equivalence.differential import compare
from rtl_grader.equivalence.effort import Effort
from rtl_grader.grading.executors import Executor, make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.limits import Limits
from rtl_grader.hdl.clocking import clocks_and_resets, edges_and_uses
from rtl_grader.hdl.tree import SourceTree
from rtl_grader.problems.judged import Judging, judged_problem
from rtl_grader.traces.races import reordered
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome
from rtl_grader.validation.mutants import mutants

PUBLIC = "CodeV-R1's checker"
LIMITS = Limits(wall_s=300.0, cpu_s=120.0)
CRASH = "(the simulator ended with code -"
TIMEOUT_S = 120
"""Wall time of the public checker. Its reward gives it 30 s, which a busy machine would exceed."""
FIGURES = (
    "pairs",
    "wrongly accepted",
    "wrongly refused",
    "not comparable",
    "CPU s, median",
    "mean",
)
Ports = tuple[
    set[tuple[str, int]], set[tuple[str, int]], set[tuple[str, int]], set[tuple[str, int, bool]]
]
"""(name, bits) of inputs and of outputs; (name, edge) of clocks; (name, active level, whether synchronous)
of resets."""


class CrashError(Exception):
    """A signal ended the simulator: no checker that simulates says anything of this pair."""


class Judgement(NamedTuple):
    """What a checker says of a pair: None if nothing."""

    accepts: bool | None
    cpu_s: float


class Row(NamedTuple):
    """What all checkers say of a pair."""

    name: str
    kind: str
    truth: str
    """Right, wrong or unknown."""
    results: dict[str, Judgement]


@dataclass(frozen=True)
class Pairing:
    """A golden answer and another one."""

    problem: Problem
    kind: str
    text: str


def pairings(problem: Problem) -> list[Pairing]:
    """A design with itself, with a rewrite, and with two mutants."""
    assert problem.golden
    assert problem.interface
    ((path, golden),) = problem.golden.items()
    rewrites = (renamed, reordered, procedural)
    rewrite = rewrites[len(golden) % len(rewrites)](SourceTree(golden))
    results = [Pairing(problem, "itself", golden), Pairing(problem, "rewrite", rewrite)]
    for mutant in mutants(problem.golden, problem.interface.module, 2, 0):
        results.append(Pairing(problem, "mutant", mutant.files[path]))
    return results


def ports_of(problem: Problem) -> Ports:
    """What the public checker must know of a design."""
    assert problem.interface
    assert problem.golden
    inputs = {(p.name, p.width or 1) for p in problem.interface.ports if p.direction == "input"}
    outputs = {
        (p.name, p.width or 1) for p in problem.interface.ports if p.direction == "output"
    }
    bits = sorted(name for name, width in inputs if width == 1)
    clocks, resets, low = clocks_and_resets(problem.golden, bits)
    edges: dict[str, set[str]] = defaultdict(set)
    for text in problem.golden.values():
        tree = SourceTree(text)
        for name, kinds in edges_and_uses(tree.root)[0].items():
            edges[name] |= kinds
    active = {(name, int("posedge" in edges[name])) for name in clocks}
    levels = {(name, int(name not in low), name not in edges) for name in resets}
    return inputs, outputs, active, levels


def public(checker: Path, golden: str, other: str, ports: Ports) -> Judgement:
    """What the public checker says. It is called as its reward calls it."""
    spec = importlib.util.spec_from_file_location("public_checker", checker)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tools = module.eda_tools(quiet=True)
    before = _children_s()
    accepts = None
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, text in (("golden.v", golden), ("other.v", other)):
            paths.append(os.path.join(folder, name))
            Path(paths[-1]).write_text(text)
        work = os.path.join(folder, "work")
        try:
            tops = [tools.auto_top(text) for text in (golden, other)]
            result = tools.equiv_with_testbench(*paths, *tops, work, ports, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:  # its shell is ended, the simulator in it is not
            subprocess.run(["pkill", "-KILL", "-f", folder], check=False)
            accepts = None
        except Exception:  # as its reward does: whatever fails makes an answer wrong
            accepts = None
        else:
            compiled = os.path.exists(os.path.join(work, "tb.vvp"))
            accepts = result[0] if compiled else None
    return Judgement(accepts, _children_s() - before)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def judged(grader: Grader, pairing: Pairing, proof: str) -> Judgement:
    """What our judge says."""
    problem = pairing.problem
    assert problem.golden
    assert problem.interface
    judging = Judging.model_validate({"proof": proof})
    again = judged_problem(
        id=problem.id,
        source=problem.source,
        category=problem.category,
        difficulty=problem.difficulty,
        prompt=problem.prompt,
        golden=problem.golden,
        top=problem.interface.module,
        judging=judging,
    )
    files = dict.fromkeys(problem.golden, pairing.text)
    verdict = grader.grade(again, Answer(files=files))
    no_result = verdict.outcome in (Outcome.INFRASTRUCTURE_ERROR, Outcome.COMPILE_FAILED)
    if any(CRASH in reason for reason in verdict.reasons):
        raise CrashError
    return Judgement(None if no_result else verdict.passed, verdict.cpu_s)


def ours(
    executor: Executor, grader: Grader, effort: Effort, pairing: Pairing
) -> tuple[str, dict[str, Judgement]]:
    """(the truth: right, wrong or unknown; what our checkers say)."""
    problem = pairing.problem
    golden = dict(problem.golden or {})
    files = dict.fromkeys(golden, pairing.text)
    try:
        results = {
            "judge": judged(grader, pairing, "never"),
            "judge and proof": judged(grader, pairing, "passes"),
        }
    except CrashError:
        return "unknown", {}
    simulated = compare(
        executor, problem, golden, files, LIMITS, replace(effort, proof_cpu_s=0)
    )
    quick = replace(effort, proof_first=True, cpu_s=1.0, vectors=8, cycles=8, stretch=8, run=8)
    proof = compare(executor, problem, golden, files, LIMITS, quick)
    decided = {"equal": True, "different": False}.get(
        proof.result if proof.method == "proof" else ""
    )
    results["proof"] = Judgement(decided, proof.cpu_s)
    if pairing.kind != "mutant":
        truth = "right" if simulated.result != "different" else "unknown"
    elif simulated.result == "different" or decided is False:
        truth = "wrong"
    else:
        truth = "right" if decided else "unknown"
    if simulated.result == "different" and decided:
        print(f"WRONG: {problem.id}: proved equal, but {simulated.detail}")
    return truth, results


def compared(
    executor: Executor,
    grader: Grader,
    effort: Effort,
    checker: Path | None,
    processes: ProcessPoolExecutor,
    problem: Problem,
) -> list[Row]:
    """What all checkers say of a design's pairs."""
    golden = "".join((problem.golden or {}).values())
    rows = []
    for pairing in pairings(problem):
        truth, results = ours(executor, grader, effort, pairing)
        if checker:
            call = processes.submit(public, checker, golden, pairing.text, ports_of(problem))
            results[PUBLIC] = call.result()
        rows.append(Row(problem.id, pairing.kind, truth, results))
    return rows


def tally(rows: Sequence[Row], checker: str) -> list[str]:
    """One line of the table."""
    counts: Counter[str] = Counter()
    spent = []
    for row in rows:
        accepts, cpu_s = row.results[checker]
        spent.append(cpu_s)
        counts["not comparable"] += accepts is None
        counts["wrongly accepted"] += row.truth == "wrong" and accepts is True
        counts["wrongly refused"] += row.truth == "right" and accepts is False
    median = sorted(spent)[len(spent) // 2]
    mean = sum(spent) / len(spent)
    figures = [str(counts[name]) for name in FIGURES[1:4]]
    return [checker, str(len(rows)), *figures, f"{median:.2f}", f"{mean:.2f}"]


def problems_of(paths: list[Path]) -> Iterator[Problem]:
    """The designs whose ports can be read."""
    for design in designs(paths):
        with suppress(ValueError):
            yield problem_of(*design)


def main() -> None:
    parser = options(
        __doc__,
        checker=Path,
        designs=(300, "designs, evenly spread"),
        longest=(50_000, "clock cycles of the simulation that decides"),
        jobs=(2, "designs at a time"),
        executor="bubblewrap",
        log=(Path, "file of results; designs that it has are not compared again"),
    )
    parser.add_argument("paths", nargs="+", type=Path, help="files of JSONL")
    arguments = parser.parse_args()
    log = Log(arguments.log)
    done = {name for name, *_ in log.rows}
    problems = spread(list(problems_of(arguments.paths)), arguments.designs)
    chosen = islice(problems, arguments.designs)
    todo = [problem for problem in chosen if problem.id not in done]
    random.Random(0).shuffle(todo)  # so that the log of an interrupted call is a sample
    effort = Effort.of_cycles(arguments.longest, 2, 10.0)
    with (
        make_executor(arguments.executor) as executor,
        closing(Grader(executor, cache=None)) as grader,
        ThreadPoolExecutor(arguments.jobs) as pool,
        ProcessPoolExecutor(arguments.jobs) as processes,
    ):
        work = partial(compared, executor, grader, effort, arguments.checker, processes)
        for new in pool.map(work, todo):
            log.add(new)
    rows = [Row(*row) for row in log.rows]
    truths = Counter((row.kind, row.truth) for row in rows)
    print(", ".join(f"{kind} {truth}: {count}" for (kind, truth), count in truths.items()))
    known = [row for row in rows if row.truth != "unknown"]
    checkers = sorted(known[0].results) if known else []
    lines = [tally(known, checker) for checker in checkers]
    show(f"{len(known)} pairs with a known truth", ("checker", *FIGURES), lines, width=140)
    proved = [row.truth == "wrong" and bool(row.results["proof"][0]) for row in known]
    sys.exit(any(proved))


if __name__ == "__main__":
    main()
