"""The settings on which the figures of a card depend, and where they depart from a protocol's file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rtl_core.cards.card import changes
from rtl_core.config import RunConfig, load_config
from rtl_core.config.protocol import own_source
from rtl_grader.problems.sources import ProblemSource, override_of

_SETTINGS: dict[str, Any] = {
    "prompting": True,
    "sampling": {"temperature", "max_tokens"},
    "evaluation": {"samples", "k", "temperature", "top_p", "max_tokens"},
    "grading": True,
    "episode": True,
}
"""Sections and keys on which a figure depends."""
_NOT: dict[str, Any] = {
    "grading": {"executor", "image", "workers", "retries", "until", "until_steps"}
}
"""Keys of them that are in the verdicts, or on which no figure depends."""
_OF_A_RUN = {"path", "heldout_fraction", "train_problems"}
"""Keys of a source on which no figure of an evaluation depends."""


def settings_of(config: RunConfig) -> dict[str, Any]:
    """All settings on which an evaluation's figures depend, besides model and problems; of a run that evaluates a
    model, also how its sources are read."""
    settings = config.model_dump(mode="json", include=_SETTINGS, exclude=_NOT)
    if config.run.purpose == "evaluation":
        both = {"sources": config.problems.sources, "exclude": config.problems.exclude}
        settings["problems"] = {name: _read_as(sources) for name, sources in both.items()}
    return settings


def _read_as(sources: Iterable[ProblemSource]) -> list[dict[str, Any]]:
    """How sources are read, each way once; where they are is nobody else's concern."""
    ways: list[dict[str, Any]] = []
    for source in sources:
        way = source.model_dump(mode="json", exclude=_OF_A_RUN)
        ways += [way] * (way not in ways)
    return ways


def departures(settings: dict[str, Any], file: Path) -> list[str]:
    """What differs between a card's settings and a protocol's file. Raises ConfigError if the file is not one."""
    overrides = [override_of([own_source(str(file))]), 'tinker.student="any"']
    theirs = settings_of(load_config(file, overrides, {}, check_files=False))
    if "episode" not in settings:
        del theirs["episode"]
    # They say which of a run's evaluations it is; a protocol has no say in that.
    theirs["conditions"] = settings.get("conditions")
    return [*changes(theirs, settings, file.stem)]
