"""The interface that a problem demands of an answer, and what the problem says about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from posixpath import basename
from typing import Any

from rtl_grader.hdl.interface import HDL_SUFFIXES, hdl_files, parse_interface
from rtl_grader.hdl.text import code_of, module_names
from rtl_grader.problems.harness_use import HarnessUse, harness_use, macro_file
from rtl_grader.types.files import Files
from rtl_grader.types.problem import (
    Direction,
    Interface,
    InterfaceSource,
    Parameter,
    Port,
    Problem,
)

_FENCE = re.compile(r"^[ \t]*```[^\n]*\n(.*?)^[ \t]*```", re.S | re.M)
_TOP_LEVEL = re.compile(r"^[ \t]*TOPLEVEL[ \t]*=[ \t]*[\"']?([A-Za-z_]\w*)", re.M)


def derive_interface(
    *,
    prompt: str,
    context: Files,
    targets: Iterable[str],
    harness: Files,
    golden: Files | None,
    parameters: Mapping[str, int] | None = None,
) -> Interface | None:
    """Derive the interface that a problem requires of its top module, with its source; None when nothing
    determines it.

    Sources in order of trust: the golden answer; the module in the context, unless it is a target, which
    may be about to change; the module header in the specification (fenced blocks of prompt and documents);
    a target's old version; the uses of `dut` in the harness' executed code. The last two may be incomplete,
    so further ports are allowed (`exact` is False). A golden answer's parameter is required only when the
    prompt, a document or the harness names it. `parameters` overrides some of the top module's parameters.
    """
    targets = tuple(targets)
    use = harness_use(harness)
    texts = documents(prompt, context)
    harness_words = _words(map(code_of, hdl_files(harness).values()))
    by_harness = {*use.parameters, *use.names, *harness_words}
    by_documents = _words(texts)

    def is_public(name: str, in_header: bool) -> bool:
        # A parameter of the body may be a constant such as a state's code, and a document may name the state.
        return name in by_harness or (in_header and name in by_documents)

    fixed = hdl_files(context)
    for path in targets:
        fixed.pop(path, None)
    fixed = {**macro_file(harness), **fixed}
    for top in _demanded_modules(targets, harness, fixed, golden):
        if golden:
            sources = {**fixed, **golden}
            interface = parse_interface(
                sources, top, InterfaceSource.GOLDEN, parameters, is_public
            )
            if interface:
                return interface
        in_context = _from_context(top, context, targets, use, parameters)
        if in_context and in_context.exact:
            return in_context
        interface = _from_specification(top, texts, parameters) or in_context
        interface = interface or _from_harness(top, use)
        if interface:
            return interface
    return None


def describe_interface(problem: Problem) -> dict[str, Any]:
    """Summarise a problem's interface as JSON: module, source, confidence, and counts of ports and of ports
    known completely.

    Confidence: `certain`: from the golden answer. `high`: from a module of the context that is not a
    target. `medium`: from a header in the specification, or a target's old version. `low`: only names that
    the harness uses. `none`: nothing was found.
    """
    interface = problem.interface
    if interface is None:
        counts = dict.fromkeys(("ports", "complete_ports", "parameters"), 0)
        return {"module": None, "source": None, "confidence": "none", **counts}
    confidence = {
        InterfaceSource.GOLDEN: "certain",
        InterfaceSource.CONTEXT: "high" if interface.exact else "medium",
        InterfaceSource.SPECIFICATION: "medium",
        InterfaceSource.HARNESS: "low",
    }
    complete = [p for p in interface.ports if p.direction and p.width]
    return {
        "module": interface.module,
        "source": interface.source.value,
        "confidence": confidence[interface.source],
        "exact": interface.exact,
        "ports": len(interface.ports),
        "complete_ports": len(complete),
        "parameters": len(interface.parameters),
    }


def top_levels(harness: Files) -> list[str]:
    """Values of TOPLEVEL in the harness' env files, without duplicates, in the order of the files."""
    names: dict[str, None] = {}
    for path, text in sorted(harness.items()):
        if ".env" in basename(path):
            names.update(dict.fromkeys(_TOP_LEVEL.findall(text)))
    return list(names)


def _demanded_modules(
    targets: tuple[str, ...],
    harness: Files,
    fixed: Files,
    golden: Files | None,
) -> list[str]:
    """Candidate names of the top module, best first: the harness' top levels and the targets' names, except
    those of modules that the problem provides."""
    names: dict[str, None] = dict.fromkeys(top_levels(harness))
    for path in targets:
        stem, *_ = basename(path).split(".")
        names[stem] = None
    for text in (*fixed.values(), *hdl_files(harness).values()):
        for provided in module_names(text):
            names.pop(provided, None)
    if golden and not names:
        for path in targets:
            names |= dict.fromkeys(module_names(golden.get(path, "")))
    return list(names)


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text)}


def _from_context(
    top: str,
    context: Files,
    targets: tuple[str, ...],
    use: HarnessUse,
    parameters: Mapping[str, int] | None,
) -> Interface | None:
    holders = {path for path, text in hdl_files(context).items() if top in module_names(text)}
    if not holders:
        return None
    interface = parse_interface(context, top, InterfaceSource.CONTEXT, parameters)
    if interface is None or holders.isdisjoint(targets):
        return interface
    # A target's old version is about to change. Only the directions of the ports that the harness still
    # uses are reliable, not widths, types, parameter defaults or other ports.
    ports = [p for p in interface.ports if p.name in use.names or not use.names]
    names = [p for p in interface.parameters if p.name in use.parameters]
    return Interface(
        module=top,
        ports=tuple(Port(name=p.name, direction=p.direction) for p in ports),
        parameters=tuple(Parameter(name=p.name, is_type=p.is_type) for p in names),
        source=InterfaceSource.CONTEXT,
        exact=False,
    )


def _from_specification(
    top: str, texts: list[str], parameters: Mapping[str, int] | None
) -> Interface | None:
    for document in texts:
        for block in _FENCE.findall(document.replace("\r\n", "\n")):
            begin, _, _ = block.partition("endmodule")
            if "..." in begin or top not in module_names(block):
                continue
            if not re.search(r"\bendmodule\b", block):
                block += "\nendmodule\n"
            interface = parse_interface(
                {"specification.sv": block}, top, InterfaceSource.SPECIFICATION, parameters
            )
            if interface and interface.ports:
                return interface
    return None


def _from_harness(top: str, use: HarnessUse) -> Interface | None:
    if not use.names:
        return None
    ports = []
    for name in use.names:
        direction: Direction | None = "input" if name in use.driven else None
        width = 1 if name in use.scalars else None
        ports.append(Port(name=name, direction=direction, width=width))
    return Interface(
        module=top, ports=tuple(ports), source=InterfaceSource.HARNESS, exact=False
    )


def documents(prompt: str, context: Files) -> list[str]:
    """The prompt, and the files of the context that are no HDL."""
    texts = [prompt]
    for path, text in context.items():
        if not path.endswith(HDL_SUFFIXES):
            texts.append(text)
    return texts
