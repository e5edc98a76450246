"""List functions and classes that are too large, and packages that are too dense: `python -m scripts.limits`.

In product and benchmarks, the body of a function has at most 60 lines (signature and docstring apart) and a
function at most 8 parameters, and a class has at most 12 annotated fields. Parameters are not limited in
command lines, where they are options, nor fields in settings and types. A package has at most 4.5
expression nodes a code line, and at most 0.5 % of its code lines are dense (20 nodes and more begin on
them). Exits with 1 and names each violation.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGES = {
    "rtl-distill": ("cli", "flows", "tasks", "operations", "rtl_core"),
    "rtl-grader": ("packages/rtl-grader/rtl_grader",),
    "localtinker": ("packages/localtinker/localtinker",),
    "benchmarks": ("benchmarks",),
}
LINES, PARAMETERS, FIELDS = 60, 8, 12
DENSE, DENSITY, DENSE_PERCENT = 20, 4.5, 0.5
"""Expression nodes of a dense line; most nodes a code line and most percent of dense lines in a package."""


def main(root: Path = Path(__file__).parents[1]) -> int:
    """Print the violations in the checkout at `root`. Returns 0 if there are none, else 1."""
    violations = []
    for package, tops in PACKAGES.items():
        sizes: Counter[str] = Counter()
        for path in sorted(path for top in tops for path in (root / top).rglob("*.py")):
            place, tree = path.relative_to(root), ast.parse(path.read_text(encoding="utf-8"))
            violations += [f"{place}:{line}" for line in check(tree, place.parts)]
            sizes.update(measure(tree))
        if sizes["lines"] and package != "benchmarks":
            violations += too_dense(package, sizes)
    for line in violations:
        print(line, file=sys.stderr)
    return 1 if violations else 0


def measure(tree: ast.AST) -> dict[str, int]:
    """Expression nodes, code lines and dense lines of a file. Docstrings, comments and blank
    lines are no code lines."""
    docs: set[int] = set()
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Expr) else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            docs.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    code: set[int] = set()
    nodes: Counter[int] = Counter()
    for node in ast.walk(tree):
        line = getattr(node, "lineno", None)
        if line is None or line in docs:
            continue
        nodes[line] += isinstance(node, ast.expr)
        code.update((line, getattr(node, "end_lineno", line)))
    dense = sum(count >= DENSE for count in nodes.values())
    return {"nodes": nodes.total(), "lines": len(code), "dense": dense}


def too_dense(package: str, sizes: Counter[str]) -> Iterator[str]:
    """The limits of density that a package exceeds."""
    density, percent = sizes["nodes"] / sizes["lines"], 100 * sizes["dense"] / sizes["lines"]
    if density > DENSITY:
        yield f"{package}: {density:.2f} expression nodes a code line, at most {DENSITY}"
    if percent > DENSE_PERCENT:
        yield f"{package}: {percent:.2f} % dense lines, at most {DENSE_PERCENT}"


def check(tree: ast.AST, parts: tuple[str, ...]) -> Iterator[str]:
    """Places in a file that exceed a limit, as `LINE: name: size, at most limit`; `parts` are those of the
    file's path."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if (lines := body_lines(node)) > LINES:
                yield f"{node.lineno}: {node.name}: {lines} lines, at most {LINES}"
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = len(parameters) - (
                bool(parameters) and parameters[0].arg in ("self", "cls")
            )
            if count > PARAMETERS and not {"cli", "cli.py"} & set(parts):
                yield f"{node.lineno}: {node.name}: {count} parameters, at most {PARAMETERS}"
        elif isinstance(node, ast.ClassDef):
            fields = sum(isinstance(statement, ast.AnnAssign) for statement in node.body)
            if fields > FIELDS and not {"config", "types", "settings.py"} & set(parts):
                yield f"{node.lineno}: {node.name}: {fields} fields, at most {FIELDS}"


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Number of lines from the first statement after the docstring to the end."""
    statements = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (node.end_lineno or node.lineno) - statements[0].lineno + 1 if statements else 0


if __name__ == "__main__":
    sys.exit(main())
