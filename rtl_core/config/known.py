"""Names in a configuration that must be known."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rtl_grader.words import did_you_mean


def refuse_unknown(what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise ValueError, with the closest known name, if one of these `names` of a `what` is not `known`."""
    if unknown := sorted(set(names) - set(known)):
        hint = did_you_mean(unknown[0], known, f"known: {', '.join(known)}")
        raise ValueError(f"unknown {what} {', '.join(map(repr, unknown))}; {hint}")
