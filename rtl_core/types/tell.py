"""What a long operation calls to say where it is."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[str], None]
"""Shows one line to the user."""
