"""The audit of a problem set as a citable document: the findings of each problem, with hashes of set and tools.

The JSON Lines form suits `diff`: a header, one line per problem sorted by source and id, and a last line
with everything that changes between validations (times) and the SHA-256 of all lines above. The HTML form
is a page for people.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.reporting.report import page_style
from rtl_grader.files import replacing
from rtl_grader.grading.cache import GRADER_VERSION
from rtl_grader.grading.interface_check import compare, unnamed_ports
from rtl_grader.grading.verdict_record import digests
from rtl_grader.problems.harness_use import harness_use
from rtl_grader.problems.interface import derive_interface
from rtl_grader.problems.problem_set import LoadedProblems
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import InterfaceSource, Problem
from rtl_grader.validation.level import VALIDATOR_VERSION, Level
from rtl_grader.validation.record import VALIDATION_STATUSES, ValidationRecord
from rtl_grader.validation.table import by_source, score_text
from rtl_grader.words import escaping_templates

Line = dict[str, Any]
"""A line of the document."""
OTHERS_SQL = (
    "SELECT fingerprint, status, tools FROM validations ORDER BY fingerprint, tools_key"
)
_MACHINE_PATH = re.compile(r"/\S*/(?=site-packages/)")
"""Path of installed packages; removed, so that two machines write the same document."""


def check_form(path: Path) -> None:
    """Raise ConfigError unless the file name ends in .html or .jsonl."""
    if path.suffix not in (".html", ".jsonl"):
        raise ConfigError(
            f"--audit {path}: the file name decides the format", "end it with .html or .jsonl"
        )


def write_document(
    path: Path,
    loaded: LoadedProblems,
    records: Mapping[str, ValidationRecord],
    level: Level,
    history: History,
) -> None:
    """Write the audit of a set in the format of the path's suffix.

    Args:
        records: problem id -> validation record.
        history: also read for validations with other tools.
    """
    lines = list(document(loaded, records, level, history))
    text = _page(lines, loaded, records) if path.suffix == ".html" else _json_lines(lines)
    with replacing(path) as fresh:
        fresh.write_text(text, encoding="utf-8")


def document(
    loaded: LoadedProblems,
    records: Mapping[str, ValidationRecord],
    level: Level,
    history: History,
) -> Iterator[Line]:
    """Yield the header, the problems and the last line of the document."""
    problems = {p.id: p for p in sorted(loaded.every, key=lambda p: (p.source, p.id))}
    others: dict[str, list[Line]] = {}
    for row in history.rows(OTHERS_SQL):
        others.setdefault(row["fingerprint"], []).append(
            {"tools": json.loads(row["tools"]), "status": row["status"]}
        )
    tools = {json.dumps(r.tools, sort_keys=True): r.tools for r in records.values() if r.tools}
    head: Line = {
        "data_set": loaded.fingerprint,
        "problems": len(problems),
        "tools": list(tools.values()),
        "versions": {"grader": GRADER_VERSION, "validator": VALIDATOR_VERSION},
        "level": {"name": level.name, "mutants": level.mutants, "seeds": list(level.seeds)},
        "broken": [str(line) for line in loaded.broken],
        "left_out": {one.id: one.reason for one in loaded.left_out},
    }
    rows = [_row(problems[name], records[name], others) for name in problems if name in records]
    yield from (head, *rows)
    yield {
        "digest": hashlib.sha256(_json_lines((head, *rows)).encode()).hexdigest(),
        "seconds": {row["id"]: round(records[row["id"]].wall_s, 2) for row in rows},
    }


def _json_lines(lines: Iterable[Line]) -> str:
    return "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)


def _row(problem: Problem, record: ValidationRecord, others: Mapping[str, list[Line]]) -> Line:
    evidence = record.evidence
    golden, stubs, mutants = (
        evidence.get(name) or {} for name in ("golden", "stubs", "mutants")
    )
    return {
        **{
            name: getattr(problem, name)
            for name in ("id", "source", "category", "difficulty", "fingerprint")
        },
        "harness": digests(problem, Answer())["harness"],
        "golden": {name: golden.get(name) for name in ("source", "digest")},
        "status": record.status,
        "reason": _MACHINE_PATH.sub("", evidence.get("reason", "")),
        "mutants": {name: value for name, value in mutants.items() if name != "equivalents"},
        "stubs": {
            "tried": len(stubs),
            "paid": sorted(name for name, result in stubs.items() if _is_paid(result)),
        },
        "seeds": [
            f"{verdict['seed']}: {verdict['outcome']}" for verdict in golden.get("verdicts", [])
        ],
        "other_tools": [
            row for row in others.get(problem.fingerprint, []) if row["tools"] != record.tools
        ],
        "interface": evidence.get("interface") or {},
        "contradictions": list(contradictions(problem)),
    }


def _is_paid(result: str) -> bool:
    """Whether a stub passed that is not known to behave like the golden answer."""
    return result.startswith("passed") and not result.startswith(
        ("passed (equal", "passed (same")
    )


def contradictions(problem: Problem) -> Iterator[str]:
    """Describe where specification, golden answer and harness disagree about the interface."""
    if unnamed := unnamed_ports(problem):
        yield f"the specification does not name the golden answer's {', '.join(unnamed)}"
    specified = derive_interface(
        prompt=problem.prompt,
        context=problem.context,
        targets=problem.targets,
        harness=problem.harness,
        golden=None,
    )
    if specified is None or specified.source is not InterfaceSource.SPECIFICATION:
        return
    demanded = problem.interface
    if problem.golden and demanded is not None and demanded.source is InterfaceSource.GOLDEN:
        for mismatch in compare(specified, demanded, problem.golden):
            yield f"specification against golden answer: {mismatch}"
    ports = {port.name for port in specified.ports}
    for name in harness_use(problem.harness).driven:
        if name not in ports:
            yield f"specification against harness: it drives `{name}`, which the header lacks"


def _page(
    lines: list[Line], loaded: LoadedProblems, records: Mapping[str, ValidationRecord]
) -> str:
    head, *rows, tail = lines
    sums, unfit = by_source(records, loaded.broken, loaded.left_out, loaded.every)
    template = escaping_templates("rtl_core.reporting").get_template("document.html")
    return template.render(
        head=head,
        rows=rows,
        tail=tail,
        statuses=[name.replace("_", " ") for name in VALIDATION_STATUSES],
        sources=[
            [
                name,
                *row.counts.values(),
                f"{row.golden_passed}/{row.golden_total}",
                score_text(row),
            ]
            for name, row in sums.items()
        ],
        unfit=[
            [row.problem, row.source, row.status, _MACHINE_PATH.sub("", row.reason)]
            for row in unfit
        ],
        style=Markup(page_style()),
    )
