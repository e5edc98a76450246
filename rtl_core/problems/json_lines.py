"""Files of one JSON object a line that anybody may have written: neither a long line nor a broken one ends the reading."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO


def json_lines(file: BinaryIO, most: int) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """(number, the object, or what is wrong with the line) of each line that is not blank; at most `most` bytes of one are read."""
    number = 0
    while line := file.readline(most + 1):
        number += 1
        if number == 1 and line.startswith(b"\x1f\x8b"):
            yield number, "is compressed: unpack the file first (gunzip)"
            return
        too_long = len(line) > most
        while too_long and not line.endswith(b"\n") and (line := file.readline(1 << 20)):
            pass
        if too_long:
            yield number, f"is longer than {most >> 20} MiB"
        elif line.strip():
            yield number, _record(line)


def _record(line: bytes) -> dict[str, Any] | str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"
    return record if isinstance(record, dict) else f"is a JSON {type(record).__name__}, not an object"
