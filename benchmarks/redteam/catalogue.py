"""The groups of attacks. A new attack is a row in its group's table; a new group is a table and a name here."""

from benchmarks.redteam import tricks
from benchmarks.redteam.attack import LFSR, Attack
from benchmarks.redteam.tables import attacks

_TABLES = (
    "bench_channel",
    "bench_designs",
    "judged",
    "preprocessor",
    "files",
    "simulation_end",
    "weak_harness",
    "interface",
    "infrastructure",
    "cache",
    "extraction",
    "resources",
    "refused",
    "outright",
    "honest",
)
GROUPS: dict[str, list[Attack]] = {name: attacks(name) for name in _TABLES}
_UTF_16 = "\ufeff" + "".join(f"{character}\0" for character in LFSR.design())
_IDEA = "the text in another encoding, as far as a string can hold it"
GROUPS["preprocessor"] += [
    *tricks.attacks(),
    Attack(f"UTF-16 @ {LFSR.problem}", _IDEA, LFSR.problem, text=_UTF_16),
]


def chosen(only: list[str] | None = None, *, every: int = 1) -> list[tuple[str, Attack]]:
    """(group, attack) pairs, every n-th of a group. `only` has names of groups, or parts of attacks' names;
    ValueError if nothing matches."""

    def wanted(group: str, attack: Attack) -> bool:
        return not only or any(
            word == group or (word not in GROUPS and word in attack.name) for word in only
        )

    kept = [
        (group, attack)
        for group, attacks in GROUPS.items()
        for attack in [one for one in attacks if wanted(group, one)][::every]
    ]
    if only and not kept:
        raise ValueError(
            f"no group and no attack is called {', '.join(only)}; the groups are {', '.join(GROUPS)}"
        )
    return kept
