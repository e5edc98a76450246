"""From a response to the answer to one problem, and from files to a response."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rtl_core.problems.interface import HDL_SUFFIXES, module_names, top_levels
from rtl_core.prompting.extraction import extract_answer
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem


def answer_to(problem: Problem, response: str) -> Answer:
    """The files that a response offers for the targets of `problem`, or the error that says why there are none.

    Never raises, and takes time linear in the length of the response, whatever it holds (extraction.py has the rules).
    """
    return extract_answer(response, problem.targets, demanded_modules(problem))


def response_of(files: Mapping[str, str]) -> str:
    """A response from which exactly these files are read again; empty where there is none."""
    return json.dumps({"code": [{path: text} for path, text in files.items()]}) if files else ""


def demanded_modules(problem: Problem) -> list[str]:
    """Names of the modules that an answer must define, most wanted first: the interface's, then the harness' top levels.

    A top level that the problem itself gives, in a file that is no target, is not demanded.
    """
    names = [problem.interface.module] if problem.interface else []
    tops = [top for top in top_levels(problem.harness) if top not in names]
    if tops:
        given = {
            name
            for path, text in (*problem.context.items(), *problem.harness.items())
            if path not in problem.targets and path.endswith(HDL_SUFFIXES)
            for name in module_names(text)
        }
        names += [top for top in tops if top not in given]
    return names
