"""The report: one HTML file that needs no network, written at any time of a run.

Everything that a model or a problem set wrote is data here: it reaches the page as JSON with its angle brackets escaped, or
as escaped text, and is set with `textContent`. A content security policy with a nonce forbids any other script and every
request.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from rtl_core.errors import HistoryError
from rtl_core.history.records import RunRecord, utc_now
from rtl_core.history.store import History
from rtl_core.reporting import rollouts
from rtl_core.reporting.audit import audit_summary
from rtl_core.reporting.blocks import Block, Figure, Section, Statement, Table
from rtl_core.reporting.curves import curves_of
from rtl_core.reporting.evaluations import RunResult, run_result
from rtl_core.reporting.figures.progress import duration
from rtl_core.reporting.notes import demo_note
from rtl_core.reporting.sections import sections
from rtl_core.reporting.text import p_in_words, visible
from rtl_core.reporting.theme import OUTCOMES, PALETTE, css_variables

_PAGE = files("rtl_core.reporting") / "page"


def write_report(history: History, run_names: list[str], path: Path, own: Sequence[str] = ()) -> Path:
    """Write the report of a run, or of several side by side, to `path`, all at once. Returns `path`.

    Raises HistoryError for no run or an unknown one. `own`: sections of the user's, see `sections`.
    """
    if not run_names:
        raise HistoryError("a report needs at least one run", "name it: rtl-distill report RUN")
    results = {name: run_result(history, name) for name in dict.fromkeys(run_names)}
    runs = [record for name in results if (record := history.run(name)) is not None]
    made = [replace(s, blocks=laid_out(s.blocks)) for s in sections(history, list(results), own)]
    linked = [key for section in made for b in section.blocks if isinstance(b, Table) for key in b.links.values()]
    browser = rollouts.sample(history, runs[0].name, linked) if len(runs) == 1 else None
    text = render(runs, results, made, browser, facts(history, runs[0]) if len(runs) == 1 else [])
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)
    return path


def render(
    runs: list[RunRecord],
    results: dict[str, RunResult],
    made: list[Section],
    browser: dict[str, Any] | None,
    facts_: list[tuple[str, str]],
) -> str:
    """The whole page."""
    from plotly.offline import get_plotlyjs

    nonce = secrets.token_urlsafe(16)
    figures = [b for section in made for b in section.blocks if isinstance(b, Figure)]
    data = {
        "palette": {role: list(pair) for role, pair in PALETTE.items()},
        "outcomes": {name: list(pair) for name, pair in OUTCOMES.items()},
        "figures": [{"id": f.id, "data": f.data, "layout": f.layout, "height": f.height} for f in figures],
        "browser": browser,
    }
    contents = [(s.id, s.title) for s in made] + ([("rollouts", "Rollouts")] if browser and browser["shown"] else [])
    parts = {
        "NONCE": nonce,
        "TITLE": clean(f"{', '.join(r.name for r in runs)} · rtl-distill"),
        "STYLE": (_PAGE / "style.css").read_text(encoding="utf-8").replace("/*PALETTE*/", css_variables()),
        "NAV": "".join(f'<li><a href="#{i}">{clean(t)}</a></li>' for i, t in contents),
        "HEADER": _header(runs, results, facts_),
        "SECTIONS": "".join(_section(s, browser) for s in made),
        "BROWSER": (_PAGE / "browser.html").read_text(encoding="utf-8") if browser and browser["shown"] else "",
        "SAMPLED": _sampled(browser),
        "FOOTER": _footer(runs),
        "DATA": safe_json(data),
        "PLOTLY": get_plotlyjs(),
        "SCRIPT": (_PAGE / "page.js").read_text(encoding="utf-8"),
    }
    return _fill((_PAGE / "template.html").read_text(encoding="utf-8"), parts)


def _fill(template: str, parts: dict[str, str]) -> str:
    """Replace {{NAME}} once, never inside what was put in (but for the few parts that stand in the shipped pieces)."""
    pieces = template.replace("{{BROWSER}}", parts["BROWSER"]).split("{{")
    out = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        out += [parts[name], rest]
    return "".join(out)


def safe_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever texts it holds; infinities become null."""
    text = json.dumps(_finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, datetime):
        return value.isoformat()
    return value


def clean(text: object) -> str:
    """Text for HTML: markup and control characters made visible and harmless."""
    return escape(visible(str(text)), quote=True)


def facts(history: History, run: RunRecord) -> list[tuple[str, str]]:
    """A few figures for the head of the page."""
    place = {"run": run.name}
    counts = history.query(
        "SELECT (SELECT count(*) FROM rollouts WHERE run = $run) AS rollouts,"
        " (SELECT count(*) FROM steps WHERE run = $run AND status = 'trained') AS trained,"
        " (SELECT count(*) FROM steps WHERE run = $run) AS planned,"
        " (SELECT sum(examples) FROM steps WHERE run = $run) AS examples,"
        " (SELECT sum(seconds) FROM step_times WHERE run = $run AND stage = 'total') AS seconds",
        place,
    ).to_pylist()[0]
    found = [("steps", f"{counts['trained']} of {counts['planned']}"), ("rollouts", f"{counts['rollouts']:,}")]
    if counts["examples"] is not None:
        found.append(("trained on", f"{int(counts['examples']):,}"))
    for curve in curves_of(history, run.name):
        if curve.kind != "raw" and curve.quantity != "pass rate":  # the headline has the one that counts
            found.append((curve.label, " → ".join(f"{end:.2f}" for end in curve.ends)))
    if counts["seconds"]:
        found.append(("training", duration(counts["seconds"])))
    if audited := audit_summary(history, run.name):
        found.append(("audited", audited.in_words()))
    return found


def _header(runs: list[RunRecord], results: dict[str, RunResult], facts_: list[tuple[str, str]]) -> str:
    if len(runs) > 1:
        return f'<p class="eyebrow">Comparison</p><h1>{clean(" · ".join(r.name for r in runs))}</h1>'
    run = runs[0]
    lines = [f'<p class="eyebrow">Run {clean(run.name)} <span class="status {run.status}">{run.status}</span></p>']
    lines.append(f"<h1>{headline(results[run.name])}</h1>")
    if detail := _detail(results[run.name]):
        lines.append(f'<p class="detail">{detail}</p>')
    if facts_:
        items = "".join(f"<div><dt>{clean(k)}</dt><dd>{clean(v)}</dd></div>" for k, v in facts_)
        lines.append(f'<dl class="facts">{items}</dl>')
    if run.message:
        lines.append(f'<p class="note">{clean(run.message)}</p>')
    if note := demo_note(run):
        lines.append(f'<p class="note">{clean(note)}</p>')
    return "".join(lines)


def headline(result: RunResult) -> str:
    """The run in one sentence (HTML), for each source of problems where there are several."""
    if result.mixed and result.before:
        ends = [f"{_ends(part)} on {clean(source)}" for source, part in result.by_source.items()]
        return f"Held-out pass@1 {', '.join(ends)}"
    if result.before and result.after:
        was, now = result.before.pass_at_1.mean, result.after.pass_at_1.mean
        verb = "rose" if now > was else "fell" if now < was else "stayed"
        return f'Held-out pass@1 {verb} from <b class="before">{100 * was:.1f}\u00a0%</b> to <b class="after">{100 * now:.1f}\u00a0%</b>'
    if result.before:
        return f'Held-out pass@1 starts at <b class="before">{100 * result.before.pass_at_1.mean:.1f}\u00a0%</b>'
    return "No evaluation has ended yet"


def _ends(result: RunResult) -> str:
    """`from 10 % to 20 %`, or the start alone (HTML)."""
    named = (("from", "before", result.before), ("to", "after", result.after))
    found = [f'{word} <b class="{role}">{100 * v.pass_at_1.mean:.1f}\u00a0%</b>' for word, role, v in named if v]
    return " ".join(found)


def _detail(result: RunResult) -> str:
    parts = []
    if result.gain:
        g = result.gain
        parts.append(
            f"{100 * g.gain:+.1f} points, 95 % interval {100 * g.lo:.1f} to {100 * g.hi:.1f}, p {p_in_words(g.p_value)}"
            f" over {g.n} problems{' of all sources' if result.mixed else ''}: {g.better} better, {g.worse} worse"
        )
    if result.teacher:
        rate = result.teacher.pass_at_1.mean
        parts.append(f'teacher <b class="teacher">{100 * rate:.1f}\u00a0%</b>')
    return ". ".join(p[0].upper() + p[1:] for p in parts).replace("<0", "&lt;0") + "." if parts else ""


def _section(section: Section, browser: dict[str, Any] | None) -> str:
    blocks = "".join(_block(b, browser) for b in section.blocks)
    return (
        f'<section id="{section.id}"><h2>{clean(section.title)}</h2><p class="lead">{clean(section.lead)}</p>'
        f'<div class="grid">{blocks}</div></section>'
    )


def laid_out(blocks: Sequence[Block]) -> list[Block]:
    """The blocks in two columns without holes: one that has no neighbour takes both, neighbours are of one height."""
    out: list[Block] = []
    waiting: Block | None = None
    for block in blocks:
        if not block.wide and waiting is None:
            waiting = block
            continue
        if waiting is not None:
            if block.wide:
                out.append(replace(waiting, wide=True))
            else:
                heights = [b.height for b in (waiting, block) if isinstance(b, Figure)]
                pair = (waiting, block)
                out += [replace(b, height=max(heights)) if isinstance(b, Figure) else b for b in pair]
            waiting = None
            if not block.wide:
                continue
        out.append(block)
    return [*out, replace(waiting, wide=True)] if waiting is not None else out


def _block(block: Block, browser: dict[str, Any] | None) -> str:
    kind = "wide" if block.wide else ""
    if isinstance(block, Figure):
        body = f'<div class="plot" id="plot-{block.id}" data-figure="{block.id}" style="height:{block.height}px" role="img" aria-label="{clean(block.title)}"></div>'
    else:
        body = _table(block, browser)
    return (
        f'<figure id="{block.id}" class="{kind}"><h3>{clean(block.title)}</h3>{body}'
        f"<figcaption>{clean(block.caption)}{_sql(block.sql)}</figcaption></figure>"
    )


def _table(table: Table, browser: dict[str, Any] | None) -> str:
    known = {r["rollout"] for r in browser["rollouts"]} if browser else set()
    head = "".join(f'<th class="{align}">{clean(name)}</th>' for name, align in table.columns)
    rows = []
    for i, row in enumerate(table.rows):
        cells = "".join(
            f'<td class="{align}">{clean(cell)}</td>' for cell, (_, align) in zip(row, table.columns, strict=True)
        )
        if table.links:
            key = table.links.get(i)
            link = f'<button class="link" data-rollout="{clean(key)}">example</button>' if key in known else ""
            cells += f"<td>{link}</td>"
        rows.append(f"<tr>{cells}</tr>")
    extra = "<th></th>" if table.links else ""
    return (
        f'<div class="scroll"><table><thead><tr>{head}{extra}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _sql(statements: tuple[Statement, ...]) -> str:
    """The queries behind a block, as they can be typed again."""
    if not statements:
        return ""
    texts = []
    for s in dict.fromkeys((s.sql, json.dumps(s.params, sort_keys=True, default=str)) for s in statements):
        params = json.loads(s[1])
        note = "".join(f"-- ${k} = {v!r}\n" for k, v in params.items())
        texts.append(f"{note}{' '.join(s[0].split())};")
    return f'<details class="sql"><summary>SQL</summary><pre>{clean(chr(10).join(texts))}</pre></details>'


def _sampled(browser: dict[str, Any] | None) -> str:
    if not browser:
        return ""
    if browser["shown"] == browser["total"]:
        return f"All {browser['total']:,} graded rollouts."
    return (
        f"{browser['shown']:,} of {browser['total']:,} graded rollouts: every outcome of every tenth of the run and of every "
        f"evaluation in turn, chosen by hash. Long texts are cut at {rollouts.MOST_TEXT:,} characters. "
        "All others: rtl-distill show ROLLOUT."
    )


def _footer(runs: list[RunRecord]) -> str:
    cards = []
    for run in runs:
        rows = [
            ("run", run.name), ("student", run.student), ("teacher", run.teacher or "–"), ("seed", run.seed),
            ("created", f"{run.created_at:%Y-%m-%d %H:%M} UTC"),
            ("ended", f"{run.finished_at:%Y-%m-%d %H:%M} UTC" if run.finished_at else "–"),
            ("configuration", run.config_hash[:16] or "–"), ("problems", run.problems_hash[:16] or "–"),
            ("versions", ", ".join(f"{k} {v}" for k, v in sorted(run.versions.items())) or "–"),
        ]  # fmt: skip
        items = "".join(f"<tr><th>{clean(k)}</th><td>{clean(v)}</td></tr>" for k, v in rows)
        config = clean(json.dumps(run.config, indent=2, sort_keys=True, default=str))
        cards.append(
            f'<div class="about"><table>{items}</table><details><summary>Whole configuration</summary><pre>{config}</pre></details></div>'
        )
    return f"{''.join(cards)}<p>Written {utc_now():%Y-%m-%d %H:%M} UTC by rtl-distill. This file needs no network.</p>"
