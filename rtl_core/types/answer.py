"""The noun *answer*: the files that a response stands for."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """Files taken from a response, or why there are none.

    `files` maps target paths to whole texts. `ignored` names files that the response offered but the problem does not
    allow. `error` is set, and `files` empty, when no answer could be found.
    """

    model_config = ConfigDict(frozen=True)
    files: dict[str, str] = Field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    error: str | None = None
