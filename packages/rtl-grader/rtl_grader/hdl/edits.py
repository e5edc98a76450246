"""Apply unified-diff bodies without a file header, as in CVDP's agentic problems, by position.

There is no fuzz on purpose: a hunk that does not match exactly means wrong data or another file.
"""

from __future__ import annotations

import re

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class PatchError(ValueError):
    """A hunk does not match the text; the message names hunk and line."""


def apply_patch(text: str, body: str) -> str:
    """Apply the hunks of `body` to `text` and return the new text.

    Lines are split at `\\n` alone; a carriage return belongs to its line. A missing final newline stays
    missing unless a hunk touches the end. Raises PatchError when a hunk does not match.
    """
    old = text.split("\n")
    ends_open = old[-1] != ""
    if not ends_open:
        old.pop()
    new: list[str] = []
    at = 0
    lines = body.removesuffix("\n").split("\n")
    row = next((i for i, line in enumerate(lines) if line.startswith("@@")), len(lines))
    if row == len(lines):
        raise PatchError("no hunk (`@@ -a,b +c,d @@`) found")
    new_ends_open = ends_open
    hunk = 0
    while row < len(lines):
        header = _HUNK.match(lines[row])
        hunk += 1
        if not header:
            raise PatchError(f"hunk {hunk}: `{lines[row][:60]}` is not a hunk header")
        row += 1
        old_start, old_count, new_count = int(header[1]), int(header[2] or 1), int(header[4] or 1)
        start = old_start - 1 if old_count else old_start
        if start < at or start > len(old):
            raise PatchError(f"hunk {hunk} starts at line {old_start}, the file has {len(old)}")
        new += old[at:start]
        at = start
        while old_count or new_count or (row < len(lines) and lines[row].startswith("\\")):
            if row >= len(lines):
                raise PatchError(
                    f"hunk {hunk} ends {old_count} old and {new_count} new lines too early"
                )
            kind, line = lines[row][:1] or " ", lines[row][1:]
            row += 1
            if kind == "\\":
                # "No newline at end of file" refers to the line before it; only the new side matters.
                if lines[row - 2][:1] != "-":
                    new_ends_open = True
                continue
            if kind not in " +-":
                raise PatchError(
                    f"hunk {hunk}: `{lines[row - 1][:60]}` does not start with ` `, `+` or `-`"
                )
            if kind in " -":
                if at >= len(old) or old[at] != line:
                    found = old[at][:60] if at < len(old) else "the end of the file"
                    raise PatchError(
                        f"hunk {hunk}: line {at + 1} should be `{line[:60]}` but is `{found}`"
                    )
                at += 1
                old_count -= 1
            if kind in " +":
                new.append(line)
                new_count -= 1
                new_ends_open = False
            if old_count < 0 or new_count < 0:
                raise PatchError(f"hunk {hunk} has more lines than its header says")
    if at < len(old):
        new += old[at:]
        new_ends_open = ends_open
    return "\n".join(new) + ("" if new_ends_open or not new else "\n")
