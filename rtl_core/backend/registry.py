"""Which backend a run takes: `backend.name`, one that registers itself in this package, or `module:name` of the user's own."""

from __future__ import annotations

from rtl_core.backend.base import Provider
from rtl_core.config import RunConfig
from rtl_core.registry import Registry

BACKENDS: Registry[Provider] = Registry("backend", "rtl_core.backend", lambda entry: isinstance(entry, Provider))
"""Name -> what opens it."""


def backend_of(config: RunConfig) -> Provider:
    """The backend of a run. ConfigError where there is none of that name."""
    return BACKENDS.find(config.backend.name)
