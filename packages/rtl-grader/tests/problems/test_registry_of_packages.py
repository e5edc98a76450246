"""Entries that other installed packages register."""

from types import SimpleNamespace

from rtl_core.config import load_config
from rtl_grader import registry
from rtl_grader.problems.sources import SOURCES
from rtl_grader.registry import Registry


def broken():
    raise ModuleNotFoundError("No module named 'gone'")


def test_a_package_that_cannot_be_imported_does_not_stop_the_other_entries(monkeypatch, caplog):
    point = SimpleNamespace(name="gone", value="gone.source", load=broken)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    other = Registry("source", "rtl_grader.problems.sources", lambda entry: True, group="any")
    assert other.entries == {}
    assert "no source from gone = gone.source: ModuleNotFoundError" in caplog.text


def test_the_starter_set_needs_no_installed_metadata(monkeypatch):
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    monkeypatch.delitem(vars(SOURCES), "entries", raising=False)
    assert load_config("demo", environment={}).problems.sources[0].kind == "starter"
    assert "starter" in SOURCES.entries
