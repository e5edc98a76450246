"""Sends the metrics of a run to Weights & Biases, through its own library.

Metrics are read from the history, from the first step that was not sent, so a run that crashed between
recording and sending, or was offline, leaves no gap. Nothing waits for it: it works on a thread, and logs
once if the service refuses or is unreachable.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rtl_core.config import RunConfig
from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.types.tell import Tell

PATIENCE_S = 30.0
"""Seconds that the end of a run waits for the last metrics to be sent."""
START_S = 600.0
"""Seconds that wandb's own process may take to start. Its default of 30 s is too short for a busy machine,
and nothing waits for it."""


class Tracker:
    """Sends the metrics of a run's recorded steps, in order and each once; without a project it does nothing.

    `tell` receives messages about metrics that could not be sent. Raises ConfigError when a project is
    configured and wandb is not installed.
    """

    def __init__(self, history: History, config: RunConfig, tell: Tell) -> None:
        self._history, self._config = history, config
        self._sent_path = config.run.folder / "wandb.sent"
        self._work = threading.Event()
        self._closing = False
        self._tell = tell
        self._thread: threading.Thread | None = None
        if config.tracking.wandb_project is None:
            return
        try:
            import wandb
        except ImportError as error:
            raise ConfigError(
                "tracking.wandb_project is set and wandb is not installed",
                "pip install 'rtl-distill[wandb]'",
            ) from error
        self._wandb: Any = wandb
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()
        self._work.set()

    def recorded(self) -> None:
        """Send what is new: a step was recorded."""
        self._work.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing = True
        self._work.set()
        # A cancelled run does not wait; the next start sends what is missing.
        if self._thread is not None and (kind is None or issubclass(kind, Exception)):
            self._thread.join(PATIENCE_S)
            if self._thread.is_alive():
                self._tell(
                    f"not all metrics reached Weights & Biases within {PATIENCE_S:.0f} s; run the "
                    "same command to send the rest"
                )

    def _run(self) -> None:
        try:
            self._send_all()
        except Exception as error:
            self._tell(
                f"metrics are no longer sent to Weights & Biases: {type(error).__name__}: {error}"
            )

    def _send_all(self) -> None:
        section = self._config.run
        self._wandb.setup(self._wandb.Settings(x_service_wait=START_S))
        run = self._wandb.init(
            project=self._config.tracking.wandb_project,
            id=section.name,
            name=section.name,
            resume="allow",
            dir=str(self._config.run.folder),
            config=self._config.model_dump(mode="json"),
            settings=self._wandb.Settings(
                silent=True, console="off", disable_git=True, init_timeout=START_S
            ),
        )
        while True:
            self._work.wait()
            self._work.clear()
            closing = self._closing
            for step, metrics in self._history.step_metrics(
                section.name, _read(self._sent_path) + 1
            ).items():
                run.log(metrics, step=step + 1)
                self._sent_path.write_text(f"{step}\n")
            if closing:
                run.finish()
                # Without this an offline run (WANDB_MODE=offline) may end before its files are written.
                self._wandb.teardown()
                return


def _read(path: Path) -> int:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return -1
