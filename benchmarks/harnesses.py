"""Which harnesses of a CVDP file come to a verdict here, and why the others do not.

    python -m benchmarks.harnesses PROBLEMS.jsonl ... [--executors bubblewrap,docker]
        [--goldens packages/rtl-grader/tests/fidelity/goldens] [--all] [--only ID ...]

Each harness grades a golden answer if there is one: the set's, or ID.sv or ID.json in --goldens. Otherwise
it grades something that should compile: the context's version of the targets, or a stub with the demanded
ports and no behaviour. That
should fail; the question is whether the harness gets as far as judging it.
"""

import re
from collections import Counter
from collections.abc import Container, Mapping
from contextlib import ExitStack, closing
from enum import StrEnum
from pathlib import Path

from benchmarks.answers import answer_to, grade_all
from benchmarks.common import options, show
from rtl_grader.grading.evidence import HARNESS_FAILED
from rtl_grader.grading.executors import Executor, make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.limits import Limits
from rtl_grader.problems.cvdp import read_cvdp
from rtl_grader.types.verdict import Outcome, Stage, Verdict


class Kind(StrEnum):
    """How far a harness got."""

    PASSES = "passes"
    JUDGES = "judges"
    """A check failed."""
    OWN_CODE = "fails in its own code"
    """Every failing test ends in an error that no design can cause, such as a failed import."""
    COMPILER = "stops at the compiler"
    TIME = "runs out of time"
    NEEDS = "needs what is not here"
    BEFORE = "fails by itself"
    OTHER = "was not judged"


# Errors of a test module that was written for another cocotb; errors of a design read `contains no child object named`.
_OWN_CODE = re.compile(
    r"\b(?:ImportError|ModuleNotFoundError|NameError|SyntaxError|TypeError|UnboundLocalError)\b"
    # cocotb's own `RegressionManager` raises this whenever the simulator ends before a test.
    r"|AttributeError: (?:'(?!RegressionManager)\w+' object|module '[\w.]+') has no attribute"
)


def kind(verdict: Verdict) -> Kind:
    """How far the harness got, judging by its verdict."""
    reasons = verdict.stage(Stage.TESTS).reasons or verdict.reasons
    if verdict.passed:
        return Kind.PASSES
    if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
        said = verdict.reasons[0] if verdict.reasons else ""
        if said.startswith("the harness needs"):
            return Kind.NEEDS
        return Kind.BEFORE if said.startswith(HARNESS_FAILED) else Kind.OTHER
    if verdict.outcome is Outcome.TIMEOUT:
        return Kind.TIME
    if verdict.stage(Stage.TESTS).status != "failed" and not verdict.stage(Stage.TESTS).reasons:
        return Kind.COMPILER
    own = [bool(_OWN_CODE.search(reason)) for reason in reasons]
    # A test module that cannot be imported ends the simulator before any test.
    before_any_test = any("Simulation terminated abnormally" in reason for reason in reasons)
    return (
        Kind.OWN_CODE if own and (all(own) or (before_any_test and any(own))) else Kind.JUDGES
    )


RUNS = (Kind.PASSES, Kind.JUDGES)
Row = tuple[str, str, dict[str, tuple[Kind, str]], str]
"""Problem, category, (executor and Icarus version -> how far the harness got, and the outcome), and why it
did not run."""


def rows_of(
    path: Path,
    executors: Mapping[str, Executor],
    limits: Limits,
    goldens: Path | None,
    only: Container[str] | None,
) -> list[Row]:
    """Grade a file's problems, or only those in `only`; without it also list the problems left out and the
    broken lines."""
    found = read_cvdp(path)
    problems = [problem for problem in found.problems if only is None or problem.id in only]
    verdicts: dict[str, list[Verdict]] = {}
    for name, executor in executors.items():
        with closing(Grader(executor, limits=limits)) as grader:
            verdicts[name] = grade_all(
                grader, [(problem, answer_to(problem, goldens)) for problem in problems]
            )
    rows: list[Row] = []
    for problem, *each in zip(problems, *verdicts.values(), strict=True):
        cells = {
            f"{name}, Icarus {v.tools.get('iverilog', 'none')}": (
                kind(v),
                f"{v.outcome.value}, {v.tests_passed} of {v.tests_total}",
            )
            for name, v in zip(verdicts, each, strict=True)
        }
        stopped = [v for v in each if kind(v) not in RUNS]
        rows.append((problem.id, problem.category, cells, _word(stopped[0]) if stopped else ""))
    if only is not None:
        return rows
    rows += [(left.id, "", {}, f"left out: {left.reason}") for left in found.left_out]
    return rows + [
        (one.id or f"line {one.line}", "", {}, f"broken: {one.reason}") for one in found.broken
    ]


def main() -> None:
    parser = options(
        __doc__,
        executors=["bubblewrap"],
        timeout=60.0,
        all=(False, "also show harnesses that run everywhere"),
        goldens=(Path, "a folder of answers, ID.sv or ID.json"),
    )
    parser.add_argument("problems", type=Path, nargs="+")
    parser.add_argument("--only", nargs="*", metavar="ID", help="these problems alone")
    arguments = parser.parse_args()
    only = set(arguments.only) if arguments.only else None
    limits = Limits(wall_s=arguments.timeout, cpu_s=arguments.timeout)
    with ExitStack() as stack:
        executors = {
            name: stack.enter_context(make_executor(name)) for name in arguments.executors
        }
        files = arguments.problems
        rows = [
            row
            for path in files
            for row in rows_of(path, executors, limits, arguments.goldens, only)
        ]
    graders = list(dict.fromkeys(name for _, _, found, _ in rows for name in found))
    counts = {
        name: Counter(found[name][0] for _, _, found, _ in rows if name in found)
        for name in graders
    }
    title = ", ".join(path.name for path in files)
    show(
        title,
        ("", *Kind),
        [(name, *(counts[name][one] for one in Kind)) for name in graders],
        width=160,
    )
    shown = []
    for problem, category, found, why in rows:
        if arguments.all or not found or any(far not in RUNS for far, _ in found.values()):
            said = (": ".join(found.get(name, ("–",))) for name in graders)
            shown.append((problem.removeprefix("cvdp_"), category, *said, why))
    show(title, ("problem", "category", *graders, "why"), shown, width=160)
    if unknown := (only or set()) - {problem for problem, *_ in rows}:
        parser.error(
            f"no problem is called {', '.join(sorted(unknown))}"
        )  # last: the others took minutes


def _word(verdict: Verdict) -> str:
    reasons = (
        verdict.stage(Stage.TESTS).reasons
        or verdict.reasons
        or verdict.stage(Stage.SYNTAX).reasons
    )
    return reasons[0][:200] if reasons else ""


if __name__ == "__main__":
    main()
