"""RTL problems as an Inspect task (tested with inspect-ai 0.3.285).

    inspect eval rtl.py --model openai/gpt-5-mini             one response, graded
    inspect eval rtl.py -T agent=true --model ...             an agent with a shell; its files are graded
    inspect eval rtl.py --solver rtl.py@golden --model none   the known-good answers

The agent's container (compose.yaml) has the simulators, but neither network nor harness. Answers are graded
on the host, in the grader's sandbox. The score is 1 if all tests pass, else 0. If grading itself fails, the
sample has an error.
"""

from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, ModelOutput
from inspect_ai.scorer import Score, Target, accuracy, scorer, stderr
from inspect_ai.solver import Generate, TaskState, generate, solver
from inspect_ai.tool import bash, text_editor
from inspect_ai.util import OutputLimitExceededError, sandbox

from rtl_grader.exports.exported import graded, instruction, messages, read_tasks
from rtl_grader.extraction.answer_to import response_of
from rtl_grader.types.problem import Problem

HERE = Path(__file__).resolve().parent
PROBLEMS = read_tasks(HERE)
SPEAKERS = {"system": ChatMessageSystem, "user": ChatMessageUser}


@task
def rtl(agent: bool = False) -> Task:
    """All problems of this folder; `agent` gives the model a container and tools."""
    return Task(
        dataset=MemoryDataset(
            [_sample(problem, agent) for problem in PROBLEMS.values()], name=HERE.name
        ),
        solver=react(tools=[bash(timeout=120), text_editor(timeout=120)])
        if agent
        else generate(),
        scorer=verdict(agent),
        sandbox=("docker", str(HERE / "compose.yaml")) if agent else None,
    )


def _sample(problem: Problem, agent: bool) -> Sample:
    about = {
        "category": problem.category,
        "difficulty": problem.difficulty,
        "source": problem.source,
    }
    if agent:
        return Sample(
            id=problem.id, input=instruction(problem), files=problem.context, metadata=about
        )
    chat = [
        SPEAKERS[message["role"]](content=message["content"]) for message in messages(problem)
    ]
    return Sample(id=problem.id, input=chat, metadata=about)


@solver
def golden():
    """Return the known-good answer, without a model."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        text = response_of(PROBLEMS[str(state.sample_id)].golden or {})
        state.output = ModelOutput.from_content(str(state.model), text)
        return state

    return solve


@scorer(metrics=[accuracy(), stderr()])
def verdict(agent: bool):
    """1 if all tests pass."""

    async def score(state: TaskState, target: Target) -> Score:
        problem = PROBLEMS[str(state.sample_id)]
        answer = await _workspace(problem) if agent else state.output.completion
        result = await graded(problem, answer)
        fields = {"outcome", "tests_passed", "tests_total", "tools", "seed"}
        return Score(
            value=1.0 if result.passed else 0.0,
            explanation="; ".join(result.reasons),
            metadata=result.model_dump(mode="json", include=fields),
        )

    return score


async def _workspace(problem: Problem) -> dict[str, str]:
    """Return the targets in the agent's workspace. Ignores binary files and files that are too long for a tool."""
    files = {}
    for path in problem.targets:
        try:
            files[path] = await sandbox().read_file(path)
        except (
            FileNotFoundError,
            IsADirectoryError,
            PermissionError,
            UnicodeDecodeError,
            OutputLimitExceededError,
        ):
            continue
    return files
