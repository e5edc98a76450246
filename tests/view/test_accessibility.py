"""axe-core in Chromium finds no serious fault of accessibility in any page of view and report, light or dark, wide or narrow."""

import itertools
import json
import threading
from pathlib import Path

import pytest

from rtl_core.history.store import History
from rtl_core.reporting.report import write_report
from rtl_core.view.links import link, rollout_link
from rtl_core.view.server import serve
from tests.reporting.chromium import browser
from tests.waiting import wait_for

AXE = Path(__file__).parents[2] / "build/axe/node_modules/axe-core/axe.min.js"
FAULTS = """
axe.run(document, {resultTypes: ['violations']}).then(result => result.violations
    .filter(fault => ['serious', 'critical'].includes(fault.impact))
    .map(fault => `${fault.id}: ${fault.nodes.slice(0, 3).map(node => node.html.slice(0, 160)).join(' | ')}`))
"""


@pytest.fixture(scope="module")
def addresses(demo, tmp_path_factory):
    """One address of each kind of page, and the report's."""
    told = []
    view = (History(demo.path, read_only=True), 0, told.append)
    threading.Thread(target=serve, args=view, daemon=True).start()
    base = wait_for(lambda: told and told[0].rstrip("/"), "the view")
    failed = next(s for s in demo.rollouts_of("demo", 3) if not s.verdict.passed)
    place = {"run": "demo", "step": 3}
    pages = [
        "/", "/?against=cost", link("/run", run="demo"), link("/run", run="fresh"), link("/pictures", run="demo"), link("/wrong", run="demo"),
        link("/step", **place), link("/step", run="demo", evaluation="demo-student-12"),
        link("/group", problem=failed.rollout.problem_id, **place), link("/rollouts", run="demo", outcome="failed"),
        rollout_link(failed.rollout.key, against="golden"), "/nothing",
    ]  # fmt: skip
    report = write_report(demo, ["demo"], tmp_path_factory.mktemp("axe") / "report.html")
    both = write_report(demo, ["demo", "other"], report.with_name("compared.html"))
    return [*(base + page for page in pages), report.as_uri(), both.as_uri()]


@pytest.mark.slow
def test_no_page_has_a_serious_fault(addresses):
    assert AXE.exists(), "install axe-core: scripts/axe.sh"
    faults = {}
    with browser() as tab:
        for width, theme in itertools.product((1400, 400), ("light", "dark")):
            features = [{"name": "prefers-color-scheme", "value": theme}]
            tab.call("Emulation.setEmulatedMedia", media="", features=features)
            screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            tab.call("Emulation.setDeviceMetricsOverride", **screen)
            for address in addresses:
                tab.visit(address)
                tab.wait("!document.querySelector('[data-src]')")
                tab.js("window.report ? window.report.drawAll().then(() => true) : true")
                tab.js(f"{AXE.read_text('utf-8')}; true")
                if found := tab.js(FAULTS):
                    faults[f"{address} {width} {theme}"] = found
    assert not faults, json.dumps(faults, indent=1)
