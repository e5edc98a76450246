"""The words of the static screen: macros that tell tools apart, system tasks that a design may call, what it may not hold."""

from __future__ import annotations

from rtl_core.grading.inside.lib.compiled import ALLOWED_TASKS as COMPILED_TASKS
from rtl_core.grading.inside.lib.compiled import TIMING_CHECKS

TOOL_MACROS = frozenset(
    [
        "SYNTHESIS",
        "YOSYS",
        "VERILATOR",
        "verilator",
        "verilator3",
        "__ICARUS__",
        "ICARUS",
        "IVERILOG",
        "COCOTB_SIM",
        "COCOTB",
        "SYSTEMVERILOG",
    ]
)
"""Macros by which a design could show each tool of a harness another text."""
PARSER_MACROS = r"__slang\w*|\bSV_COV_\w+"
"""Names that the parser used here defines and no simulator does."""

ALLOWED_TASKS = COMPILED_TASKS | TIMING_CHECKS | {"root", "unit"}
"""Without the dollar sign. `$root` and `$unit` begin names; names that lead out of the design are found as names."""

NODES = {
    "DPIImport": "a DPI import",
    "DPIExport": "a DPI export",
    "BindDirective": "a `bind`",
    "ConfigDeclaration": "a configuration",
    "ProceduralForceStatement": "a `force`",
    "ProceduralReleaseStatement": "a `release`",
    "RootScope": "a name from `$root`",
    "LibraryDeclaration": "a library declaration",
}
DIRECTIVES = {
    "BeginKeywordsDirective": "`begin_keywords",
    "ProtectDirective": "`protect",
    "ProtectedDirective": "`protected",
    "EndProtectDirective": "`endprotect",
    "EndProtectedDirective": "`endprotected",
}
