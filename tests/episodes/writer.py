"""An endpoint that answers problems with their golden answers, or as a test says."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rtl_core.rollouts.datums import golden_response
from rtl_grader.problems.sources import load_problems
from rtl_grader.prompts import build_messages
from rtl_grader.types.problem import Problem
from tests.answering import Answer, answering

MODEL = "writer-1"
KEY = "sk-never-stored-0123456789"
Reply = Callable[[Problem, int], dict[str, Any]]
"""Message of an answer to a problem, from the problem and the number of requests about it before."""


class Writer:
    """Answers each problem of a configuration; `asked` holds the ids in the order of requests."""

    def __init__(self, problems: Iterable[Problem], template: str, reply: Reply) -> None:
        self._problems = {json.dumps(build_messages(p, template)): p for p in problems}
        self._reply = reply
        self.asked: list[str] = []
        self.before: list[Answer] = []
        """Answers to the first requests, in place of its own."""
        self.models: Answer = (200, {}, json.dumps({"data": [{"id": MODEL}]}).encode())
        self.url = ""

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        if method == "GET":
            return self.models
        if self.before:
            return self.before.pop(0)
        problem = self._problems[json.dumps(json.loads(body)["messages"])]
        message = self._reply(problem, self.asked.count(problem.id))
        self.asked.append(problem.id)
        return 200, {}, json.dumps(completion(**message)).encode()


def completion(content: str, **more: Any) -> dict[str, Any]:
    """A chat completion of 100 tokens read and 40 written, unless `more` says otherwise."""
    about = {"usage": {"prompt_tokens": 100, "completion_tokens": 40}, "model": MODEL}
    about |= {name: more.pop(name) for name in ("usage", "model") if name in more}
    end = more.pop("finish_reason", "stop")
    message = {"role": "assistant", "content": content, **more}
    return {"choices": [{"message": message, "finish_reason": end}], **about}


def golden(problem: Problem, _before: int) -> dict[str, Any]:
    return {"content": f"Here it is.\n{golden_response(problem)}"}


@contextmanager
def writing(config: Any, reply: Reply = golden) -> Iterator[Writer]:
    """Serve such an endpoint for the training problems of a configuration."""
    loaded = load_problems(config.problems.sources, config.run.seed, config.problems.split)
    writer = Writer(loaded.train, config.prompting.template, reply)
    with answering(writer.answer) as address:
        writer.url = f"{address}/v1"
        yield writer


def asks(url: str, *more: str) -> list[str]:
    """Overrides for supervised steps on the answers of an endpoint."""
    return [
        "learning.warm_start_source=endpoint",
        f"learning.warm_start_endpoint={url}",
        f"learning.warm_start_model={MODEL}",
        "learning.warm_start_answers=2",
        *more,
    ]
