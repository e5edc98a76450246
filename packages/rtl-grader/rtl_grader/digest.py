"""The hash by which texts and settings are told apart."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def sha256_of(value: Any) -> str:
    """SHA-256 (hex) of a value as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
