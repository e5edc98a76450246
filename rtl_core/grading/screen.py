"""The static screen: what no honest design holds.

The first line of defence only names what it finds; the sandbox and the attestation of results stand behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ConfigDict

MAX_FILE_CHARS = 1_000_000


class Finding(BaseModel):
    """One thing that gets an answer rejected, and where."""

    model_config = ConfigDict(frozen=True)
    what: str
    path: str
    line: int
    """Counted from 1."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def screen(answer: Mapping[str, str], context: Mapping[str, str]) -> Iterator[Finding]:
    """Findings in the answer's files, in order. Linear in their length."""
    for path, text in answer.items():
        if len(text) > MAX_FILE_CHARS:
            yield Finding(what=f"the file has {len(text)} characters, more than {MAX_FILE_CHARS}", path=path, line=1)
        at = text.find("\0")
        if at >= 0:
            yield Finding(what="a NUL byte", path=path, line=text.count("\n", 0, at) + 1)
