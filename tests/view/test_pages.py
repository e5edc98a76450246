"""The pages show the data of the history, escape model texts, and accept only local requests."""

import html
import itertools
import json
import re
from dataclasses import replace
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from fastapi.testclient import TestClient

from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.view import failures
from rtl_core.view.links import link, rollout_link
from rtl_core.view.questions import Filters, count, rollouts
from rtl_core.view.server import create_app
from rtl_core.view.tokens import overlays
from rtl_grader.http_server import listen
from tests import synthetic


def keys(demo: History, sql: str) -> list[str]:
    return demo.query(sql).column(0).to_pylist()


def hrefs(page: str, path: str) -> list[str]:
    addresses = map(html.unescape, re.findall(r'href="([^"]*)"', page))
    return [address for address in addresses if urlsplit(address).path == path]


def traces(page: str) -> list[dict]:
    """The traces of all figures of a page."""
    figures = re.findall(r'data-figure="([^"]*)"', page)
    return [trace for figure in figures for trace in json.loads(html.unescape(figure))["data"]]


@pytest.mark.slow
def test_every_link_on_every_page_works(view):
    seen, todo, kinds = set(), ["/"], set()
    while todo:
        address = todo.pop().split("#")[0]
        path = urlsplit(address).path
        # Three pages of each path and set of parameters are enough.
        kind = path, tuple(sorted(parse_qs(urlsplit(address).query)))
        if address in seen or sum(k == kind for k, _ in kinds) >= 3:
            continue
        seen.add(address)
        kinds.add((kind, address))
        answer = view.get(address)
        assert answer.status_code == 200, address
        if "text/html" in answer.headers["content-type"]:
            todo += list(
                map(html.unescape, re.findall(r'(?:href|src)="(/[^"]*)"', answer.text))
            )
            todo += [there for trace in traces(answer.text) for there in trace.get("links", ())]
    paths = {
        "/",
        "/run",
        "/step",
        "/group",
        "/rollouts",
        "/rollout",
        "/wrong",
        "/mistakes",
        "/static/view.js",
    }
    assert {path for (path, _), _ in kinds} >= paths


def test_model_text_stays_text_on_every_page(view, demo):
    first = "SELECT rollout FROM {} WHERE run = 'demo' AND {} LIMIT 1".format
    (hostile,) = keys(demo, first("rollouts", "contains(text, 'pwned') AND purpose = 'train'"))
    (failed,) = keys(demo, first("verdicts", "outcome = 'tests_failed'"))
    (episode,) = keys(demo, first("episodes", "true"))
    stored = demo.find_rollout(hostile).rollout
    pages = [
        rollout_link(episode),
        rollout_link(hostile), rollout_link(hostile, against="golden"), rollout_link(hostile, against="passing"), rollout_link(failed),
        link("/group", run="demo", step=stored.step, problem=stored.problem_id), link("/wrong", run="demo"),
        link("/rollouts", run="demo", q="</script><script>window.pwned"), link("/rollouts", run="demo", check='"><script>x'),
    ]  # fmt: skip
    for address in pages:
        page = view.get(address).text
        assert "pwned" in page or "/rollout?" not in address, address
        assert not re.search(r"<script(?! src=\"/static/)", page), address
        assert not re.search(r"<img|onerror=\"", page), address
        assert "\x1b" not in page
        assert "\u2028" not in page


def test_the_page_of_a_run_names_both_models_apart(view, demo):
    run = demo.existing_run("demo")
    assert f"{run.student}, taught by {run.teacher} " in view.get("/run?run=demo").text


def test_the_page_of_a_run_links_to_the_console_of_its_service(view, demo):
    assert "console" not in view.get("/run", params={"run": "other"}).text
    url = "https://tinker.thinkingmachines.ai/training_runs/s:train:1"
    demo.record_console("fresh", url)
    page = view.get("/run", params={"run": "fresh"}).text
    assert f'<a href="{url}">' in page


def test_an_episode_is_shown_turn_by_turn_with_failures_in_red(view, demo):
    key = keys(demo, "SELECT rollout FROM episodes WHERE run = 'demo' LIMIT 1")[0]
    page = html.unescape(view.get(rollout_link(key)).text)
    assert (
        "2 turns, 17 tokens written, 2 calls (1 failed), 2.0 s model, 0.5 s tools, ended: submitted"
        in page
    )
    assert re.findall(r'<b>turn (\d)</b> <span class="muted small">(.*?)</span>', page) == [
        ("1", "12 tokens in 1.5 s"), ("2", "5 tokens in 0.5 s"),
    ]  # fmt: skip
    assert re.findall(r'<div class="(call.*?)"><p><code>(\w+)', page) == [
        ("call bad", "compile"),
        ("call", "submit"),
    ]
    assert "iverilog: failed with exit code 2" in page
    assert (
        "episode of 2 turns, ended: submitted"
        in view.get(link("/rollouts", run="demo", purpose="episodes")).text
    )


def test_scripts_and_styles_come_only_from_the_view(view):
    policy = view.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    page = view.get("/run?run=demo").text
    assert not re.search(
        r"\sstyle=|\son\w+=|<style|https?://", page.replace("http://127.0.0.1", "")
    )


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "10.0.0.1"]
)
def test_a_request_for_another_host_is_refused(view, host):
    for address in ("/", "/stamp", "/static/view.js"):
        assert view.get(address, headers={"host": host}).status_code == 400


def test_it_listens_on_loopback_and_reports_a_port_that_is_in_use():
    with listen("127.0.0.1", 0) as first:
        host, port = first.getsockname()
        assert host == "127.0.0.1"
        with pytest.raises(ConfigError, match="cannot listen"):
            listen("127.0.0.1", port)


def test_another_website_cannot_start_a_simulator(view, demo):
    key = keys(demo, "SELECT rollout FROM verdicts WHERE outcome = 'tests_failed' LIMIT 1")[0]
    assert view.post("/waves", json={"key": key}).status_code == 403
    assert view.get("/waves").status_code == 405


def test_a_missing_waveform_is_explained(view, demo):
    key = keys(
        demo,
        "SELECT rollout FROM verdicts WHERE run = 'demo' AND outcome = 'no_answer' LIMIT 1",
    )[0]
    answer = view.post("/waves", json={"key": key}, headers={"x-rtl-distill-view": "1"})
    assert answer.status_code == 200
    assert "cannot be used here" in answer.text  # the synthetic run has no configuration


FILTERS = {
    "outcome=timeout": "SELECT rollout FROM verdicts WHERE run = 'demo' AND outcome = 'timeout'",
    "outcome=failed": "SELECT rollout FROM verdicts WHERE run = 'demo' AND outcome <> 'passed'",
    "outcome=wrong+in+most+checks": "SELECT rollout FROM failure_levels WHERE run = 'demo' AND level = 'wrong in most checks'",
    "mistake=extra_port": "SELECT DISTINCT rollout FROM interface_mismatches WHERE run = 'demo' AND kind = 'extra_port'",
    "mistake=extra_port:din": "SELECT DISTINCT rollout FROM interface_mismatches WHERE run = 'demo' AND kind = 'extra_port' AND name = 'din'",
    "family=mux": "SELECT rollout FROM rollouts WHERE run = 'demo' AND contains(problem_id, '_mux_')",
    "step=3&purpose=train": "SELECT rollout FROM rollouts WHERE run = 'demo' AND step = 3 AND purpose = 'train'",
    "step=0": "SELECT rollout FROM rollouts WHERE run = 'demo' AND step = 0 AND evaluation IS NULL AND purpose = 'train'",
    "step=2-4&purpose=train": "SELECT rollout FROM rollouts WHERE run = 'demo' AND step BETWEEN 2 AND 4 AND purpose = 'train'",
    "q=PWNED": "SELECT rollout FROM rollouts WHERE run = 'demo' AND contains(text, 'pwned')",
    "q=100%25": "SELECT rollout FROM rollouts WHERE false",
    "check=expected+3": "SELECT rollout FROM verdicts WHERE run = 'demo' AND outcome <> 'passed'",
    "doubt=audit": "SELECT rollout FROM audits",
    "doubt=regrade": "SELECT rollout FROM regrades",
    "purpose=episodes": "SELECT DISTINCT rollout FROM messages WHERE starts_with(rollout, 'demo/')",
    "purpose=episodes:+submitted": "SELECT DISTINCT rollout FROM messages WHERE starts_with(rollout, 'demo/')",
    "purpose=episodes:+cut": "SELECT rollout FROM rollouts WHERE false",
}


@pytest.mark.parametrize("asked", FILTERS)
def test_a_list_contains_the_rollouts_that_match_its_filters(view, demo, asked):
    expected = set(keys(demo, FILTERS[asked]))
    address, found = f"/rollouts?run=demo&{asked}", set()
    while address:
        page = view.get(address).text
        assert f"<h1>{len(expected):,} rollout" in page
        found |= {parse_qs(urlsplit(a).query)["key"][0] for a in hrefs(page, "/rollout")}
        more = re.search(r'rel="next" href="([^"]*)"', page)
        address = html.unescape(more[1]) if more else ""
    assert found == expected


def test_the_pages_of_a_list_contain_each_rollout_once(demo):
    every = [
        row["rollout"]
        for page in range(20)
        for row in rollouts(demo, Filters(run="demo", page=page))
    ]
    assert len(every) == len(set(every)) == count(demo, Filters(run="demo"))


def test_a_rollout_shows_verdict_reward_and_the_kl_of_each_token(view, demo):
    sql = "SELECT rollout FROM verdicts WHERE run = 'demo' AND outcome = 'tests_failed' AND purpose = 'train' LIMIT 1"
    stored = demo.find_rollout(*keys(demo, sql))
    page = view.get(rollout_link(stored.rollout.key)).text
    assert html.escape(stored.verdict.reasons[0]) in page
    assert f"{stored.reward.total:.3f}" in page
    told = [float(v) for v in re.findall(r"teacher KL ([+-][\d.]+)", page)]
    k_T = [
        s - q for s, q in zip(stored.rollout.logprobs_T, stored.teacher.logprobs_T, strict=True)
    ]
    assert told == pytest.approx(k_T, abs=6e-4)


def test_a_token_shows_what_the_teacher_would_have_written(view, demo):
    row = demo.query("SELECT * FROM teacher_choices JOIN tokens USING (rollout) WHERE tokens[1] <> tokens_T[position + 1] LIMIT 1").to_pylist()[0]  # fmt: skip
    page = html.unescape(view.get(rollout_link(row["rollout"])).text)
    assert len(row["tokens"]) == 3
    at = page.index(f"token {row['position']}, number {row['tokens_T'][row['position']]}")
    assert re.match(
        r"[^>]*\nthe teacher would have written `[^`]*`, 0\.19; or `", page[at:], re.DOTALL
    )


def test_an_overlay_without_data_explains_why(view, demo):
    evaluated = keys(
        demo,
        "SELECT rollout FROM rollouts WHERE run = 'demo' AND purpose = 'evaluation' LIMIT 1",
    )[0]
    trained = keys(
        demo, "SELECT rollout FROM rollouts WHERE run = 'demo' AND purpose = 'train' LIMIT 1"
    )[0]
    assert (
        "the teacher has not scored this answer"
        in view.get(rollout_link(evaluated, overlay="kl")).text
    )
    assert "was not trained on" in view.get(rollout_link(evaluated, overlay="mismatch")).text
    assert "was not trained on" not in view.get(rollout_link(trained, overlay="mismatch")).text
    assert "was not trained on" in view.get(rollout_link(evaluated, overlay="mask")).text


def test_tokens_of_tools_are_not_in_the_loss(demo):
    key = keys(demo, "SELECT rollout FROM advantages WHERE run = 'demo' AND counts LIMIT 1")[0]
    stored = demo.rollout(key)
    own_T = tuple(i % 2 == 0 for i in range(len(stored.rollout.tokens_T)))
    rollout = stored.rollout.model_copy(update={"own_T": own_T})
    mask = overlays(demo, replace(stored, rollout=rollout), {})["mask"]
    assert tuple(mask.values == -1) == own_T


def test_the_page_on_failures_agrees_with_the_history(view, demo):
    failed = keys(
        demo,
        "SELECT outcome FROM verdicts WHERE run = 'demo' AND purpose = 'train' AND outcome <> 'passed'",
    )
    for row in failures.flips(demo, "demo"):
        passed = [visit["passed"] > 0 for visit in row["record"]]
        assert row["lost"] == sum(a and not b for a, b in itertools.pairwise(passed))
    page = view.get("/mistakes?run=demo").text
    lists = [address for address in hrefs(page, "/rollouts") if "outcome=" in address]
    assert sum(
        count(demo, Filters(**dict(parse_qsl(urlsplit(address).query)))) for address in lists
    ) == len(failed)
    page = view.get("/wrong?run=demo").text
    assert "result is 3, golden 4" in page
    assert "seed 7" in page
    assert any("doubt=regrade" in address for address in hrefs(page, "/rollouts"))


def test_the_points_of_the_figures_link_to_what_they_stand_for(view, demo):
    found = traces(view.get("/run?run=demo").text)
    for trace in found:
        assert len(trace.get("links", trace["x"])) == len(trace["x"])
    rates = {
        there: y
        for trace in found
        for there, y in zip(trace.get("links", ()), trace["y"], strict=False)
    }
    records = {
        link("/step", run="demo", evaluation=e.key): e.pass_at_1
        for e in demo.evaluations("demo")
    }
    assert {
        there: rate for there, rate in rates.items() if "evaluation=" in there
    }.items() <= records.items()
    assert {link("/step", run="demo", step=step) for step in range(12)} <= rates.keys()
    for trace in traces(view.get("/wrong?run=demo").text):
        for there, n in zip(trace["links"], trace["customdata"], strict=True):
            assert count(demo, Filters(**dict(parse_qsl(urlsplit(there).query)))) == n, there
    both = {trace["name"] for trace in traces(view.get("/?runs=demo&runs=other").text)}
    assert {"demo", "other", "demo: teacher"} <= both
    assert not any("raw" in name for name in both)


def test_only_pages_with_figures_load_plotly(view):
    loaded = {
        path: "/static/plotly.js" in view.get(path).text
        for path in ("/", "/run?run=demo", "/wrong?run=demo", "/rollouts?run=demo")
    }
    assert loaded == {
        "/": True,
        "/run?run=demo": True,
        "/wrong?run=demo": True,
        "/rollouts?run=demo": False,
    }
    assert "nothing recorded yet" in view.get("/run?run=fresh").text
    assert "Plotly" in view.get("/static/plotly.js").text


def test_a_page_changes_with_the_history(tmp_path):
    history = synthetic.write_run(tmp_path / "h.duckdb", "demo", synthetic.Shape(steps=1))
    client = TestClient(
        create_app(History(history.path, read_only=True)), base_url="http://localhost"
    )
    stamp, page = client.get("/stamp").json(), client.get("/").text
    assert client.get("/stamp").json() == stamp
    synthetic.write_run(history.path, "second", synthetic.Shape(steps=1))
    assert client.get("/stamp").json() != stamp
    assert "second" not in page
    assert "second" in client.get("/").text


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/run?run=nobody", 404, "there is no run"),
        ("/rollout?key=nobody", 404, "there is no rollout"),
        ("/step?run=demo&step=999", 404, "no rollouts"),
        ("/step?run=demo&step=x", 400, "a step is a number"),
        ("/rollouts?run=demo&step=x", 404, "is not a step"),
        ("/rollouts?run=demo&page=-1", 400, "is not valid"),
        ("/group?run=demo&problem=nobody&step=1", 404, "no rollouts"),
        ("/run", 400, "is not valid"),
        ("/nothing", 404, "Not Found"),
        ("/run?run=" + "x" * 500, 400, "is not valid"),
        ("/rollout?key='; DROP TABLE runs; --", 404, "there is no rollout"),
    ],
)
def test_an_invalid_address_gives_a_readable_error(view, address, status, words):
    answer = view.get(address)
    assert answer.status_code == status
    assert words in html.unescape(answer.text)
    assert "Traceback" not in answer.text
