"""Selection of a run's backend by `backend.name`: one registered in this package, or `module:name` for the
user's own."""

from __future__ import annotations

from rtl_core.backend.base import Provider
from rtl_core.config import RunConfig
from rtl_grader.registry import Registry

BACKENDS: Registry[Provider] = Registry(
    "backend", "rtl_core.backend", lambda entry: isinstance(entry, Provider)
)


def backend_of(config: RunConfig) -> Provider:
    """Return the backend of a run. Raises ConfigError if there is none of that name."""
    return BACKENDS.find(config.backend.name)
