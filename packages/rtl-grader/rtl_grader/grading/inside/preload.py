"""Imports what every job imports into a warm process, once for all that are forked from it (warm.py)."""

import ctypes
import gc
import importlib
import inspect
import os
import pathlib
import sys

_COCOTBS_ARGUMENTS = ["--capture=no", "-o", "python_files=*.py"]
"""Arguments of cocotb 2's pytest configuration (`RegressionManager.setup_pytest_assertion_rewriting`)."""
_PYTEST_FILES = "pytest.ini .pytest.ini pyproject.toml tox.ini setup.cfg setup.py conftest.py"
_PYTEST_VARIABLES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")
_PRELOADED = """cocotb_tools._coverage cocotb._init cocotb.clock cocotb.queue cocotb.result
cocotb_tools.runner pygpi.entry pytest doctest runpy"""
"""Modules that every job imports, directly or through these."""
_SHARED: dict = {}
"""Name -> module, of the modules imported before any fork."""


def preload():
    """Import the modules that all forks share."""
    # Everything imported here stays, so collecting garbage would be wasted work.
    gc.disable()
    for name in _PRELOADED.split():
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    from _pytest.config import default_plugins

    for name in default_plugins:
        importlib.import_module("_pytest." + name)
    _preload_rewriting()
    # As cocotb does for each test; this caches the compiled regular expressions.
    inspect.getsource(preload)
    for name, module in sys.modules.items():
        if not name.startswith(("cocotb", "pygpi")):
            _SHARED[name] = module
    gc.collect()
    gc.freeze()
    gc.enable()
    sys.stdout.flush()
    sys.stderr.flush()
    # Otherwise every fork would write vvp's buffered output again.
    ctypes.CDLL(None).fflush(None)


def _preload_rewriting():
    """Create the pytest configuration by which cocotb rewrites assertions. In each simulator it would take
    half the time of a short simulation. Simulators share it unless files or variables configure pytest for
    them."""
    from _pytest.config import Config

    usual = Config.fromdictargs
    variables = _pytest_variables()
    finders = list(sys.meta_path)
    configuration = usual({}, list(_COCOTBS_ARGUMENTS))
    # Remove the import hook that rewrites modules: cocotb installs its own.
    sys.meta_path[:] = finders

    def fromdictargs(options, arguments):
        same = (
            not options and arguments == _COCOTBS_ARGUMENTS and _pytest_variables() == variables
        )
        if same and not _has_pytest_files(pathlib.Path.cwd()):
            return configuration
        return usual(options, arguments)

    Config.fromdictargs = fromdictargs  # type: ignore[method-assign]


def _pytest_variables():
    return [os.environ.get(name) for name in _PYTEST_VARIABLES]


def _has_pytest_files(place):
    """Whether pytest, started in this directory, would read a configuration file or a conftest.py."""
    if any(entry.is_dir() for entry in place.glob("test*")):
        return True
    names = _PYTEST_FILES.split()
    return any((folder / name).exists() for folder in (place, *place.parents) for name in names)


def keep_shared_modules():
    """At exit of a simulator's Python: hide the shared modules from the interpreter. Clearing them would
    copy the memory that forks share (a tenth of a short simulation). Modules of the harness, and of cocotb,
    which refers to them, are cleared."""
    for name, module in _SHARED.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
