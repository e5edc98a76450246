"""The interface of a module, read with pyslang, and the interface that a problem demands.

Covered: ANSI and non-ANSI ports, parameters with defaults, widths that depend on parameters (evaluated with
the defaults), packages, typedefs, and includes among the given sources. The width of a SystemVerilog
interface port, and of a type from a file that was not given, is None.

Parse text from a model only in the resource-limited process of `rtl_grader.grading.analysis`: a macro that
doubles itself forty times is legal Verilog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from posixpath import basename
from typing import Any

import pyslang  # the module: pyslang reports classes held by our globals as leaked when the process ends
from pyslang import ast as slang_ast
from pyslang import parsing as slang_parsing
from pyslang import syntax as slang_syntax

from rtl_grader.hdl.text import code_of, module_names
from rtl_grader.problems.harness_use import HarnessUse, harness_use, macro_file
from rtl_grader.types.problem import Direction, Interface, InterfaceSource, Parameter, Port, Problem

_NOWHERE = "/nowhere-on-disk/"
_HEADER_SUFFIXES = (".vh", ".svh", ".h", ".inc")
HDL_SUFFIXES = (".v", ".sv", *_HEADER_SUFFIXES)
_DIRECTIONS: dict[str, Direction] = {"In": "input", "Out": "output", "InOut": "inout"}
_INCLUDE = re.compile(r"`include\b[ \t]*(?:\"([^\"\n]*)\")?")
_GENERATED = re.compile(r"(?<=\})[\w.:]+\$\d+")
"""pyslang's names of structs and unions."""
_FENCE = re.compile(r"^[ \t]*```[^\n]*\n(.*?)^[ \t]*```", re.S | re.M)


def parse_interface(
    sources: Mapping[str, str],
    top: str,
    source: InterfaceSource,
    parameters: Mapping[str, int] | None = None,
    keep: Callable[[str, bool], bool] = lambda name, in_header: True,
) -> Interface | None:
    """Read the interface of module `top` in `sources` (path -> text); None when there is no such module.

    `parameters` overrides some of the module's parameters. `keep` selects the parameters of the interface
    by name and by whether they are in the module's header. Widths are in bits, for an unpacked array those
    of all elements; a width that cannot be evaluated is None. Never raises for any text, and reads no file.
    """
    tree, _manager, options = syntax_tree(sources)
    options.compilationOptions = compilation_options(top, parameters or {})
    compilation = slang_ast.Compilation(options)
    compilation.addSyntaxTree(tree)
    body = next(
        (instance.body for instance in compilation.getRoot().topInstances if instance.name == top),
        None,
    )
    if body is None:
        return None
    public = [
        p
        for p in body.parameters
        if not getattr(p, "isLocalParam", False) and keep(p.name, p.isPortParam)
    ]
    return Interface(
        module=top,
        ports=tuple(map(_port, body.portList)),
        parameters=tuple(map(_parameter, public)),
        source=source,
    )


def is_valid(sources: Mapping[str, str]) -> bool:
    """Whether all HDL files of `sources` elaborate without errors; modules need no time scale, as in simulators.

    Never raises for any text, and reads no file.
    """
    tree, _manager, options = syntax_tree(sources)
    options.compilationOptions = compilation_options("", {})
    options.compilationOptions.topModules = set()  # every module that no other one instantiates
    compilation = slang_ast.Compilation(options)
    compilation.addSyntaxTree(tree)
    errors = (one.code for one in compilation.getAllDiagnostics() if one.isError())
    return all(code == pyslang.Diags.MissingTimeScale for code in errors)


def syntax_tree(
    sources: Mapping[str, str],
) -> tuple[slang_syntax.SyntaxTree, pyslang.SourceManager, pyslang.Bag]:
    """Parse the HDL files of `sources` as one compilation unit; other files are ignored.

    Includes are followed only when every one of them names one of `sources`, so no file of this machine is ever read.
    """
    hdl = {path: text.replace("\0", " ") for path, text in hdl_files(sources).items()}
    # Includes find files by base name, as with one include path for all. The second file of a name keeps
    # its whole path.
    names = {basename(path): path for path in reversed(hdl)}
    included = {name for text in hdl.values() for name in _INCLUDE.findall(text)}
    manager = pyslang.SourceManager()
    preprocessor = slang_parsing.PreprocessorOptions()
    preprocessor.maxIncludeDepth = 8 if included <= names.keys() else 0
    parser = slang_parsing.ParserOptions()
    parser.maxRecursionDepth = 512
    options = pyslang.Bag([preprocessor, parser])
    places = {path: name for name, path in names.items()}
    buffers = {
        path: manager.assignText(_NOWHERE + places.get(path, path), text)
        for path, text in hdl.items()
    }
    roots = [buffer for path, buffer in buffers.items() if not path.endswith(_HEADER_SUFFIXES)]
    return (
        slang_syntax.SyntaxTree.fromBuffers(roots or list(buffers.values()), manager, options),
        manager,
        options,
    )


def derive_interface(
    *,
    prompt: str,
    context: Mapping[str, str],
    targets: Iterable[str],
    harness: Mapping[str, str],
    golden: Mapping[str, str] | None,
    parameters: Mapping[str, int] | None = None,
) -> Interface | None:
    """Derive the interface that a problem requires of its top module, with its source; None when nothing determines it.

    Sources in order of trust: the golden answer; the module in the context, unless it is a target, which
    may be about to change; the module header in the specification (fenced blocks of prompt and documents);
    a target's old version; the uses of `dut` in the harness' executed code. The last two may be incomplete,
    so further ports are allowed (`exact` is False). A golden answer's parameter is required only when the
    prompt, a document or the harness names it. `parameters` overrides some of the top module's parameters.
    """
    targets = tuple(targets)
    use = harness_use(harness)
    texts = documents(prompt, context)
    by_harness = {*use.parameters, *use.names, *_words(map(code_of, hdl_files(harness).values()))}
    by_documents = _words(texts)

    def is_public(name: str, in_header: bool) -> bool:
        # A parameter of the body may be a constant such as a state's code, and a document may name the state.
        return name in by_harness or (in_header and name in by_documents)

    fixed = {
        **macro_file(harness),
        **{path: text for path, text in hdl_files(context).items() if path not in targets},
    }
    for top in _demanded_modules(targets, harness, fixed, golden):
        in_context = _from_context(top, context, targets, use, parameters)
        in_golden = None
        if golden:
            in_golden = parse_interface(
                {**fixed, **golden}, top, InterfaceSource.GOLDEN, parameters, is_public
            )
        found = (
            in_golden
            or (in_context if in_context and in_context.exact else None)
            or _from_specification(top, texts, parameters)
            or in_context
            or _from_harness(top, use)
        )
        if found is not None:
            return found
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
        return {
            "module": None,
            "source": None,
            "confidence": "none",
            "ports": 0,
            "complete_ports": 0,
            "parameters": 0,
        }
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
        "complete_ports": sum(
            p.direction is not None and p.width is not None for p in interface.ports
        ),
        "parameters": len(interface.parameters),
    }


def top_levels(harness: Mapping[str, str]) -> list[str]:
    """Values of TOPLEVEL in the harness' env files, without duplicates, in the order of the files."""
    found = []
    for path in sorted(harness):
        if ".env" in basename(path):
            found += re.findall(
                r"^[ \t]*TOPLEVEL[ \t]*=[ \t]*[\"']?([A-Za-z_]\w*)", harness[path], re.M
            )
    return list(dict.fromkeys(found))


def _demanded_modules(
    targets: tuple[str, ...],
    harness: Mapping[str, str],
    fixed: Mapping[str, str],
    golden: Mapping[str, str] | None,
) -> list[str]:
    """Candidate names of the top module, best first: the harness' top levels and the targets' names, unless
    the problem gives them."""
    given = {
        name
        for text in (*fixed.values(), *hdl_files(harness).values())
        for name in module_names(text)
    }
    stems = (basename(path).split(".")[0] for path in targets)
    names = [name for name in (*top_levels(harness), *stems) if name not in given]
    if golden and not names:
        names = [name for path in targets for name in module_names(golden.get(path, ""))]
    return list(dict.fromkeys(names))


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text)}


def _from_context(
    top: str,
    context: Mapping[str, str],
    targets: tuple[str, ...],
    use: HarnessUse,
    parameters: Mapping[str, int] | None,
) -> Interface | None:
    holders = [path for path, text in hdl_files(context).items() if top in module_names(text)]
    if not holders:
        return None
    found = parse_interface(context, top, InterfaceSource.CONTEXT, parameters)
    if found is None or not any(path in targets for path in holders):
        return found
    # A target's old version is about to change. Only the directions of the ports that the harness still
    # uses are reliable, not widths, types, parameter defaults or other ports.
    ports = [p for p in found.ports if p.name in use.names or not use.names]
    used = [p for p in found.parameters if p.name in use.parameters]
    return Interface(
        module=top,
        ports=tuple(Port(name=p.name, direction=p.direction) for p in ports),
        parameters=tuple(Parameter(name=p.name, is_type=p.is_type) for p in used),
        source=InterfaceSource.CONTEXT,
        exact=False,
    )


def _from_specification(
    top: str, texts: list[str], parameters: Mapping[str, int] | None
) -> Interface | None:
    for document in texts:
        for block in _FENCE.findall(document.replace("\r\n", "\n")):
            if top not in module_names(block):
                continue
            text = block if re.search(r"\bendmodule\b", block) else block + "\nendmodule\n"
            if "..." in text.partition("endmodule")[0]:
                continue
            found = parse_interface(
                {"specification.sv": text}, top, InterfaceSource.SPECIFICATION, parameters
            )
            if found and found.ports:
                return found
    return None


def _from_harness(top: str, use: HarnessUse) -> Interface | None:
    ports = [
        Port(
            name=name,
            direction="input" if name in use.driven else None,
            width=1 if name in use.scalars else None,
        )
        for name in use.names
    ]
    return (
        Interface(module=top, ports=tuple(ports), source=InterfaceSource.HARNESS, exact=False)
        if ports
        else None
    )


def documents(prompt: str, context: Mapping[str, str]) -> list[str]:
    """The prompt, and the files of the context that are no HDL."""
    return [prompt, *(text for path, text in context.items() if not path.endswith(HDL_SUFFIXES))]


def hdl_files(files: Mapping[str, str]) -> dict[str, str]:
    """Those of `files` (path -> text) that are HDL."""
    return {path: text for path, text in files.items() if path.endswith(HDL_SUFFIXES)}


def compilation_options(top: str, parameters: Mapping[str, int]) -> slang_ast.CompilationOptions:
    options = slang_ast.CompilationOptions()
    options.paramOverrides = [f"{name}={value}" for name, value in parameters.items()]
    options.topModules = {top}
    flags = slang_ast.CompilationFlags
    # As in Icarus, a port's width may use a parameter of the body; interfaces may be ports of the top module.
    options.flags = flags.AllowUseBeforeDeclare | flags.AllowTopLevelIfacePorts
    options.maxInstanceDepth = 16
    options.maxGenerateSteps = 10_000
    options.maxConstexprSteps = 100_000
    options.maxInstanceArray = 4096
    options.errorLimit = 64
    return options


def _port(symbol: Any) -> Port:
    kind: Any = getattr(symbol, "type", None)
    direction = getattr(symbol, "direction", None)
    bits = 0 if kind is None or kind.isError else int(kind.bitWidth or kind.bitstreamWidth)
    known = None if direction is None else _DIRECTIONS.get(direction.name)
    form: str | None = None
    if kind is None:  # an interface: its name, modport and dimensions
        form = f"{getattr(symbol.interfaceDef, 'name', 'interface')}.{symbol.modport}{symbol.declaredRange or ''}"
    elif not kind.isError:
        form = _form(kind.canonicalType)
    if known == "output" and form == "vector" and kind.isSigned:
        form = "signed vector"
    return Port(name=symbol.name, direction=known, width=bits if bits > 0 else None, form=form)


def _form(kind: Any) -> str:
    """See `Port.form`. Vectors, integers and enumerations of a width are interchangeable, except that a
    signed output extends its sign where it is connected.
    """
    text = _GENERATED.sub("", str(kind))
    if kind.isUnpackedArray:
        return "array " + text.rpartition("$")[2]
    return "vector" if kind.isIntegral and not text.startswith(("struct", "union")) else text


def _parameter(symbol: Any) -> Parameter:
    value: Any = getattr(getattr(symbol, "value", None), "value", None)
    known = isinstance(value, int) or (isinstance(value, pyslang.SVInt) and not value.hasUnknown)
    is_type = isinstance(symbol, slang_ast.TypeParameterSymbol)
    return Parameter(name=symbol.name, default=int(value) if known else None, is_type=is_type)
