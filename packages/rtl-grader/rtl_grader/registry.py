"""Registry of objects that a configuration or a command selects by name. Each is registered in the file
that defines it."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, cast

from rtl_grader.errors import ConfigError
from rtl_grader.words import did_you_mean

Entry = TypeVar("Entry")
_log = logging.getLogger("rtl_distill")


class Registry(Generic[Entry]):
    """Mapping of name to entry.

    All modules of `package` are imported on first access, so a new file there needs no line elsewhere. An
    entry outside the project is named `module:name`. Every process that reads the configuration imports the
    module itself, so a stored run can be opened wherever the module is importable.
    """

    def __init__(
        self, what: str, package: str, accepts: Callable[[Any], bool], group: str = ""
    ) -> None:
        """Args:
        what: noun for messages, such as `template`.
        package: the package whose modules register entries.
        accepts: whether an attribute of an external module is a valid entry.
        group: entry points of installed packages whose modules register further entries.
        """
        self._what = what
        self._package = package
        self._accepts = accepts
        self._group = group
        self._registered: dict[str, Entry] = {}

    def register(self, name: str) -> Callable[[Entry], Entry]:
        """Return a decorator that registers an entry. Raises ValueError if the name is taken."""

        def add(entry: Entry) -> Entry:
            if name in self._registered:
                raise ValueError(f"there are two {self._what}s named {name!r}")
            self._registered[name] = entry
            return entry

        return add

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        """The entries of this project and of installed packages by name."""
        for module in pkgutil.iter_modules(import_module(self._package).__path__):
            import_module(f"{self._package}.{module.name}")
        for point in entry_points(group=self._group) if self._group else ():
            try:
                point.load()
            except (
                Exception
            ) as error:  # another package's fault must not stop the entries of this one
                where = f"{point.name} = {point.value}"
                _log.warning(
                    "no %s from %s: %s: %s", self._what, where, type(error).__name__, error
                )
        return dict(sorted(self._registered.items()))

    def require(self, name: str) -> str:
        """Return `name` if it has an entry, else raise ValueError. A validator for pydantic fields."""
        try:
            self.find(name)
        except ConfigError as error:
            raise ValueError(f"{error.message}; {error.hint}") from None
        return name

    def find(self, name: str) -> Entry:
        """Return the entry for a name or `module:name`.

        Raises ConfigError if there is none. Errors raised while a user's module is imported propagate.
        """
        module, colon, attribute = name.partition(":")
        if not colon:
            if name in self.entries:
                return self.entries[name]
            choice = (
                f"choose one of {', '.join(self.entries)}, or module:name for one of your own"
            )
            hint = did_you_mean(name, self.entries, choice)
            raise ConfigError(f"there is no {self._what} {name!r}", hint)
        parts = [*module.split("."), attribute]
        if not all(map(str.isidentifier, parts)):
            raise ConfigError(
                f"{self._what} {name!r} is not of the form module:name",
                "for example my_module:Name",
            )
        try:
            entry: Any = getattr(import_module(module), attribute, None)
        except ImportError as error:
            raise ConfigError(
                f"{self._what} {name!r} cannot be imported: {error}",
                "install the module, or add its folder to PYTHONPATH",
            ) from None
        if not self._accepts(entry):
            raise ConfigError(
                f"`{attribute}` in {module} is no {self._what}", "see docs/architecture.md"
            )
        return cast(Entry, entry)
