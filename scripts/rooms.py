"""Print the rooms (packages) of the project, their size and the imports between them: `python -m scripts.rooms`.

A room imports only rooms below it, also inside functions, and holds at most as many expression nodes
(`ast.expr`, docstrings apart) as the table in docs/architecture.md allows. Nodes measure content: no
formatting changes their number. Exits with 1 and names each violation.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOMS = (
    "cli",
    "flows",
    "tasks",
    "operations",
    "rtl_core.view",
    "rtl_core.synthesis",
    "rtl_core.interop",
    "rtl_grader.serving",
    "rtl_core.rollouts",
    "rtl_core.debugging",
    "rtl_core.run",
    "rtl_core.observe",
    "rtl_core.backend",
    "rtl_core.tinymodels",
    "rtl_core.pretrained",
    "localtinker",
    "rtl_grader.validation",
    "rtl_core.episodes",
    "rtl_grader.equivalence",
    "rtl_grader.grading",
    "rtl_core.algorithms",
    "rtl_core.cost",
    "rtl_core.config",
    "rtl_core.prompting",
    "rtl_grader.problems",
    "rtl_core.reporting",
    "rtl_core.history",
    "rtl_core.learning",
    "rtl_core.types",
    "rtl_core",
)
"""From top to bottom. `rtl_core` itself holds the errors, the registry, the HTTP server, what is at work,
and the version."""
RESTRICTED = {
    "tinker": ("rtl_core.backend", "localtinker", "rtl_core.interop"),
    "prefect": ("flows", "tasks", "operations"),
}
"""External package -> rooms that may import it. Instead of tinker, others use a backend (rtl_core/backend/base.py)."""


def main(root: Path = Path(__file__).parents[1]) -> int:
    """Print the rooms of the checkout at `root`. Returns 0 if all imports go down and no room exceeds its
    budget, else 1."""
    nodes: Counter[str] = Counter()
    below: dict[str, set[str]] = defaultdict(set)
    broken: list[str] = []
    for path in sorted(
        path
        for top in {room.split(".")[0] for room in ROOMS}
        for path in (root / top).rglob("*.py")
    ):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        here = room_of(".".join(path.relative_to(root).with_suffix("").parts))
        nodes[here] += content(tree)
        for number, module in imports(tree):
            there = room_of(module)
            upwards = there in ROOMS and ROOMS.index(there) < ROOMS.index(here)
            if upwards or here not in RESTRICTED.get(module.split(".")[0], ROOMS):
                broken.append(f"{path.relative_to(root)}:{number}: {here} may not import {module}")
            if there in ROOMS and there != here:
                below[here].add(there)
    most = budgets(root)
    for room in ROOMS:
        if nodes[room] > most.get(room, nodes[room]):
            broken.append(
                f"{room} holds {nodes[room]} expression nodes, docs/architecture.md gives it {most[room]}"
            )
        names = ", ".join(
            sorted((name.removeprefix("rtl_core.") for name in below[room]), key=str.lower)
        )
        print(f"{room:<22}{nodes[room]:>8} of {most.get(room, 0):>7}  {names}")
    print(f"{'product':<22}{nodes.total():>8} of {sum(most.values()):>7}")
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


def budgets(root: Path) -> dict[str, int]:
    """Mapping of room to maximum expression nodes, from the rows ``| `room` | 1,200 |`` of
    docs/architecture.md; empty without that page."""
    page = root / "docs" / "architecture.md"
    rows = (
        re.findall(r"^\| `([\w.]+)` \| ([\d,]+) \|", page.read_text(encoding="utf-8"), re.M)
        if page.exists()
        else []
    )
    return {room: int(nodes.replace(",", "")) for room, nodes in rows}


def content(tree: ast.AST) -> int:
    """Number of expression nodes of a module, without docstrings and the strings below fields."""
    count = 0
    for node in ast.walk(tree):
        text = (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        count += isinstance(node, ast.expr) - text
    return count


def room_of(module: str) -> str:
    """Room of a module: `rtl_core.NAME` if that is a package, else the first name below `rtl_distill`."""
    module = module.removeprefix("rtl_distill.")
    two = ".".join(module.split(".")[:2])
    return two if two in ROOMS else module.split(".")[0]


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, module) of every import, except relative ones, which stay within a room."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


if __name__ == "__main__":
    sys.exit(main())
