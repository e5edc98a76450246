"""Entries that other installed packages register."""

import subprocess
import sys
from types import SimpleNamespace

from rtl_grader import registry
from rtl_grader.registry import Registry
from tests.places import REPOSITORY


def broken():
    raise ModuleNotFoundError("No module named 'gone'")


def test_a_package_that_cannot_be_imported_does_not_stop_the_other_entries(monkeypatch, caplog):
    point = SimpleNamespace(name="gone", value="gone.source", load=broken)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    other = Registry("source", "rtl_grader.problems.sources", lambda entry: True, group="any")
    assert other.entries == {}
    assert "no source from gone = gone.source: ModuleNotFoundError" in caplog.text


WITHOUT_METADATA = """
import importlib.metadata
importlib.metadata.entry_points = lambda **choice: []
from rtl_core.config import load_config
print(load_config("demo", environment={}).problems.sources[0].kind)
"""


def test_the_starter_set_needs_no_installed_metadata():
    words = [sys.executable, "-c", WITHOUT_METADATA]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stdout == "starter\n", done.stderr
