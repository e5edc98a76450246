"""Apply unified-diff bodies without a file header, as in CVDP's agentic problems, by position.

There is no fuzz on purpose: a hunk that does not match exactly means wrong data or another file.
"""

from __future__ import annotations

import re
from collections import deque

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
"""The header of a hunk: its first old line, and the numbers of its old and new lines, which are 1 if missing."""


class PatchError(ValueError):
    """A hunk does not match the text; the message names hunk and line."""


def apply_patch(text: str, body: str) -> str:
    """Apply the hunks of `body` to `text` and return the new text.

    Lines are split at `\\n` alone; a carriage return belongs to its line. A missing final newline stays
    missing unless a hunk touches the end. Raises PatchError when a hunk does not match.
    """
    old = text.split("\n")
    ends_open = new_ends_open = old[-1] != ""
    if not ends_open:
        old.pop()
    rows = deque(body.removesuffix("\n").split("\n"))
    while rows and not rows[0].startswith("@@"):
        rows.popleft()
    if not rows:
        raise PatchError("no hunk (`@@ -a,b +c,d @@`) found")
    new: list[str] = []
    at = hunk = 0
    while rows:
        hunk += 1
        row = rows.popleft()
        header = _HUNK.match(row)
        if not header:
            raise PatchError(f"hunk {hunk}: `{row[:60]}` is not a hunk header")
        first, old_count, new_count = (int(number or 1) for number in header.groups())
        start = first - 1 if old_count else first
        if not at <= start <= len(old):
            raise PatchError(f"hunk {hunk} starts at line {first}, the file has {len(old)}")
        new += old[at:start]
        at = start
        while old_count or new_count or (rows and rows[0].startswith("\\")):
            if not rows:
                missing = f"{old_count} old and {new_count} new lines"
                raise PatchError(f"hunk {hunk} ends {missing} too early")
            row_before, row = row, rows.popleft()
            kind, line = row[:1] or " ", row[1:]
            if kind == "\\":
                # "No newline at end of file" refers to the line before it; only the new side matters.
                new_ends_open = new_ends_open or row_before[:1] != "-"
                continue
            if kind not in " +-":
                raise PatchError(
                    f"hunk {hunk}: `{row[:60]}` does not start with ` `, `+` or `-`"
                )
            if kind != "+":
                current = old[at] if at < len(old) else None
                if current != line:
                    but = "the end of the file" if current is None else current[:60]
                    place = f"hunk {hunk}: line {at + 1}"
                    raise PatchError(f"{place} should be `{line[:60]}` but is `{but}`")
                at += 1
                old_count -= 1
            if kind != "-":
                new.append(line)
                new_count -= 1
                new_ends_open = False
            if old_count < 0 or new_count < 0:
                raise PatchError(f"hunk {hunk} has more lines than its header says")
    if at < len(old):
        new += old[at:]
        new_ends_open = ends_open
    return "\n".join(new) + ("" if new_ends_open or not new else "\n")
