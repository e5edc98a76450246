"""Is the run healthy, and what did its controllers do? λ, cut and repeated answers, staleness, pools, safe ranges, set-aside groups.

Each block is drawn from metrics that the steps recorded; what a run did not record, or never needed, is left out.
"""

from __future__ import annotations

import json

from rtl_core.reporting.blocks import Block, Figure, Source, Table, draw
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.figures.distillation import metric
from rtl_core.reporting.theme import PERCENT, axis, layout


@SECTIONS.register("control")
@section("Is it healthy?", "What a run should keep an eye on, and what its controllers did.", place=50)
def blocks(source: Source) -> list[Block]:
    """Sampler against trainer, answers, λ, staleness, ranges, set-aside groups."""
    return draw(source, drift, answers, kl_weight, staleness, ranges, set_aside)


def drift(source: Source) -> Figure:
    """Sampler against trainer, with the border of what is healthy."""
    return metric(
        source,
        "health",
        "optim/kl_sample_train_v1",
        "Sampler against trainer",
        "Mean difference of the log-probabilities that sampler and trainer give the same tokens, in nats. Healthy is under "
        "0.01 (dotted); more says that the weights that sample are not the ones that train.",
        "@line3",
        limit=0.01,
    )


def kl_weight(source: Source) -> Figure:
    """λ by step, beside the KL that it answers to; only where it moved."""
    data = source.curves(
        ("learning/kl_weight", "λ", "@teacher", "%{y:.3g}", {"width": 2.4}),
        ("teacher_kl", "teacher KL", "@line0", "%{y:.4f}", {"width": 1.6, "dash": "dot", "yaxis": "y2"}),
    )
    moved = any(trace["name"] == "λ" and len(set(trace["y"])) > 1 for trace in data)
    return Figure(
        "kl-weight",
        "λ, the weight of the KL",
        f"What a token pays for each nat that it is off the teacher, as scheduled or controlled; {source.binned()}.",
        data if moved else [],
        layout(
            xaxis=axis("train steps"), yaxis=axis("λ", rangemode="tozero"), margin={"r": 60},
            yaxis2=axis("nats per token", overlaying="y", side="right", rangemode="tozero", showgrid=False, tickfont={"color": "@muted", "size": 11.5}),
        ),
    )  # fmt: skip


def answers(source: Source) -> Figure:
    """Shares that should stay small."""
    data = source.curves(
        ("env/all/truncated", "cut at the token limit", "@bad", "%{y:.1%}"),
        ("env/all/duplicates", "equal to an earlier one of the group", "@mixed", "%{y:.1%}"),
        ("groups/no_signal", "groups that teach nothing", "@slow", "%{y:.1%}"),
        cliponaxis=False,
    )
    return Figure(
        "answers-health",
        "Cut, repeated, useless",
        "Shares that should stay small: answers cut at the token limit, answers equal to an earlier one of their group, and groups whose "
        f"equal rewards teach nothing but the KL. {source.binned().capitalize()}.",
        data,
        layout(xaxis=axis("train steps"), yaxis=axis("share", **PERCENT)),
    )


def staleness(source: Source) -> Figure:
    """How many train steps the sampling weights were behind; only where they ever were."""
    oldest = ("staleness/max", "oldest", "@muted", "%{y:.2f}", {"dash": "dot"})
    data = source.curves(("staleness/mean", "mean", "@after", "%{y:.2f}"), oldest)
    return Figure(
        "staleness",
        "Staleness",
        f"Train steps between the weights that sampled an answer and those that it trains; {source.binned()}.",
        data if any(any(trace["y"]) for trace in data) else [],
        layout(xaxis=axis("train steps"), yaxis=axis("steps behind", rangemode="tozero")),
        height=260,
    )


def pools(source: Source) -> Figure:
    """How the problems move between the curriculum's pools."""
    roles = {"easy": "@easy", "normal": "@medium", "hard": "@hard", "resting": "@silent"}
    lines = ((f"curriculum/{pool}", pool, role, "%{y:.0f}") for pool, role in roles.items())
    return Figure(
        "pools",
        "Pools of the curriculum",
        "Problems in each pool when a step was drawn, by what the run has measured of them; those that rest are not drawn. "
        f"{source.binned().capitalize()}.",
        source.curves(*lines, width=0.8, stackgroup="pools"),
        layout(xaxis=axis("train steps"), yaxis=axis("problems", rangemode="tozero")),
        wide=True,
    )


def ranges(source: Source) -> Table:
    """The safe ranges that the run was given, and how its metrics kept to them."""
    (run,) = source.ask("SELECT config FROM runs WHERE run = $run")
    limits = ((json.loads(run["config"] or "{}").get("health") or {}).get("ranges")) or {}
    rows = []
    for name, limit in sorted(limits.items()):
        lowest, highest = (None if limit.get(end) is None else float(limit[end]) for end in ("min", "max"))
        outside = ["isnan(value)"]
        outside += [f"value {sign} {end!r}" for sign, end in (("<", lowest), (">", highest)) if end is not None]
        (found,) = source.ask(
            "SELECT arg_max(value, step) AS last, min(value) AS lowest, max(value) AS highest, count(*) AS steps,"
            f" count(*) FILTER (WHERE {' OR '.join(outside)}) AS outside FROM step_metrics WHERE run = $run AND name = $name",
            name=name,
        )
        bounds = (
            f"{'−∞' if lowest is None else format(lowest, 'g')} to {'∞' if highest is None else format(highest, 'g')}"
        )
        cells = [_number(found[c]) for c in ("last", "lowest", "highest")]
        rows.append([name, bounds, *cells, f"{found['outside']} of {found['steps']}"])
    return Table(
        "safe-ranges",
        "Safe ranges",
        "What the configuration calls healthy (health.ranges), and what the steps measured. A run that leaves a range for "
        "health.patience steps in a row stops.",
        [("metric", "code"), ("range", "right"), ("last", "right"), ("lowest", "right"), ("highest", "right"), ("steps outside", "right")],
        rows,
    )  # fmt: skip


def set_aside(source: Source) -> Table:
    """Groups that were replaced or quarantined, where there were any."""
    rows = source.ask(
        "SELECT name, sum(value) AS groups, count(*) FILTER (WHERE value > 0) AS steps, max(step) FILTER (WHERE value > 0) AS last"
        " FROM step_metrics WHERE run = $run AND name IN ('groups/replaced', 'groups/quarantined') GROUP BY name"
        " HAVING sum(value) > 0 ORDER BY name"
    )
    words = {
        "groups/replaced": "replaced: equal rewards taught nothing",
        "groups/quarantined": "quarantined: grading kept failing",
    }
    return Table(
        "set-aside",
        "Groups set aside",
        "Groups that were sampled and then replaced or set aside.",
        [("why", "left"), ("groups", "right"), ("in steps", "right"), ("last step", "right")],
        [[words[r["name"]], f"{r['groups']:.0f}", str(r["steps"]), str(r["last"])] for r in rows],
        wide=False,
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
