"""Named queries: one `.sql` file each in `named/`. To add one, add a file.

The first line is a comment that describes the result; comments of the form `-- $name = default: what it is`
declare parameters. `$run` needs no declaration: it is the run that the query is about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from rtl_core.errors import HistoryError
from rtl_grader.words import did_you_mean

_PARAMETER = re.compile(r"-- \$(\w+) = (.*): [^:]*")


@dataclass(frozen=True)
class NamedQuery:
    """A query that ships with the package."""

    name: str
    about: str
    sql: str
    parameters: dict[str, Any] = field(default_factory=dict)
    """Name -> default."""

    @property
    def needs_run(self) -> bool:
        return re.search(r"\$run\b", self.sql) is not None

    def bind(self, texts: Mapping[str, str], run: str | None) -> dict[str, Any]:
        """Values for all parameters: the `texts`, converted to the type of the default, other
        defaults, and the run.

        Raises HistoryError for an unknown parameter, or a value that the default's type cannot represent.
        """
        if unknown := sorted(set(texts) - set(self.parameters)):
            names = ", ".join(self.parameters) or "none"
            raise HistoryError(
                f"query {self.name!r} has no parameter {unknown[0]!r}",
                did_you_mean(unknown[0], self.parameters, f"it has: {names}"),
            )
        values = dict(self.parameters)
        for name, text in texts.items():
            default = self.parameters[name]
            try:
                values[name] = type(default)(text)
            except ValueError as error:
                kind = type(default).__name__
                raise HistoryError(
                    f"{name}={text!r} is not a value of type {kind}", f"default: {default}"
                ) from error
        return {**values, "run": run} if self.needs_run else values


@cache
def named_queries() -> dict[str, NamedQuery]:
    """Mapping of name to query, ordered by name."""
    queries = {}
    for file in (
        f for f in (files("rtl_core.history") / "named").iterdir() if f.name.endswith(".sql")
    ):
        name, text = file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")
        first, *lines = text.splitlines()
        declared = filter(None, (_PARAMETER.fullmatch(line.strip()) for line in lines))
        defaults = {match[1]: _default(match[2]) for match in declared}
        queries[name] = NamedQuery(name, first.removeprefix("-- "), text, defaults)
    return dict(sorted(queries.items()))


def named_query(name: str) -> NamedQuery:
    """Return the query of that name. Raises HistoryError, with the closest names, if there is none."""
    queries = named_queries()
    if name not in queries:
        raise HistoryError(
            f"there is no named query {name!r}, and a single word is not SQL",
            did_you_mean(name, queries, "see `rtl-distill query --list`"),
        )
    return queries[name]


def _default(text: str) -> Any:
    """Parse numbers; everything else, including JSON objects, stays text."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return value if isinstance(value, (int, float)) else text
