"""Designs for the attacked problems (tables/bases.toml): wrong, right, and right only while a forbidden call works."""

import tomllib
from pathlib import Path

from benchmarks.redteam.attack import Base

_READ = tomllib.loads((Path(__file__).parent / "tables/bases.toml").read_text(encoding="utf-8"))
BASES = {key: Base(key, **{**one, "pins": tuple(one["pins"])}) for key, one in _READ.items()}
"""By problem."""
LFSR, DFF, COUNT10, INC, COUNTER = (
    BASES[key] for key in ("cvdp/lfsr", "ve/Prob031", "ve/Prob035", "own/bench", "starter/counter")
)
