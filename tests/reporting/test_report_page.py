"""The report in a browser: its controls work, untrusted text stays text, and it makes no network requests."""

import base64
import json

import pytest

from rtl_core.history.store import History
from rtl_core.reporting.report import write_report
from tests import synthetic
from tests.reporting.chromium import Page, browser
from tests.reporting.report_tab import assert_quiet, open_whole, rows, traces


@pytest.fixture(scope="module")
def page():
    with browser() as tab:
        yield tab


@pytest.fixture
def opened(page, path):
    """The report opened again, for tests that change it."""
    open_whole(page, path)
    return page


def test_the_policy_of_the_page_blocks_requests_and_foreign_scripts(opened):
    assert (
        opened.js("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'blocked')")
        == "blocked"
    )
    opened.js(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran=1\">')"
    )
    opened.js(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran=2'}))"
    )
    assert (
        opened.js("new Promise(done => setTimeout(() => done(typeof window.ran), 200))")
        == "undefined"
    )


def set_value(page: Page, control: str, value: str) -> None:
    page.js(
        f"(() => {{ const c = document.getElementById('{control}'); c.value = {json.dumps(value)};"
        " c.dispatchEvent(new Event('input')); })()"
    )


def choose(page: Page, demo: History, sql: str) -> str:
    """Select the first rollout of a query in the page; returns its key."""
    key = demo.query(sql).column(0).to_pylist()[0]
    page.js(f"document.querySelector('#rows tr[data-key=\"{key}\"]').click()")
    return key


def shown_keys(page: Page) -> list[str]:
    return page.js("[...document.querySelectorAll('#rows tr')].map(r => r.dataset.key)")


def test_the_browser_filters_by_outcome_purpose_and_text(opened, demo):
    sampled = set(shown_keys(opened))
    assert len(sampled) == 480
    assert "All 480 graded rollouts" in opened.js(
        "document.querySelector('#rollouts .lead').innerText"
    )
    set_value(opened, "filter-outcome", "compile_failed")
    sql = "SELECT rollout FROM verdicts WHERE run = 'demo' AND outcome = 'compile_failed'"
    found = {r["rollout"] for r in rows(demo, sql)}
    assert set(shown_keys(opened)) == found
    set_value(opened, "filter-purpose", "evaluation")
    assert set(shown_keys(opened)) == {key for key in found if "/eval/" in key}
    set_value(opened, "filter-purpose", "")
    set_value(opened, "filter-outcome", "")
    set_value(opened, "filter-text", "TRAIN_MUX_001")
    assert set(shown_keys(opened)) == {key for key in sampled if "train_mux_001" in key}
    assert (
        opened.js("document.getElementById('count').textContent")
        == f"{len(shown_keys(opened))} of 480"
    )


def test_a_dot_lists_its_answers_or_says_that_this_file_has_none(opened, demo):
    click = "document.getElementById('plot-by-problem').emit('plotly_click', {{points: [{{id: '{}'}}]}})"
    (id_of_first,) = opened.js(
        "[document.getElementById('plot-by-problem').data.find(t => t.ids).ids[0]]"
    )
    opened.js(click.format(id_of_first) + "; true")
    assert shown_keys(opened)
    assert all(f"/{id_of_first}/" in key for key in shown_keys(opened))
    opened.js(click.format("not_in_the_sample") + "; true")
    assert shown_keys(opened) == []
    told = opened.js("document.getElementById('detail').innerText")
    assert told.startswith("No rollout in this file matches. `rtl-distill view`")


def test_a_rollout_is_shown_with_both_interfaces(opened, demo):
    sql = "SELECT rollout FROM interface_mismatches WHERE run = 'demo' AND purpose = 'train' AND kind = 'extra_port' ORDER BY rollout"
    stored = demo.rollout(choose(opened, demo, sql))
    assert opened.js("document.querySelector('#detail .key').textContent") == stored.rollout.key
    assert opened.js("document.querySelector('#detail pre.answer').textContent").startswith(
        stored.rollout.text[:80]
    )
    script = "[...document.querySelectorAll('#interface {}')].map(r => [...r.cells].map(c => c.textContent))".format
    wrong, right = opened.js(script("tr.wrong")), opened.js(script("tr:not(.wrong)"))
    missing, extra = stored.verdict.mismatches
    assert (missing.name, "nothing") in [(name, got) for name, _, got in wrong]
    assert [extra.name, "nothing", extra.got] in wrong
    assert ["result", right[-1][1], right[-1][1]] in right


def test_a_mistake_links_to_an_example(opened):
    opened.js("document.querySelector('#named-mistakes button.link').click()")
    key = opened.js("document.querySelector('#named-mistakes button.link').dataset.rollout")
    assert opened.js("document.querySelector('#detail .key').textContent") == key


def test_model_text_stays_text(opened, demo):
    choose(
        opened,
        demo,
        "SELECT rollout FROM rollouts WHERE run = 'demo' AND contains(text, 'pwned') LIMIT 1",
    )
    answer = opened.js("document.querySelector('#detail pre.answer').textContent")
    assert "</script><script>window.pwned=1</script>" in answer
    assert opened.js("document.querySelectorAll('#detail script, #detail img').length") == 0
    assert "\x1b" not in opened.js("document.getElementById('detail').textContent")
    assert_quiet(opened)


@pytest.mark.slow
def test_names_from_a_problem_set_stay_text(page, tmp_path):
    odd = "<img src=x onerror=window.pwned=3>"
    history = synthetic.write_run(
        tmp_path / "h.duckdb", f"r{odd}", synthetic.Shape(steps=2, train=6, heldout=3)
    )
    open_whole(page, write_report(history, [f"r{odd}"], tmp_path / "r.html"))
    assert_quiet(page)
    assert odd in page.js("document.querySelector('.eyebrow').textContent")


def test_light_and_dark_follow_the_system_and_the_button(page, path):
    page.call(
        "Emulation.setEmulatedMedia",
        media="",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    page.open(path)
    assert page.js("document.documentElement.dataset.theme") == "dark"
    colour = "document.getElementById('plot-result').data.find(t => t.name === 'student after').marker.color"
    page.js("window.report.drawAll().then(() => true)")
    dark = page.js(colour)
    page.js("document.getElementById('theme').click()")
    assert page.js("document.documentElement.dataset.theme") == "light"
    page.wait(f"{colour} !== {json.dumps(dark)}")
    background = page.js("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(251, 251, 249)"


def test_it_prints_all_figures_in_the_light_theme(page, path):
    page.call(
        "Emulation.setEmulatedMedia",
        media="",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    page.open(path)
    pdf = base64.b64decode(page.call("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF")
    assert (
        pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") + pdf.count(b"/Type /Page/")
        >= 4
    )
    assert page.js(
        "[...document.querySelectorAll('.plot')].every(p => p.dataset.drawn === 'yes')"
    )
    assert page.js("document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("width", [1440, 1280, 1000, 420])
def test_no_width_causes_horizontal_scrolling(opened, width):
    opened.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    opened.wait(f"document.documentElement.clientWidth <= {width}")
    opened.wait(
        f"document.documentElement.scrollWidth <= {width}"
    )  # Plotly follows a resize with a delay


def test_the_names_of_rows_leave_a_narrow_chart_its_width(page, path):
    screen = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.call("Emulation.setDeviceMetricsOverride", **screen)
    try:
        open_whole(page, path)
        chart = "document.getElementById('plot-result')"
        page.wait(f"{chart}.clientWidth < 400")
        used = page.js(f"{chart}._fullLayout._size.w / {chart}.clientWidth")
        names = page.js(f"{chart}._fullLayout.annotations.map(one => one.text)")
    finally:
        page.call("Emulation.clearDeviceMetricsOverride")
    assert used > 0.8
    assert names == ["teacher", "student after", "student before"]


def test_a_run_that_has_just_started_has_a_page(page, demo, tmp_path):
    open_whole(page, write_report(demo, ["fresh"], tmp_path / "fresh.html"))
    assert_quiet(page)
    assert page.js("document.querySelector('h1').innerText") == "No evaluation has ended yet"


def test_the_foot_links_the_runs_flow_run(page, demo, tmp_path):
    address = "http://127.0.0.1:4200/runs/flow-run/7"
    open_whole(page, write_report(demo, ["fresh"], tmp_path / "r.html", flow_run=address))
    assert_quiet(page)
    assert page.js("document.querySelector('footer a').href") == address


def test_runs_are_compared(page, demo, tmp_path):
    open_whole(page, write_report(demo, ["demo", "other"], tmp_path / "both.html"))
    assert_quiet(page)
    at_equal_difficulty = (
        "(SELECT run, step, value FROM step_metrics WHERE name = '{}_equal_difficulty')".format
    )
    for figure, view, column in (
        ("compare-reward", at_equal_difficulty("env/all/reward/total"), "value"),
        ("compare-pass", at_equal_difficulty("env/all/tests_passed"), "value"),
        ("compare-kl", "teacher_kl_by_step", "k1"),
    ):
        for run in ("demo", "other"):
            found = rows(
                demo, f"SELECT {column} AS value FROM {view} WHERE run = '{run}' ORDER BY step"
            )
            assert traces(page, figure)[run]["y"] == pytest.approx([r["value"] for r in found])
    results = traces(page, "compare-result")["student after"]
    assert results["x"] == [
        demo.evaluation(f"{run}-student-{n}").pass_at_1
        for run, n in (("demo", 12), ("other", 8))
    ]
