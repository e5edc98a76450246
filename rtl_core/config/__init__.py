"""Configuration of a run: models, loading, showing."""

from rtl_core.config.load import Override, load_config, shipped_configs
from rtl_core.config.models import RunConfig
from rtl_core.config.options import NO_OPTIONS, Options
from rtl_core.config.show import to_toml

__all__ = [
    "NO_OPTIONS",
    "Options",
    "Override",
    "RunConfig",
    "load_config",
    "shipped_configs",
    "to_toml",
]
