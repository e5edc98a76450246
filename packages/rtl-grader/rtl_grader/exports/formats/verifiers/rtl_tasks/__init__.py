"""RTL problems as a verifiers taskset of the v1 interface (tested with verifiers 0.4.0).

    pip install .
    vf-validate rtl-tasks --runtime.type subprocess       checks that known-good answers pass and empty ones fail
    vf-eval rtl-tasks -m MODEL --env.agent.harness.id null

The model's last reply is the answer. It is graded on the machine of the environment's server, in the
grader's own sandbox. The task's data does not include harness and known-good answer, so traces do not
contain them.
"""

from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf

from rtl_grader.exports.exported import graded, messages, read_tasks
from rtl_grader.extraction.answer_to import response_of

PROBLEMS = read_tasks(Path(__file__).resolve().parent)


class RtlData(vf.TaskData):
    """Data of a task; `id` identifies the problem."""

    category: str
    difficulty: str


class RtlTask(vf.Task[RtlData]):
    """One problem, answered in one reply."""

    @property
    def key(self) -> str:
        return PROBLEMS[self.data.id].fingerprint

    @vf.reward
    async def tests_passed(self, trace: vf.Trace) -> float:
        """1 if all tests pass. Raises if grading itself failed."""
        return float((await graded(PROBLEMS[self.data.id], trace.last_reply or "")).passed)

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """Whether the known-good answer passes; None if there is none."""
        problem = PROBLEMS[self.data.id]
        return (
            None
            if problem.golden is None
            else (await graded(problem, response_of(problem.golden))).passed
        )


class RtlTaskset(vf.Taskset[RtlTask, vf.TasksetConfig]):
    """All exported problems, in order."""

    def load(self) -> Iterator[RtlTask]:
        for problem in PROBLEMS.values():
            *system, user = messages(problem)
            data = RtlData(
                id=problem.id,
                name=problem.id,
                system_prompt=system[0]["content"] if system else None,
                prompt=user["content"],
                category=problem.category,
                difficulty=problem.difficulty,
            )
            yield RtlTask(data, self.config.task)


__all__ = ["RtlTaskset"]
