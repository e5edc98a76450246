"""The tools of the bubblewrap executor: the installed toolchain, else this machine's with a warning."""

import json
import logging

import pytest

from rtl_core.errors import ToolMissingError
from rtl_grader.grading.executors import install as install_module
from rtl_grader.grading.executors.bubblewrap import BubblewrapExecutor
from rtl_grader.grading.executors.install import scripts
from rtl_grader.grading.executors.toolchain import Toolchain, warn_of_older
from scripts import older_tools


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RTL_DISTILL_TOOLS", str(tmp_path))
    return tmp_path


def test_without_an_installed_toolchain_this_machines_tools_are_used(home):
    assert Toolchain.installed() is None
    with BubblewrapExecutor(warm=False) as executor:
        assert "toolchain" not in executor.tools()


@pytest.mark.parametrize("place", ["/code/rtl-distill/.venv", "/src/.venv"])
def test_an_environment_that_the_sandbox_would_hide_is_refused(home, monkeypatch, place):
    monkeypatch.setattr("sys.prefix", place)
    with pytest.raises(ToolMissingError, match=f"{place} is where"):
        BubblewrapExecutor()


def test_a_damaged_toolchain_is_an_error(home):
    (home / "root").mkdir()
    (home / "root" / "rtl-distill.json").write_text(json.dumps({"made_of": "x"}))
    with pytest.raises(ToolMissingError, match="toolchain install"):
        BubblewrapExecutor()


@pytest.mark.parametrize(("version", "times"), [("12.0", 1), ("13.0", 0), ("unknown", 0)])
def test_older_tools_cause_one_warning(version, times, caplog):
    warn_of_older.cache_clear()
    with caplog.at_level(logging.WARNING, "rtl_distill"):
        warn_of_older(version)
        warn_of_older(version)
    assert (
        len([record for record in caplog.records if "toolchain install" in record.getMessage()])
        == times
    )


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        (
            {"iverilog": "11.0", "verilator": "5.006"},
            ("iverilog 11.0 cannot", "verilator 5.006 cannot run cocotb 2"),
        ),
        ({"iverilog": "13.0", "verilator": "5.020"}, ("verilator 5.020 cannot run cocotb 2",)),
        ({"iverilog": "13.0", "verilator": "5.048"}, ()),
        ({}, ()),
    ],
)
def test_setup_offers_newer_tools_where_those_on_path_are_too_old(
    home, monkeypatch, capsys, tmp_path, versions, words
):
    for name, version in versions.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} version {version} '(stable)'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    older_tools.main()
    line = capsys.readouterr().out
    assert all(word in line for word in words)
    assert line.count("\n") == bool(words)
    assert bool(words) is ("rtl-distill admin toolchain install" in line)
    (home / "root").mkdir()
    older_tools.main()
    assert capsys.readouterr().out == ""


def test_without_root_or_engine_the_error_names_the_ways_to_install_a_toolchain(
    home, monkeypatch
):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{home}/no-engine.sock")
    monkeypatch.setattr(install_module.os, "geteuid", lambda: 1000)
    with pytest.raises(ToolMissingError, match="sim-image"):
        install_module.install()
    assert list(home.iterdir()) == []


def test_the_scripts_that_build_the_image_are_found():
    assert (scripts() / "install.sh").is_file()


@pytest.mark.docker
def test_the_installed_toolchain_is_the_images(installed):
    with BubblewrapExecutor(installed) as executor:
        tools = executor.tools()
        assert tools["toolchain"] == installed.tools["toolchain"]
        assert tools["iverilog"].startswith("13.")
        assert {"verilator", "yosys", "cocotb1"} <= set(tools)
        assert executor.has_module("cocotb_bus")
        assert not executor.has_module("torch")
