"""The report: one HTML file that needs no network and can be written at any time of a run.

Texts of models and problem sets are treated as data: they reach the page as JSON with escaped angle brackets, which the
script inserts with `textContent`, or as text that the template escapes. A content security policy with a
nonce forbids any other script and every request.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from rtl_core.errors import HistoryError
from rtl_core.history.records import RunRecord, utc_now
from rtl_core.history.store import History
from rtl_core.reporting import rollouts
from rtl_core.reporting.blocks import Block, Figure, Section, Statement, Table
from rtl_core.reporting.curves import curves_of
from rtl_core.reporting.evaluations import EvaluationView, RunResult, run_result
from rtl_core.reporting.figures import sections
from rtl_core.reporting.figures.audit import audit_summary
from rtl_core.reporting.figures.progress import duration
from rtl_core.reporting.text import finite, paired_in_words
from rtl_core.reporting.theme import OUTCOMES, css_variables
from rtl_grader.files import replacing
from rtl_grader.words import counted, escaping_templates

DEMO = (
    "This is the embedded demo. Its tiny student was deliberately taught to ignore the "
    "specification (it writes the textbook interface; "
    "on the hard tier any variant of a design; with tools it writes before it reads), to imitate "
    "what was observed in models of 30 billion "
    "parameters. What it learns here is to follow the specification, not to design hardware."
)
TINY = ("student", "reader", "hard-student", "agent")
"""Students that this package ships (`rtl_core/tinymodels`, a room above this one)."""
_COUNTS = """
SELECT (SELECT count(*) FROM rollouts WHERE run = $run) AS rollouts,
       (SELECT count(*) FROM steps WHERE run = $run AND status = 'trained') AS trained,
       (SELECT count(*) FROM steps WHERE run = $run) AS planned,
       (SELECT sum(examples) FROM steps WHERE run = $run) AS examples,
       (SELECT sum(seconds) FROM step_times WHERE run = $run AND stage = 'total') AS seconds
"""


def write_report(
    history: History,
    run_names: list[str],
    path: Path,
    own: Sequence[str] = (),
    flow_run: str | None = None,
) -> Path:
    """Write the report of a run, or the comparison of several, to `path`, atomically. Returns `path`.

    Raises HistoryError without a run and for an unknown one. `own`: sections of the user, see `sections`.
    `flow_run`: address of the run's page on a Prefect server.
    """
    if not run_names:
        raise HistoryError("a report needs at least one run", "name it: rtl-distill report RUN")
    results = {name: run_result(history, name) for name in dict.fromkeys(run_names)}
    filled = [
        replace(s, blocks=laid_out(s.blocks)) for s in sections(history, list(results), own)
    ]
    browser = None
    if len(results) == 1:
        tables = [b for section in filled for b in section.blocks if isinstance(b, Table)]
        linked = [key for table in tables for key in table.links.values()]
        browser = rollouts.sample(history, run_names[0], linked)
    runs = [history.existing_run(name) for name in results]
    result = results[run_names[0]]
    text = page(
        filled,
        browser,
        runs,
        headline=headline(result),
        detail=_detail(result),
        facts=facts(history, runs[0]) if len(runs) == 1 else [],
        demo_note=demo_note(runs[0]),
        flow_run=flow_run,
    )
    with replacing(path) as fresh:
        fresh.write_text(text, encoding="utf-8")
    return path


def page(
    filled: list[Section],
    browser: dict[str, Any] | None = None,
    runs: Sequence[RunRecord] = (),
    **head: Any,
) -> str:
    """A page with sections of figures and tables; `head`: what stands above them, as `report.html` reads it."""
    from plotly.offline import get_plotlyjs

    figures = [b for section in filled for b in section.blocks if isinstance(b, Figure)]
    data = {
        "outcomes": OUTCOMES,
        "figures": [figure.drawing for figure in figures],
        "browser": browser,
    }
    folder = files("rtl_core.reporting") / "page"
    scripts = ((folder / name).read_text(encoding="utf-8") for name in ("roles.js", "page.js"))
    templates = escaping_templates("rtl_core.reporting")
    templates.filters.update(
        indented=partial(json.dumps, indent=2, sort_keys=True, default=str),
        typed=_typed,
    )
    return templates.get_template("report.html").render(
        nonce=secrets.token_urlsafe(16),
        runs=runs,
        sections=filled,
        browser=browser if browser and browser["shown"] else None,
        linked={r["rollout"] for r in browser["rollouts"]} if browser else set(),
        most_text=rollouts.MOST_TEXT,
        now=utc_now(),
        style=Markup(page_style()),
        data=Markup(safe_json(data)),
        plotly=Markup(get_plotlyjs() if figures else ""),
        script=Markup("\n".join(scripts)),
        **head,
    )


def page_style() -> str:
    """The style sheet of all pages that are written to a file."""
    text = (files("rtl_core.reporting") / "page" / "style.css").read_text(encoding="utf-8")
    return text.replace("/*PALETTE*/", css_variables())


def safe_json(value: Any) -> str:
    """JSON whose texts cannot end the enclosing script element; infinities become null."""
    text = json.dumps(
        finite(value), allow_nan=False, default=datetime.isoformat, separators=(",", ":")
    )
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def facts(history: History, run: RunRecord) -> list[tuple[str, str]]:
    """(name, value) pairs for the head of the page."""
    (counts,) = history.rows(_COUNTS, run=run.name)
    pairs = [("rollouts", f"{counts['rollouts']:,}")]
    if counts["planned"]:
        pairs.insert(0, ("steps", f"{counts['trained']} of {counts['planned']}"))
    if counts["examples"] is not None:
        pairs.append(("trained on", f"{int(counts['examples']):,} (equal answers count once)"))
    for curve in curves_of(history, run.name):
        # The headline has the held-out pass rate.
        if curve.kind != "raw" and curve.quantity != "pass rate":
            ends = " → ".join(f"{end:z.2f}" for end in curve.ends)
            pairs.append((f"{curve.label}, first → last tenth of the steps", ends))
    if counts["seconds"]:
        pairs.append(("training", duration(counts["seconds"])))
    if summary := audit_summary(history, run.name):
        pairs.append(("audited", summary.in_words()))
    return pairs


def demo_note(run: RunRecord) -> str | None:
    """The note on the demo, for a run whose student is one of the package's tiny models."""
    tinker = run.config.get("tinker") or {}
    own_models = tinker.get("local_models") or {}
    served = tinker.get("base_url") == "local" and run.student not in own_models
    return DEMO if served and run.student in TINY else None


def headline(result: RunResult) -> Markup:
    """The result in one sentence, by source if there are several."""
    if result.mixed and result.before:
        ends = [
            Markup("{} on {}").format(_ends(part), source)
            for source, part in result.by_source.items()
        ]
        return Markup("Held-out pass@1 {}").format(Markup(", ").join(ends))
    if result.before and result.after:
        was, now = result.before.pass_at_1.mean, result.after.pass_at_1.mean
        if now == was:
            return Markup("Held-out pass@1 stayed at {}").format(_rate("after", result.after))
        if result.gain is None or not result.gain.sure:
            return Markup("No clear change of held-out pass@1: {}").format(_ends(result))
        verb = "rose" if now > was else "fell"
        return Markup("Held-out pass@1 {} {}").format(verb, _ends(result))
    if result.before:
        return Markup("Held-out pass@1 starts at {}").format(_rate("before", result.before))
    if result.after:  # nothing was trained
        return Markup("pass@1 is {}").format(_rate("after", result.after))
    return Markup("No evaluation has ended yet")


def _ends(result: RunResult) -> Markup:
    """`from 10 % to 20 %`, or only the start."""
    named = (("from", "before", result.before), ("to", "after", result.after))
    return Markup(" ").join(
        Markup("{} {}").format(word, _rate(role, view)) for word, role, view in named if view
    )


def _rate(role: str, view: EvaluationView) -> Markup:
    return Markup('<b class="{}">{:.1f}\u00a0%</b>').format(role, 100 * view.pass_at_1.mean)


def _detail(result: RunResult) -> Markup:
    parts = []
    if result.gain:
        g = result.gain
        parts.append(
            Markup("{} over {}{}: {} better, {} worse.").format(
                paired_in_words(g),
                counted(g.n, "problem"),
                " of all sources" if result.mixed else "",
                g.better,
                g.worse,
            )
        )
    if result.teacher:
        parts.append(Markup("Teacher {}.").format(_rate("teacher", result.teacher)))
    return Markup(" ").join(parts)


def laid_out(blocks: Sequence[Block]) -> list[Block]:
    """Lay out blocks in two columns without gaps: a block without a neighbour takes both columns,
    neighbours get the same height."""
    out: list[Block] = []
    for wide, alike in itertools.groupby(blocks, key=lambda block: block.wide):
        run = list(alike)
        if wide:
            out += run
            continue
        for pair in zip(run[::2], run[1::2], strict=False):
            height = max(
                (block.height for block in pair if isinstance(block, Figure)), default=0
            )
            for block in pair:
                out.append(
                    replace(block, height=height) if isinstance(block, Figure) else block
                )
        if len(run) % 2:
            out.append(replace(run[-1], wide=True))
    return out


def _typed(statements: tuple[Statement, ...]) -> str:
    """The queries behind a block, ready to be executed again."""
    texts = []
    for statement in statements:
        values = json.loads(json.dumps(statement.params, sort_keys=True, default=str))
        notes = "".join(f"-- ${name} = {value!r}\n" for name, value in values.items())
        texts.append(f"{notes}{' '.join(statement.sql.split())};")
    return "\n".join(dict.fromkeys(texts))
