"""Print the rooms of the three packages, their size and the imports between them: `python -m scripts.rooms`.

A room imports only rooms below it, also inside functions. rtl_grader and localtinker import neither each
other nor rtl-distill, which imports only what their `OPEN` lists. A room holds at most as many expression
nodes (`ast.expr`, docstrings apart) as scripts/budget.toml allows. Nodes measure content: no
formatting changes their number. Exits with 1 and names each violation.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGES = {
    "rtl-distill": (
        "cli",
        "flows",
        "tasks",
        "operations",
        "rtl_core.view",
        "rtl_core.synthesis",
        "rtl_core.interop",
        "rtl_core.cards",
        "rtl_core.rollouts",
        "rtl_core.debugging",
        "rtl_core.run",
        "rtl_core.observe",
        "rtl_core.backend",
        "rtl_core.tinymodels",
        "rtl_core.pretrained",
        "rtl_core.episodes",
        "rtl_core.algorithms",
        "rtl_core.cost",
        "rtl_core.config",
        "rtl_core.starter",
        "rtl_core.prompting",
        "rtl_core.reporting",
        "rtl_core.history",
        "rtl_core.learning",
        "rtl_core.types",
        "rtl_core",
    ),
    "rtl-grader": (
        "rtl_grader.cli",
        "rtl_grader.serving",
        "rtl_grader.records",
        "rtl_grader.validation",
        "rtl_grader.equivalence",
        "rtl_grader.settings",
        "rtl_grader.exports",
        "rtl_grader.grading",
        "rtl_grader.traces",
        "rtl_grader.prompts",
        "rtl_grader.extraction",
        "rtl_grader.problems",
        "rtl_grader.hdl",
        "rtl_grader.types",
        "rtl_grader",
    ),
    "localtinker": (
        "localtinker.cli",
        "localtinker.certify",
        "localtinker.client",
        "localtinker.bridge",
        "localtinker",
    ),
}
"""Package -> rooms from top to bottom. `rtl_core`, `rtl_grader` and `localtinker` themselves are the files
beside their rooms."""
ROOMS = tuple(room for rooms in PACKAGES.values() for room in rooms)
RESTRICTED = {
    "tinker": (
        "rtl_core.backend",
        "rtl_core.interop",
        *PACKAGES["localtinker"],
    ),
    "prefect": ("flows", "tasks", "operations"),
}
"""External package -> rooms that may import it. Instead of tinker, others use a backend (rtl_core/backend/base.py)."""
SKIPPED = ("tests", "formats")
"""Folders inside rooms that hold other programs."""


def main(root: Path = Path(__file__).parents[1]) -> int:
    """Print the rooms of the checkout at `root`. Returns 0 if no import and no size is forbidden, else 1."""
    nodes: Counter[str] = Counter()
    below: dict[str, set[str]] = defaultdict(set)
    broken: list[str] = []
    public = {name: public_modules(root, name) for name in ("rtl_grader", "localtinker")}
    for path, module in sorted(files(root)):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        here = room_of(module)
        nodes[here] += content(tree)
        for number, imported in imports(tree):
            there = room_of(imported)
            if forbidden(here, there, imported, public):
                broken.append(
                    f"{path.relative_to(root)}:{number}: {here} may not import {imported}"
                )
            if there in ROOMS and there != here:
                below[here].add(there)
    most = budgets(root)
    for package, rooms in PACKAGES.items():
        for room in rooms:
            if nodes[room] > most.get(room, nodes[room]):
                size = f"{nodes[room]} expression nodes"
                broken.append(f"{room} holds {size}, scripts/budget.toml gives it {most[room]}")
            names = ", ".join(sorted(below[room], key=str.lower))
            print(f"{room:<24}{nodes[room]:>8} of {most.get(room, 0):>7}  {names}")
        held = sum(nodes[room] for room in rooms)
        print(
            f"{f'all of {package}':<24}{held:>8} of {sum(most.get(room, 0) for room in rooms):>7}\n"
        )
    print(f"{'product':<24}{nodes.total():>8} of {sum(most.values()):>7}")
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


def files(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield (file, module) of the three packages."""
    own = {room.split(".")[0] for room in PACKAGES["rtl-distill"]}
    bases = [(root, top) for top in own]
    bases += [(root / "packages" / "rtl-grader", "rtl_grader")]
    bases += [(root / "packages" / "localtinker", "localtinker")]
    for base, top in bases:
        for path in (base / top).rglob("*.py"):
            parts = path.relative_to(base).with_suffix("").parts
            if not set(SKIPPED) & set(parts):
                yield path, ".".join(parts)


def forbidden(here: str, there: str, imported: str, public: dict[str, tuple[str, ...]]) -> bool:
    """Whether a room may not import a module: it is above, of another package and not public, or restricted."""
    if here not in RESTRICTED.get(imported.split(".")[0], ROOMS):
        return True
    if there not in ROOMS:
        return False
    package = package_of(here)
    if package == package_of(there):
        return ROOMS.index(there) < ROOMS.index(here)
    listed = public.get(imported.split(".")[0], ())
    return package != "rtl-distill" or not any(
        imported == module or imported.startswith(f"{module}.") for module in listed
    )


def package_of(room: str) -> str:
    """The package that holds a room."""
    return next(package for package, rooms in PACKAGES.items() if room in rooms)


def public_modules(root: Path, package: str) -> tuple[str, ...]:
    """The modules in the tuple `OPEN` of a package's `__init__`, with the package's name; empty without one."""
    folder = "rtl-grader" if package == "rtl_grader" else package
    path = root / "packages" / folder / package / "__init__.py"
    if not path.exists():
        return ()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OPEN":
            return tuple(f"{package}.{name}" for name in ast.literal_eval(node.value))
    return ()


def budgets(root: Path) -> dict[str, int]:
    """Mapping of room to maximum expression nodes, from scripts/budget.toml; empty without that file."""
    file = root / "scripts" / "budget.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))["nodes"] if file.exists() else {}


def content(tree: ast.AST) -> int:
    """Number of expression nodes of a module, without docstrings and the strings below fields."""
    count = 0
    for node in ast.walk(tree):
        if not isinstance(node, ast.Expr):
            count += isinstance(node, ast.expr)
        elif isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            count -= 1
    return count


def room_of(module: str) -> str:
    """Room of a module: its first two names if they are a room, else the first name below `rtl_distill`."""
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
