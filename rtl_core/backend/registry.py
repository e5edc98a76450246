"""Which backend a run takes: `backend.name`, one that is listed here or an importable module of the user's own."""

from __future__ import annotations

import importlib

from rtl_core.backend.base import Provider
from rtl_core.config import RunConfig
from rtl_core.errors import ConfigError

BACKENDS = {"tinker": "rtl_core.backend.tinker"}
"""Name -> module with a `BACKEND`."""


def backend_of(config: RunConfig) -> Provider:
    """The backend of a run.

    Raises:
        ConfigError: there is none of that name, or its module cannot be imported.
    """
    name = config.backend.name
    try:
        provider: Provider = importlib.import_module(BACKENDS.get(name, name)).BACKEND
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"backend.name: {name!r} cannot be used: {error}",
            f"name one of: {', '.join(BACKENDS)}; or an importable module that has a BACKEND (rtl_core/backend/base.py)",
        ) from error
    return provider
