"""What goes wrong most: interface mistakes, problems never solved, problems whose harness is in doubt."""

from __future__ import annotations

import json

from rtl_core.reporting.blocks import Block, Figure, Source, Table, bin_width, binned, curve, draw, left_out, parts_of
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.theme import LINES, axis, layout, line

MOST = 12


@SECTIONS.register("wrong")
@section(
    "What goes wrong",
    "Where answers miss what was asked, and problems that deserve a look themselves.",
    place=60,
)
def blocks(source: Source) -> list[Block]:
    """Kinds of interface mistakes over steps, mistakes by name, the most common ones, never solved problems, harness problems."""
    return draw(source, kinds, named, common, never_solved, harness, regrades)


def kinds(source: Source) -> Figure | None:
    """Interface mistakes per answer, by kind, over steps."""
    width = bin_width(source)
    rows = source.ask(
        "SELECT bin, kind, n / answers AS rate FROM (SELECT step // $width AS bin, kind, count(*) AS n FROM"
        " interface_mismatches WHERE run = $run AND purpose = 'train' GROUP BY ALL) JOIN (SELECT step // $width AS bin,"
        " count(*) AS answers FROM verdicts WHERE run = $run AND purpose = 'train' GROUP BY ALL) USING (bin) ORDER BY bin",
        width=width,
    )
    if not rows:
        return None
    totals: dict[str, float] = {}
    for r in rows:
        totals[r["kind"]] = totals.get(r["kind"], 0.0) + r["rate"]
    bins = [
        r["bin"]
        for r in source.ask(
            "SELECT DISTINCT step // $width AS bin FROM verdicts WHERE run = $run AND purpose = 'train' ORDER BY bin",
            width=width,
        )
    ]
    data = []
    for i, kind in enumerate(sorted(totals, key=lambda k: -totals[k])):
        rates = {r["bin"]: r["rate"] for r in rows if r["kind"] == kind}
        x, y = [(b + 0.5) * width - 0.5 for b in bins], [rates.get(b, 0.0) for b in bins]
        data.append(curve(kind.replace("_", " "), x, y, line(i), "%{y:.2f}", dash="solid" if i < LINES else "dot"))
    return Figure(
        "mistake-kinds",
        "Interface mistakes by kind",
        f"Differences from the demanded interface per answer; one answer can have several. {binned(width).capitalize()}.",
        data,
        layout(xaxis=axis("step"), yaxis=axis("mistakes per answer", rangemode="tozero")),
    )


def common(source: Source) -> Table | None:
    """The most common interface mistakes, and whether they are dying out."""
    rows = source.ask(
        "WITH span AS (SELECT max(step) + 1 AS steps FROM verdicts WHERE run = $run AND purpose = 'train')"
        " SELECT kind, name, expected, got, count(DISTINCT rollout) AS rollouts, count(DISTINCT problem_id) AS problems,"
        " count(DISTINCT rollout) FILTER (WHERE step * 2 < steps) AS early,"
        " count(DISTINCT rollout) FILTER (WHERE step * 2 >= steps) AS late, max(rollout) AS example"
        " FROM interface_mismatches, span WHERE run = $run AND purpose = 'train'"
        " GROUP BY kind, name, expected, got ORDER BY rollouts DESC, kind, name, expected, got LIMIT $most",
        most=MOST,
    )
    if not rows:
        return None
    return Table(
        "mistakes",
        "The most common interface mistakes",
        f"At most {MOST}, over all training rollouts; the last columns split them into the first and second half of the run.",
        [("mistake", "left"), ("name", "code"), ("expected", "code"), ("got", "code"), ("answers", "right"), ("problems", "right"),
         ("first half", "right"), ("second half", "right")],
        [
            [r["kind"].replace("_", " "), r["name"] or "(no name)", r["expected"] or "–", r["got"] or "–"]
            + [str(r[c]) for c in ("rollouts", "problems", "early", "late")]
            for r in rows
        ],
        links={i: r["example"] for i, r in enumerate(rows)},
    )  # fmt: skip


def named(source: Source) -> Table | None:
    """Mistakes by name at the run's beginning and end: ports, widths, reset polarity and behaviour, bit order, failing checks."""
    parts = parts_of(source)
    rows = source.ask(
        f"WITH graded AS (SELECT {parts.sql} AS part, count(*) AS answers FROM verdicts WHERE run = $run AND purpose = 'train'"
        " GROUP BY part),"
        " ends AS (SELECT min(part) AS first, max(part) AS last FROM graded),"
        f" counted AS (SELECT mistake, {parts.sql} AS part, count(DISTINCT rollout) AS n FROM named_mistakes"
        " WHERE run = $run AND purpose = 'train' GROUP BY mistake, part)"
        " SELECT m.mistake, mode(m.expected) AS expected, mode(m.got) AS got, count(DISTINCT m.problem_id) AS problems,"
        " max(m.rollout) AS example, count(DISTINCT m.rollout) AS answers,"
        " coalesce((SELECT n / g.answers FROM counted c, ends, graded g WHERE c.mistake = m.mistake AND c.part = first AND g.part = first), 0) AS early,"
        " coalesce((SELECT n / g.answers FROM counted c, ends, graded g WHERE c.mistake = m.mistake AND c.part = last AND g.part = last), 0) AS late"
        " FROM named_mistakes m WHERE m.run = $run AND m.purpose = 'train'"
        " GROUP BY m.mistake ORDER BY answers DESC, m.mistake LIMIT $most",
        most=MOST,
    )
    if not rows:
        return None
    return Table(
        "named-mistakes",
        "Mistakes by name",
        f"What answers got wrong, as share of all graded answers of the first and the last {parts.name}; expected and got are the most"
        " frequent. An answer counts once for each of its mistakes.",
        [("mistake", "left"), ("expected", "code"), ("got", "code"), ("answers", "right"), ("problems", "right"),
         (f"first {parts.name}", "right"), (f"last {parts.name}", "right")],
        [
            [r["mistake"], r["expected"] or "–", r["got"] or "–", str(r["answers"]), str(r["problems"])]
            + [f"{100 * r[c]:.1f} %" for c in ("early", "late")]
            for r in rows
        ],
        links={i: r["example"] for i, r in enumerate(rows)},
    )  # fmt: skip


def never_solved(source: Source) -> Table | None:
    """Training problems without one passing answer, the most tried first."""
    rows = source.ask(
        "SELECT problem_id, difficulty, coalesce(family, category) AS family, rollouts, usual_outcome, last_step,"
        " count(*) OVER () AS problems FROM never_solved WHERE run = $run ORDER BY rollouts DESC, problem_id LIMIT $most",
        most=MOST,
    )
    if not rows:
        return None
    return Table(
        "never-solved",
        "Never solved in training",
        f"Problems that were tried and never passed: too hard, or wrong themselves.{left_out(len(rows), rows[0]['problems'], 'problems')}",
        [("problem", "code"), ("difficulty", "left"), ("family", "left"), ("answers", "right"), ("usual outcome", "left"), ("last step", "right")],
        [
            [r["problem_id"], r["difficulty"], r["family"], str(r["rollouts"]), r["usual_outcome"].replace("_", " "), str(r["last_step"])]
            for r in rows
        ],
    )  # fmt: skip


def harness(source: Source) -> Table | None:
    """Problems that validation did not find fit, with its evidence."""
    rows = source.ask(
        "SELECT r.problem_id, r.split, v.status, v.evidence, count(*) OVER () AS problems FROM run_problems r"
        " JOIN validations v ON v.fingerprint = r.fingerprint WHERE r.run = $run AND v.status NOT IN ('fit', 'fit_without_golden')"
        " QUALIFY row_number() OVER (PARTITION BY r.problem_id ORDER BY v.checked_at DESC) = 1"
        " ORDER BY v.status, r.problem_id LIMIT $most",
        most=MOST,
    )
    if not rows:
        return None
    return Table(
        "harness-problems",
        "Harness problems",
        f"What validation found unfit: a golden answer that fails, a wrong one that passes, a verdict that flips.{left_out(len(rows), rows[0]['problems'], 'problems')}",
        [("problem", "code"), ("split", "left"), ("status", "left"), ("evidence", "left")],
        [[r["problem_id"], r["split"], r["status"], _evidence(r["evidence"])] for r in rows],
    )


def regrades(source: Source) -> Table | None:
    """What regrading with other tools or another seed changed, with one such rollout to look at."""
    rows = source.ask(
        "SELECT g.label, count(*) AS graded, count(*) FILTER (WHERE g.outcome <> v.outcome) AS changed,"
        " count(*) FILTER (WHERE v.outcome = 'passed') AS passed_was, count(*) FILTER (WHERE g.outcome = 'passed') AS passed_now,"
        " min(g.rollout) FILTER (WHERE g.outcome <> v.outcome) AS example"
        " FROM regrades g JOIN verdicts v USING (rollout) WHERE g.run = $run GROUP BY g.label ORDER BY max(g.graded_at), g.label"
    )
    if not rows:
        return None
    return Table(
        "regrades",
        "Graded again",
        "What other tools or another seed made of stored answers (rtl-distill regrade). Each changed verdict: rtl-distill query changed-verdicts.",
        [("regrading", "code"), ("answers", "right"), ("verdicts changed", "right"), ("passed before", "right"), ("passed now", "right")],
        [[r["label"], *(str(r[c]) for c in ("graded", "changed", "passed_was", "passed_now"))] for r in rows],
        links={i: r["example"] for i, r in enumerate(rows) if r["example"]},
    )  # fmt: skip


def _evidence(text: str | None) -> str:
    """The evidence in a line: its reasons where it has any, else its fields."""
    evidence = json.loads(text or "{}")
    reasons = evidence.get("reasons")
    words = "; ".join(map(str, reasons)) if reasons else ", ".join(f"{k}: {v}" for k, v in evidence.items())
    return words if len(words) <= 240 else words[:239] + "…"
