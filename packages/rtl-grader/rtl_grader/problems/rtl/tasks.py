"""Tasks about a design: `complete` masks a part of the module, `module` all of its body.

The golden answer is the whole file of the module. The size of the masked part is the difficulty.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rtl_grader.hdl.interface import unknown_modules
from rtl_grader.problems.judged import Compilation, Judging, judged_problem
from rtl_grader.problems.rtl.designs import Library, Need, SourceFile
from rtl_grader.problems.rtl.scan import Mask, Unit
from rtl_grader.types.problem import MASKED, Difficulty, Problem

SOURCE = "rtl"
Task = Literal["complete", "module"]
MIN_TOKENS = 4
"""Fewest tokens of a mask of `complete`."""
EASY_TOKENS, MEDIUM_TOKENS = 30, 120
"""Most tokens of an easy and of a medium mask."""
MOST_USES, USE_LINES = 2, 40
"""Most instantiations of a module that the task `module` shows, and most lines of each."""
_CATEGORIES = {"complete": "cid002", "module": "cid003"}
_PROMPTS = {
    "complete": "A part of the module `{module}` is replaced by `{masked}`. Write the code that stands there.",
    "module": (
        "The body of the module `{module}` is replaced by `{masked}`. Write it, so that the module does "
        "what its name, its ports, the comments and the other files say."
    ),
}


@dataclass(frozen=True)
class Choice:
    """Which parts of a module are masked."""

    most: int
    """At most so many."""
    tokens: int | None
    """Of at most so many tokens each; None: of any number."""
    seed: int

    def of(self, masks: Sequence[Mask], name: str) -> list[Mask]:
        """Masks of the module `name`, drawn by seed: of each difficulty in turn."""
        rng = random.Random(f"{self.seed}/{name}")
        most = self.tokens or sys.maxsize
        drawn = [mask for mask in masks if MIN_TOKENS <= mask.tokens <= most]
        rng.shuffle(drawn)
        taken: Counter[Difficulty] = Counter()
        turns = {}
        for mask in drawn:
            level = _difficulty(mask)
            turns[mask] = taken[level], level
            taken[level] += 1
        return sorted(drawn, key=turns.__getitem__)[: self.most]


@dataclass(frozen=True)
class RtlDesign:
    """A module to ask about."""

    file: SourceFile
    unit: Unit
    need: Need
    library: Library

    def problems(self, tasks: Sequence[Task], masks: Choice, judging: Judging) -> list[Problem]:
        """The problems about the design: the chosen completions, and its body.

        Raises ValueError when there are none, or when the interface cannot be read or a mask not be told from the text.
        """
        text = self.file.text
        if MASKED in text or "```" in text:
            raise ValueError(f"its file has `{MASKED}` or ``` in its text")
        body = [self.unit.body] if self.unit.body and "module" in tasks else []
        chosen: list[tuple[Task, Mask]] = []
        if "complete" in tasks:
            name = f"{self.file.path}/{self.unit.name}"
            bodies = [(mask.start, mask.end) for mask in body]
            parts = [mask for mask in self.unit.masks if (mask.start, mask.end) not in bodies]
            chosen += [("complete", mask) for mask in masks.of(parts, name)]
        chosen += [("module", mask) for mask in body]
        if not chosen:
            most = (
                f" with mask_tokens = {masks.tokens}"
                if masks.tokens and self.unit.masks
                else ""
            )
            raise ValueError(f"no part of it can be masked{most}")
        whole = self._whole(judging)
        return [self._masked(whole, task, mask) for task, mask in chosen]

    def _whole(self, judging: Judging) -> Problem:
        """The design as a problem without a mask, which all its tasks share."""
        path, need = self.file.path, self.need
        problem = judged_problem(
            id=path,
            source=SOURCE,
            category="cid003",
            difficulty="medium",
            prompt=self.file.text,
            golden={path: self.file.text},
            top=self.unit.name,
            context={**need.headers, **need.compiled},
            compilation=Compilation(
                list(need.compiled), sorted(need.include), self.library.define
            ),
            judging=judging,
            origin=f"{self.library.cluster(self.unit)}: {self.file.origin}",
            licence=self.file.licence or self.library.licence,
        )
        if need.missing:
            sources = {**problem.context, **(problem.golden or {})}
            unknown = unknown_modules(sources, self.unit.name)
            missing = need.missing & unknown
            if missing:
                raise ValueError(f"no file of its project defines {min(missing)}")
        ports = problem.interface.ports if problem.interface else ()
        for port in ports:
            if port.direction is None and port.width is None:
                raise ValueError("one of its ports is an interface, which no bench drives")
        if not any(port.direction == "output" for port in ports):
            raise ValueError("it has no output")
        if any(port.width is None for port in ports):
            raise ValueError("the width of one of its ports cannot be read")
        return problem

    def _masked(self, whole: Problem, task: Task, mask: Mask) -> Problem:
        data, path = self.file.text.encode(), self.file.path
        before, after = data[: mask.start].decode(), data[mask.end :].decode()
        frame = f"{before}{MASKED}{after}"
        request = _PROMPTS[task].format(module=self.unit.name, masked=MASKED)
        digest = hashlib.sha256(f"{self.file.origin}\n{frame}".encode()).hexdigest()[:8]
        uses = self._uses() if task == "module" else ""
        changes = {
            "id": f"{self.unit.name}_{task}_{digest}",
            "category": _CATEGORIES[task],
            "difficulty": _difficulty(mask),
            "family": task,
            "prompt": f"{request}\n\nFile `{path}`:\n```\n{frame.rstrip()}\n```{uses}",
            "frame": {path: frame},
        }
        return whole.model_copy(update=changes)

    def _uses(self) -> str:
        """How the first modules of other files instantiate it, for the prompt."""
        places = self.library.instances.get(self.unit.name, [])
        others = [(file.path, text) for file, text in places if file is not self.file]
        shown = ""
        for path, text in others[:MOST_USES]:
            excerpt = "\n".join(text.splitlines()[:USE_LINES])
            shown += f"\n\nIt is used in `{path}`:\n```\n{excerpt}\n```"
        return shown


def _difficulty(mask: Mask) -> Difficulty:
    if mask.tokens <= EASY_TOKENS:
        return "easy"
    return "medium" if mask.tokens <= MEDIUM_TOKENS else "hard"
