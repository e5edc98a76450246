"""List functions and classes that are too large: `python -m scripts.limits`.

In product and benchmarks, a function has at most 60 lines and 8 parameters, and a class at most 12
annotated fields. Parameters are not limited in `cli`, where they are the options of a command, nor fields
in `config` and `types`. Exits with 1 and names each violation.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

TOPS = ("cli", "flows", "tasks", "operations", "rtl_core", "benchmarks")
LINES, PARAMETERS, FIELDS = 60, 8, 12


def main(root: Path = Path(__file__).parents[1]) -> int:
    """Print the violations in the checkout at `root`. Returns 0 if there are none, else 1."""
    violations = [
        f"{path.relative_to(root)}:{line}"
        for top in TOPS
        for path in sorted((root / top).rglob("*.py"))
        for line in check(ast.parse(path.read_text(encoding="utf-8")), path.relative_to(root).parts)
    ]
    for line in violations:
        print(line, file=sys.stderr)
    return 1 if violations else 0


def check(tree: ast.AST, parts: tuple[str, ...]) -> Iterator[str]:
    """Places in a file that exceed a limit, as `LINE: name: size, at most limit`; `parts` are those of the
    file's path."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > LINES:
                yield f"{node.lineno}: {node.name}: {lines} lines, at most {LINES}"
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = len(parameters) - (bool(parameters) and parameters[0].arg in ("self", "cls"))
            if count > PARAMETERS and parts[0] != "cli":
                yield f"{node.lineno}: {node.name}: {count} parameters, at most {PARAMETERS}"
        elif isinstance(node, ast.ClassDef):
            fields = sum(isinstance(statement, ast.AnnAssign) for statement in node.body)
            if fields > FIELDS and not {"config", "types"} & set(parts):
                yield f"{node.lineno}: {node.name}: {fields} fields, at most {FIELDS}"


if __name__ == "__main__":
    sys.exit(main())
