"""Which names of a published test bench get a suffix, so that a design may use the same ones and cannot tell by them
that it is simulated with the bench."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rtl_grader.hdl.tree import Edit, Node, SourceTree, find, name_of, walk

INSTANCE = "HierarchyInstantiation"
NAMED = "NamedPortConnection"
UNITS = (
    "ModuleDeclaration",
    "InterfaceDeclaration",
    "ProgramDeclaration",
    "PackageDeclaration",
)
_NAMING = ("Declarator", "TypedefDeclaration")
_INNER = frozenset(
    {
        *UNITS,
        "ClassDeclaration",
        "FunctionDeclaration",
        "TaskDeclaration",
        "StructType",
        "UnionType",
    }
)
"""What has names of its own."""


def own_names(tree: SourceTree) -> set[str]:
    """Names of modules, packages, instances, tasks, functions and named blocks that are not also names of
    ports or parameters."""
    routines = tree.of("TaskDeclaration", "FunctionDeclaration")
    names = {node.prototype.name.getLastToken().rawText for node in routines}
    names |= {node.header.name.rawText for node in tree.of(*UNITS)}
    names |= {node.name.rawText for node in tree.of("InstanceName", "NamedBlockClause")}
    links = {node.name.rawText for node in tree.of(NAMED, "NamedParamAssignment")}
    return {name for name in names - links if name.isidentifier()}


def names_outside(tree: SourceTree) -> list[Node]:
    """The names of ports and parameters where the bench connects a module of somebody else's."""
    defined = {node.header.name.rawText for node in tree.of(*UNITS)}
    names = []
    for instance in tree.of(INSTANCE):
        if instance.type.rawText in defined:
            continue
        for link in find(instance, NAMED, "NamedParamAssignment"):
            names.append(link.name)
    return names


def shared_names(tree: SourceTree, outside: Iterable[Node]) -> set[str]:
    """Names that the bench declares outside of modules and packages, where a design sees them and could tell by
    them whether it is alone. Not those that cannot be told from names of the design."""
    names = set[str]()
    for member in tree.root.members:
        if name_of(member) == "ClassDeclaration":
            names.add(member.name.rawText)
        for node in walk(member, _INNER):
            if name_of(node) in _NAMING:
                names.add(node.name.rawText)
    for node in tree.of("ScopedName"):
        if node.separator.rawText == ".":
            names.discard(node.right.getFirstToken().rawText)
    for link in tree.of(NAMED):
        if not link.openParen.rawText:
            names.discard(link.name.rawText)
    for name in outside:
        if not tree.span(name):
            names.discard(name.rawText)
    return set(filter(str.isidentifier, names))


def escapes(tree: SourceTree, outside: Iterable[Node], shared: set[str]) -> Iterator[Edit]:
    """Escape those names of other modules' ports and parameters that get a suffix where they are the bench's own."""
    for name in outside:
        span = tree.span(name)
        if span and name.rawText in shared:
            yield Edit(*span, f"\\{name.rawText} ")
