"""The list of groups. A new group is one file and one line here."""

from __future__ import annotations

from collections import Counter

from benchmarks.redteam import (
    bench_channel,
    cache,
    extraction,
    files,
    honest,
    infrastructure,
    preprocessor,
    resources,
    simulation_end,
    weak_harness,
)
from benchmarks.redteam.attack import Attack

GROUPS: dict[str, list[Attack]] = {
    "bench_channel": bench_channel.ATTACKS,
    "preprocessor": preprocessor.ATTACKS,
    "files": files.ATTACKS,
    "simulation_end": simulation_end.ATTACKS,
    "weak_harness": weak_harness.ATTACKS,
    "infrastructure": infrastructure.ATTACKS,
    "cache": cache.ATTACKS,
    "extraction": extraction.ATTACKS,
    "resources": resources.ATTACKS,
    "honest": honest.ATTACKS,
}


def chosen(only: list[str] | None = None, *, every: int = 1) -> list[tuple[str, Attack]]:
    """(group, attack) pairs. `only` names groups, or parts of attacks' names; `every` = n takes every nth of a group.

    Raises ValueError when `only` names nothing.
    """
    pairs = [(group, attack) for group, attacks in GROUPS.items() for attack in attacks]
    if only:
        pairs = [(g, a) for g, a in pairs if any(word == g or (word not in GROUPS and word in a.name) for word in only)]
        if not pairs:
            raise ValueError(f"no group and no attack is called {', '.join(only)}; the groups are {', '.join(GROUPS)}")
    counted: Counter[str] = Counter()
    kept = []
    for group, attack in pairs:
        if counted[group] % every == 0:
            kept.append((group, attack))
        counted[group] += 1
    return kept
