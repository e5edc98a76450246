"""The package stands alone: what its imports load, and its console script."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

OTHERS = ("prefect", "cocotb", "pyslang", "duckdb", "rtl_core", "rtl_grader")
"""What other parts of the repository need, and this package does not."""


def modules_after(statement: str) -> set[str]:
    """Return the names of the modules that a new process has loaded after a statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(output.stdout.split())


def test_the_command_line_loads_nothing_of_other_packages():
    modules = modules_after("import localtinker.cli")
    assert "localtinker.cli" in modules
    assert modules.isdisjoint(OTHERS)


@pytest.mark.parametrize("module", ["localtinker", "localtinker.losses", "localtinker.errors"])
def test_light_modules_load_neither_torch_nor_the_sdk(module):
    modules = modules_after(f"import {module}")
    assert module in modules
    assert modules.isdisjoint({"torch", "transformers", "tinker", *OTHERS})


def test_the_server_loads_nothing_of_other_packages():
    modules = modules_after(
        "import localtinker.app, localtinker.service, localtinker.certify.examiner"
    )
    assert modules.isdisjoint(OTHERS)


def test_the_console_script_has_both_commands():
    (script,) = entry_points(group="console_scripts", name="localtinker")
    module, _, function = script.value.partition(":")
    code = f"from {module} import {function}; {function}()"
    for command, option in (("serve-tinker", "--model"), ("check-service", "--only")):
        output = subprocess.run(
            [sys.executable, "-c", code, command, "--help"],
            capture_output=True,
            text=True,
            env={"COLUMNS": "200", "NO_COLOR": "1", "PATH": "/usr/bin:/bin"},
        )
        assert output.returncode == 0, output.stderr
        assert option in output.stdout


def test_a_path_that_cannot_be_used_is_a_message(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "file").touch()
    words = (
        "serve-tinker",
        "--model",
        str(tmp_path / "model"),
        "--state",
        str(tmp_path / "file" / "state"),
    )
    code = "from localtinker.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
