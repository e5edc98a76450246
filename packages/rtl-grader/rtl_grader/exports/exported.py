"""Export of problems as tasks for other training loops, and the functions that the exported files call.

A folder written by `problems export` contains `tasks.jsonl` with one `Task` per line, the
licences of the data, and the files of one format (`writers.py`). At the client, these files use this module
to read the tasks, build their messages and grade answers.

A problem is exported completely only if its licence can be included: it is ours, or a licence file is
beside its files. Otherwise the line has only id and fingerprint, and the client reads the problem from its
own copy, named in RTL_DISTILL_SOURCES (`cvdp=PATH rtllm=PATH`).

RTL_DISTILL_EXECUTOR selects the executor (`bubblewrap` or `docker`), which is started once per process.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ValidationError

from rtl_grader.errors import InfrastructureError, ProblemError
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.grading.answer_file import answer_with
from rtl_grader.grading.cache import MemoryCache
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.pool import GraderPool
from rtl_grader.problems.faults import fault_of
from rtl_grader.problems.problem_set import LoadedProblems, SplitBy
from rtl_grader.problems.sources import (
    FileSource,
    ProblemSource,
    load_problems,
    source_of,
)
from rtl_grader.prompts import Message, build_messages
from rtl_grader.types.answer import Answer
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome, Verdict

TASKS = "tasks.jsonl"
OWN_LICENCE = "Apache-2.0"
OWN = ("rtl_grader", "rtl_core")
"""Packages whose generated problems have this project's licence."""
LICENCE_FILES = ("*LICEN[CS]E*", "*NOTICE*")


class Task(BaseModel, frozen=True, extra="forbid"):
    """One line of `tasks.jsonl`."""

    id: str
    source: str
    """Kind of the problem's source, as for `--source`."""
    fingerprint: str
    """`Problem.fingerprint`."""
    licence: str
    """`Apache-2.0` for this project's problems, else the folder of the export with the data's licence.
    Empty if the problem is not included."""
    problem: Problem | None
    """The problem with its harness and golden answer, or None if not included. Never show it to a policy."""


def export_tasks(
    sources: Sequence[ProblemSource],
    seed: int,
    split: SplitBy,
    folder: Path,
    *,
    heldout: bool = False,
    count: int | None = None,
    exclude: Sequence[ProblemSource] = (),
) -> list[Task]:
    """Write tasks and licences of the training or held-out problems to a new folder, at most `count` per source.

    Raises ProblemError if the folder is not empty or there are no problems.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ProblemError(f"{folder} is not empty", "name a new folder")
    loaded = load_problems(sources, seed, split, exclude=exclude)
    chosen = {problem.id: problem for problem in (loaded.heldout if heldout else loaded.train)}
    if not chosen:
        raise ProblemError("no held-out problem to export", "check problems.sources")
    folder.mkdir(parents=True, exist_ok=True)
    tasks: list[Task] = []
    for source in sources:
        loaded = LoadedProblems(split=split)
        source.add_to(loaded, seed)
        licence = _licence(source, folder)
        own = [chosen[problem.id] for problem in loaded.every if problem.id in chosen]
        for problem in own[:count]:
            task = Task(
                id=problem.id,
                source=source.kind,
                fingerprint=problem.fingerprint,
                licence=licence,
                problem=problem if licence else None,
            )
            tasks.append(task)
    lines = [task.model_dump_json() + "\n" for task in tasks]
    (folder / TASKS).write_text("".join(lines), encoding="utf-8")
    return tasks


def _licence(source: ProblemSource, folder: Path) -> str:
    """Return `Task.licence` of a source's problems. Copies the licence files beside the data."""
    if not isinstance(source, FileSource):
        return OWN_LICENCE if type(source).__module__.split(".")[0] in OWN else ""
    beside = source.path if source.path.is_dir() else source.path.parent
    paths = sorted(path for pattern in LICENCE_FILES for path in beside.glob(pattern))
    files = [path for path in paths if path.is_file()]
    if all("NOTICE" in file.name for file in files):
        return ""
    into = folder / "licences" / source.kind.replace(":", ".")
    into.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copyfile(file, into / file.name)
    return into.relative_to(folder).as_posix()


def read_tasks(folder: Path) -> dict[str, Problem]:
    """Return the problems of an exported folder by id, in order.

    Raises ProblemError for an invalid line, and if a problem that is not included is missing or different
    on this machine.
    """
    path = folder / TASKS
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ProblemError(
            f"cannot read {path}: {error.strerror}", "export the problems again"
        ) from error
    tasks = [_task(f"{path}:{number}", line) for number, line in enumerate(lines, 1)]
    local = LoadedProblems()
    if any(task.problem is None for task in tasks):
        for text in shlex.split(os.environ.get("RTL_DISTILL_SOURCES", "")):
            source_of(text, "RTL_DISTILL_SOURCES").add_to(local, 0)
    own = {problem.id: problem for problem in local.every}
    return {task.id: task.problem or _same(task, own.get(task.id)) for task in tasks}


def _task(place: str, line: str) -> Task:
    try:
        return Task.model_validate_json(line)
    except ValidationError as error:
        fault = fault_of(error)
        raise ProblemError(f"{place}: {fault.message}", "export the problems again") from error


def _same(task: Task, problem: Problem | None) -> Problem:
    remedy = f"set RTL_DISTILL_SOURCES={task.source}=PATH to your copy of the set"
    if problem is None:
        raise ProblemError(f"{task.id} was exported without its text", remedy)
    if problem.fingerprint != task.fingerprint:
        raise ProblemError(
            f"{task.id} differs from the exported problem in its text or harness", remedy
        )
    return problem


def messages(problem: Problem) -> list[Message]:
    """Return the messages for a single-turn policy, by the template `exact`."""
    return build_messages(problem, "exact")


def instruction(problem: Problem) -> str:
    """Return the instruction for an agent whose workspace contains the context files."""
    targets = "\n".join(f"- `{path}`" for path in problem.targets)
    demand = "Write the complete content of these files, below the working directory:"
    return f"{problem.prompt.rstrip()}\n\n{demand}\n{targets}\n"


def answer_of(problem: Problem, content: str | Files) -> Answer:
    """Return the answer in a response or in the files of a workspace. Files that are not targets are ignored."""
    if isinstance(content, str):
        return answer_to(problem, content)
    files = {path: text for path, text in content.items() if path in problem.targets}
    if not files:
        return Answer(error=f"none of {', '.join(problem.targets)} was written")
    return answer_with(files)


async def graded(problem: Problem, content: str | Files) -> Verdict:
    """Return the verdict on a response or on the files of a workspace, one grading per core at a time.
    Raises what `judged` raises."""
    return await judged(_pool(), problem, answer_of(problem, content))


async def judged(pool: GraderPool, problem: Problem, answer: Answer) -> Verdict:
    """Return the verdict on an answer. Raises InfrastructureError if grading itself failed."""
    (verdict,) = await pool.grade(problem, [answer])
    if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
        raise InfrastructureError(f"grading failed: {'; '.join(verdict.reasons)}")
    return verdict


@cache
def _pool() -> GraderPool:
    executor = make_executor(os.environ.get("RTL_DISTILL_EXECUTOR", "bubblewrap"))
    pool = GraderPool(Grader(executor, cache=MemoryCache()))
    atexit.register(pool.close)
    return pool
