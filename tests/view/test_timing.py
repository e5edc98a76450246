"""With 100,000 rollouts in the history, in Chromium: first paint under a second, every click under 300 ms."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from chromium import browser

from benchmarks.view import RUN, fill, served
from rtl_core.view.links import link, rollout_link

pytestmark = pytest.mark.timing


def test_pages_are_painted_at_once():
    history = fill(Path(tempfile.gettempdir()) / "bench-view", 100_000)
    failed = history.query("SELECT rollout, step, problem_id FROM verdicts WHERE outcome = 'tests_failed' ORDER BY step DESC LIMIT 1").to_pylist()[0]  # fmt: skip
    clicks = [
        link("/run", run=RUN),
        link("/step", run=RUN, step=failed["step"]),
        link("/group", run=RUN, step=failed["step"], problem=failed["problem_id"]),
        rollout_link(failed["rollout"]),
        rollout_link(failed["rollout"], against="golden", overlay="advantage"),
        link("/rollouts", run=RUN),
        link("/rollouts", run=RUN, q="line 31", outcome="tests_failed"),
        link("/rollouts", run=RUN, mistake="extra_port", family="lfsr"),
        link("/wrong", run=RUN),
    ]
    painted = {}
    with served(history.path) as base, browser() as page:
        page.call("Emulation.setDeviceMetricsOverride", width=1440, height=900, deviceScaleFactor=1, mobile=False)
        for address in ["/", *clicks]:
            page.visit(base + address)
            page.wait("performance.getEntriesByName('first-contentful-paint').length")
            painted[address] = page.js("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    print({address: f"{ms:.0f} ms" for address, ms in painted.items()})
    assert painted.pop("/") < 1000
    assert {address: ms for address, ms in painted.items() if ms >= 300} == {}
