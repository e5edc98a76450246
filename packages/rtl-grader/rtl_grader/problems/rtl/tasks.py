"""Tasks about a design: `complete` masks a part of the module, `module` all of its body.

The golden answer is the whole file of the module. The size of the masked part is the difficulty.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal

from rtl_grader.problems.judged import Judging, judged_problem
from rtl_grader.problems.rtl.designs import RtlDesign
from rtl_grader.problems.rtl.scan import Mask
from rtl_grader.types.problem import MASKED, Difficulty, Problem

SOURCE = "rtl"
Task = Literal["complete", "module"]
MIN_TOKENS = 4
EASY_TOKENS, MEDIUM_TOKENS = 30, 120
"""Most tokens of an easy and of a medium mask."""
MAX_USER_LINES = 200
_CATEGORIES = {"complete": "cid002", "module": "cid003"}
_PROMPTS = {
    "complete": "A part of the module `{module}` is replaced by `{masked}`. Write the code that stands there.",
    "module": (
        "The body of the module `{module}` is replaced by `{masked}`. Write it, so that the module does "
        "what its name, its ports, the comments and the other files say."
    ),
}


def problems_of(
    design: RtlDesign,
    tasks: Iterable[Task],
    masks: int,
    seed: int,
    judging: Judging,
) -> Iterator[Problem]:
    """Yield the problems about a design: at most `masks` completions of different sizes, and the module.

    Raises ValueError when the interface cannot be read, or when a mask or a fence cannot be told from the text.
    """
    text = design.file.text
    if MASKED in text or "```" in text:
        raise ValueError(f"its file has `{MASKED}` or ``` in its text")
    whole = _whole(design, judging)
    body = [design.unit.body] if design.unit.body else []
    for task in tasks:
        chosen = body if task == "module" else _chosen(design, masks, seed)
        for mask in chosen:
            yield _masked(whole, design, task, mask)


def _whole(design: RtlDesign, judging: Judging) -> Problem:
    """The design as a problem without a mask, which all its tasks share."""
    file = design.file
    problem = judged_problem(
        id=file.path,
        source=SOURCE,
        category="cid003",
        difficulty="medium",
        prompt=file.text,
        golden={file.path: file.text},
        top=design.unit.name,
        context=design.context,
        compiled=[other.path for other in design.compiled],
        include=design.include,
        define=design.define,
        judging=judging,
        origin=f"{design.cluster}: {file.origin}",
        licence=design.licence,
    )
    assert problem.interface is not None
    ports = problem.interface.ports
    if not any(port.direction == "output" for port in ports):
        raise ValueError("it has no output")
    forms = [port.name for port in ports if port.width is None]
    if forms:
        raise ValueError(f"the width of its port {forms[0]} cannot be read")
    return problem


def _chosen(design: RtlDesign, most: int, seed: int) -> list[Mask]:
    """At most so many masks, drawn by seed: of each difficulty in turn."""
    rng = random.Random(f"{seed}/{design.file.path}/{design.unit.name}")
    waiting: dict[Difficulty, list[Mask]] = defaultdict(list)
    for mask in sorted(design.unit.masks, key=lambda mask: (mask.start, mask.end)):
        if mask.tokens >= MIN_TOKENS:
            waiting[_difficulty(mask)].append(mask)
    order = sorted(waiting)
    rng.shuffle(order)
    for difficulty in order:
        rng.shuffle(waiting[difficulty])
    chosen: list[Mask] = []
    while len(chosen) < most and any(waiting.values()):
        for difficulty in order:
            if waiting[difficulty] and len(chosen) < most:
                chosen.append(waiting[difficulty].pop())
    return chosen


def _difficulty(mask: Mask) -> Difficulty:
    if mask.tokens <= EASY_TOKENS:
        return "easy"
    return "medium" if mask.tokens <= MEDIUM_TOKENS else "hard"


def _masked(whole: Problem, design: RtlDesign, task: Task, mask: Mask) -> Problem:
    text, path = design.file.text, design.file.path
    frame = f"{text[: mask.start]}{MASKED}{text[mask.end :]}"
    request = _PROMPTS[task].format(module=design.unit.name, masked=MASKED)
    prompt = f"{request}\n\nFile `{path}`:\n```\n{frame.rstrip()}\n```"
    context = whole.context
    user = design.user
    if task == "module" and user is not None and user.text.count("\n") <= MAX_USER_LINES:
        context = {**context, user.path: user.text}
    digest = hashlib.sha256(f"{design.file.origin}\n{frame}".encode()).hexdigest()[:8]
    return whole.model_copy(
        update={
            "id": f"{design.unit.name}_{task}_{digest}",
            "category": _CATEGORIES[task],
            "difficulty": _difficulty(mask),
            "family": task,
            "prompt": prompt,
            "context": context,
            "frame": {path: frame},
        }
    )
