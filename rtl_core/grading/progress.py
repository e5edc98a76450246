"""What `rtl-distill grade` tells on the console: how grading goes, and what came of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rtl_core.grading.answer_file import AnswerLine
from rtl_core.grading.verdict_file import VerdictFile
from rtl_core.types.verdict import Outcome

TELL_LINE_S = 30.0
"""How often a line is written where the console is no terminal and nothing else makes it time."""
WORTH_A_WORD_S = 5.0
"""From this time on the answer that takes longest is named."""


class GradingProgress:
    """Tells how grading goes: a bar on a terminal, else a line at every tenth of the way and at least every half minute."""

    def __init__(self, console: Console, lines: Sequence[AnswerLine], known: int) -> None:
        self._console, self._lines, self._done = console, lines, known
        self._at_work: dict[int, float] = {}
        """Index -> when its grading began (monotonic)."""
        self._told, self._told_at = self._tenth(), time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task("grading", total=len(lines), completed=known)

    def __enter__(self) -> GradingProgress:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def begun(self, index: int) -> None:
        self._at_work[index] = time.monotonic()

    def ended(self, index: int) -> None:
        self._at_work.pop(index, None)

    def finished(self) -> None:
        """One more verdict is written."""
        self._done += 1
        self.renew()

    def renew(self) -> None:
        """Tell how it stands now, if it is time."""
        if self._console.is_terminal:
            longest = self._longest()
            self._bar.update(self._task, completed=self._done, description=f"grading{longest and f' ({longest})'}")
            return
        now = time.monotonic()
        if self._tenth() != self._told or now - self._told_at >= TELL_LINE_S:
            self._told, self._told_at = self._tenth(), now
            text = ", ".join(filter(None, (f"graded {self._done} of {len(self._lines)}", self._longest())))
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _tenth(self) -> int:
        return 10 * self._done // max(len(self._lines), 1)

    def _longest(self) -> str:
        """The answer that is at work longest, once that is worth a word."""
        at_work = dict(self._at_work)
        index = min(at_work, key=lambda i: at_work[i], default=None)
        if index is None or (seconds := time.monotonic() - at_work[index]) < WORTH_A_WORD_S:
            return ""
        line = self._lines[index]
        return f"longest at work: {line.problem.id} sample {line.sample}, {seconds:.0f} s"


def tell_taken_up(console: Console, verdicts: VerdictFile) -> None:
    """What of an earlier call is used or replaced, if anything is."""
    parts = [f"{len(verdicts.known)} verdicts taken up from {verdicts.path}"] if verdicts.known else []
    if verdicts.replaced:
        parts.append(f"{verdicts.replaced} lines replaced (failed gradings, other answers or other settings)")
    if parts:
        console.print("; ".join(parts), markup=False, highlight=False, soft_wrap=True)


def print_summary(console: Console, records: Sequence[Mapping[str, Any]], graded: int, seconds: float) -> None:
    """The outcomes as a table on standard output, and on `console` the answers on which several gradings did not agree."""
    total = len(records)
    tally = Counter(record["outcome"] for record in records)
    text = f"{total} answers graded in {seconds:.1f} s" if graded == total else f"{total} answers, {graded} graded now"
    table = Table(title=text)
    table.add_column("outcome")
    table.add_column("answers", justify="right")
    table.add_column("share", justify="right")
    for outcome in Outcome:
        if tally[outcome]:
            table.add_row(outcome.value, str(tally[outcome]), f"{tally[outcome] / total:.1%}")
    Console().print(table)
    for record in records:
        if "flips" in record:
            said = f"flips: {record['id']} sample {record['sample']}: {', '.join(record['flips'])}"
            console.print(said, style="yellow", markup=False, highlight=False)
