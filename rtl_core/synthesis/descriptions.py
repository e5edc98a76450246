"""Specifications that a model writes from golden answers: what it is asked, what is refused, and the rows.

A row is kept when another model, which reads only the description, writes a design that the judge accepts.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import SEEK_END
from pathlib import Path
from typing import Any

from rtl_core.config import RunConfig
from rtl_core.history.store import History
from rtl_grader.extraction.thoughts import without_thoughts
from rtl_grader.files import replacing
from rtl_grader.hdl.declared import declared_names
from rtl_grader.hdl.interface import parse_interface
from rtl_grader.problems.cvdp import MAX_LINE_BYTES, json_lines
from rtl_grader.problems.judged import surroundings
from rtl_grader.prompts import Message, with_context
from rtl_grader.types.problem import Difficulty, InterfaceSource, Problem
from rtl_grader.validation.level import golden_digest

TEMPLATES = (f"{__name__}:describe", f"{__name__}:describe_again")
"""The writer's prompt templates, as `prompting.template`; the second where the first result was refused."""
_SYSTEM = """\
You write specifications of hardware. An engineer will implement the module from your text alone, without \
the code, and the result must behave like the code in every clock cycle. So state:
- the name of the module, its parameters with their defaults, and every port with direction, width and meaning;
- clock edge, reset (polarity, synchronous or not) and all values at reset;
- what each output is, in which cycle, for all inputs: latency, priorities, bit order, overflow, corner cases.
Describe behaviour, not code. Of the code's names use only those of the module, its ports and its parameters: \
not those of signals, states, instances, blocks or functions inside it. Write no Verilog, only the \
specification."""
_AGAIN = """\
An earlier specification was refused. Name the module and every port, write no code, and use none of these \
names from inside the code: {}."""
_SOLVED = "SELECT problem_id, samples, passed FROM evaluation_problems WHERE run = $run"
_WORD = re.compile(r"[A-Za-z_][\w$]*")
_CODE = re.compile(r"\bendmodule\b|\balways(?:_\w+\b|\s*@)|^\s*assign\s.+;", re.M)
_SHORT = 3
"""Names of at most this many characters say nothing."""
_COMMON = """
access accumulator active address addr base begin bits block buffer busy byte bytes carry cell channel clear
clock code column command compare control core count counter current cycle data decode delay depth detect
digit direction divide done edge empty enable encode error even fast fifo fill final find first flag flags
flip flop full gate grant half head hold idle index init initial input inverse last latch left length level
limit line load lock logic lookup lower main mask match memory merge mode multiplier next none number operand
operation output overflow parity pause phase pipeline pointer port position power previous priority product
pulse queue quotient range rate read ready receive register remainder request reset result right rotate round
sample select shift sign signal size slow stack stage start state status step stop store stream swap switch
sync table tail target tick time timer toggle token total transfer transmit trigger type unit update upper
valid value vector wait width word wrap write zero"""
_COMMON_WORDS = frozenset(_COMMON.split())
"""Names that a description needs as words."""


def describe(problem: Problem, context: Mapping[str, str]) -> list[Message]:
    """Ask for a specification of the golden answer, whose inner names it may not use."""
    files = {**context, **(problem.golden or {})}
    shown = with_context(f"Specify the module `{_named(problem)[0]}`.", files)
    return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": shown}]


def describe_again(problem: Problem, context: Mapping[str, str]) -> list[Message]:
    """The same, with the list of the names that the specification may not use."""
    system, user = describe(problem, context)
    names = ", ".join(sorted(_hidden(problem))) or "-"
    return [system, {**user, "content": f"{user['content']}\n\n{_AGAIN.format(names)}"}]


def _named(problem: Problem) -> list[str]:
    """The names of module and ports."""
    assert problem.interface is not None, "only problems with an interface are described"
    return [problem.interface.module, *(port.name for port in problem.interface.ports)]


def _hidden(problem: Problem) -> set[str]:
    """Names inside the golden answer that a description may not use: of more than three characters, no
    common words, and not in what the solver sees."""
    golden, context = dict(problem.golden or {}), surroundings(problem)["context"]
    known = {*_named(problem), *_WORD.findall("\n".join(context.values()))}
    # The problem's interface has only the parameters that its own text names.
    whole = parse_interface({**context, **golden}, _named(problem)[0], InterfaceSource.GOLDEN)
    if whole is not None:
        known |= {parameter.name for parameter in whole.parameters}
    names = set[str]().union(*map(declared_names, golden.values())) - known
    return {n for n in names if len(n) > _SHORT and n.lower() not in _COMMON_WORDS}


@dataclass(frozen=True)
class Description:
    """A specification of a problem's golden answer."""

    problem: Problem
    text: str

    @classmethod
    def of(cls, problem: Problem, response: str) -> Description:
        """The description in a response, without thoughts."""
        return cls(problem, without_thoughts(response).strip())

    @property
    def refusal(self) -> str | None:
        """Why it cannot be used, in words; None if it can."""
        words = set(_WORD.findall(self.text))
        if not words:
            return "it is empty"
        if _CODE.search(self.text):
            return "it contains code"
        if leaks := sorted(words & _hidden(self.problem)):
            return f"it uses names from inside the code: {', '.join(leaks[:10])}"
        if missing := [name for name in _named(self.problem) if name not in words]:
            return f"it does not name the whole interface: {', '.join(missing[:10])}"
        return None

    def left_out(self, passed: int, answers: int) -> str | None:
        """Why it gives no row after so many graded answers; None if it gives one."""
        if refusal := self.refusal:
            return f"refused: {refusal}"
        if not answers:
            return "no answer could be graded"
        return None if passed else f"none of {answers} answers is equivalent"

    @property
    def row(self) -> dict[str, Any]:
        """The row of a pairs file, without what the solver's answers say."""
        problem, golden = self.problem, dict(self.problem.golden or {})
        return {
            "id": problem.id,
            "specification": self.text,
            "golden": golden.popitem()[1] if len(golden) == 1 else golden,
            "top": _named(problem)[0],
            **surroundings(problem),
            "task": "specification",
            "origin": problem.origin or f"{problem.source}: {problem.id}",
            "licence": problem.licence,
        }


def difficulty_of(rate: float) -> Difficulty:
    """Above two thirds of equivalent answers easy, below one third hard."""
    if rate > 2 / 3:
        return "easy"
    return "medium" if rate >= 1 / 3 else "hard"


def waiting(problems: Iterable[Problem], *paths: Path) -> Iterator[Problem]:
    """Yield the problems to describe: with a whole golden answer, each of them once, and without a row in
    one of the files."""
    known = {row["id"] for path in paths for row in _rows(path)}
    seen = set[str | None]()
    for problem in problems:
        digest = golden_digest(problem)
        is_new = digest not in seen and problem.id not in known
        if is_new and problem.has_whole_golden and problem.interface:
            yield problem
        seen.add(digest)


def add_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows to a JSON Lines file. What an interrupted write left of a line stays a broken line."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, SEEK_END)
            file.write(b"\n" * (file.read(1) != b"\n"))
        file.write("".join(lines).encode())


def results_of(config: RunConfig) -> dict[str, tuple[int, int]]:
    """Problem id -> number of equivalent answers and of graded ones, of the solver's evaluation."""
    history = History(config.run.history, read_only=True)
    rows = history.rows(_SOLVED, run=config.run.name)
    return {row["problem_id"]: (row["passed"], row["samples"]) for row in rows}


@dataclass
class RoundTrips:
    """Results of round trips, written as each of them ends: once for each problem."""

    output: Path
    """Pairs file for what is kept."""

    @property
    def others(self) -> Path:
        """File for the reasons why other problems are left out."""
        return self.output.with_suffix(".left-out.jsonl")

    @cached_property
    def _known(self) -> set[str]:
        return {row["id"] for path in (self.output, self.others) for row in _rows(path)}

    @property
    def _asked(self) -> Path:
        return self.output.with_suffix(".asked.json")

    def begun(self) -> list[str]:
        """The problems of an interrupted command, also those that have a result; none if there was none."""
        return json.loads(self._asked.read_text()) if self._asked.exists() else []

    def begin(self, ids: Sequence[str]) -> None:
        """Note the problems of a command, until `finish`."""
        self._asked.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self._asked) as fresh:
            fresh.write_text(json.dumps(ids))

    def finish(self) -> None:
        """Forget the problems of the command."""
        self._asked.unlink()

    def end(self, description: Description, passed: int, answers: int) -> None:
        """Write the result of a problem, with so many equivalent answers of those that were graded."""
        problem_id = description.problem.id
        if problem_id in self._known:
            return
        self._known.add(problem_id)
        if reason := description.left_out(passed, answers):
            add_rows(self.others, [{"id": problem_id, "reason": reason}])
            return
        rate = passed / answers
        result = {"difficulty": difficulty_of(rate), "solve_rate": rate}
        add_rows(self.output, [{**description.row, **result}])

    def reasons(self, ids: Iterable[str]) -> Counter[str]:
        """Number of these problems that are left out, by reason."""
        by_id = {row["id"]: row["reason"] for row in _rows(self.others)}
        reasons = [by_id[problem_id] for problem_id in ids if problem_id in by_id]
        return Counter(": ".join(reason.split(": ")[:2]) for reason in reasons)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with path.open("rb") as file:
            for _, row in json_lines(file, MAX_LINE_BYTES):
                if isinstance(row, dict) and "id" in row:
                    yield row
