"""Templates of Verilog, whose own braces and percent signs stay as they are."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def verilog_templates(folder: Path) -> Environment:
    """The templates in a folder: `«value»`, `«% block %»`, `«# comment #»`, and lines that begin with `%`."""
    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        variable_start_string="«",
        variable_end_string="»",
        block_start_string="«%",
        block_end_string="%»",
        comment_start_string="«#",
        comment_end_string="#»",
        line_statement_prefix="%",
        trim_blocks=True,
        keep_trailing_newline=True,
    )
