"""Modules of a user's own that extend the product: to import them is to register what they hold."""

from __future__ import annotations

import importlib


def import_plugins(modules: tuple[str, ...]) -> tuple[str, ...]:
    """Import `modules` by their dotted names and return them.

    Raises:
        ValueError: one of them cannot be imported; the message names it and says why.
    """
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise ValueError(f"cannot import {name}: {type(error).__name__}: {error}") from error
    return modules
