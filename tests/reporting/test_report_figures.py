"""Every figure and table of the report, as drawn by a browser, agrees with the database."""

import itertools
import json
from collections import defaultdict
from collections.abc import Callable
from operator import itemgetter

import numpy as np
import pytest

from rtl_core.history.named_queries import named_query
from rtl_core.history.store import History
from tests.reporting.chromium import browser
from tests.reporting.report_tab import assert_quiet, cells, open_whole, rows, traces

COMPARED = {
    "result", "pass-at-k", "by-difficulty", "by-family", "reward", "equal-difficulty", "pass-rate", "outcomes", "rewards", "groups", "teacher-kl",
    "kl-position", "entropy", "health", "failure-flow", "by-problem", "held-out-time", "held-out-cost", "length", "loss", "gradient-norm", "curriculum",
    "episode-turns", "episode-endings", "episode-tools",
}  # fmt: skip
"""Figures that the tests below compare with the database; test_report_controls.py has those of controllers."""
PLACES = {
    "student before": ("student", 0),
    "student after": ("student", 12),
    "teacher": ("teacher", 0),
}
"""Name of a policy in the figures -> policy and step of its evaluation."""


@pytest.fixture(scope="module")
def drawn(path):
    """The report with all figures, in a tab that no test changes."""
    with browser() as tab:
        open_whole(tab, path)
        yield tab


def named(demo: History, name: str) -> list[dict]:
    query = named_query(name)
    return demo.query(query.sql, query.bind({}, "demo") or None).to_pylist()


def test_the_page_opens_without_errors_and_without_the_network(drawn):
    assert_quiet(drawn)
    script = "[...document.querySelectorAll('.plot')].map(p => [p.id, p.querySelectorAll('svg.main-svg').length])"
    found = drawn.js(script)
    assert {id_.removeprefix("plot-") for id_, _ in found} == COMPARED
    assert all(count > 0 for _, count in found), found


def test_the_headline_shows_the_evaluations(drawn, demo):
    before, after = (demo.evaluation(f"demo-student-{step}").pass_at_1 for step in (0, 12))
    said = f"Held-out pass@1 rose from {100 * before:.1f}\u00a0% to {100 * after:.1f}\u00a0%"
    assert drawn.js("document.querySelector('h1').innerText") == said
    shown = traces(drawn, "result")
    assert (shown["student before"]["x"], shown["student after"]["x"]) == ([before], [after])


def test_the_parts_of_the_gain_and_the_levels_equal_the_query(drawn, demo):
    found = named(demo, "what-rl-taught")
    shown = cells(drawn, "taught-causes")
    assert [row[0] for row in shown] == [r["part"] for r in found if r["kind"] == "cause"]
    for row, expected in zip(shown, found, strict=False):
        assert row[1:3] == [f"{100 * expected[name]:.1f} %" for name in ("before", "after")]
        assert (
            row[3] == f"{expected['points']:+.1f} [{expected['lo']:.1f}, {expected['hi']:.1f}]"
        )
        low, high = 100 * expected["share_lo"], 100 * expected["share_hi"]
        interval = "" if row[0] == "pass@1" else f" [{low:.0f}, {high:.0f}]"
        assert row[4] == f"{100 * expected['share']:.0f} %{interval}"
    levels = {row[0]: row[3] for row in cells(drawn, "taught-levels")}
    expected = {r["part"]: r for r in found if r["kind"] == "level"}
    assert levels == {
        part: f"{r['points']:+.1f} [{r['lo']:.1f}, {r['hi']:.1f}]"
        for part, r in expected.items()
    }
    before, after = (demo.evaluation(f"demo-student-{step}").pass_at_1 for step in (0, 12))
    assert found[4]["points"] == pytest.approx(100 * (after - before))


def test_pass_at_k_equals_the_query(drawn, demo):
    shown = traces(drawn, "pass-at-k")
    found = {(r["policy"], r["step"], r["k"]): r["pass_at_k"] for r in named(demo, "pass-at-k")}
    for name, place in PLACES.items():
        values = dict(zip(shown[name]["x"], shown[name]["y"], strict=True))
        assert {1, 2} <= values.keys()
        for k in values.keys() - {3}:  # the query has powers of two only
            assert values[k] == pytest.approx(found[*place, k])


@pytest.mark.parametrize("label", ["difficulty", "family"])
@pytest.mark.parametrize("who", PLACES)
def test_pass_by_label_equals_the_query(drawn, demo, label, who):
    policy, step = PLACES[who]
    sql = (
        f"SELECT {label} AS label, avg(rate) AS rate FROM (SELECT problem_id, passed / samples AS rate FROM evaluation_problems"
        f" WHERE evaluation = 'demo-{policy}-{step}') JOIN run_problems USING (problem_id) WHERE run = 'demo' GROUP BY {label}"
    )
    found = {r["label"]: r["rate"] for r in rows(demo, sql)}
    script = f"document.getElementById('plot-by-{label}').data.find(t => t.name === '{who}').customdata.map(c => c[0])"
    shown = dict(zip(drawn.js(script), traces(drawn, f"by-{label}")[who]["x"], strict=True))
    assert shown == pytest.approx(found)


def test_intervals_equal_the_recorded_ones(drawn, demo):
    script = "document.getElementById('plot-result').data.map(t => [t.name, t.x[0] - t.error_x.arrayminus[0], t.x[0] + t.error_x.array[0]])"
    found = {(e.policy, e.step): (e.lo, e.hi) for e in demo.evaluations("demo")}
    shown = {name: bounds for name, *bounds in drawn.js(script)}
    assert shown == {name: pytest.approx(list(found[place])) for name, place in PLACES.items()}


TRACES: list[tuple[str, str, str, Callable[[dict], float]]] = [
    ("reward", "total", "steps", lambda row: row["reward"]),
    ("outcomes", "passed", "steps", lambda row: row["pass_rate"]),
    (
        "equal-difficulty",
        "at equal difficulty",
        "equal-difficulty",
        lambda row: row["pass_rate_equal_difficulty"],
    ),
    ("equal-difficulty", "raw", "equal-difficulty", lambda row: row["pass_rate_raw"]),
    *(("teacher-kl", name, "teacher-kl", itemgetter(name)) for name in ("k1", "k2", "k3")),
    ("groups", "all good", "group-mix", lambda row: row["all_good"] / row["groups"]),
    ("groups", "mixed", "group-mix", lambda row: row["mixed"] / row["groups"]),
    ("groups", "all bad", "group-mix", lambda row: row["all_bad"] / row["groups"]),
    ("groups", "equal rewards", "group-mix", lambda row: row["no_signal"] / row["groups"]),
]
"""Figure, trace, named query with a row for each step, and the value of a row that is shown."""


@pytest.mark.parametrize(("figure", "trace", "query", "value"), TRACES)
def test_a_curve_equals_its_query(drawn, demo, figure, trace, query, value):
    shown, found = traces(drawn, figure)[trace], named(demo, query)
    assert shown["x"] == [row["step"] for row in found]
    assert shown["y"] == pytest.approx([value(row) for row in found])


def test_parts_add_up_to_the_whole(drawn):
    terms, outcomes = traces(drawn, "reward"), traces(drawn, "outcomes")
    parts = [terms[name]["y"] for name in ("format", "interface", "syntax", "tests")]
    assert np.sum(parts, axis=0) == pytest.approx(terms["total"]["y"])
    assert np.sum([trace["y"] for trace in outcomes.values()], axis=0) == pytest.approx(
        np.ones(12)
    )
    told = drawn.js("document.getElementById('equal-difficulty').innerText")
    assert "The raw curve (lighter) may fall while the student improves" in told


def test_pass_rate_by_difficulty_equals_the_query(drawn, demo):
    sql = (
        "SELECT step // 2 AS bin, difficulty, problem_id, avg((outcome = 'passed')::INT) AS rate FROM verdicts v"
        " JOIN run_problems p USING (run, problem_id) WHERE run = 'demo' AND purpose = 'train' GROUP BY ALL"
    )
    found = defaultdict(list)
    for r in rows(demo, sql):
        found[r["difficulty"], r["bin"]].append(r["rate"])
    for difficulty in ("easy", "medium", "hard"):
        expected = [np.mean(v) for (d, _), v in sorted(found.items()) if d == difficulty]
        assert traces(drawn, "pass-rate")[difficulty]["y"] == pytest.approx(expected)


def test_episodes_equal_the_query(drawn, demo):
    n = len(rows(demo, "FROM episodes WHERE run = 'demo'"))
    passed = len(rows(demo, "FROM episodes WHERE run = 'demo' AND passed"))
    assert 0 < passed < n
    for figure, place in (("episode-turns", 2), ("episode-endings", "submitted")):
        shown = traces(drawn, figure)
        assert [shown[name]["y"] for name in ("passed", "not passed")] == [
            [passed],
            [n - passed],
        ]
        assert shown["passed"]["x"] == [place]
    shown = traces(drawn, "episode-tools")
    assert shown["done"]["x"] == ["compile<br>100% failed", "submit<br>0% failed"]
    assert (shown["done"]["y"], shown["failed"]["y"]) == ([0, n], [n, 0])


def test_mistakes_equal_the_query(drawn, demo):
    found = {
        r["mistake"]: r["answers"]
        for r in rows(
            demo,
            "SELECT mistake, count(DISTINCT rollout) AS answers FROM named_mistakes WHERE run = 'demo' AND purpose = 'train' GROUP BY ALL",
        )
    }
    shown = {row[0]: int(row[3]) for row in cells(drawn, "named-mistakes")}
    assert shown == found


def test_tables_equal_the_queries(drawn, demo):
    times = {r["stage"]: r for r in named(demo, "time")}
    shown = cells(drawn, "time-table")
    assert {row[0].replace(" ", "_") for row in shown} == set(times)
    for stage, _, mean, share in shown:
        found = times[stage.replace(" ", "_")]
        assert (mean, share) == (f"{found['mean_s']:.2f} s", f"{found['share_of_total']:.1%}")
    solved = {
        r["problem_id"]
        for r in rows(
            demo,
            "SELECT problem_id FROM verdicts WHERE run = 'demo' AND outcome = 'passed' AND evaluation IS DISTINCT FROM 'demo-teacher-0'",
        )
    }
    never = {r["problem_id"] for r in named(demo, "never-solved")} - solved
    shown = [row[0] for row in cells(drawn, "never-solved")]
    assert never <= set(shown) or len(shown) == 12
    assert not solved & set(shown)
    unfit = {
        r["problem_id"]: r["status"]
        for r in named(demo, "validation")
        if not r["status"].startswith("fit")
    }
    shown = {row[0]: row[2] for row in cells(drawn, "harness-problems")}
    assert 0 < len(shown) <= len(unfit)
    assert shown.items() <= unfit.items()
    after = demo.evaluation("demo-student-12")
    rate = f"{100 * after.pass_at_1:.1f} % [{100 * after.lo:.1f}, {100 * after.hi:.1f}]"
    assert cells(drawn, "result-table")[1][1] == rate


def test_every_block_has_a_caption_and_its_sql(drawn, demo):
    found = drawn.js(
        "[...document.querySelectorAll('figure')].map(f => [f.id, f.querySelector('figcaption').firstChild.textContent,"
        " f.querySelector('details.sql pre').textContent])"
    )
    assert len(found) == 34
    for _id, caption, sql in found:
        assert len(caption) > 40
        for statement in filter(None, (part.strip() for part in sql.split(";\n"))):
            lines = statement.removesuffix(";").splitlines()
            params = dict(
                line.removeprefix("-- $").split(" = ", 1)
                for line in lines
                if line.startswith("-- $")
            )
            values = {name: json.loads(text.replace("'", '"')) for name, text in params.items()}
            demo.query(
                "\n".join(line for line in lines if not line.startswith("-- $")), values or None
            )


def test_the_flow_shows_both_evaluations_without_hairlines(drawn, demo):
    (sankey,) = drawn.js(
        "document.getElementById('plot-failure-flow').data.map(t => ({node: t.node, link: t.link}))"
    )
    labels, link = sankey["node"]["label"], sankey["link"]
    assert min(link["value"]) >= 0.007
    assert 0.9 < sum(link["value"]) < 1 + 1e-9
    assert not any(label.endswith(" 0%") for label in labels)
    for step, ends in ((0, link["source"]), (12, link["target"])):
        sql = (
            "SELECT coalesce(level, 'passed') AS level, count(*) / sum(count(*)) OVER () AS share FROM verdicts LEFT JOIN failure_levels USING"
            f" (rollout) WHERE verdicts.evaluation = 'demo-student-{step}' GROUP BY level"
        )
        shares = {r["level"].removeprefix("wrong in "): r["share"] for r in rows(demo, sql)}
        rare = sum(share for level, share in shares.items() if share < 0.025)
        shown = dict(labels[end].rsplit(" ", 1) for end in ends)
        assert "passed" in shown
        for level, share in shown.items():
            assert share == f"{shares.get(level, rare):.0%}"
        assert {level for level, share in shares.items() if share >= 0.04} <= shown.keys()
    drawn_names = drawn.js(
        "[...document.querySelectorAll('#plot-failure-flow .node-label')].map(t => t.textContent)"
    )
    assert sorted(drawn_names) == sorted(labels)


def test_the_histogram_of_rewards_counts_every_answer_once(drawn, demo):
    shown = traces(drawn, "rewards")
    for epoch in range(3):
        sql = f"SELECT total FROM rewards WHERE run = 'demo' AND purpose = 'train' AND epoch = {epoch}"
        totals = np.array([r["total"] for r in rows(demo, sql)])
        bars = shown[f"epoch {epoch + 1}"]
        assert sum(bars["y"]) == pytest.approx(1)
        for reward, share in zip(bars["x"], bars["y"], strict=True):
            assert np.mean(np.abs(totals - reward) <= 0.05 + 1e-9) == pytest.approx(share)


def test_a_dot_stands_for_each_problem_before_and_after(drawn, demo):
    sql = "SELECT problem_id, passed FROM evaluation_problems WHERE evaluation = 'demo-student-{}'"
    was, now = (
        {r["problem_id"]: r["passed"] for r in rows(demo, sql.format(step))} for step in (0, 12)
    )
    script = "document.getElementById('plot-by-problem').data.filter(t => t.ids).map(t => [t.name, t.ids, t.x, t.y])"
    told = drawn.js(script)
    assert sum(len(problems) for _, problems, _, _ in told) == len(was) == len(now)
    for name, problems, x, y in told:
        side, n = name.split(": ")
        assert int(n) == len(problems)
        for problem, across, up in zip(problems, x, y, strict=True):
            order = np.sign(now[problem] - was[problem])
            assert {"worse": -1, "the same": 0, "better": 1}[side] == order
            assert (across, up) == pytest.approx((was[problem] / 4, now[problem] / 4), abs=0.08)


def test_pass_at_1_is_drawn_against_what_the_steps_before_took(drawn, demo):
    rates = [demo.evaluation(f"demo-student-{step}").pass_at_1 for step in (0, 12)]
    (seconds,) = rows(
        demo,
        "SELECT sum(seconds) AS s FROM step_times WHERE run = 'demo' AND stage = 'total'",
    )
    cost = sum(0.25 * (1 + step) for step in range(12))
    for against, total in (("time", seconds["s"]), ("cost", cost)):
        shown = traces(drawn, f"held-out-{against}")["student"]
        assert shown["x"] == [0, pytest.approx(total)]
        assert shown["y"] == rates
    axes = "['time', 'cost'].map(a => document.getElementById('plot-held-out-' + a).layout.xaxis.title.text)"
    assert drawn.js(axes) == ["seconds of training", "US dollars"]


def test_lengths_loss_and_gradient_norm_equal_the_records(drawn, demo):
    sql = (
        "SELECT median(n_tokens) AS middle, avg(CAST(stop_reason = 'length' AS INTEGER)) AS cut FROM rollouts"
        " WHERE run = 'demo' AND purpose = 'train' GROUP BY step ORDER BY step"
    )
    found, shown = rows(demo, sql), traces(drawn, "length")
    assert shown["median"]["y"] == [r["middle"] for r in found]
    if any(r["cut"] for r in found):
        assert shown["cut at the token limit"]["y"] == pytest.approx([r["cut"] for r in found])
    metrics = demo.step_metrics("demo", 0, 11)
    loss = [
        metrics[step]["service/loss:sum"] / metrics[step]["service/tokens:sum"]
        for step in range(12)
    ]
    assert traces(drawn, "loss")["loss"]["y"] == pytest.approx(loss)
    norms = [metrics[step]["service/grad_norm:mean"] for step in range(12)]
    assert traces(drawn, "gradient-norm")["gradient norm"]["y"] == norms


def test_the_kl_by_position_equals_the_token_arrays(drawn, demo):
    shown = traces(drawn, "kl-position")["last quarter"]
    k_by_position = defaultdict(list)
    for step in (9, 10, 11):
        for s in demo.rollouts_of("demo", step):
            for i, (a, b) in enumerate(
                zip(s.rollout.logprobs_T, s.teacher.logprobs_T, strict=True)
            ):
                k_by_position[i + 1].append(a - b)
    assert shown["x"] == [
        p
        for p in sorted(k_by_position)
        if len(k_by_position[p]) >= 0.05 * len(k_by_position[1])
    ]
    assert shown["y"] == pytest.approx(
        [np.mean(k_by_position[p]) for p in shown["x"]], abs=1e-5
    )


def test_the_curriculum_equals_the_query(drawn, demo):
    (shown,) = traces(drawn, "curriculum").values()
    sql = "SELECT problem_id, epoch, sum(passed) / sum(samples) AS share FROM group_record WHERE run = 'demo' GROUP BY ALL"
    found = {(r["problem_id"], f"epoch {r['epoch'] + 1}"): r["share"] for r in rows(demo, sql)}
    places, shares = itertools.product(shown["y"], shown["x"]), itertools.chain(*shown["z"])
    filled = {
        (x, y): share for (y, x), share in zip(places, shares, strict=True) if share is not None
    }
    assert filled == pytest.approx(found)
