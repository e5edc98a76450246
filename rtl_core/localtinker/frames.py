"""Python values over a socket between the service and its own sampling processes: eight bytes of length, then a pickle."""

from __future__ import annotations

import pickle
import struct
from typing import Any

_HEADER = struct.Struct("!Q")


def encode(value: Any) -> bytes:
    body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return _HEADER.pack(len(body)) + body


class Frames:
    """Puts values together from the bytes of one socket, in whatever pieces they come."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """The values that `data` completes."""
        self._pending += data
        values = []
        start, available = 0, len(self._pending)
        while available - start >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._pending, start)
            end = start + _HEADER.size + length
            if end > available:
                break
            values.append(pickle.loads(self._pending[start + _HEADER.size : end]))
            start = end
        del self._pending[:start]
        return values
