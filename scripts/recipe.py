"""The table of reasons in docs/recipe-9b.md: `python -m scripts.recipe` writes it from the comments of the shipped
configuration `verilog-9b`; with `--check` it only says whether it is up to date."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from rtl_core.config import shipped_configs

PAGE = Path("docs/recipe-9b.md")
BEGIN, END = "<!-- reasons: python -m scripts.recipe -->\n", "<!-- end of reasons -->\n"
_LINE = re.compile(r"(\w+) = (.*?)\s*(?:# (.*))?$")


def reasons(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield key with its section, value as written, and the comments above and beside it."""
    section = ""
    above: list[str] = []
    for line in text.splitlines():
        if line.startswith("["):
            section, above = line.strip("[]"), []
        elif line.startswith("#"):
            above.append(line.lstrip("# "))
        elif match := _LINE.match(line):
            key, value, beside = match.groups()
            yield f"{section}.{key}", value, " ".join([*above, *([beside] if beside else [])])
            above = []
        elif not line.strip() and not section:
            above = []  # the file's head


def table() -> str:
    """The table in Markdown."""
    rows = reasons(shipped_configs()["verilog-9b"].read_text(encoding="utf-8"))
    cells = [(f"`{key}`", f"`{value}`", reason) for key, value, reason in rows]
    lines = [("key", "value", "why"), ("---",) * 3, *cells]
    return "".join(
        f"| {' | '.join(one.replace('|', chr(92) + '|') for one in line)} |\n" for line in lines
    )


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    fresh = head + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2]
    if "--check" not in sys.argv:
        PAGE.write_text(fresh, encoding="utf-8")
    elif fresh != text:
        print(f"{PAGE} is not up to date: run python -m scripts.recipe")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
