"""Whether the saved weights that a configuration names are there and fit: `tinker.start_from`, and teachers of one's own training."""

from __future__ import annotations

from collections.abc import Iterator

from rtl_core.backend.base import Readiness, check_start
from rtl_core.config import RunConfig
from rtl_core.errors import HistoryError, PolicyError
from rtl_core.history.store import History
from rtl_core.types.finding import Finding


def saved_weights(config: RunConfig, readiness: Readiness) -> Iterator[Finding]:
    """A line for each. Those that a begun run started from may be gone: it has its own copy."""
    for key, found in readiness.saved.items():
        starts = key == "tinker.start_from"
        try:
            if isinstance(found, PolicyError):
                raise found
            if starts:
                check_start(config, found)
        except PolicyError as error:
            text = error.message.removeprefix(f"{key}: ")
            if starts and _has_begun(config):
                yield Finding(key, "warning", f"{text}; this run has begun and has its own copy", error.hint)
            else:
                yield Finding(key, "wrong", text, error.hint)
        else:
            rank = "" if found.rank is None else f", rank {found.rank}"
            yield Finding(key, "ok", f"saved weights of {found.base_model}{rank}")


def _has_begun(config: RunConfig) -> bool:
    if not config.run.history.is_file():
        return False
    try:
        history = History(config.run.history, read_only=True)
        record, trained = history.run(config.run.name), history.last_trained_step(config.run.name)
    except HistoryError:  # one that cannot be read knows of no run
        return False
    return trained is not None or (record is not None and record.start_state is not None)
