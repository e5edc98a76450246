"""Convert a response to the answer to a problem, and files to a response."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rtl_grader.extraction.response import extract_answer
from rtl_grader.hdl.interface import hdl_files
from rtl_grader.hdl.text import code_of, module_names, modules
from rtl_grader.problems.interface import top_levels
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import MASKED, Problem


def answer_to(problem: Problem, response: str) -> Answer:
    """Extract the targets of `problem` from a response, or the reason why there are none, by the rules in
    response.py. What answers a masked part is put into the frame.

    Never raises, and takes time linear in the length of any response.
    """
    answer = extract_answer(
        response,
        problem.targets,
        demanded_modules(problem),
        given_design(problem),
        piece=bool(problem.frame),
    )
    if not problem.frame:
        return answer
    files = {
        path: within_frame(problem.frame[path], text) if path in problem.frame else text
        for path, text in answer.files.items()
    }
    return answer.model_copy(update={"files": files})


def within_frame(frame: str, text: str) -> str:
    """Return the file that an answer makes of a frame. A text with the masked module is the file; if it is nothing but
    this module, and the frame has code around it, it replaces the module. Any other text replaces `MASKED`."""
    before, _, after = frame.partition(MASKED)
    whole, code = code_of(frame), code_of(text)
    masked = next(
        (unit for unit in modules(whole) if unit.start <= len(before) < unit.end), None
    )
    own = modules(code)
    if masked is None or masked.name not in {unit.name for unit in own}:
        return f"{before}{text.strip()}{after}"
    around = whole[: masked.start] + whole[masked.end :]
    module, *others = own
    rest = code[: module.start] + code[module.end :]
    if others or rest.strip() or not around.strip():
        return text
    return f"{frame[: masked.start]}{text[module.start : module.end]}{frame[masked.end :]}"


def masked_piece(problem: Problem) -> str | None:
    """What the golden answer has in the place of `MASKED`; None without a frame or a golden answer."""
    for path, frame in problem.frame.items():
        before, _, after = frame.partition(MASKED)
        whole = (problem.golden or {}).get(path, "")
        if whole.startswith(before) and whole.endswith(after):
            return whole[len(before) : len(whole) - len(after)]
    return None


def given_design(problem: Problem) -> dict[str, str]:
    """HDL files that the problem provides, in its context or its harness, and that are no targets."""
    files = {**problem.context, **problem.harness}
    return {
        path: text for path, text in hdl_files(files).items() if path not in problem.targets
    }


def response_of(files: Mapping[str, str]) -> str:
    """Return a response from which exactly these files are extracted; empty without files."""
    entries = [{path: text} for path, text in files.items()]
    return json.dumps({"code": entries}) if entries else ""


def demanded_modules(problem: Problem) -> list[str]:
    """Names of the modules that an answer must define, most important first: the interface's, then the
    harness' top levels.

    Top levels that the problem itself provides, in a file that is not a target, are left out.
    """
    names = [problem.interface.module] if problem.interface else []
    tops = [top for top in top_levels(problem.harness) if top not in names]
    files = given_design(problem).values() if tops else ()
    others = {name for text in files for name in module_names(text)}
    return names + [top for top in tops if top not in others]
