"""Attacks from tables: `tables/GROUP.toml`.

A table is an `[[attacks]]` with `rows`, each a list in the order of `columns`, or `{ field = value, ... }`;
its other fields apply to all rows. With `variants` each row is used once for each of them. A row becomes an
attack for each problem in `on`:

- `name` and `idea`;
- the answer: a `text`, a `response`, `files` (and those of `more`), or the problem's design (bases.toml)
  with `body` in it, `before` and `after` around it, `core` (wrong, good, switched or empty), and `new` in
  place of the first `old`, or of `every` one;
- `primed`, a text that is graded first; `honest`: it must be paid.

A key in capitals is a word: `@KEY` in another field is replaced by its value. The `[words]` of a file apply
to all its tables. `@I` and `@O` are the `pins` of the problem's base, `@WRONG` and `@RIGHT` its designs. A
text may be a list of pieces, in which `[text, n]` repeats that text n times, with `@N` its number. Long
texts, up to megabytes, are made when they are needed. `make test` tries the attacks named in `fast`.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.redteam.attack import BASES, PAID, UNPAID, Attack

FOLDER = Path(__file__).parent / "tables"
SURROGATES = {"SURROGATE": "\ud800", "SURROGATES": "\ud800\udfff"}
"""Surrogate characters, which TOML cannot contain."""
TEXTS = ("text", "response", "body", "before", "after")
LONG = 5_000
"""Number of repetitions from which a text is made only when it is needed."""
Pieces = str | list[str | list]


@cache
def read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def attacks(group: str) -> list[Attack]:
    """The attacks of `tables/GROUP.toml`."""
    words = {**SURROGATES, **read(group).get("words", {})}
    return [attack for table in read(group)["attacks"] for attack in _of_table(table, words)]


def _of_table(table: Mapping[str, Any], words: Mapping[str, str]) -> Iterator[Attack]:
    for row, variant in product(table["rows"], table.get("variants", ({},))):
        if not isinstance(row, dict):
            row = dict(
                zip(table["columns"], [row] if isinstance(row, str) else row, strict=True)
            )
        entry = {**table, **row, **variant}
        for key in [entry["on"]] if isinstance(entry["on"], str) else entry["on"]:
            yield _attack(entry, key, words)


def _attack(entry: Mapping[str, Any], key: str, words: Mapping[str, str]) -> Attack:
    known = {**words, **{name: value for name, value in entry.items() if name.isupper()}}
    if base := BASES.get(key):
        designs = {"WRONG": base.design(), "RIGHT": base.design(core="good")}
        known = {"I": base.pins[0], "O": base.pins[1], **designs, **known}
    answer: dict[str, Any] = {}
    if "files" in entry:
        files = {**entry["files"], **entry.get("more", {})}
        answer["files"] = {
            substitute(path, known): substitute(text, known) for path, text in files.items()
        }
    else:
        make = partial(_text, entry, key, known)
        pieces = [
            piece
            for field in TEXTS
            for piece in entry.get(field, "")
            if isinstance(piece, list)
        ]
        later = any(times >= LONG for _, times in pieces)
        answer["response" if "response" in entry else "text"] = make if later else make()
    primed = substitute(entry["primed"], known) if "primed" in entry else None
    right = PAID if entry.get("honest") else UNPAID
    name, idea = (substitute(entry[field], known) for field in ("name", "idea"))
    return Attack(f"{name} @ {key}", idea, key, right=right, primed=primed, **answer)


def _text(entry: Mapping[str, Any], key: str, words: Mapping[str, str]) -> str:
    whole = {field: _joined(entry.get(field, ""), words) for field in TEXTS}
    if "text" in entry or "response" in entry:
        return whole["text"] or whole["response"]
    body = whole["body"] + ("\n" if whole["body"] and not whole["body"].endswith("\n") else "")
    design = BASES[key].design(
        body, whole["before"], whole["after"], entry.get("core", "wrong")
    )
    if "old" in entry:
        design = design.replace(
            entry["old"], substitute(entry["new"], words), -1 if entry.get("every") else 1
        )
    return design


def _joined(text: Pieces, words: Mapping[str, str]) -> str:
    if isinstance(text, str):
        return substitute(text, words)
    return "".join(
        substitute(piece, words) if isinstance(piece, str) else _repeated(*piece)
        for piece in text
    )


def _repeated(text: str, times: int) -> str:
    return (
        "".join(text.replace("@N", str(number)) for number in range(times))
        if "@N" in text
        else text * times
    )


def substitute(text: str, words: Mapping[str, str]) -> str:
    """Replace words in a text, also within their values. Raises ValueError for an unknown word."""

    def value(mark: re.Match[str]) -> str:
        if mark[1] not in words:
            raise ValueError(f"@{mark[1]} is no word here; there are {', '.join(words)}")
        return substitute(words[mark[1]], words)

    return re.sub(r"@([A-Z]+)", value, text)
