"""Variants of a problem with a verified answer: renamed, with the other reset polarity, with a bus in
reverse bit order; and repairs.

The harness stays unchanged: an adapter between it and the answer translates names, reset polarity and bit
order. Not supported: problems with parameters, inout ports or a partly known interface, and harnesses that
do not name their sources in an env file. Other widths come from the starter families, whose harness is
generated for each width.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from posixpath import basename
from typing import Any, Literal, get_args

from rtl_core.errors import ProblemError
from rtl_core.starter import names as words
from rtl_grader.hdl.interface import parse_interface
from rtl_grader.problems.cvdp import problem_from_record
from rtl_grader.problems.interface import top_levels
from rtl_grader.types.problem import Interface, InterfaceSource, Port, Problem
from rtl_grader.validation.mutants import mutants

Kind = Literal["rename", "polarity", "bit order", "repair"]
KINDS: tuple[Kind, ...] = get_args(Kind)

SOURCE = "synthetic"
SHIM = "src/adapter.sv"
_RESET = re.compile(r"(?:^|_)[asn]?(?:rst|reset|clr|clear)(?:_?[nblh])?(?:_i|_in)?$", re.I)
_CLOCK = re.compile(r"(?:^|_)(?:clk|clock)(?:$|_)|^ck$", re.I)
_WORD = re.compile(r"[A-Za-z_]\w*")
_SOURCES = re.compile(r"^([ \t]*VERILOG_SOURCES[ \t]*=[ \t]*)(.*?)[ \t\r]*$", re.M)


@dataclass(frozen=True)
class Change:
    """How a new interface differs from an old one. Ports are given by their old names."""

    module: str
    """Name of the module with the new interface."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Old port name -> new one, for ports that are renamed."""
    inverted: frozenset[str] = frozenset()
    """One-bit ports with the opposite polarity."""
    reversed: frozenset[str] = frozenset()
    """Buses with the opposite bit order."""

    def name(self, port: str) -> str:
        return self.names.get(port, port)


def variant(problem: Problem, kind: Kind, rng: random.Random) -> Problem:
    """An unchecked variant of a problem, which depends on the state of `rng`.

    Raises:
        ProblemError: the problem does not allow it; the message says why.
    """
    if problem.golden is None or len(problem.targets) != 1:
        raise ProblemError(f"{problem.id} has no golden answer of one file")
    if kind == "repair":
        return _repair(problem, rng)
    interface = _interface(problem)
    return _adapted(problem, interface, _change(problem, interface, kind, rng), kind)


def _interface(problem: Problem) -> Interface:
    """The complete interface of the golden answer's top module."""
    tops = top_levels(problem.harness)
    if problem.golden is None or len(tops) != 1:
        raise ProblemError(f"{problem.id}: its harness does not drive one module alone")
    interface = parse_interface(problem.golden, tops[0], InterfaceSource.GOLDEN)
    if interface is None:
        raise ProblemError(f"{problem.id}: the golden answer has no module {tops[0]}")
    return interface


def _change(problem: Problem, interface: Interface, kind: Kind, rng: random.Random) -> Change:
    module = f"{interface.module}_{rng.choice(words.MODULE_WORDS)}"
    if kind == "rename":
        return Change(module, names=_new_names(problem, interface, rng))
    if kind == "polarity":
        bits = [p.name for p in interface.ports if p.width == 1 and p.direction == "input"]
        resets = [name for name in bits if _RESET.search(name)]
        if len(resets) != 1:
            raise ProblemError(f"{problem.id}: it has {len(resets)} resets, one is needed")
        return Change(module, inverted=frozenset(resets))
    buses = [p.name for p in interface.ports if p.width is not None and p.width > 1]
    if not buses:
        raise ProblemError(f"{problem.id}: it has no bus")
    return Change(module, reversed=frozenset([rng.choice(buses)]))


def _new_names(problem: Problem, interface: Interface, rng: random.Random) -> dict[str, str]:
    """Draw new names, which the problem does not use, for the ports that its prompt names. Clocks and resets
    keep theirs."""
    prompt_words = set(_WORD.findall(problem.prompt))
    ports = [port.name for port in interface.ports if port.name in prompt_words]
    ports = [name for name in ports if not _CLOCK.search(name) and not _RESET.search(name)]
    if not ports:
        raise ProblemError(f"{problem.id}: its text names no port that could be renamed")
    unusable = prompt_words.union(*map(_WORD.findall, (problem.golden or {}).values()))
    names = [name + suffix for name in words.PORTS for suffix in ("", "_i", "_q")]
    free = [name for name in names if name not in unusable]
    return dict(zip(ports, rng.sample(free, min(len(ports), len(free))), strict=False))


def _adapted(problem: Problem, interface: Interface, change: Change, kind: Kind) -> Problem:
    (target,) = problem.targets
    assert problem.golden is not None
    renames = {interface.module: change.module, **change.names}
    shim = adapter(interface, change, interface.module, change.module, outer_is_old=True)
    if kind == "rename":
        golden = _renamed(problem.golden[target], renames)
    else:
        core = f"{change.module}_core"
        inner = _renamed(problem.golden[target], {interface.module: core})
        golden = adapter(interface, change, change.module, core, outer_is_old=False) + inner
    prompt = _renamed(problem.prompt, renames)
    if notes := _notes(change):
        prompt = f"{prompt.rstrip()}\n\n{notes}"
    context = {path: _renamed(text, renames) for path, text in problem.context.items()}
    return _problem_of(
        problem, kind, prompt, context, {target: golden}, _with_source(problem, shim)
    )


def _notes(change: Change) -> str:
    lines = [
        f"In contrast to the above, `{name}` has the opposite polarity: where it is said to act "
        "when 0 it acts when 1, and the other way round."
        for name in sorted(change.inverted)
    ]
    lines += [
        f"In contrast to the above, the bits of `{change.name(name)}` are in the opposite order: "
        "bit 0 is the most significant."
        for name in sorted(change.reversed)
    ]
    return "\n".join(lines)


def _renamed(text: str, renames: dict[str, str]) -> str:
    """Replace whole words, except in file names."""
    if not renames:
        return text
    names = "|".join(map(re.escape, renames))
    pattern = rf"(?<![\w/])(?:{names})(?!\w|\.(?:sv|v|svh|vh|md)\b)"
    return re.sub(pattern, lambda match: renames[match[0]], text)


def _with_source(problem: Problem, shim: str) -> dict[str, str]:
    """Add the adapter to the harness' sources."""
    harness = dict(problem.harness)
    for path, text in problem.harness.items():
        if ".env" in basename(path):
            harness[path] = _SOURCES.sub(rf"\1\2 /{SHIM}", text)
    if harness == problem.harness:
        raise ProblemError(
            f"{problem.id}: its harness does not name its sources in an env file"
        )
    return {**harness, SHIM: shim}


def _repair(problem: Problem, rng: random.Random) -> Problem:
    """A problem that shows a near miss and asks for its repair."""
    assert problem.golden is not None
    (target,) = problem.targets
    tops = top_levels(problem.harness)
    top = tops[0] if tops else ""
    near_misses = mutants(problem.golden, top, 12, rng.randrange(1 << 30))
    if not near_misses:
        raise ProblemError(f"{problem.id}: its golden answer has no near miss")
    mutant = rng.choice(near_misses)
    prompt = (
        f"`{target}` was written for the specification below and fails its checks because of one "
        "mistake. Find it, and give the "
        f"whole corrected file; change nothing else.\n\n{problem.prompt}"
    )
    context = {**problem.context, target: mutant.files[target]}
    return _problem_of(
        problem, "repair", prompt, context, dict(problem.golden), dict(problem.harness)
    )


def _problem_of(
    parent: Problem,
    kind: Kind,
    prompt: str,
    context: dict[str, str],
    golden: dict[str, str],
    harness: dict[str, str],
) -> Problem:
    content = "\n".join([prompt, *context.values(), *golden.values()])
    digest = hashlib.sha256(content.encode()).hexdigest()[:8]
    changes = {
        "id": f"{parent.id[:160]}_{kind.replace(' ', '_')}_{digest}",
        "category": "cid016" if kind == "repair" else parent.category,
        "prompt": prompt,
        "context": context,
        "harness": harness,
        "golden": golden,
    }
    # Read back from its record, so that it equals what is read from the written file.
    return problem_from_record(record_of(parent.model_copy(update=changes)), source=SOURCE)


def record_of(problem: Problem) -> dict[str, Any]:
    """A problem as a CVDP single-turn record; without a golden answer its target files are empty, as in the
    public set."""
    return {
        "id": problem.id,
        "categories": [problem.category, problem.difficulty],
        **({"family": problem.family} if problem.family else {}),
        "input": {"prompt": problem.prompt, "context": problem.context},
        "output": {
            "response": "",
            "context": problem.golden or dict.fromkeys(problem.targets, ""),
        },
        "harness": {"files": problem.harness},
    }


def adapter(
    old: Interface, change: Change, outer: str, inner: str, *, outer_is_old: bool
) -> str:
    """Verilog of module `outer`, which instantiates `inner`; one has the old interface, the other the new one.

    Raises:
        ProblemError: the old interface has parameters, inout ports, or ports of unknown direction or width.
    """
    for port in old.ports:
        if port.direction not in ("input", "output") or port.width is None:
            raise ProblemError(
                f"port {port.name} of {old.module} cannot be adapted: {port.direction}, {port.width} bits"
            )
    if old.parameters or not old.exact:
        raise ProblemError(
            f"{old.module} has parameters, or ports that are not known: it cannot be adapted"
        )
    declarations, lines, connections = [], [], []
    for number, port in enumerate(old.ports):
        outside, inside = port.name, change.name(port.name)
        if not outer_is_old:
            outside, inside = inside, outside
        declarations.append(f"{port.direction} {port.packed}{outside}")
        wire = f"adapted_{number}"
        lines.append(f"  wire {port.packed}{wire};")
        source, target = (outside, wire) if port.direction == "input" else (wire, outside)
        lines += _assignments(port, source, target, change)
        connections.append(f".{inside}({wire})")
    header = f"module {outer}({', '.join(declarations)});"
    instance = f"  {inner} core({', '.join(connections)});"
    return "\n".join([header, *lines, instance, "endmodule"]) + "\n"


def _assignments(port: Port, source: str, target: str, change: Change) -> list[str]:
    sign = "~" if port.name in change.inverted else ""
    width = port.width or 1
    if port.name not in change.reversed or width == 1:
        return [f"  assign {target} = {sign}{source};"]
    bits = range(width)
    order = zip(bits, reversed(bits), strict=True)
    return [f"  assign {target}[{to}] = {sign}{source}[{bit}];" for to, bit in order]
