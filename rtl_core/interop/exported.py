"""Problems as tasks for other people's loops: one neutral description, read and graded by this module wherever it was exported to.

A folder that `rtl-distill problems export` wrote holds `tasks.jsonl`, a `Task` a line, the licences of the data, and the files of one
format (`writers.py`). What these files do at the client is done here: they read the tasks, show their messages, and ask for verdicts.

A problem is given out whole only where its licence can go along: it is ours, or a licence lies beside its files. Of any other the line
holds the id and the fingerprint, and the client's machine reads it from its own copy, which RTL_DISTILL_SOURCES names
(`cvdp=PATH rtllm=PATH`).

The executor is RTL_DISTILL_EXECUTOR (`bubblewrap`, or `docker`), started once in a process.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from rtl_core.errors import InfrastructureError, ProblemError
from rtl_core.grading.cache import MemoryCache
from rtl_core.grading.executors import make_executor
from rtl_core.grading.grader import Grader, grade_all
from rtl_core.problems.problem_set import LoadedProblems, SplitBy
from rtl_core.problems.sources import SOURCES, FileSource, ProblemSource, load_problems, source_of
from rtl_core.prompting.answer_to import answer_to
from rtl_core.prompting.extraction import MAX_RESPONSE_CHARS
from rtl_core.prompting.templates import Message, build_messages
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Outcome, Verdict

TASKS = "tasks.jsonl"
OWN_LICENCE = "Apache-2.0"
LICENCE_FILES = ("*LICEN[CS]E*", "*NOTICE*")


class Task(BaseModel):
    """One line of `tasks.jsonl`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str
    source: str
    """Kind of the problem's source, as `--source` names it."""
    fingerprint: str
    """`Problem.fingerprint`."""
    licence: str
    """`Apache-2.0` for problems that this project makes, else the folder of the export with the licence of the data; empty where the
    problem is not given out."""
    problem: Problem | None
    """The whole problem with its harness and golden answer; None where it is not given out. Never to be shown to a policy."""


def export_tasks(
    sources: Sequence[ProblemSource],
    seed: int,
    split: SplitBy,
    folder: Path,
    *,
    heldout: bool = False,
    count: int | None = None,
) -> list[Task]:
    """Writes tasks and licences of the training problems, or of the held-out ones, into a new folder; `count` of each source at most.

    Raises ProblemError where the folder holds something, or no problem is left.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ProblemError(f"{folder} is not empty", "name a new folder")
    loaded = load_problems(sources, seed, split)
    chosen = {problem.id: problem for problem in (loaded.heldout if heldout else loaded.train)}
    if not chosen:
        raise ProblemError("no held-out problem to export", "check problems.sources")
    folder.mkdir(parents=True, exist_ok=True)
    tasks: list[Task] = []
    for source in sources:
        one = LoadedProblems(split=split)
        source.add_to(one, seed)
        licence = _licence(source, folder)
        own = [chosen[problem.id] for problem in one.every if problem.id in chosen][:count]
        tasks += [
            Task(
                id=p.id, source=source.kind, fingerprint=p.fingerprint, licence=licence, problem=p if licence else None
            )
            for p in own
        ]
    (folder / TASKS).write_text("".join(task.model_dump_json() + "\n" for task in tasks), encoding="utf-8")
    return tasks


def _licence(source: ProblemSource, folder: Path) -> str:
    """`Task.licence` of a source's problems; copies what lies beside its files."""
    if not isinstance(source, FileSource):
        return OWN_LICENCE if source.kind in SOURCES.entries else ""
    beside = source.path if source.path.is_dir() else source.path.parent
    found = sorted(file for pattern in LICENCE_FILES for file in beside.glob(pattern) if file.is_file())
    if all("NOTICE" in file.name for file in found):
        return ""
    into = folder / "licences" / source.kind.replace(":", ".")
    into.mkdir(parents=True, exist_ok=True)
    for file in found:
        shutil.copyfile(file, into / file.name)
    return into.relative_to(folder).as_posix()


def read_tasks(folder: Path) -> dict[str, Problem]:
    """The problems of an exported folder by id, in its order.

    Raises ProblemError for a line that is none, and where a problem that was not given out is missing or another one here.
    """
    try:
        lines = (folder / TASKS).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ProblemError(f"cannot read {folder / TASKS}: {error.strerror}", "export the problems again") from error
    tasks = [_task(f"{folder / TASKS}:{number}", line) for number, line in enumerate(lines, 1)]
    own = _of_this_machine() if any(task.problem is None for task in tasks) else {}
    return {task.id: task.problem or _same(task, own.get(task.id)) for task in tasks}


def _task(place: str, line: str) -> Task:
    try:
        return Task.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "line"
        raise ProblemError(f"{place}: {where}: {first['msg']}", "export the problems again") from error


def _of_this_machine() -> dict[str, Problem]:
    texts = shlex.split(os.environ.get("RTL_DISTILL_SOURCES", ""))
    found = LoadedProblems()
    for text in texts:
        source_of(text, "RTL_DISTILL_SOURCES").add_to(found, 0)
    return {problem.id: problem for problem in found.every}


def _same(task: Task, problem: Problem | None) -> Problem:
    remedy = f"set RTL_DISTILL_SOURCES={task.source}=PATH to your copy of the set"
    if problem is None:
        raise ProblemError(f"{task.id} was not given out with its text", remedy)
    if problem.fingerprint != task.fingerprint:
        raise ProblemError(f"{task.id} is another problem than the exported one: its text or harness differs", remedy)
    return problem


def messages(problem: Problem) -> list[Message]:
    """What a single-turn policy is shown, as the template `exact` has it."""
    return build_messages(problem, "exact")


def instruction(problem: Problem) -> str:
    """What an agent with a workspace is told; the context's files lie there."""
    targets = "\n".join(f"- `{path}`" for path in problem.targets)
    return f"{problem.prompt.rstrip()}\n\nWrite the complete content of these files, below the working directory:\n{targets}\n"


def answer_of(problem: Problem, given: str | Mapping[str, str]) -> Answer:
    """The answer that a response, or the files of a workspace, stand for; files that are no target are left out."""
    if isinstance(given, str):
        return answer_to(problem, given)
    files = {path: text for path, text in given.items() if path in problem.targets}
    size = sum(map(len, files.values()))
    if size > MAX_RESPONSE_CHARS:
        return Answer(error=f"the files have {size} characters, more than {MAX_RESPONSE_CHARS}")
    return Answer(files=files) if files else Answer(error=f"none of {', '.join(problem.targets)} was written")


async def graded(problem: Problem, given: str | Mapping[str, str]) -> Verdict:
    """The verdict on a response or on the files of a workspace; as many are graded at a time as there are cores. Raises what `judged` does."""
    return await judged(_grader(), _threads(), problem, answer_of(problem, given))


async def judged(grader: Grader, pool: ThreadPoolExecutor, problem: Problem, answer: Answer) -> Verdict:
    """The verdict on an answer. Raises InfrastructureError when grading failed: never a reward."""
    (verdict,) = await grade_all(grader, pool, problem, [answer])
    if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
        raise InfrastructureError(f"grading failed: {'; '.join(verdict.reasons)}")
    return verdict


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="grade")


@cache
def _grader() -> Grader:
    executor = make_executor(os.environ.get("RTL_DISTILL_EXECUTOR", "bubblewrap"))
    grader = Grader(executor, cache=MemoryCache())
    atexit.register(executor.close)
    atexit.register(grader.close)
    return grader
