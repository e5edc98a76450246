"""The interface of a module, read with pyslang.

Covered: ANSI and non-ANSI ports, parameters with defaults, widths that depend on parameters (evaluated with
the defaults), packages, typedefs, and includes among the given sources. The width of a SystemVerilog
interface port, and of a type from a file that was not given, is None.

Parse text from a model only in the resource-limited process of `rtl_grader.grading.analysis`: a macro that
doubles itself forty times is legal Verilog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from posixpath import basename
from typing import Any

import pyslang  # the module: pyslang reports classes held by our globals as leaked when the process ends
from pyslang import ast as slang_ast
from pyslang import syntax as slang_syntax

from rtl_grader.hdl.tree import NOWHERE, parsing_options
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Direction, Interface, InterfaceSource, Parameter, Port

HEADER_SUFFIXES = (".vh", ".svh", ".h", ".inc")
HDL_SUFFIXES = (".v", ".sv", *HEADER_SUFFIXES)
_DIRECTIONS: dict[str, Direction] = {"In": "input", "Out": "output", "InOut": "inout"}
_INCLUDE = re.compile(r"`include\b[ \t]*(?:\"([^\"\n]*)\")?")
_UP = re.compile(r"(?:\.\.?/)*")
"""What leads to another folder at the start of an include."""
_GENERATED = re.compile(r"(?<=\})[\w.:]+\$\d+")
"""pyslang's names of structs and unions."""


def parse_interface(
    sources: Files,
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
    compilation = _compilation(sources, compilation_options(top, parameters or {}))
    for instance in compilation.getRoot().topInstances:
        if instance.name == top:
            break
    else:
        return None
    overridable = (p for p in instance.body.parameters if not getattr(p, "isLocalParam", False))
    public = [p for p in overridable if keep(p.name, p.isPortParam)]
    return Interface(
        module=top,
        ports=tuple(map(_port, instance.body.portList)),
        parameters=tuple(map(_parameter, public)),
        source=source,
    )


def is_valid(sources: Files) -> bool:
    """Whether all HDL files of `sources` elaborate without errors; modules need no time scale, as in simulators.

    Never raises for any text, and reads no file.
    """
    options = compilation_options("", {})
    options.topModules = set()  # every module that no other one instantiates
    diagnostics = _compilation(sources, options).getAllDiagnostics()
    errors = {diagnostic.code for diagnostic in diagnostics if diagnostic.isError()}
    return errors <= {pyslang.Diags.MissingTimeScale}


def unknown_modules(sources: Files, top: str) -> set[str]:
    """The modules that the elaborated design of `top` instantiates and that none of `sources` defines.

    Never raises for any text, and reads no file.
    """
    options = compilation_options(top, {})
    names: set[str] = set()
    for diagnostic in _compilation(sources, options).getAllDiagnostics():
        if diagnostic.code == pyslang.Diags.UnknownModule:
            name, *_ = diagnostic.args
            names.add(str(name))
    return names


def _compilation(
    sources: Files, settings: slang_ast.CompilationOptions
) -> slang_ast.Compilation:
    tree, _manager, options = syntax_tree(_in_one_folder(sources))
    options.compilationOptions = settings
    compilation = slang_ast.Compilation(options)
    compilation.addSyntaxTree(tree)
    return compilation


def _in_one_folder(sources: Files) -> dict[str, str]:
    """The HDL files with `|` for each slash in their paths. An include names the file whose path ends as it says, the
    shortest of several, so that macros of a header in a folder count in widths."""
    hdl = hdl_files(sources)

    def flat(match: re.Match[str]) -> str:
        paths = [path for path in hdl if is_named(path, match[1] or "|")]
        return f'`include "{_flat(min(paths, key=len))}"' if paths else match[0]

    return {_flat(path): _INCLUDE.sub(flat, text) for path, text in hdl.items()}


def is_named(path: str, include: str) -> bool:
    """Whether a path ends as an include says, which may begin with folders above."""
    return f"/{path}".endswith(_UP.sub("/", include, count=1))


def _flat(path: str) -> str:
    return path.replace("/", "|")


def syntax_tree(
    sources: Files,
) -> tuple[slang_syntax.SyntaxTree, pyslang.SourceManager, pyslang.Bag]:
    """Parse the HDL files of `sources` as one compilation unit; other files are ignored.

    Includes are followed only when every one of them names one of `sources`, so no file of this machine is ever read.
    """
    hdl = hdl_files(sources)
    for path, text in hdl.items():
        hdl[path] = text.replace("\0", " ")
    # Includes find files by base name, as with one include path for all. The second file of a name keeps
    # its whole path.
    path_of = {basename(path): path for path in reversed(hdl)}
    included = {name for text in hdl.values() for name in _INCLUDE.findall(text)}
    manager = pyslang.SourceManager()
    options = parsing_options(include_depth=8 if included <= path_of.keys() else 0)
    headers: list[Any] = []
    designs: list[Any] = []
    for path, text in hdl.items():
        name = basename(path)
        place = name if path_of[name] == path else path
        buffer = manager.assignText(NOWHERE + place, text)
        group = headers if path.endswith(HEADER_SUFFIXES) else designs
        group.append(buffer)
    # Headers are read where they are included. A set of headers alone is read as it is.
    tree = slang_syntax.SyntaxTree.fromBuffers(designs or headers, manager, options)
    return tree, manager, options


def hdl_files(files: Files) -> dict[str, str]:
    """Those of `files` (path -> text) that are HDL."""
    return {path: text for path, text in files.items() if path.endswith(HDL_SUFFIXES)}


def compilation_options(
    top: str, parameters: Mapping[str, int]
) -> slang_ast.CompilationOptions:
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
    if kind is None:
        interface = getattr(symbol.interfaceDef, "name", "interface")
        dimensions = symbol.declaredRange or ""
        return Port(name=symbol.name, form=f"{interface}.{symbol.modport}{dimensions}")
    direction = _DIRECTIONS.get(symbol.direction.name)
    if kind.isError:
        return Port(name=symbol.name, direction=direction)
    bits = int(kind.bitWidth or kind.bitstreamWidth)
    form = _form(kind.canonicalType)
    if form == "vector" and direction == "output" and kind.isSigned:
        form = "signed vector"
    return Port(
        name=symbol.name, direction=direction, width=bits if bits > 0 else None, form=form
    )


def _form(kind: Any) -> str:
    """See `Port.form`. Vectors, integers and enumerations of a width are interchangeable, except that a
    signed output extends its sign where it is connected.
    """
    text = _GENERATED.sub("", str(kind))
    if kind.isUnpackedArray:
        return "array " + text.rpartition("$")[2]
    return "vector" if kind.isIntegral and not text.startswith(("struct", "union")) else text


def _parameter(symbol: Any) -> Parameter:
    if isinstance(symbol, slang_ast.TypeParameterSymbol):
        return Parameter(name=symbol.name, is_type=True)
    constant = getattr(symbol, "value", None)
    value: Any = getattr(constant, "value", None)
    is_bits = isinstance(value, pyslang.SVInt) and not value.hasUnknown
    default = int(value) if is_bits or isinstance(value, int) else None
    return Parameter(name=symbol.name, default=default)
