"""What a run's terminal shows beside the run's own lines."""

import io
import logging

from rich.console import Console

from rtl_distill.cli.console import ConsoleProgress


def test_a_warning_of_the_project_is_a_line_among_the_others():
    log, out = logging.getLogger("rtl_distill"), io.StringIO()
    before = log.propagate, list(log.handlers)
    with ConsoleProgress(Console(file=out, width=200)) as console:
        console.line("first")
        log.warning("the tools are older")
        log.info("not for a terminal")
    assert [line.split("  ", 1)[-1].strip() for line in out.getvalue().splitlines() if line.strip()] == [
        "0:00  first",
        "0:00  warning: the tools are older",
    ]
    assert (log.propagate, list(log.handlers)) == before
