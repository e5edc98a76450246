"""Name what has grown too large to hold in the head: `python -m scripts.limits`.

No function of the product and of the benchmarks is above 60 lines or takes more than 8 parameters; no class has more than 12
annotated fields. The options of a command are parameters in `cli`, and a class of `config` or `types` has a field for each thing that a user
can set or that is recorded. Exits with 1 and names each place that is above.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

TOPS = ("cli", "flows", "tasks", "operations", "rtl_core", "benchmarks")
LINES, PARAMETERS, FIELDS = 60, 8, 12


def main(root: Path = Path(__file__).parents[1]) -> int:
    """Print what is above a limit in the checkout at `root`; 0 where nothing is."""
    found = [
        f"{path.relative_to(root)}:{line}"
        for top in TOPS
        for path in sorted((root / top).rglob("*.py"))
        for line in above(ast.parse(path.read_text(encoding="utf-8")), path.relative_to(root).parts)
    ]
    for place in found:
        print(place, file=sys.stderr)
    return 1 if found else 0


def above(tree: ast.AST, parts: tuple[str, ...]) -> Iterator[str]:
    """What of a file, whose path has these parts, is above a limit: `LINE: name: how much, of how much`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > LINES:
                yield f"{node.lineno}: {node.name}: {lines} lines, at most {LINES}"
            given = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
            given -= bool(node.args.args and node.args.args[0].arg in ("self", "cls"))
            if given > PARAMETERS and parts[0] != "cli":
                yield f"{node.lineno}: {node.name}: {given} parameters, at most {PARAMETERS}"
        elif isinstance(node, ast.ClassDef):
            fields = sum(isinstance(one, ast.AnnAssign) for one in node.body)
            if fields > FIELDS and not {"config", "types"} & set(parts):
                yield f"{node.lineno}: {node.name}: {fields} fields, at most {FIELDS}"


if __name__ == "__main__":
    sys.exit(main())
