"""All cases, in the order in which they run: importing a module registers its cases."""

from __future__ import annotations

from collections.abc import Collection

from rtl_core.backend.certify import calls, keeping, numbers, reference  # isort: skip
from rtl_core.backend.certify import faults  # isort: skip
from rtl_core.backend.certify.case import CASES, Case
from rtl_core.errors import ConfigError

__all__ = ["calls", "chosen", "faults", "keeping", "numbers", "reference"]


def chosen(names: Collection[str]) -> list[Case]:
    """The cases of these names or of a group of them, and those that they need; all without a name.

    Raises:
        ConfigError: there is no such case.
    """
    known = {*CASES, *(case.group for case in CASES.values())}
    for name in names:
        if name not in known:
            raise ConfigError(f"no case {name!r}", f"choose among {', '.join(sorted(known))}")
    wanted = {case.name for case in CASES.values() if not names or case.name in names or case.group in names}
    for case in reversed(CASES.values()):  # a case needs earlier ones alone
        if case.name in wanted:
            wanted.update(case.needs)
    return [case for case in CASES.values() if case.name in wanted]
