"""Configuration of a run: models, loading, showing."""

from rtl_core.config.load import load_config, shipped_configs
from rtl_core.config.models import RunConfig
from rtl_core.config.show import to_toml

__all__ = ["RunConfig", "load_config", "shipped_configs", "to_toml"]
