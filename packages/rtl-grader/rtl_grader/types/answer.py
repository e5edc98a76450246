"""The noun *answer*: the files extracted from a response."""

from __future__ import annotations

from pydantic import BaseModel


class Answer(BaseModel, frozen=True):
    """Files extracted from a response, or the reason why there are none.

    `files` maps target paths to complete texts. `ignored` names files in the response that the problem does
    not allow. `notes` say where the files come from if there was a choice. If no answer was found, `error`
    is set and `files` is empty.
    """

    files: dict[str, str] = {}
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    error: str | None = None
