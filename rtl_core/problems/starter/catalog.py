"""The starter families by tier."""

from __future__ import annotations

from rtl_core.problems.starter import families, hard_families
from rtl_core.problems.starter.spec import Family, Tier

FAMILIES: dict[Tier, list[Family]] = {"starter": families.FAMILIES, "hard": hard_families.FAMILIES}
BY_NAME: dict[str, Family] = {family.name: family for tier in FAMILIES.values() for family in tier}
