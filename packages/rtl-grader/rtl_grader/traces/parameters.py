"""Values of parameters with which designs are compared beside the defaults."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest

from rtl_grader.hdl.text import WORD, code_of
from rtl_grader.problems.interface import documents
from rtl_grader.traces.driving import Values
from rtl_grader.types.problem import Interface, Problem

MAX_VALUE = 1 << 16
"""Largest default of a parameter for which other values are tried."""
VALUES_EACH = 2
"""Other values of each parameter that are tried at most, when those that a text names are too few."""


def other_values(problem: Problem, interface: Interface) -> list[Values]:
    """The non-default values that the harness or the specification gives to each parameter, one at a time."""
    defaults = _defaults(interface)
    harness = [text for _, text in sorted(problem.harness.items())]
    sets: list[Values] = []
    for texts in (harness, documents(problem.prompt, problem.context)):
        others = []
        for name, default in defaults.items():
            values = _set_by(texts, name, default)
            others.append([{name: value} for value in values])
        for turn in zip_longest(*others):
            sets += [values for values in turn if values and values not in sets]
    return sets


def likely_values(
    problem: Problem, interface: Interface, golden: Iterable[str]
) -> list[Values]:
    """The values of `other_values`, then twice the default and half of it or one less, at most two for each
    parameter and one parameter at a time. A parameter that is a label in a `case` of the golden answer is a
    code, which has no other values; one whose default follows from another parameter has only those of texts."""
    code = "\n".join(map(code_of, golden))
    sets = other_values(problem, interface)
    names = {parameter.name for parameter in interface.parameters}
    for name, default in _defaults(interface).items():
        if _follows(code, name, names):
            continue
        if re.search(rf"(?:[;)]|\bend)\s*{re.escape(name)}\s*[:,]", _cases(code)):
            sets = [values for values in sets if name not in values]
            continue
        smaller = default - 1
        if default > 3:
            smaller = default // 2
        for value in (2 * default, smaller):
            tried = [values for values in sets if name in values]
            if value > 0 and len(tried) < VALUES_EACH and {name: value} not in tried:
                sets.append({name: value})
    return sets


def _follows(code: str, name: str, names: set[str]) -> bool:
    """Whether the default of a parameter is made of others, as in `parameter BITS = $clog2(DEPTH)`."""
    start = rf"\bparameter\b[^;]*?\b{re.escape(name)}\s*="
    for text in re.findall(rf"{start}([^=;,\n][^;,\n]*)", code):
        words = set(WORD.findall(text))
        if names & words:
            return True
    return False


def _cases(code: str) -> str:
    """The text between each `case` and its `endcase`."""
    return "\n".join(re.findall(r"\bcase[xz]?\b(.*?)\bendcase\b", code, re.S))


def _defaults(interface: Interface) -> dict[str, int]:
    return {
        parameter.name: parameter.default
        for parameter in interface.parameters
        if parameter.default is not None and 0 < parameter.default < MAX_VALUE
    }


def _set_by(texts: Iterable[str], name: str, default: int) -> list[int]:
    """Non-default values that texts give a parameter, as far as they have them as numbers."""
    word = re.escape(name)
    patterns = (
        rf"\b{word}\b['\"`]?\s*[:=]\s*['\"`]?(\d+(?:,\s*\d+|,? (?:or|and) \d+)*)\b(?!')",  # a dictionary, an assignment
        rf"-[PGp](?:\w+\.)?{word}=(\d+)\b",  # a simulator's option
        rf"['\"]{word}['\"]\s*,\s*[\[(]([\d,\s]+)[\])]",  # pytest.mark.parametrize("WIDTH", [4, 8])
    )
    text = "\n".join(texts)
    matches = [match for pattern in patterns for match in re.findall(pattern, text)]
    numbers = dict.fromkeys(map(int, re.findall(r"\d+", " ".join(matches))))
    return [number for number in numbers if number != default and 0 < number < MAX_VALUE]
