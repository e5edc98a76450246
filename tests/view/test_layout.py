"""The pages in Chromium on a wide and a narrow screen: nothing is squeezed, cut off or written over something else."""

import threading

import pytest

from rtl_core.history.store import History
from rtl_core.view.links import link
from rtl_core.view.server import serve
from rtl_grader.types.verdict import Outcome
from tests import synthetic
from tests.reporting.chromium import browser
from tests.waiting import wait_for

REASON = (
    "the result of the accumulator is 0x1f and the model of the harness expects 0x2f after the second write "
    * 3
)
OVERLAPS = """
[...document.querySelectorAll('table.rows td')].filter(cell => cell.scrollWidth > cell.clientWidth + 1).map(cell => cell.textContent)
"""
LOST = """
[...document.querySelectorAll('table.rows th')].filter(head => head.getBoundingClientRect().right > innerWidth &&
    !(getComputedStyle(head.closest('table')).overflowX === 'auto')).map(head => head.textContent)
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A view of a run in which the longest reason of all is the first column of a table."""
    history = synthetic.write_run(
        tmp_path_factory.mktemp("layout") / "h.duckdb", "long", synthetic.Shape(steps=2)
    )
    failed = [
        s for s in history.rollouts_of("long", 0) if s.verdict.outcome is Outcome.TESTS_FAILED
    ]
    verdicts = [
        s.verdict.model_copy(update={"reasons": (REASON,), "cached": False}) for s in failed
    ]
    history.record_verdicts(
        [(s.rollout.key, verdict, None) for s, verdict in zip(failed, verdicts, strict=True)]
    )
    addresses = []
    view = (History(history.path, read_only=True), 0, addresses.append)
    threading.Thread(target=serve, args=view, daemon=True).start()
    return wait_for(lambda: addresses and addresses[0].rstrip("/"), "the view")


@pytest.mark.slow
def test_pages_fit_a_narrow_and_a_wide_screen(address):
    with browser() as tab:
        for width in (1400, 400):
            tab.call(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=900,
                deviceScaleFactor=1,
                mobile=False,
            )
            for page in ("/run", "/wrong", "/rollouts"):
                tab.visit(
                    address
                    + link(
                        page,
                        run="long",
                        outcome="tests_failed" if page == "/rollouts" else None,
                    )
                )
                assert page == "/run" or REASON[:29] in tab.js("document.body.textContent")
                assert tab.js(OVERLAPS) == [], (width, page)
                assert tab.js(LOST) == [], (width, page)
                assert (
                    tab.js("document.querySelector('.crumbs').getBoundingClientRect().width")
                    > 300
                ), (width, page)
                assert tab.js("document.documentElement.scrollWidth") <= width, (width, page)
                tab.wait(
                    "[...document.querySelectorAll('.plot')].every(place => place.dataset.drawn)"
                )
                assert tab.complaints() == [], (width, page)
