"""Reading HDL needs nothing of the rooms that use it."""

import ast
from pathlib import Path

from rtl_grader.hdl import text

BELOW = ("rtl_grader.hdl.", "rtl_grader.types.", "rtl_grader.errors")


def test_hdl_imports_only_types_and_errors_of_the_product():
    files = list(Path(text.__file__).parent.glob("*.py"))
    assert len(files) > 5
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(
                ("rtl_", "tests")
            ):
                assert node.module.startswith(BELOW), f"{file.name}:{node.lineno}"
