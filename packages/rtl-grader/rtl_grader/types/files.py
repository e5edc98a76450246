"""Texts of files by their paths: of an answer, a problem's context or a harness."""

from collections.abc import Mapping

Files = Mapping[str, str]
"""Path relative to the workspace, such as `rtl/adder.sv` -> text."""
