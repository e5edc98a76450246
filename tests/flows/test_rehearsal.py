"""The rehearsal of a run on a cloud, short: few steps, each kind of fault once, without a limit of time."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.rehearsal.__main__ import Size, rehearse
from benchmarks.rehearsal.findings import show

SHORT = Size(starter=26, groups=4, answer_tokens=64, faults_a_step=4, pause_s=6.0)


@pytest.mark.slow
def test_a_run_of_the_cvdp_configuration_goes_through_every_fault_with_nothing_twice_and_nothing_lost(
    data: Path, tmp_path: Path
) -> None:
    problems = sorted((data / "cvdp").glob("*_example_*_code_generation_no_commercial_with_solutions.jsonl"))
    assert len(problems) == 2
    template = data / "chat-templates" / "Qwen3.5-4B.jinja"
    found = rehearse(problems, template, tmp_path, "bubblewrap", SHORT, factor=0.05)
    assert show(found, least_steps=5, timing=False)
    assert len({fault.name for fault in found.faults if fault.met}) >= 10
