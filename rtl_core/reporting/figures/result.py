"""Did it learn? Held-out problems: before, after, teacher."""

from __future__ import annotations

from functools import partial

from rtl_core.learning.intervals import mean_interval
from rtl_core.learning.passk import pass_at_k_interval
from rtl_core.reporting.blocks import (
    Block,
    Figure,
    Source,
    Table,
    band,
    draw,
    plain,
    rates,
)
from rtl_core.reporting.evaluations import (
    MIXTURE,
    PROBLEMS_SQL,
    ROLES,
    over_warm_start,
)
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.figures.by_problem import by_problem
from rtl_core.reporting.figures.held_out import Against, held_out
from rtl_core.reporting.text import BY_P
from rtl_core.reporting.theme import PERCENT, Spec, axis, dots, layout
from rtl_grader.words import counted

_KS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
_RATES = """
SELECT evaluation, policy, step, pass_at_1, lo, hi FROM evaluations
WHERE run = $run AND status = 'done'
"""
_BY_LABEL = """
SELECT p.evaluation, coalesce(r.{label}, r.category) AS label, list(p.passed / p.samples ORDER BY problem_id) AS rates
FROM evaluation_problems p JOIN evaluations e USING (evaluation) JOIN run_problems r USING (problem_id)
WHERE p.run = $run AND r.run = $run AND p.samples = e.samples AND list_contains($evaluations, p.evaluation)
GROUP BY p.evaluation, label
"""
_PASS_AT_K = """
SELECT evaluation, policy, step, pass_at_k FROM evaluations WHERE run = $run AND status = 'done'
"""


@SECTIONS.register("learned")
@section(
    "Did it learn?",
    "Held-out problems, before and after training, with the teacher for comparison.",
    place=10,
)
def blocks(source: Source) -> list[Block]:
    run = source.history.existing_run(source.run)
    if not source.result.views or run.setting("run", "purpose") == "evaluation":
        return []
    # Two evaluations by step are those of the first figure.
    least: dict[Against, int] = {"step": 3, "time": 2, "cost": 2}
    curves = [
        partial(held_out, against=against)
        for against, evaluations in least.items()
        if len(source.result.student) >= evaluations
    ]
    return [
        *draw(source, forest, pass_at_k, table, by_problem),
        *draw([source], *curves),
        *draw(source, by_difficulty, by_family),
    ]


def forest(source: Source) -> Figure:
    data, result = [], source.result
    views = [(label, *named) for label, part in result.parts for named in part.views]
    for label, name, view in reversed(views):
        row = f"{label}: {name}" if label and len(result.views) > 1 else label or name
        rate = view.pass_at_1
        interval = f"[{100 * rate.lo:.1f}, {100 * rate.hi:.1f}]"
        data.append(
            rates(
                plain(row),
                [rate],
                [plain(row)],
                ROLES[name],
                f"%{{y}}: %{{x:.1%}} {interval}<extra></extra>",
                size=13,
                mode="markers+text",
                text=[f"{100 * rate.mean:.1f} %"],
                # Beside the gridlines of 0, 50 and 100 %, which would run through the number.
                textposition="top left" if rate.mean > 0.5 else "top right",
                textfont={"size": 13, "color": "@ink"},
            )
        )
    record = result.views[0][1].record
    source.ask(_RATES)
    return Figure(
        "result",
        "Held-out pass@1",
        f"Share of answers that pass the whole harness, on {counted(record.n_problems, 'problem')} "
        "that are not in training, "
        f"{counted(record.samples, 'sample')} each, {record.kind}. Bars: 95 % interval over problems (Student's "
        "t on per-problem rates)." + (f" {MIXTURE}" if result.mixed else ""),
        data,
        dots(
            yaxis={"range": [-0.6, len(data) - 0.3]},
            showlegend=False,
            margin={"t": 8, "l": 220 if result.mixed else 110},
        ),
        height=210 + 40 * max(0, len(data) - 3),
    )


def table(source: Source) -> Table:
    result = source.result
    ks, rows = result.ks, []
    for label, part in result.parts:
        for name, view in part.views:
            where = [label, str(view.record.n_problems)] if label else []
            rows.append([*where, name, *part.cells(view, ks)])
    passes = "".join(f" | pass@{k}:" for k in ks)
    header = f"policy | pass@1:{passes} | interface right: | gain in points: | p:"
    source.ask(_PASS_AT_K)
    source.ask("SELECT * FROM evaluation_problems WHERE run = $run")
    caption = (
        "Brackets: 95 % intervals. Gain and p compare with the student before, paired by problem: "
        f"bootstrap interval, two-sided sign-flip permutation test. {BY_P}",
        MIXTURE if result.mixed else None,
        over_warm_start(result),
    )
    return Table(
        "result-table",
        "Results in numbers",
        " ".join(filter(None, caption)),
        f"source | problems: | {header}" if result.mixed else header,
        rows,
    )


def pass_at_k(source: Source) -> Figure | None:
    """pass@k for every k that the samples allow."""
    data: list[Spec] = []
    result = source.result
    for name, view in result.views:
        source.ask(PROBLEMS_SQL, evaluation=view.record.key)
        if not view.counts:
            continue
        counts = view.counts.values()
        least, _ = min(counts)
        ks = sorted(k for k in {*_KS, *view.record.pass_at_k} if k <= least)
        intervals = [pass_at_k_interval(counts, k) for k in ks]
        data += band(ks, intervals, name, ROLES[name], markers=True)
    if not data or max(max(d["x"]) for d in data) < 2:
        return None
    ticks = sorted({k for d in data for k in d["x"]})
    return Figure(
        "pass-at-k",
        "pass@k",
        "Probability that at least one of k answers passes: the unbiased estimate 1 − C(n−c, k) / "
        "C(n, k) of each problem, then the mean "
        "over problems with its 95 % interval."
        + " Where the curves meet, training only made correct answers more frequent."
        * (result.before is not None),
        data,
        layout(
            showlegend=len(result.views) > 1,
            xaxis=axis("k", type="log", tickvals=ticks, ticktext=[str(t) for t in ticks]),
            yaxis=axis("pass@k", **PERCENT),
        ),
    )


def by_difficulty(source: Source) -> Figure | None:
    return _by_label(source, "difficulty")


def by_family(source: Source) -> Figure | None:
    return _by_label(source, "family")


def _by_label(source: Source, label: str) -> Figure | None:
    names = {view.record.key: name for name, view in source.result.views}
    rows = source.ask(_BY_LABEL.format(label=label), evaluations=list(names))
    intervals = {(names[r["evaluation"]], r["label"]): mean_interval(r["rates"]) for r in rows}
    groups = sorted({group for _, group in intervals})
    if label == "difficulty":
        groups = [g for g in ("hard", "medium", "easy") if g in groups]
    if len(groups) < 2:
        return None
    if label != "difficulty":
        newest = [*names.values()][:2][-1]
        means = {group: i.mean for (name, group), i in intervals.items() if name == newest}
        groups.sort(key=lambda group: means.get(group, 0.0))
    data = []
    for place, name in enumerate(names.values()):
        # One above the other within the row, in reading order.
        lift = 0.2 * ((len(names) - 1) / 2 - place)
        points = [
            (i + lift, plain(group), intervals[name, group])
            for i, group in enumerate(groups)
            if (name, group) in intervals
        ]
        data.append(
            rates(
                name,
                [rate for _, _, rate in points],
                [y for y, _, _ in points],
                ROLES[name],
                f"%{{customdata[0]}}: %{{x:.1%}} [%{{customdata[1]:.0%}}, "
                f"%{{customdata[2]:.0%}}], %{{customdata[3]}} problems<extra>{name}</extra>",
                customdata=[[group, rate.lo, rate.hi, rate.n] for _, group, rate in points],
            )
        )
    return Figure(
        f"by-{label}",
        f"Held-out pass@1 by {label}",
        "Mean over the problems of each row, with 95 % intervals over problems (Wilson's where "
        "all problems have the same rate).",
        data,
        dots(
            showlegend=len(names) > 1,
            yaxis={
                "tickvals": list(range(len(groups))),
                "ticktext": [plain(g) for g in groups],
                "range": [-0.6, len(groups) - 0.4],
                "tickfont": {"size": 12},
                "showgrid": False,
            },
        ),
        height=130 + max(3, len(groups)) * (40 if label == "difficulty" else 24),
    )
