"""Console output of a running command: progress, without the log lines of chatty libraries."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from rtl_grader.progress import progress


class _Warnings(logging.Handler):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(f"{record.levelname.lower()}: {record.getMessage()}")


class ConsoleProgress:
    """Print stages and lines with the elapsed time, above one progress bar for the current work.

    If the output is not a terminal, a line for each quarter replaces the bar. Warnings of the project's
    logger are printed as lines.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._label = ""
        self._quarter = ("", 0)
        self._task: TaskID | None = None
        self._start = time.monotonic()
        self._log = logging.getLogger("rtl_distill")
        self._warnings = _Warnings(self.line)

    def __enter__(self) -> ConsoleProgress:
        self._bar.start()
        self._log.addHandler(self._warnings)
        self._log.propagate = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._log.removeHandler(self._warnings)
        self._log.propagate = True
        self._bar.stop()

    def stage(self, title: str) -> None:
        self._drop_bar()
        self._console.print(f"[bold cyan]{self._clock()}[/]  [bold]{title}[/]", highlight=False)

    def advance(self, label: str, done: int, total: int | None) -> None:
        if not self._console.is_terminal:
            self._print_quarter(label, done, total)
            return
        if self._task is None or label != self._label:
            self._drop_bar()
            self._label, self._task = label, self._bar.add_task(label, total=total)
        self._bar.update(self._task, completed=done, total=total)

    def _print_quarter(self, label: str, done: int, total: int | None) -> None:
        quarter = 4 * done // total if total else 0
        if quarter and (label, quarter) != self._quarter:
            self.line(f"{label}: {done} of {total}")
        self._quarter = (label, quarter)

    def line(self, text: str) -> None:
        self._console.print(
            f"{self._clock()}  {text}", markup=False, highlight=False, soft_wrap=True
        )

    def show(self, renderable: RenderableType) -> None:
        self._console.print(renderable)

    def _drop_bar(self) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
        return f"{minutes:>3}:{seconds:02}"


@contextmanager
def stoppable(console: Console, resumes: bool = True) -> Iterator[ConsoleProgress]:
    """Show progress on `console`. The first SIGINT or SIGTERM raises KeyboardInterrupt in the block and
    sets the signal's exit code (130, 143); a second one kills the process. A signal that the parent shell
    ignores stays ignored.

    `resumes`: whether the same command, given again, continues; the message says so.
    """
    signals: list[int] = []

    def handle(number: int, frame: object) -> None:
        signals.append(number)
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handle)
    with ConsoleProgress(console) as tell:
        progress.set(tell)
        try:
            yield tell
        except KeyboardInterrupt as interrupt:
            progress_so_far = f": {interrupt}" if str(interrupt) else ""
            rest = "; the same command continues from here" if resumes else ""
            tell.line(f"interrupted{progress_so_far}{rest}")
            raise SystemExit(128 + signals[0]) from None
