"""The interface of a module, read with pyslang, and the interface that a problem demands.

Covered: ANSI and non-ANSI ports, parameters with defaults, widths that depend on parameters (evaluated with the
defaults), packages, typedefs, and files included from among the given sources. Not covered: SystemVerilog interface
ports (their width is None), and types that need a file which was not given (width None).

Text from a model goes through here only inside the bounded process of `rtl_core.grading.analysis`: a macro that
doubles itself forty times is legal Verilog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyslang  # whole: classes that our globals held would be listed as leaked when the process ends
from pyslang import ast as slang_ast
from pyslang import parsing as slang_parsing
from pyslang import syntax as slang_syntax

from rtl_core.problems.harness_use import HarnessUse, harness_use
from rtl_core.types.problem import Direction, Interface, InterfaceSource, Parameter, Port, Problem

_NOWHERE = "/nowhere-on-disk/"
_HEADER_SUFFIXES = (".vh", ".svh", ".h", ".inc")
HDL_SUFFIXES = (".v", ".sv", *_HEADER_SUFFIXES)
_DIRECTIONS: dict[str, Direction] = {"In": "input", "Out": "output", "InOut": "inout"}
_INCLUDE = re.compile(r"`include\b[ \t]*(?:\"([^\"\n]*)\")?")
_FENCE = re.compile(r"^[ \t]*```[^\n]*\n(.*?)^[ \t]*```", re.S | re.M)
_MODULE = re.compile(r"\b(?:macro)?module\s+(?:automatic\s+|static\s+)?(?:\\(?=\w+\s))?([A-Za-z_]\w*)")
_COMMENT_OR_STRING = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:\\.|[^\"\\\n])*\"", re.S)


def parse_interface(
    sources: Mapping[str, str],
    top: str,
    source: InterfaceSource,
    parameters: Mapping[str, int] | None = None,
    keep: Callable[[str, bool], bool] = lambda name, in_header: True,
) -> Interface | None:
    """The interface of module `top` in `sources` (path -> text), or None when no module of that name is there.
    `parameters` sets some of the top's parameters.

    Widths are in bits, an unpacked array counts with all its elements; a width is None when it cannot be evaluated.
    `keep` says which parameters belong to it, by name and by whether they stand in the module's header. Never raises
    for what the text holds and reads no file.
    """
    tree, _manager, options = syntax_tree(sources)
    options.compilationOptions = compilation_options(top, parameters or {})
    compilation = slang_ast.Compilation(options)
    compilation.addSyntaxTree(tree)
    for instance in compilation.getRoot().topInstances:
        if instance.name == top:
            body = instance.body
            return Interface(
                module=top,
                ports=tuple(_port(p) for p in body.portList),
                parameters=tuple(
                    _parameter(p)
                    for p in body.parameters
                    if not getattr(p, "isLocalParam", False) and keep(p.name, p.isPortParam)
                ),
                source=source,
            )
    return None


def syntax_tree(sources: Mapping[str, str]) -> tuple[slang_syntax.SyntaxTree, pyslang.SourceManager, pyslang.Bag]:
    """Parses the HDL files of `sources` as one compilation unit; other files are ignored.

    An `include` is followed only when every one of them names one of `sources`; else all stay unresolved, so that
    no file of this machine is ever read.
    """
    hdl = {path: text.replace("\0", " ") for path, text in sources.items() if path.endswith(HDL_SUFFIXES)}
    manager = pyslang.SourceManager()
    preprocessor = slang_parsing.PreprocessorOptions()
    preprocessor.maxIncludeDepth = 8 if _all_included_are_given(hdl) else 0
    parser = slang_parsing.ParserOptions()
    parser.maxRecursionDepth = 512
    options = pyslang.Bag([preprocessor, parser])
    # Only the base name: files stand side by side, as with one include path for all. Of a second file it is the whole path.
    names = {path.rsplit("/", 1)[-1]: path for path in reversed(hdl)}
    places = {path: name for name, path in names.items()}
    buffers = {path: manager.assignText(_NOWHERE + places.get(path, path), text) for path, text in hdl.items()}
    roots = [buffer for path, buffer in buffers.items() if not path.endswith(_HEADER_SUFFIXES)]
    return slang_syntax.SyntaxTree.fromBuffers(roots or list(buffers.values()), manager, options), manager, options


def module_names(text: str) -> list[str]:
    """Names that follow the keyword `module` outside comments and strings, in order; a quick look, not a parse."""
    return [match[1] for match in _MODULE.finditer(code_of(text))]


def code_of(text: str) -> str:
    """Verilog without its comments and the contents of its strings."""
    return _COMMENT_OR_STRING.sub(lambda match: '""' if match[0].startswith('"') else " ", text)


def derive_interface(
    *,
    prompt: str,
    context: Mapping[str, str],
    targets: Iterable[str],
    harness: Mapping[str, str],
    golden: Mapping[str, str] | None,
    parameters: Mapping[str, int] | None = None,
) -> Interface | None:
    """The interface that a problem demands of its top module, with its source recorded, or None.
    `parameters` sets some of the top's parameters.

    Sources in order of trust: the golden answer, the context's own version of the module (when it is no target, so
    that it cannot be what is to be changed, or nothing better is there), the module header in the specification
    (fenced blocks of the prompt and of documents), and what the harness' executed code does with `dut`. All but the
    golden answer and the specification name only what they need, so further ports are no error there (`exact` is False).
    Of a golden answer's parameters only those are demanded that the prompt, a document or the harness names.
    """
    targets = tuple(targets)
    use = harness_use(harness)
    documents = [prompt, *(text for path, text in context.items() if not path.endswith(HDL_SUFFIXES))]
    by_harness = {*use.parameters, *use.names, *_words(code_of(text) for text in _hdl(harness).values())}
    by_documents = _words(documents)

    def is_public(name: str, in_header: bool) -> bool:
        # In a body stand constants such as a state's code, whose name a document may use for the state.
        return name in by_harness or (in_header and name in by_documents)

    fixed = {path: text for path, text in context.items() if path not in targets and path.endswith(HDL_SUFFIXES)}
    for top in _demanded_modules(targets, harness, fixed, golden):
        in_context = _from_context(top, context, targets, use, parameters)
        found = (
            _from_golden(top, golden, fixed, is_public, parameters)
            or (in_context if in_context and in_context.exact else None)
            or _from_specification(top, documents, parameters)
            or in_context
            or _from_harness(top, use)
        )
        if found is not None:
            return found
    return None


def describe_interface(problem: Problem) -> dict[str, Any]:
    """JSON-able: module, source, confidence, how many ports are known and how many of them in direction and width.

    Confidence: `certain`: read from the golden answer. `high`: from a module of the context that is not to be changed. `medium`: from a
    header in the specification, or from the old version of what is to be changed. `low`: only the names that the harness touches.
    `none`: nothing was found.
    """
    interface = problem.interface
    if interface is None:
        return {"module": None, "source": None, "confidence": "none", "ports": 0, "complete_ports": 0, "parameters": 0}
    confidence = {
        InterfaceSource.GOLDEN: "certain",
        InterfaceSource.CONTEXT: "high" if interface.exact else "medium",
        InterfaceSource.SPECIFICATION: "medium",
        InterfaceSource.HARNESS: "low",
    }
    return {
        "module": interface.module,
        "source": interface.source.value,
        "confidence": confidence[interface.source],
        "exact": interface.exact,
        "ports": len(interface.ports),
        "complete_ports": sum(p.direction is not None and p.width is not None for p in interface.ports),
        "parameters": len(interface.parameters),
    }


def top_levels(harness: Mapping[str, str]) -> list[str]:
    """Values of TOPLEVEL in the harness' env files, each once, in the order of the files."""
    found = []
    for path in sorted(harness):
        if ".env" in path.rsplit("/", 1)[-1]:
            found += re.findall(r"^[ \t]*TOPLEVEL[ \t]*=[ \t]*[\"']?([A-Za-z_]\w*)", harness[path], re.M)
    return list(dict.fromkeys(found))


def _demanded_modules(
    targets: tuple[str, ...],
    harness: Mapping[str, str],
    fixed: Mapping[str, str],
    golden: Mapping[str, str] | None,
) -> list[str]:
    """Module names to look for, best first: the harness' top level, unless it is given and not asked for."""
    given = {name for text in (*fixed.values(), *_hdl(harness).values()) for name in module_names(text)}
    names = [top for top in top_levels(harness) if top not in given]
    names += [stem for stem in (path.rsplit("/", 1)[-1].split(".")[0] for path in targets) if stem not in given]
    if golden and not names:
        names += [name for path in targets for name in module_names(golden.get(path, ""))]
    return list(dict.fromkeys(names))


def _from_golden(
    top: str,
    golden: Mapping[str, str] | None,
    fixed: Mapping[str, str],
    keep: Callable[[str, bool], bool],
    parameters: Mapping[str, int] | None,
) -> Interface | None:
    if not golden or not any(top in module_names(text) for text in golden.values()):
        return None
    return parse_interface({**fixed, **golden}, top, InterfaceSource.GOLDEN, parameters, keep)


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text)}


def _from_context(
    top: str,
    context: Mapping[str, str],
    targets: tuple[str, ...],
    use: HarnessUse,
    parameters: Mapping[str, int] | None,
) -> Interface | None:
    holders = [path for path, text in _hdl(context).items() if top in module_names(text)]
    if not holders:
        return None
    found = parse_interface(context, top, InterfaceSource.CONTEXT, parameters)
    if found is None or not any(path in targets for path in holders):
        return found
    # A target's old version may be exactly what is to be changed. It tells the directions of those ports that the
    # harness still uses; widths, parameters and further ports are open.
    ports = [p for p in found.ports if p.name in use.names or not use.names]
    used = [p for p in found.parameters if p.name in use.parameters]
    return found.model_copy(
        update={
            "ports": tuple(p.model_copy(update={"width": None}) for p in ports),
            "parameters": tuple(p.model_copy(update={"default": None}) for p in used),
            "exact": False,
        }
    )


def _from_specification(top: str, documents: list[str], parameters: Mapping[str, int] | None) -> Interface | None:
    for document in documents:
        for block in _FENCE.findall(document.replace("\r\n", "\n")):
            if top not in module_names(block):
                continue
            text = block if re.search(r"\bendmodule\b", block) else block + "\nendmodule\n"
            if "..." in text.partition("endmodule")[0]:
                continue
            found = parse_interface({"specification.sv": text}, top, InterfaceSource.SPECIFICATION, parameters)
            if found and found.ports:
                return found
    return None


def _from_harness(top: str, use: HarnessUse) -> Interface | None:
    if not use.names:
        return None
    ports = [
        Port(
            name=name,
            direction="input" if name in use.driven else None,
            width=1 if name in use.scalars else None,
        )
        for name in use.names
    ]
    return Interface(module=top, ports=tuple(ports), source=InterfaceSource.HARNESS, exact=False)


def _hdl(files: Mapping[str, str]) -> dict[str, str]:
    return {path: text for path, text in files.items() if path.endswith(HDL_SUFFIXES)}


def _all_included_are_given(hdl: Mapping[str, str]) -> bool:
    given = {path.rsplit("/", 1)[-1] for path in hdl}
    return all(name in given for text in hdl.values() for name in _INCLUDE.findall(text))


def compilation_options(top: str, parameters: Mapping[str, int]) -> slang_ast.CompilationOptions:
    options = slang_ast.CompilationOptions()
    options.paramOverrides = [f"{name}={value}" for name, value in parameters.items()]
    options.topModules = {top}
    options.maxInstanceDepth = 16
    options.maxGenerateSteps = 10_000
    options.maxConstexprSteps = 100_000
    options.maxInstanceArray = 4096
    options.errorLimit = 64
    return options


def _port(symbol: object) -> Port:
    kind = getattr(symbol, "type", None)
    direction = getattr(symbol, "direction", None)
    width = None
    if kind is not None and not kind.isError:
        bits = kind.bitWidth or kind.bitstreamWidth
        width = int(bits) if bits > 0 else None
    return Port(
        name=symbol.name,  # type: ignore[attr-defined]
        direction=_DIRECTIONS.get(direction.name) if direction is not None else None,
        width=width,
    )


def _parameter(symbol: object) -> Parameter:
    value = getattr(getattr(symbol, "value", None), "value", None)
    default = None
    if isinstance(value, pyslang.SVInt) and not value.hasUnknown:
        default = int(value)
    elif isinstance(value, int):
        default = value
    return Parameter(name=symbol.name, default=default)  # type: ignore[attr-defined]
