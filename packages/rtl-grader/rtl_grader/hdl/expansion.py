"""Expand macros and includes with slang's preprocessor, so that a text can be rewritten without any."""

from __future__ import annotations

import re
from collections.abc import Mapping
from posixpath import basename
from typing import Any

import pyslang  # the module: pyslang reports classes held by our globals as leaked when the process ends
from pyslang import parsing as slang_parsing
from pyslang import syntax as slang_syntax

from rtl_grader.hdl.text import code_of

MAX_DEPTH = 32
"""Most files that include each other."""
_NOWHERE = "/nowhere-on-disk/"
_KEPT = re.compile(
    r"`((?:timescale|default_nettype|resetall|(?:end)?celldefine|(?:no)?unconnected_drive)\b[^\n]*)"
)
"""Directives that are no preprocessor's; they survive as comments."""
_COMMENT = re.compile(r"/\*KEPT (.*?)\*/")
_NUMBER = re.compile(r"^\d+:")
_UPWARDS = re.compile(r'(`include\s*")(?:\.\./)+')


def expanded(
    sources: Mapping[str, str], headers: Mapping[str, str], define: Mapping[str, str | int]
) -> str:
    """Return the text of `sources` (path -> text, in compilation order) without macros and includes.

    Included files are found among `headers` by the end of their path; no file of this machine is read.
    Raises ValueError with place and reason for what slang cannot read.
    """
    manager = pyslang.SourceManager()
    for path in {basename(path): path for path in headers}.values():
        parts = path.split("/")
        for start in range(len(parts)):
            _assign(manager, "/".join(parts[start:]), headers[path])
    # In one folder with the headers, and with a number, since two may have one name.
    buffers = []
    for number, (path, text) in enumerate(sources.items()):
        buffers.append(_assign(manager, f"{number}:{basename(path)}", text))
    options = slang_parsing.PreprocessorOptions()
    options.maxIncludeDepth = MAX_DEPTH
    options.predefines = [f"{name}={value}" for name, value in define.items()]
    tree = slang_syntax.SyntaxTree.fromBuffers(buffers, manager, pyslang.Bag([options]))
    for diagnostic in tree.diagnostics:
        if diagnostic.isError():
            raise ValueError(_complaint(manager, diagnostic))
    printer = slang_syntax.SyntaxPrinter(manager)
    printer.setIncludeDirectives(False).setIncludeSkipped(False).setSquashNewlines(False)
    printer.setExpandMacros(True).setExpandIncludes(True).print(tree)
    return _COMMENT.sub(r"\n`\1\n", printer.str())


def _assign(manager: pyslang.SourceManager, path: str, text: str) -> Any:
    """Add a file with its lasting directives in comments."""
    code = code_of(text)
    parts, at = [], 0
    for match in _KEPT.finditer(code):
        parts += [text[at : match.start()], f"/*KEPT {match[1].strip()}*/"]
        at = match.end()
    text = _UPWARDS.sub(r"\1", "".join([*parts, text[at:]]).replace("\0", " "))
    return manager.assignText(_NOWHERE + path, text)


def _complaint(manager: pyslang.SourceManager, diagnostic: Any) -> str:
    place = manager.getFullyOriginalLoc(diagnostic.location)
    line = manager.getLineNumber(place)
    file = basename(manager.getFileName(place))
    words = pyslang.DiagnosticEngine.reportAll(manager, [diagnostic])
    reason = re.search(r"error: (.*)", words)
    return f"{_NUMBER.sub('', file)}:{line}: {reason[1] if reason else words}"
