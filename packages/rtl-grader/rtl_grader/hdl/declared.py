"""The names that HDL text declares: modules, ports, signals, instances, blocks, subroutines, types, macros."""

from __future__ import annotations

from rtl_grader.hdl.text import macros_of
from rtl_grader.hdl.tree import SourceTree

_KINDS = (
    "Declarator",
    "InstanceName",
    "NamedBlockClause",
    "ModuleHeader",
    "PackageHeader",
    "FunctionPrototype",
    "TypedefDeclaration",
)


def declared_names(text: str) -> set[str]:
    """Names that a file declares. What stands in branches that the preprocessor leaves out is not read."""
    nodes = SourceTree(text).of(*_KINDS)
    return {str(node.name).split()[-1] for node in nodes if str(node.name).strip()} | {
        *macros_of(text)
    }
