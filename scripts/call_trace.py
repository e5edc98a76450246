"""Print the call path from `rtl-distill train demo` to the sandbox of the first answer of a train step.

    python -m scripts.call_trace

The demo runs in a temporary folder and ends when the first answer reaches a sandbox. The script prints the
project's functions on the call stack at that moment, outermost first, including the stacks from which
threads and asyncio tasks were started. The sandbox's own code is not traced. Exits with 1 above `MOST`
functions.
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

from rtl_grader.grading import analysis

ROOT = Path(__file__).parents[1]
MOST = 26
"""Maximum number of functions between the command and the sandbox."""
original_ask = analysis.ask
CallPath = tuple[CodeType, ...]
caller: contextvars.ContextVar[CallPath] = contextvars.ContextVar("caller", default=())
"""Call path that started the current thread or task."""


def call_path(frame: FrameType | None) -> CallPath:
    """The project's functions from the command down to `frame`, each once."""
    here: list[CodeType] = []
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if (
            file.is_relative_to(ROOT)
            and not file.is_relative_to(ROOT / ".venv")
            and file != Path(__file__)
        ):
            here.append(frame.f_code)
        frame = frame.f_back
    return tuple(dict.fromkeys((*caller.get(), *reversed(here))))


def with_caller(path: CallPath, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it runs with `path` as its caller."""

    def run(*args: Any, **kwargs: Any) -> Any:
        caller.set(path)
        return function(*args, **kwargs)

    return run


def trace_callers() -> None:
    """Patch threads, pools and asyncio so that they record the call path that started them."""
    create_task, submit = (
        asyncio.BaseEventLoop.create_task,
        concurrent.futures.ThreadPoolExecutor.submit,
    )
    start = threading.Thread.start

    def traced_task(loop: Any, coroutine: Any, **kwargs: Any) -> Any:
        context = kwargs.pop("context", None) or contextvars.copy_context()
        context.run(caller.set, call_path(sys._getframe(1)))
        return create_task(loop, coroutine, context=context, **kwargs)

    def traced_submit(
        pool: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        return submit(pool, with_caller(call_path(sys._getframe(1)), function), *args, **kwargs)

    def traced_start(thread: threading.Thread) -> None:
        thread.run = with_caller(call_path(sys._getframe(1)), thread.run)  # type: ignore[method-assign]
        start(thread)

    asyncio.BaseEventLoop.create_task = traced_task  # type: ignore[assignment,method-assign]
    concurrent.futures.ThreadPoolExecutor.submit = traced_submit  # type: ignore[assignment,method-assign]
    threading.Thread.start = traced_start  # type: ignore[method-assign]


def print_path(agent: Any, message: dict[str, Any], patience_s: float) -> Any:
    """Print the call path and exit when the first answer of a train step reaches a sandbox; forward all
    other requests."""
    path = call_path(sys._getframe(1))
    if not any(code.co_qualname.startswith("prepare_step") for code in path):
        return original_ask(agent, message, patience_s)
    for number, code in enumerate(path, 1):
        place = f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_firstlineno}"
        print(f"{number:3}  {code.co_qualname:<45} {place}", flush=True)
    os._exit(1 if len(path) > MOST else 0)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        from rtl_distill.cli import main as command

        trace_callers()
        analysis.ask = print_path  # type: ignore[assignment]
        sys.argv = ["rtl-distill", "train", "demo"]
        command()


if __name__ == "__main__":
    main()
