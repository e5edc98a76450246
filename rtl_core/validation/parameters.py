"""Other values for a design's parameters, under which two answers are compared as well."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rtl_core.problems.interface import parse_interface
from rtl_core.types.problem import Interface, InterfaceSource, Problem

Values = Mapping[str, int]
"""Parameter -> value that an instance sets."""
MAX_VALUE = 1 << 16


def other_values(problem: Problem, interface: Interface) -> list[Values]:
    """Sets of parameter values to try, the most telling first: one more than every default, what the harness sets, half of each
    default, one more than each. Whether a design accepts them is for elaboration to say."""
    defaults = {p.name: p.default for p in interface.parameters if p.default is not None and 0 < p.default < MAX_VALUE}
    found: list[dict[str, int]] = []
    if len(defaults) > 1:
        found.append({name: value + 1 for name, value in defaults.items()})
    set_ = {name: _set_by(problem.harness, name, value) for name, value in defaults.items()}
    for turn in range(max((len(values) for values in set_.values()), default=0)):
        found += [{name: values[turn]} for name, values in set_.items() if turn < len(values)]
    found += [{name: value // 2} for name, value in defaults.items() if value > 1]
    found += [{name: value + 1} for name, value in defaults.items()]
    return [dict(pairs) for pairs in dict.fromkeys(tuple(sorted(values.items())) for values in found)]


def interface_with(sources: Mapping[str, str], module: str, values: Values) -> Interface | None:
    """The interface that `module` has when its parameters are set; None where it cannot be read."""
    return parse_interface(sources, module, InterfaceSource.GOLDEN, values)


def in_words(values: Values) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _set_by(harness: Mapping[str, str], name: str, default: int) -> list[int]:
    """Values other than the default that a harness gives a parameter, as far as they stand in its text as numbers."""
    word = re.escape(name)
    patterns = (
        rf"\b{word}\b['\"]?\s*[:=]\s*['\"]?(\d+)\b",  # a dictionary of parameters, an assignment, an env file
        rf"-[PGp](?:\w+\.)?{word}=(\d+)\b",  # a simulator's option
        rf"['\"]{word}['\"]\s*,\s*[\[(]([\d,\s]+)[\])]",  # pytest.mark.parametrize("WIDTH", [4, 8])
    )
    text = "\n".join(body for _, body in sorted(harness.items()))
    digits = [
        number for pattern in patterns for match in re.findall(pattern, text) for number in re.findall(r"\d+", match)
    ]
    return [value for value in dict.fromkeys(map(int, digits)) if value != default and 0 < value < MAX_VALUE]
