"""The view of a running run in Chromium: from the curve to a failed answer, its failing check, waveform and tokens."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rtl_core.history.store import History
from rtl_core.view.links import link, rollout_link
from tests.command import command
from tests.reporting.chromium import Page, browser
from tests.waiting import wait_for

PATIENCE_S = 1200
RUN = [
    "run.name=live", "run.epochs=200", "problems.sources.0.train=16", "problems.sources.0.heldout=2", "problems.validation_mutants=0",
    "curriculum.problems_per_step=4", "sampling.group_size=4", "evaluation.samples=2", "evaluation.k=[1, 2]", "evaluation.teacher=false",
    "learning.warm_start_steps=0",
    "learning.kl_schedule=constant", "learning.replace_with_kl=false",
]  # fmt: skip
"""Overrides of the demo: four steps per epoch, teacher scores at every step, and more epochs than the test needs."""
FAILED = """
SELECT v.rollout, v.step, v.problem_id, v.reasons FROM verdicts v JOIN teacher_scores USING (rollout) JOIN steps s ON s.run = v.run AND s.step = v.step
WHERE v.outcome = 'tests_failed' AND v.purpose = 'train' AND s.status = 'trained' AND v.tests_total > 0 ORDER BY v.step, v.rollout LIMIT 1
"""


def program(*arguments: str, out: Path, sets: Sequence[str] = ()) -> subprocess.Popen:
    """Start a command in a new process group."""
    with out.open("w") as file:
        options = {"env": {**os.environ, "PYTHONUNBUFFERED": "1"}, "start_new_session": True}
        return subprocess.Popen(
            command(*arguments, sets=sets), stdout=file, stderr=subprocess.STDOUT, **options
        )


def end(process: subprocess.Popen, number: signal.Signals) -> int:
    """Send a signal and return the exit status; then kill what is left of the process group."""
    process.send_signal(number)
    try:
        return process.wait(timeout=300)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A running run, with one of its answers that failed the tests."""
    folder = tmp_path_factory.mktemp("live")
    history = History(folder / "h.duckdb", read_only=True)
    overrides = [*RUN, f"run.directory={folder}", f"run.history={history.path}"]
    process = program("train", "demo", sets=overrides, out=folder / "train.log")

    def failed():
        assert process.poll() is None, (folder / "train.log").read_text()[-4000:]
        return next(iter(history.query(FAILED).to_pylist()), None)

    try:
        yield history, wait_for(failed, "an answer that fails its tests")
    finally:
        end(process, signal.SIGTERM)


@pytest.fixture(scope="module")
def address(live, tmp_path_factory):
    """The address of `rtl-distill view`, which ends with Ctrl-C."""
    out = tmp_path_factory.mktemp("served") / "view.log"
    process = program("view", "--no-browser", "--db", str(live[0].path), out=out)

    def announced():
        return next(
            (
                line
                for line in out.read_text().splitlines()
                if line.startswith("http://127.0.0.1:")
            ),
            "",
        )

    try:
        yield wait_for(announced, "the view's address")
        assert process.poll() is None
    finally:
        code = end(process, signal.SIGINT)
    assert code == 0, out.read_text()
    assert "Traceback" not in out.read_text()


@pytest.fixture(scope="module")
def page():
    with browser() as tab:
        tab.call(
            "Emulation.setDeviceMetricsOverride",
            width=1440,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        yield tab


def there(page: Page, path: str) -> None:
    try:
        page.wait(
            f"location.pathname === {json.dumps(path)} && document.documentElement.dataset.ready === 'yes'",
            120,
        )
    except AssertionError:
        shown = page.js(
            "[location.href, document.readyState, document.body.innerText.slice(0, 2000)]"
        )
        raise AssertionError(f"not at {path}: {shown}; {page.complaints()}") from None


def anchor(address: str) -> str:
    return f"document.querySelector('a[href={json.dumps(address)}]')"


@pytest.mark.slow
def test_from_the_curve_of_a_live_run_to_the_waveform_of_a_failing_check(live, address, page):
    history, failed = live
    page.visit(address)
    page.click(anchor(link("/run", run="live")))
    there(page, "/run")
    assert page.js("document.querySelector('.live').innerText") == "live"

    # The page updates itself.
    newest = page.js("Number(document.querySelector('.rows tbody tr a').innerText)")
    page.js("window.sameDocument = true")
    updated = f"Number(document.querySelector('.rows tbody tr a').innerText) > {newest}"
    page.wait(f"{updated} && window.sameDocument", PATIENCE_S)

    # Curve, step, group, rollout. A point of the curve may be a mean of steps, so go to the failed answer's step directly.
    page.click(
        "[...document.querySelectorAll('.plot')][1].querySelector('.trace:last-child .point')"
    )
    there(page, "/step")
    page.visit(address.rstrip("/") + link("/step", run="live", step=failed["step"]))
    page.click(
        anchor(link("/group", problem=failed["problem_id"], run="live", step=failed["step"]))
    )
    there(page, "/group")
    page.click(anchor(rollout_link(failed["rollout"])))
    there(page, "/rollout")
    assert failed["reasons"][0][:100] in page.js("document.getElementById('failing').innerText")
    assert page.js("document.querySelector('h1').innerText").strip() == "Tests failed"

    # The KL of its tokens.
    stored = history.find_rollout(failed["rollout"])
    k_T = [
        s - q for s, q in zip(stored.rollout.logprobs_T, stored.teacher.logprobs_T, strict=True)
    ]
    spans = "[...document.querySelectorAll('.tokens span')]"
    told = page.js(spans + ".map(e => Number(/teacher KL (\\S+)/.exec(e.title)[1]))")
    assert told == pytest.approx(k_T, abs=6e-4)
    assert page.js(spans + ".map(e => e.className !== '')") == [
        abs(value) >= 0.05 for value in told
    ]
    shown = page.js("document.querySelector('.tokens').innerText").replace("\n", "")
    assert shown.startswith(stored.rollout.text[:20].replace("\n", ""))
    page.click(
        "[...document.querySelectorAll('#tokens nav a')].find(a => a.innerText === 'advantage')"
    )
    page.wait("document.querySelector('.tokens').dataset.overlay === 'advantage'")
    page.wait("document.documentElement.dataset.ready === 'yes'")
    assert page.js("document.getElementById('missing')") is None

    # The button shows the waveform, and so does the resulting URL.
    page.click("document.getElementById('show-waves')")
    page.wait("document.querySelector('#drawing svg .said')", PATIENCE_S)
    assert page.js("document.querySelectorAll('#drawing .wave, #drawing .bus').length") >= 2
    assert "expected" in page.js("document.querySelector('#drawing .said').textContent")
    assert "waves=1" in page.js("location.search")
    page.visit(page.js("location.href"))
    page.wait("document.querySelector('#drawing svg .said')", PATIENCE_S)

    assert page.complaints() == []
    assert all(asked.startswith((address, "data:")) for asked in page.requests())
    assert history.run("live").status == "running"


@pytest.mark.slow
def test_keyboard_search_finds_an_answer_by_a_word_of_its_text(live, address, page):
    history, failed = live
    text = history.find_rollout(failed["rollout"]).rollout.text
    word = max(text.replace("(", " ").replace(";", " ").split(), key=len)
    page.visit(address)
    page.press("/")
    page.wait("document.activeElement.type === 'search'")
    page.call("Input.insertText", text=word)
    page.press("Enter")
    there(page, "/rollouts")
    page.visit(page.js("location.href") + "&outcome=tests_failed&step=" + str(failed["step"]))
    keys = page.js(
        "[...document.querySelectorAll('[data-row] a')].map(a => new URL(a.href).searchParams.get('key'))"
    )
    assert failed["rollout"] in keys

    # j goes down, k up, Enter opens, Escape goes to the group.
    page.press("j")
    page.wait("document.querySelectorAll('.chosen').length === 1")
    page.press("Enter")
    there(page, "/rollout")
    page.press("Escape")
    there(page, "/group")
    page.press("?")
    page.wait("document.getElementById('help').open")
    assert page.complaints() == []


@pytest.mark.slow
def test_light_and_dark_follow_the_system_until_the_user_chooses(address, page):
    for theme in ("dark", "light"):
        page.call(
            "Emulation.setEmulatedMedia",
            media="",
            features=[{"name": "prefers-color-scheme", "value": theme}],
        )
        page.visit(address)
        assert page.js("document.documentElement.dataset.theme") == theme
    page.press("t")
    page.wait("document.documentElement.dataset.theme === 'dark'")
    page.visit(address)
    assert page.js("document.documentElement.dataset.theme") == "dark"
    page.js("localStorage.clear()")
    assert page.complaints() == []
