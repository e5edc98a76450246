"""Print the way of a call: the functions between `rtl-distill train demo` and the sandbox of the first answer of a train step.

    python -m scripts.call_trace

The demo starts in a temporary folder and ends when the first answer reaches a sandbox. Printed are the functions of the project on
the stack of that moment, outermost first: of the thread that asks the sandbox and, where that thread or its asyncio task was given its
work, of whoever gave it. The sandbox's own code is not followed. Exits with 1 above `MOST` functions.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from rtl_core.grading import analysis

ROOT = Path(__file__).parents[1]
MOST = 30
"""No more functions than this may lie between the command and the sandbox."""
ask = analysis.ask
Way = tuple[CodeType, ...]
given: contextvars.ContextVar[Way] = contextvars.ContextVar("given", default=())
"""The way to whoever gave the work that now runs in this context."""


def way(frame: FrameType | None) -> Way:
    """The project's functions from the command down to `frame`, each once."""
    here: list[CodeType] = []
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(ROOT) and not file.is_relative_to(ROOT / ".venv") and file != Path(__file__):
            here.append(frame.f_code)
        frame = frame.f_back
    return tuple(dict.fromkeys((*given.get(), *reversed(here))))


def within(ancestry: Way, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` as work that was given on `ancestry`."""

    def run(*args: Any, **kwargs: Any) -> Any:
        given.set(ancestry)
        return call(*args, **kwargs)

    return run


def follow() -> None:
    """Let threads, pools and asyncio tasks know who gave them their work."""
    create_task, submit, start = (
        asyncio.BaseEventLoop.create_task,
        concurrent.futures.ThreadPoolExecutor.submit,
        threading.Thread.start,
    )

    def task(loop: Any, coroutine: Any, **kwargs: Any) -> Any:
        context = kwargs.pop("context", None) or contextvars.copy_context()
        context.run(given.set, way(sys._getframe(1)))
        return create_task(loop, coroutine, context=context, **kwargs)

    def submitted(pool: Any, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return submit(pool, within(way(sys._getframe(1)), call), *args, **kwargs)

    def started(thread: threading.Thread) -> None:
        thread.run = within(way(sys._getframe(1)), thread.run)  # type: ignore[method-assign]
        start(thread)

    asyncio.BaseEventLoop.create_task = task  # type: ignore[assignment,method-assign]
    concurrent.futures.ThreadPoolExecutor.submit = submitted  # type: ignore[assignment,method-assign]
    threading.Thread.start = started  # type: ignore[method-assign]


def asked(agent: Any, message: dict[str, Any], patience_s: float) -> Any:
    """Print the way and end the process when the first answer of a train step reaches a sandbox; ask for all others."""
    found = way(sys._getframe(1))
    if not any(code.co_qualname.startswith("prepare_step") for code in found):
        return ask(agent, message, patience_s)
    for number, code in enumerate(found, 1):
        print(
            f"{number:3}  {code.co_qualname:<45} {Path(code.co_filename).relative_to(ROOT)}:{code.co_firstlineno}",
            flush=True,
        )
    os._exit(1 if len(found) > MOST else 0)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["PREFECT_HOME"] = f"{folder}/prefect"
        from rtl_distill.cli import main as command

        follow()
        analysis.ask = asked  # type: ignore[assignment]
        sys.argv = ["rtl-distill", "train", "demo"]
        command()


if __name__ == "__main__":
    main()
