"""Expand macros and includes with slang's preprocessor, so that a text can be rewritten without any."""

from __future__ import annotations

import re
from collections.abc import Mapping
from posixpath import basename
from typing import Any

import pyslang  # the module: pyslang reports classes held by our globals as leaked when the process ends
from pyslang import parsing as slang_parsing
from pyslang import syntax as slang_syntax

from rtl_grader.hdl.text import HIDDEN

MAX_DEPTH = 32
"""Most files that include each other."""
_NOWHERE = "/nowhere-on-disk/"
_KEPT = re.compile(
    rf"{HIDDEN.pattern}|`((?:timescale|default_nettype|resetall|(?:end)?celldefine|(?:no)?unconnected_drive)\b"
    r"(?:[^\n/]|/(?![/*]))*)"
)
"""Directives that are no preprocessor's, which survive as comments; or a comment or string, which is skipped."""
_COMMENT = re.compile(r"/\*KEPT (.*?)\*/")
_ERROR = re.compile(r"(?:^|/)(?:\d+:)?([^/\n:]*:\d+:)\d+: (?:fatal )?error: (.*)", re.M)
_INCLUDE = re.compile(r'(`include\s*")(?:\.\.?/)*([^"\n]*)')
_SLASH = "|"
"""In place of the slash, so that all files are in one folder."""


def expanded(
    sources: Mapping[str, str], headers: Mapping[str, str], define: Mapping[str, str | int]
) -> str:
    """Return the text of `sources` (path -> text, in compilation order) without macros and includes.

    Included files are found among `headers` (name in the include, without `../` -> text); no file of this machine is
    read.
    Raises ValueError with place and reason for what slang cannot read.
    """
    manager = pyslang.SourceManager()
    for name, text in headers.items():
        _assign(manager, name.replace("/", _SLASH), text)
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

    def kept(match: re.Match[str]) -> str:
        return f"/*KEPT {match[1].strip()}*/" if match[1] else match[0]

    def flat(match: re.Match[str]) -> str:
        return match[1] + match[2].replace("/", _SLASH)

    text = _INCLUDE.sub(flat, _KEPT.sub(kept, text))
    return manager.assignText(_NOWHERE + path, text)


def _complaint(manager: pyslang.SourceManager, diagnostic: Any) -> str:
    words = pyslang.DiagnosticEngine.reportAll(manager, [diagnostic])
    error = _ERROR.search(words)
    return f"{error[1]} {error[2].replace(_SLASH, '/')}" if error else words
