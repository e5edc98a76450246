"""Results of an examination as JSON, as lines and as a console table."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tinker
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from localtinker.certify.cases import Case

Outcome = Literal["OK", "differs", "missing", "not tried"]
STYLES: dict[Outcome, str] = {
    "OK": "green",
    "differs": "bold red",
    "missing": "bold red",
    "not tried": "yellow",
}


@dataclass(frozen=True)
class Result:
    """Result of a case."""

    case: Case
    outcome: Outcome
    finding: str
    """Measurement, or what is wrong."""
    seconds: float

    @property
    def prevents(self) -> bool:
        """Whether no run should start on this server: a needed case that failed or could not be tried."""
        return self.case.needed and self.outcome != "OK"

    @property
    def line(self) -> Text:
        outcome = (f"{self.outcome:<10}", STYLES[self.outcome])
        return Text.assemble(outcome, (self.case.name, "bold"), f": {self.finding}")

    def to_json(self) -> dict[str, Any]:
        case = self.case
        return {
            "case": case.name,
            "group": case.group,
            "promise": case.promise,
            "needed": case.needed,
            "outcome": self.outcome,
            "found": self.finding,
            "without": case.without,
            "seconds": round(self.seconds, 2),
        }


@dataclass(frozen=True)
class Examination:
    """Results of all cases."""

    url: str
    student: str | None
    results: list[Result]

    @property
    def fit(self) -> bool:
        """Whether all needed cases passed."""
        return not any(result.prevents for result in self.results)

    @property
    def lacks(self) -> list[Result]:
        """Failed cases and needed cases that were not tried, except those whose prerequisites failed."""
        passes = {one.case.name for one in self.results if one.outcome == "OK"}
        failures = []
        for one in self.results:
            tried = one.outcome in ("differs", "missing")
            if tried or (one.prevents and passes.issuperset(one.case.needs)):
                failures.append(one)
        return failures

    def to_json(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "sdk": tinker.__version__,
            "student": self.student,
            "fit": self.fit,
            "results": [result.to_json() for result in self.results],
        }

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(self.to_json(), indent=1) + "\n")

    def show(self, console: Console) -> None:
        """Print a table of failed cases with their consequences for a run, and a summary line."""
        if self.lacks:
            table = Table(box=box.SIMPLE_HEAD)
            for column in ("case", "", "consequence for a run, and what was found"):
                table.add_column(column, overflow="fold")
            for one in self.lacks:
                case = one.case
                consequence = case.without if case.needed else f"(an option) {case.without}"
                text = Text(f"{consequence}\n{case.promise}\nFound: {one.finding}")
                outcome = Text(one.outcome, style=STYLES[one.outcome])
                table.add_row(case.name, outcome, text)
            console.print(table)
        counts = Counter(one.outcome for one in self.results)
        parts = [f"{counts[kind]} {kind}" for kind in STYLES if counts[kind]]
        words = ", ".join(parts)
        verdict = "no run should start on this server"
        if self.fit:
            verdict = "everything that each run needs works"
        server = f"{self.url}, student {self.student}, SDK {tinker.__version__}"
        console.print(f"{server}: {words}; {verdict}", soft_wrap=True, highlight=False)
